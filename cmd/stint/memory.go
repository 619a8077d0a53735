package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"stint/memory"
)

func (a *app) memoryCommand() *cobra.Command {
	search := a.takesText("search [OPTIONS] PROMPT", "print what an agent would get from the notes, and why", func(ctx context.Context, dir string, cfg *Config, text string) error {
		found, err := searchAll(ctx, cfg, dir, text)
		if err != nil {
			return err
		}
		if len(found.Hits) == 0 && !a.json {
			a.hint("stint: no line of the notes fits; add one with: stint memory add \"TEXT\"\n")
		}
		return a.print(found, describeMemory(&found))
	})
	var file string
	add := a.takesText("add [OPTIONS] TEXT", "add a dated line to a note", func(_ context.Context, dir string, cfg *Config, text string) error {
		name, err := noteFor(cfg, file)
		if err != nil {
			return err
		}
		l := memory.NewLesson(text, "", time.Now())
		switch n := utf8.RuneCountInString(strings.TrimSpace(text)); {
		case l.Text == "":
			return usage("stint memory add \"TEXT\"", "there is no text to add")
		case n > memory.MaxLesson:
			return usage("stint memory add, once for each thing to know", "the text has %d characters; a line of a note has at most %d", n, memory.MaxLesson)
		}
		if err := memory.AddNote(dir, name, l); err != nil {
			return err
		}
		return a.print(shownNote{name, l}, name+" "+l.String())
	})
	add.Flags().StringVar(&file, "file", "", "the note, a `path` below the workspace")
	return group(command("memory", "search a workspace's notes as for a task, or add a line", nil, nil), search, add)
}

// inWorkspace returns the workspace that -C names, and the configuration that holds in it.
func (a *app) inWorkspace(option string) (dir string, cfg *Config, err error) {
	if cfg, err = a.base(); err == nil {
		dir, err = workspace(option, cfg.WorkspaceRoot)
	}
	if err != nil {
		return "", nil, err
	}
	return dir, cfg.forWorkspace(dir), nil
}

func directoryFlag(c *cobra.Command, dir *string) {
	c.Flags().StringVarP(dir, "directory", "C", "", "the workspace's `directory`")
}

// takesText returns a command with a text, which is an argument, stdin or a file: do gets it,
// with the workspace and the configuration that holds there.
func (a *app) takesText(use, short string, do func(ctx context.Context, dir string, cfg *Config, text string) error) *cobra.Command {
	var option string
	c := command(use, short, cobra.MinimumNArgs(1), func(c *cobra.Command, args []string) error {
		text, err := a.readPrompt(args, c.ArgsLenAtDash() == 0, false)
		if err != nil {
			return err
		}
		dir, cfg, err := a.inWorkspace(option)
		if err != nil {
			return err
		}
		return do(c.Context(), dir, cfg, text)
	})
	directoryFlag(c, &option)
	return a.withJSON(c)
}

// describeMemory returns what was found and why.
func describeMemory(found *memory.Result) string {
	var b strings.Builder
	weights := map[string]string{}
	var terms []string
	for _, t := range found.Terms {
		weights[t.Text] = fmt.Sprintf("%s %.2f", t.Text, t.Weight)
		terms = append(terms, fmt.Sprintf("%s (%s)", weights[t.Text], count(t.Lines, "line")))
	}
	for _, h := range found.Hits {
		var has []string
		for _, t := range h.Terms {
			has = append(has, weights[t])
		}
		fmt.Fprintf(&b, "%s\n  score %.2f: %s\n  hash %s\n", oneLine(h.String()), h.Score, strings.Join(has, ", "), h.Hash)
	}
	d := &description{}
	d.line("terms", strings.Join(terms, ", "))
	d.line("searched", strings.TrimSuffix(count(found.Notes, "file")+" with "+found.Engine, " with "))
	d.line("partial", found.Partial)
	for _, s := range found.Skipped {
		d.line("skipped", s.Path+": "+s.Why)
	}
	for _, h := range found.Archived {
		d.line("archived", oneLine(h.String()))
	}
	return b.String() + d.String()
}

// noteFor returns the note that a line is added to.
func noteFor(cfg *Config, option string) (string, error) {
	if option != "" {
		name := filepath.ToSlash(filepath.Clean(option))
		switch ext := strings.ToLower(filepath.Ext(name)); {
		case !filepath.IsLocal(option):
			return "", usage("stint memory add --file PATH, below the workspace", "%q is not inside the workspace", option)
		case ext != ".md" && ext != ".txt" || strings.HasPrefix(name, ".git/") || strings.Contains(name, "/.git/"):
			return "", usage("stint memory add --file NOTE.md", "%q is no note: neither a Markdown nor a text file", option)
		}
		return name, nil
	}
	for _, p := range notePaths(cfg) {
		if !strings.ContainsAny(p, "*?[") && strings.EqualFold(filepath.Ext(p), ".md") && filepath.IsLocal(p) {
			return filepath.ToSlash(filepath.Clean(p)), nil
		}
	}
	return "", usage("stint memory add --file PATH", "memory_paths names no Markdown file that a line could be added to")
}

// searchAll searches the notes of a workspace and, apart, its archive.
func searchAll(ctx context.Context, cfg *Config, workspace, text string) (memory.Result, error) {
	c := cfg.forWorkspace(workspace)
	s := &memory.Searcher{Paths: notePaths(c), Lessons: c.LessonsPath, MaxHits: c.MaxMemoryHits, MaxChars: c.MaxMemoryChars, Ripgrep: "rg", Now: time.Now()}
	found, err := s.Search(ctx, workspace, text)
	if err == nil {
		s.Archived = true
		var archived memory.Result
		archived, err = s.Search(ctx, workspace, text)
		found.Archived = archived.Hits
	}
	return found, err
}

// notePaths returns what is searched.
func notePaths(c *Config) []string {
	if len(c.MemoryPaths) == 0 {
		return memory.DefaultPaths
	}
	return c.MemoryPaths
}

func (a *app) lessonsCommand() *cobra.Command {
	var option string
	ls := command("ls [OPTIONS]", "list the lessons", cobra.NoArgs, func(*cobra.Command, []string) error {
		_, name, list, err := a.lessons(option)
		notes := mapped(list, func(l *memory.Lesson) shownNote { return shownNote{name, *l} })
		return printTable(a, notes, err, "there are no lessons in "+name, []string{"ID", "DATE", "SOURCE", "LESSON"}, nil, func(l shownNote) (string, []string) {
			return l.ID, []string{l.ID, l.Date, l.Source, l.Text}
		})
	})
	directoryFlag(ls, &option)
	return group(command("lessons", "list, show or remove the lessons of earlier tasks", nil, nil), a.withJSON(a.withIDs(ls)),
		a.lessonCommand("show [OPTIONS] ID", "print a lesson, and where it stands", nil), a.lessonCommand("rm [OPTIONS] ID", "take a lesson out of the note, and print it", memory.RemoveLesson))
}

// A shownNote is a line of a note as --json prints it.
type shownNote struct {
	Path string `json:"path"` // of the note
	memory.Lesson
}

// lessons returns a workspace, its note with the lessons, and what is in it.
func (a *app) lessons(option string) (dir, name string, list []memory.Lesson, err error) {
	dir, cfg, err := a.inWorkspace(option)
	if err == nil {
		name = cmp.Or(cfg.LessonsPath, memory.DefaultLessons) // where they stood before lessons were turned off
		list, err = memory.Lessons(dir, name)
	}
	return dir, name, list, err
}

// lessonCommand returns a command that prints a lesson, after it did something to it; nil: nothing.
func (a *app) lessonCommand(use, short string, do func(dir, name, id string) (memory.Lesson, error)) *cobra.Command {
	var option string
	c := command(use, short, cobra.ExactArgs(1), func(_ *cobra.Command, args []string) error {
		dir, name, list, err := a.lessons(option)
		if err != nil {
			return err
		}
		l, err := memory.Find(list, args[0])
		if err == nil && do != nil {
			l, err = do(dir, name, l.ID)
		}
		switch {
		case errors.Is(err, memory.ErrNoLesson):
			return &cliError{code: exitNotFound, err: err, message: "the lesson is not known", try: "stint lessons ls"}
		case err != nil:
			return err
		}
		d := &description{}
		d.line("id", l.ID)
		d.line("note", fmt.Sprintf("%s:%d", name, l.Line))
		d.line("date", l.Date)
		d.line("source", l.Source)
		d.line("lesson", l.Text)
		return a.print(shownNote{name, l}, d.String())
	})
	directoryFlag(c, &option)
	return a.withJSON(c)
}
