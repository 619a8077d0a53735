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
	"prompts", "memory", "sessions", "ledger", "recovery", "agents", "accounts", "limits", "schedules", "jobs", "http", "postgres", "shared", "operations", "configuration", "security", "exit-codes", "scripting",
}

// topics returns the manual.
func topics() (all []wire.Topic) {
	for _, name := range topicNames {
		text, _ := topicFiles.ReadFile("help/" + name + ".md") // it is embedded; a test reads each
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
			text := "`stint help TOPIC` shows a part of the manual:\n\n```\n"
			for _, t := range topics() {
				text += fmt.Sprintf("%-13s  %s\n", t.Name, t.Title)
			}
			return a.printMarkdown([]byte(text + "```\n\n`stint help COMMAND` shows the options of a command, `stint --help` lists the commands.\n"))
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
	}, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return topicNames, cobra.ShellCompDirectiveNoFileComp
	})
}

// printMarkdown prints Markdown as text that fits the terminal, at most 80 columns wide.
func (a *app) printMarkdown(src []byte) error {
	_, err := io.WriteString(a.stdout, plainText(src, min(cmp.Or(terminalWidth(a.stdout), 80), 80)))
	return err
}

var (
	blockMark = lazy.Regexp(`^ *(- |[0-9]+\. |#+ |)`)
	topicLink = lazy.Regexp(`\[([^]]*)\]\(([a-z-]+)\.md\)`)
)

// plainText returns the Markdown of the manual as lines for a terminal of that width, at least 40: headings, paragraphs, lists, and
// code between fences, which is never wrapped. Links to topics become commands; all other marks stay.
func plainText(src []byte, width int) string {
	var lines []string
	mark, block, isCode := "", "", false
	end := func() { // of a block that is no code
		for _, line := range wrap(topicLink().ReplaceAllString(block, "$1 (stint help $2)"), max(width, 40)-len(mark)) {
			if line != "" {
				lines = append(lines, mark+line)
			}
			mark = strings.Repeat(" ", len(mark))
		}
		block = ""
	}
	for line := range strings.SplitSeq(strings.TrimSpace(string(src)), "\n") {
		begin := blockMark().FindString(line)
		switch isFence := strings.HasPrefix(strings.TrimSpace(line), "```"); {
		case isFence:
			end()
			isCode = !isCode
		case isCode:
			lines = append(lines, strings.TrimRight("    "+line, " "))
		case line == "":
			end()
			lines = append(lines, "")
		case block == "" || strings.TrimSpace(begin) != "":
			end()
			mark, block = begin, line[len(begin):]
		default:
			block += " " + line
		}
	}
	end()
	return strings.Join(lines, "\n") + "\n"
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

// manCommand writes the manual pages: stint-COMMAND.1 and stint-TOPIC.7.
func (a *app) manCommand() *cobra.Command {
	return command("man DIR", "write the manual pages, of commands and topics, into a directory", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		dir := args[0]
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return &cliError{code: exitUsage, message: "cannot make " + dir, err: plainError(err), try: "stint man DIR, with a directory that you may write"}
		}
		if err := writeManual(dir, c.Root()); err != nil {
			return err
		}
		for _, t := range topics() {
			_, text, _ := bytes.Cut(t.Markdown, []byte("\n"))
			if err := writeManPage(dir, "stint-"+t.Name, '7', t.Title, plainText(text, 80)); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintln(a.stdout, dir)
		return err
	})
}

// writeManual writes the page of a command, and of those below it: what --help says.
func writeManual(dir string, c *cobra.Command) error {
	var text bytes.Buffer
	c.InitDefaultHelpFlag()
	c.SetOut(&text)
	err := errors.Join(c.Help(), writeManPage(dir, strings.ReplaceAll(c.CommandPath(), " ", "-"), '1', c.Short, text.String()))
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && err == nil {
			err = writeManual(dir, sub)
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
