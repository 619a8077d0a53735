package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"stint/memory"
)

const lessonsHelp = `The lessons of a workspace are what earlier tasks have left for later ones: dated
lines of a note (self_eval_memory_path) that the memory search finds. You may edit it.`

func (a *app) lessonsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "lessons",
		Short:   "list, show or remove what earlier tasks have taught",
		Long:    lessonsHelp,
		Example: "  stint lessons ls\n  stint lessons rm 5f2c81aa",
	}
	c.AddCommand(a.lessonsLsCommand(), a.lessonsShowCommand(), a.lessonsRmCommand())
	return c
}

// lessonsPath returns the note with the lessons.
func lessonsPath(c *Config) string {
	if c.SelfEvalMemoryPath == "" {
		return memory.DefaultLessons // where they stood before lessons were turned off
	}
	return c.SelfEvalMemoryPath
}

// A shownLesson is a lesson as --json prints it.
type shownLesson struct {
	memory.Lesson
	Path string `json:"path"` // of the note
}

// lessons returns a workspace, its note with the lessons, and what is in it.
func (a *app) lessons(o *noteOptions) (dir, name string, list []memory.Lesson, err error) {
	dir, cfg, err := o.directory(a)
	if err != nil {
		return "", "", nil, err
	}
	name = lessonsPath(cfg)
	list, err = memory.Lessons(dir, name)
	return dir, name, list, err
}

func (a *app) lessonsLsCommand() *cobra.Command {
	o := &noteOptions{}
	var quiet bool
	c := &cobra.Command{
		Use:     "ls [OPTIONS]",
		Short:   "list the lessons",
		Example: "  stint lessons ls --json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.listLessons(o, quiet) },
	}
	o.directoryFlag(c)
	quietFlag(c, &quiet)
	jsonFlag(c, &o.json)
	return c
}

func (a *app) listLessons(o *noteOptions, quiet bool) error {
	_, name, list, err := a.lessons(o)
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "DATE", "SOURCE", "LESSON"}}
	var ids strings.Builder
	shown := []shownLesson{}
	for _, l := range list {
		rows = append(rows, []string{l.ID, l.Date, l.Source, l.Text})
		ids.WriteString(l.ID + "\n")
		shown = append(shown, shownLesson{l, name})
	}
	switch {
	case o.json:
		return printEach(a.stdout, shown)
	case quiet:
		return printText(a.stdout, ids.String())
	case len(list) == 0:
		a.hint("stint: there are no lessons in %s\n", escapeText(name))
		return nil
	}
	return writeTable(a.stdout, escapeRows(rows), nil)
}

func (a *app) lessonsShowCommand() *cobra.Command {
	o := &noteOptions{}
	c := &cobra.Command{
		Use:     "show [OPTIONS] ID",
		Short:   "print a lesson, and where it stands",
		Example: "  stint lessons show 5f2c81aa",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, name, list, err := a.lessons(o)
			if err != nil {
				return err
			}
			l, err := memory.Find(list, args[0])
			if err != nil {
				return lessonError(err)
			}
			return a.printLesson(o, name, l)
		},
	}
	o.directoryFlag(c)
	jsonFlag(c, &o.json)
	c.ValidArgsFunction = a.completeLessons(o)
	return c
}

func (a *app) lessonsRmCommand() *cobra.Command {
	o := &noteOptions{}
	c := &cobra.Command{
		Use:     "rm [OPTIONS] ID",
		Short:   "take a lesson out of the note, and print it",
		Example: "  stint lessons rm 5f2c81aa",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, cfg, err := o.directory(a)
			if err != nil {
				return err
			}
			gone, err := memory.RemoveLesson(dir, lessonsPath(cfg), args[0])
			if err != nil {
				return lessonError(err)
			}
			return a.printLesson(o, lessonsPath(cfg), gone)
		},
	}
	o.directoryFlag(c)
	jsonFlag(c, &o.json)
	c.ValidArgsFunction = a.completeLessons(o)
	return c
}

// lessonError returns an error with the exit code that it has.
func lessonError(err error) error {
	if errors.Is(err, memory.ErrNoLesson) {
		return &cliError{code: exitNotFound, err: err, message: "the lesson is not known", try: "stint lessons ls"}
	}
	return err
}

func (a *app) printLesson(o *noteOptions, name string, l memory.Lesson) error {
	if o.json {
		return printJSON(a.stdout, shownLesson{l, name})
	}
	d := &description{}
	d.line("id", l.ID)
	d.line("note", fmt.Sprintf("%s:%d", name, l.Line))
	d.line("date", l.Date)
	d.line("source", l.Source)
	d.line("lesson", l.Text)
	return printText(a.stdout, d.String())
}

// completeLessons offers the ids of the lessons.
func (a *app) completeLessons(o *noteOptions) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) (ids []string, _ cobra.ShellCompDirective) {
		_, _, list, err := a.lessons(o)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, l := range list {
			ids = append(ids, l.ID+"\t"+escapeText(l.Text))
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
