package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api"
	"stint/state"
)

func (a *app) sessionCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "session",
		Short:   "list sessions, show a transcript",
		Example: "  stint session ls\n  stint session show web",
	}
	c.AddCommand(a.sessionLsCommand(), a.sessionShowCommand())
	return c
}

func (a *app) sessionLsCommand() *cobra.Command {
	var asJSON, quiet bool
	c := &cobra.Command{
		Use:     "ls [OPTIONS]",
		Short:   "list sessions",
		Example: "  stint session ls --json",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return a.listSessions(c.Context(), asJSON, quiet) },
	}
	quietFlag(c, &quiet)
	jsonFlag(c, &asJSON)
	return c
}

func (a *app) listSessions(ctx context.Context, asJSON, quiet bool) error {
	var list []state.Session
	err := a.call(ctx, func(c *api.Client) (err error) { list, err = c.Sessions(ctx); return err })
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
}

func (a *app) sessionShowCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "show [OPTIONS] SESSION",
		Short:   "print the transcript of a session",
		Example: "  stint session show web",
		Args:    cobra.ExactArgs(1),
		RunE:    func(c *cobra.Command, args []string) error { return a.showSession(c.Context(), args[0], asJSON) },
	}
	jsonFlag(c, &asJSON)
	c.ValidArgsFunction = func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.sessionNames(contextOf(c)), cobra.ShellCompDirectiveNoFileComp
	}
	return c
}

func (a *app) showSession(ctx context.Context, ref string, asJSON bool) error {
	var view api.SessionView
	err := a.call(ctx, func(c *api.Client) (err error) { view, err = c.Session(ctx, ref); return err })
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
}
