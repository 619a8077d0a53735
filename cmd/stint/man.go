package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cpuguy83/go-md2man/v2/md2man"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"stint/coordinator/api/wire"
)

// manCommand writes the manual pages: stint-COMMAND.1 and stint-TOPIC.7.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "write the manual pages, of commands and topics, into a directory",
		Long: `Write the manual pages into DIR, which is made if it is missing: stint.1 and
stint-COMMAND.1 for the commands, stint-TOPIC.7 for the topics of stint help.`,
		Example: "  stint man ~/.local/share/man/man1\n  man stint-task",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			dir := args[0]
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return &cliError{code: exitUsage, message: "cannot make " + dir, err: plainError(err), try: "stint man DIR, with a directory that you may write"}
			}
			c.Root().DisableAutoGenTag = true // the same program writes the same pages
			if err := doc.GenManTree(c.Root(), &doc.GenManHeader{Section: "1", Source: "stint " + versionName(), Manual: "stint"}, dir); err != nil {
				return fmt.Errorf("manual pages: %w", err)
			}
			for _, t := range topics() {
				if err := os.WriteFile(filepath.Join(dir, "stint-"+t.Name+".7"), manPage(&t), 0o644); err != nil {
					return err
				}
			}
			_, err := fmt.Fprintln(a.stdout, dir)
			return err
		},
	}
}

// manPage returns a topic as a manual page of section 7. Its tables are lists: go-md2man makes
// them wider than any terminal.
func manPage(t *wire.Topic) []byte {
	_, text, _ := bytes.Cut(t.Markdown, []byte("\n"))
	w := &textWriter{src: text, width: 80, plain: true}
	head := fmt.Sprintf("%% \"STINT-%s\" \"7\" \"\" \"stint %s\" \"stint\"\n# NAME\nstint-%s - %s\n\n# DESCRIPTION\n", strings.ToUpper(t.Name), versionName(), t.Name, t.Title)
	return md2man.Render([]byte(head + w.text()))
}
