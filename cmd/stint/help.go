package main

import (
	"cmp"
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"stint/coordinator/api/wire"
	"stint/state"
)

// topicFiles is the manual: a file for each topic of `stint help`.
//
//go:embed help/*.md
var topicFiles embed.FS

// topicNames are the topics, in the order of the list.
var topicNames = []string{
	"prompts", "sessions", "ledger", "recovery", "agents", "accounts", "limits", "schedules", "http", "postgres", "configuration", "security", "exit-codes", "scripting",
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
	return &cobra.Command{
		Use:     "help [COMMAND | TOPIC]",
		Short:   "show the manual: a topic, or the options of a command",
		Example: "  stint help\n  stint help recovery\n  stint help task",
		RunE: func(c *cobra.Command, args []string) error {
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
		},
		ValidArgsFunction: func(c *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
			for _, t := range topics() {
				names = append(names, t.Name+"\t"+t.Title)
			}
			for _, cmd := range c.Root().Commands() {
				if cmd.IsAvailableCommand() {
					names = append(names, cmd.Name()+"\t"+cmd.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}

func (a *app) printTopics() error {
	text := "`stint help TOPIC` shows a part of the manual:\n\n| topic | what it is about |\n|---|---|\n"
	for _, t := range topics() {
		text += fmt.Sprintf("| %s | %s |\n", t.Name, t.Title)
	}
	return a.printMarkdown([]byte(text + "\n`stint help COMMAND` shows the options of a command, `stint --help` lists the commands.\n"))
}

// printMarkdown prints Markdown as text that fits the terminal, at most 80 columns wide.
func (a *app) printMarkdown(src []byte) error {
	w := &textWriter{src: src, width: min(cmp.Or(terminalWidth(a.stdout), 80), 80), bold: isColoured(a.stdout)}
	_, err := io.WriteString(a.stdout, w.text())
	return err
}
