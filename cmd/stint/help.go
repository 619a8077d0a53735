package main

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
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
	"prompts", "sessions", "ledger", "recovery", "agents", "limits", "http", "postgres", "configuration", "security", "exit-codes", "scripting",
}

// topic returns the Markdown of a topic.
func topic(name string) []byte {
	text, err := fs.ReadFile(topicFiles, path.Join("help", name+".md"))
	if err != nil {
		panic(err) // it is embedded; a test reads each
	}
	return text
}

// topicTitle returns what a topic is about: its first line, after the colon.
func topicTitle(name string) string {
	line, _, _ := strings.Cut(string(topic(name)), "\n")
	_, title, _ := strings.Cut(line, ": ")
	return title
}

// topics returns the manual, for the page.
func topics() (all []wire.Topic) {
	for _, name := range topicNames {
		all = append(all, wire.Topic{Name: name, Title: topicTitle(name), Markdown: topic(name)})
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
			if len(args) == 1 && slices.Contains(topicNames, args[0]) {
				return a.printMarkdown(topic(args[0]))
			}
			if cmd, rest, err := c.Root().Find(args); err == nil && len(rest) == 0 && cmd != c.Root() {
				cmd.InitDefaultHelpFlag()
				return cmd.Help()
			}
			name := shown(strings.Join(args, " "))
			try := "stint help"
			known := slices.Clone(topicNames)
			for _, cmd := range c.Root().Commands() {
				known = append(known, cmd.Name())
			}
			if near := state.Nearest(name, known); near != "" {
				try += " " + near
			}
			return usage(try, "there is no topic and no command %q", clip(name, 40))
		},
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, name := range topicNames {
				names = append(names, name+"\t"+topicTitle(name))
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

// printTopics prints the list of topics.
func (a *app) printTopics() error {
	var b strings.Builder
	b.WriteString("`stint help TOPIC` shows a part of the manual:\n\n| topic | what it is about |\n|---|---|\n")
	for _, name := range topicNames {
		fmt.Fprintf(&b, "| %s | %s |\n", name, topicTitle(name))
	}
	b.WriteString("\n`stint help COMMAND` shows the options of a command, `stint --help` lists the commands.\n")
	return a.printMarkdown([]byte(b.String()))
}

// printMarkdown prints Markdown as text that fits the terminal, at most 80 columns wide.
func (a *app) printMarkdown(src []byte) error {
	width := 80
	if n := terminalWidth(a.stdout); n > 0 {
		width = min(n, width)
	}
	_, err := fmt.Fprint(a.stdout, renderText(src, width, isColoured(a.stdout)))
	return err
}
