package main

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"stint/coordinator/api/wire"
	"stint/ledger/lazy"
	"stint/state"
)

// topicFiles is the manual: a file for each topic of `stint help`.
//
//go:embed help/*.md
var topicFiles embed.FS

// topicNames are the topics, in the order of the list.
var topicNames = []string{
	"prompts", "memory", "sessions", "ledger", "recovery", "agents", "accounts", "limits", "schedules", "jobs", "http", "postgres", "configuration", "security", "exit-codes", "scripting",
}

// topics returns the manual.
func topics() (all []wire.Topic) {
	for _, name := range topicNames {
		text, err := topicFiles.ReadFile("help/" + name + ".md")
		if err != nil {
			panic(err) // it is embedded; a test reads each
		}
		line, _, _ := strings.Cut(string(text), "\n")
		_, title, _ := strings.Cut(line, ": ")
		all = append(all, wire.Topic{Name: name, Title: title, Markdown: text})
	}
	return all
}

// helpCommand replaces cobra's: it has topics too.
func (a *app) helpCommand() *cobra.Command {
	return command("help [COMMAND | TOPIC]", "show the manual: a topic, or the options of a command", nil, func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return a.printTopics()
		}
		name, all := shown(strings.Join(args, " ")), topics()
		if i := slices.Index(topicNames, name); i >= 0 {
			return a.printMarkdown(all[i].Markdown)
		}
		cmd, rest, err := c.Root().Find(args)
		if err == nil && len(rest) == 0 && cmd != c.Root() {
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		}
		known := slices.Clone(topicNames)
		for _, cmd := range c.Root().Commands() {
			known = append(known, cmd.Name())
		}
		return usage(strings.TrimSpace("stint help "+state.Nearest(name, known)), "there is no topic and no command %q", clip(name, 40))
	}, func(c *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		for _, t := range topics() {
			names = append(names, t.Name+"\t"+t.Title)
		}
		for _, cmd := range c.Root().Commands() {
			if cmd.IsAvailableCommand() {
				names = append(names, cmd.Name()+"\t"+cmd.Short)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

func (a *app) printTopics() error {
	text := "`stint help TOPIC` shows a part of the manual:\n\n```\n"
	for _, t := range topics() {
		text += fmt.Sprintf("%-13s  %s\n", t.Name, t.Title)
	}
	return a.printMarkdown([]byte(text + "```\n\n`stint help COMMAND` shows the options of a command, `stint --help` lists the commands.\n"))
}

// printMarkdown prints Markdown as text that fits the terminal, at most 80 columns wide.
func (a *app) printMarkdown(src []byte) error {
	w := &textWriter{src: src, width: min(cmp.Or(terminalWidth(a.stdout), 80), 80), bold: isColoured(a.stdout)}
	_, err := io.WriteString(a.stdout, w.text())
	return err
}

// A textWriter writes Markdown as lines for a terminal.
type textWriter struct {
	src   []byte
	width int  // columns of a line, at least 40; code is never wrapped
	bold  bool // headings and code are bold, by SGR sequences; else they keep their # and backticks
	lines []string
}

// text returns the Markdown as text.
func (w *textWriter) text() string {
	w.width = max(w.width, 40)
	w.blocks(goldmark.DefaultParser().Parse(text.NewReader(w.src)), "")
	return strings.Join(w.lines, "\n") + "\n"
}

// blocks writes the blocks within n, with an empty line between two of them unless n is an item of a list.
func (w *textWriter) blocks(n ast.Node, indent string) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if c != n.FirstChild() && n.Kind() != ast.KindListItem {
			w.lines = append(w.lines, "")
		}
		switch c := c.(type) {
		case *ast.Heading:
			if w.bold {
				w.wrapped(indent, "", strong(w.inline(c)))
			} else {
				w.wrapped(indent, strings.Repeat("#", c.Level)+" ", w.inline(c))
			}
		case *ast.FencedCodeBlock:
			for line := range strings.Lines(string(c.Lines().Value(w.src))) {
				w.line(indent+"    ", strings.TrimSuffix(line, "\n"))
			}
		case *ast.List:
			number := c.Start
			for item := c.FirstChild(); item != nil; item = item.NextSibling() {
				mark, first := "- ", len(w.lines)
				if c.IsOrdered() {
					mark = fmt.Sprintf("%d. ", number)
					number++
				}
				w.blocks(item, indent+strings.Repeat(" ", len(mark)))
				w.lines[first] = indent + mark + w.lines[first][len(indent+mark):]
			}
		default:
			w.wrapped(indent, "", w.inline(c))
		}
	}
}

func (w *textWriter) line(indent, text string) {
	w.lines = append(w.lines, strings.TrimRight(indent+text, " "))
}

// wrapped writes text in lines, the first one behind a mark.
func (w *textWriter) wrapped(indent, mark, text string) {
	for _, line := range wrap(text, w.width-len(indent+mark)) {
		w.line(indent+mark, line)
		mark = strings.Repeat(" ", len(mark))
	}
}

// inline returns the text within n, in one line.
func (w *textWriter) inline(n ast.Node) (s string) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch text := w.inline(c); c := c.(type) {
		case *ast.Text:
			s += string(c.Value(w.src))
			if c.SoftLineBreak() {
				s += " "
			}
		case *ast.CodeSpan:
			if w.bold {
				s += strong(text)
			} else {
				s += "`" + text + "`"
			}
		case *ast.Link:
			to, isTopic := strings.CutSuffix(string(c.Destination), ".md")
			if isTopic {
				to = "stint help " + to
			}
			s += text + " (" + to + ")"
		default:
			s += text
		}
	}
	return s
}

// wrap breaks text at blanks into lines of at most width columns.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case textWidth(line)+1+textWidth(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

var (
	sgrSequence = lazy.Regexp("\x1b\\[[0-9;]*m")
	anyWord     = lazy.Regexp(`\S+`)
)

// strong returns each word of s in bold, so that lines and cells can end behind any of them.
func strong(s string) string {
	return anyWord().ReplaceAllString(sgrSequence().ReplaceAllString(s, ""), "\x1b[1m$0\x1b[0m")
}

// manCommand writes the manual pages: stint-COMMAND.1 and stint-TOPIC.7.
func (a *app) manCommand() *cobra.Command {
	return command("man DIR", "write the manual pages, of commands and topics, into a directory", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		dir := args[0]
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return &cliError{code: exitUsage, message: "cannot make " + dir, err: plainError(err), try: "stint man DIR, with a directory that you may write"}
		}
		if err := a.writeManual(dir, c.Root()); err != nil {
			return err
		}
		for _, t := range topics() {
			_, text, _ := bytes.Cut(t.Markdown, []byte("\n"))
			if err := writeManPage(dir, "stint-"+t.Name, '7', t.Title, (&textWriter{src: text, width: 80}).text()); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintln(a.stdout, dir)
		return err
	})
}

// writeManual writes the page of a command, and of those below it: what --help says.
func (a *app) writeManual(dir string, c *cobra.Command) error {
	var text bytes.Buffer
	c.InitDefaultHelpFlag()
	c.SetOut(&text)
	err := errors.Join(c.Help(), writeManPage(dir, strings.ReplaceAll(c.CommandPath(), " ", "-"), '1', c.Short, text.String()))
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && err == nil {
			err = a.writeManual(dir, sub)
		}
	}
	return err
}

// writeManPage writes lines of text as a page of the manual. They stay as they are but for headings.
func writeManPage(dir, name string, section rune, title, lines string) error {
	escape := strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'")
	heading := regexp.MustCompile(`(?m)^(?:## (.*)|([A-Z][a-z ]*):)$`)
	text := fmt.Sprintf(".TH %q %c \"\" \"stint %s\" stint\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n.in 0\n%s", strings.ToUpper(name), section, versionName(),
		name, escape.Replace(title), heading.ReplaceAllString(escape.Replace("\n" + lines)[1:], ".SH $1$2\n.nf\n.in 0"))
	return os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s.%c", name, section)), []byte(text), 0o644)
}
