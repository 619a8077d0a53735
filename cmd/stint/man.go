package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
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
			for _, name := range topicNames {
				if err := os.WriteFile(filepath.Join(dir, "stint-"+name+".7"), manPage(name), 0o644); err != nil {
					return err
				}
			}
			_, err := fmt.Fprintln(a.stdout, dir)
			return err
		},
	}
}

// manPage returns a topic as a manual page of section 7: its text as on a terminal, with
// headings that man knows.
func manPage(name string) []byte {
	_, text, _ := bytes.Cut(topic(name), []byte("\n"))
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 7 \"\" \"stint %s\" stint\n.SH NAME\nstint-%s \\- %s\n.SH DESCRIPTION\n.nf\n", strings.ToUpper("stint-"+name), versionName(), name, topicTitle(name))
	for line := range strings.Lines(renderText(text, 72, false)) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			fmt.Fprintf(&b, ".fi\n.SH %s.nf\n", heading)
			continue
		}
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			b.WriteString(`\&`)
		}
		b.WriteString(roff.Replace(line))
	}
	return b.Bytes()
}

// roff escapes text for troff.
var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", `\(ga`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`)
