package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
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
	"prompts", "memory", "sessions", "worktrees", "ledger", "recovery", "agents", "accounts", "limits", "schedules", "jobs", "http", "postgres", "shared", "operations", "configuration", "security", "exit-codes", "scripting",
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
			text := "`stint help TOPIC` shows a part of the manual:\n\n"
			for _, t := range topics() {
				text += fmt.Sprintf("    %-13s  %s\n", t.Name, t.Title)
			}
			return printText(a.stdout, text+"\n`stint help COMMAND` shows the options of a command, `stint --help` lists the\ncommands.\n")
		}
		name, all := shown(strings.Join(args, " ")), topics()
		if i := slices.Index(topicNames, name); i >= 0 {
			return printText(a.stdout, plainText(all[i].Markdown))
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

// topicLink is a link to a topic.
var topicLink = lazy.Regexp(`\[([^]]*)\]\(([a-z-]+)\.md\)`)

// plainText returns the Markdown of the manual as a terminal shows it, whose lines fit into 80 columns: code between fences is
// indented, links to topics become commands, all other marks stay.
func plainText(src []byte) (text string) {
	isCode := false
	for line := range strings.Lines(topicLink().ReplaceAllString(string(src), "$1 (stint help $2)")) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			isCode = !isCode
		case isCode && line != "\n":
			text += "    " + line
		default:
			text += line
		}
	}
	return text
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
			_, text, _ := bytes.Cut(t.Markdown, []byte("\n\n"))
			if err := writeManPage(dir, "stint-"+t.Name, '7', t.Title, plainText(text)); err != nil {
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
