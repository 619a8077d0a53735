package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/state"
)

func (a *app) sessionCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "session",
		Short:   "list sessions, show a transcript or what waits",
		Example: "  stint session ls\n  stint session show web\n  stint session queue web",
	}
	c.AddCommand(a.sessionLsCommand(), a.sessionShowCommand(), a.sessionQueueCommand())
	return c
}

// findSession asks for a session by its key, its id, or the path of a directory: no
// other name has a slash.
func (a *app) findSession(ctx context.Context, ref string) (view wire.SessionView, err error) {
	if ref == "." || ref == ".." || strings.Contains(ref, "/") && !strings.HasPrefix(ref, state.LanePrefixDir) {
		if ref, err = filepath.Abs(ref); err != nil {
			return view, err
		}
		if real, err := filepath.EvalSymlinks(ref); err == nil {
			ref = real // else there may still be a session of it
		}
	}
	err = a.call(ctx, func(c *client.Client) (err error) { view, err = c.Session(ctx, ref); return err })
	return view, err
}

func (a *app) sessionLsCommand() *cobra.Command {
	var asJSON, quiet bool
	c := &cobra.Command{
		Use:     "ls [OPTIONS]",
		Short:   "list sessions",
		Example: "  stint session ls --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx := c.Context()
			var list []state.Session
			err := a.call(ctx, func(c *client.Client) (err error) { list, err = c.Sessions(ctx); return err })
			switch {
			case err != nil:
				return err
			case asJSON:
				return printEach(a.stdout, list)
			}
			rows := [][]string{{"SESSION", "AGENT", "AGENT SESSION", "USED", "LAST TASK"}}
			for _, s := range list {
				if quiet {
					if _, err := fmt.Fprintln(a.stdout, s.ID); err != nil {
						return err
					}
					continue
				}
				rows = append(rows, []string{s.Key, s.Agent, s.Native, ago(time.Since(s.UpdatedAt)) + " ago", shortID(s.LastTask)})
			}
			if quiet {
				return nil
			}
			if len(list) == 0 {
				a.hint("stint: no sessions; begin one with: stint task --session NAME \"PROMPT\"\n")
				return nil
			}
			return writeTable(a.stdout, escapeRows(rows), nil)
		},
	}
	quietFlag(c, &quiet)
	jsonFlag(c, &asJSON)
	return c
}

func (a *app) sessionShowCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "show [OPTIONS] SESSION",
		Short:   "print the transcript of a session",
		Example: "  stint session show web",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			view, err := a.findSession(c.Context(), args[0])
			switch {
			case err != nil:
				return err
			case asJSON:
				return printEach(a.stdout, view.Transcript)
			}
			d := &description{}
			d.line("session", view.Key)
			d.line("id", view.ID)
			d.line("agent", view.Agent)
			d.line("agent session", view.Native)
			d.line("account", view.Account)
			for _, m := range view.Transcript {
				title := m.Role + ", " + localTime(m.TS)
				if m.TaskID != "" {
					title += ", task " + shortID(m.TaskID)
				}
				d.text(title, strings.TrimSpace(m.Text+"\n"+m.Error))
			}
			return printText(a.stdout, d.String())
		},
	}
	jsonFlag(c, &asJSON)
	c.ValidArgsFunction = a.completeSessions
	return c
}

func (a *app) sessionQueueCommand() *cobra.Command {
	var asJSON, quiet bool
	c := &cobra.Command{
		Use:   "queue [OPTIONS] SESSION",
		Short: "list what waits in a session, in the order in which it will run",
		Example: `  stint session queue web
  stint move 2b4f6c8e --first      # reorder it
  stint hold 2b4f6c8e              # let the others pass
  stint edit 2b4f6c8e              # change what is asked
  stint cancel 2b4f6c8e            # take it out`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			a.quiet = quiet
			return a.showQueue(c.Context(), args[0], asJSON, quiet)
		},
	}
	quietFlag(c, &quiet)
	jsonFlag(c, &asJSON)
	c.ValidArgsFunction = a.completeSessions
	return c
}

func (a *app) showQueue(ctx context.Context, ref string, asJSON, quiet bool) error {
	view, err := a.findSession(ctx, ref)
	if err != nil {
		return err
	}
	defer a.tellPaused()
	switch {
	case asJSON:
		return printEach(a.stdout, view.Queue)
	case quiet:
		return printIDs(a.stdout, view.Queue)
	case len(view.Queue) == 0:
		a.hint("stint: nothing waits in %s; add a message with: stint send %s \"PROMPT\"\n", view.Key, ref)
		return nil
	}
	ids := make([]string, len(view.Queue))
	for i, v := range view.Queue {
		ids[i] = v.ID
	}
	rows := [][]string{{"PLACE", "ID", "STATUS", "WHY", "PROMPT"}}
	for i, short := range shortIDs(ids) {
		v := &view.Queue[i]
		rows = append(rows, []string{strconv.Itoa(i + 1), short, statusText(v), v.Why, v.Title})
	}
	fit(rows, terminalWidth(a.stdout))
	return writeTable(a.stdout, escapeRows(rows), nil)
}
