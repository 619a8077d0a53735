package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"stint/coordinator"
	"stint/coordinator/api/client"
	"stint/ledger"
)

func (a *app) pauseCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "pause [OPTIONS] [REASON]",
		Short: "start no more tasks until resume; those at work go on",
		Long: `Start no more tasks until stint resume, also after a restart. Tasks at work go on,
and new ones are queued. The reason is shown with what waits.`,
		Example: `  stint pause "moving to the new disk"
  stint resume`,
		RunE: func(c *cobra.Command, args []string) error {
			reason := strings.Join(args, " ")
			return a.setPaused(c.Context(), true, asJSON,
				func(cl *client.Client) error { return cl.Pause(c.Context(), reason) },
				func(m *coordinator.Coordinator) error { return m.Pause(c.Context(), reason, ledger.ByClient) })
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

func (a *app) resumeCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "resume [OPTIONS]",
		Short:   "start tasks again after pause",
		Example: "  stint resume",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.setPaused(c.Context(), false, asJSON,
				func(cl *client.Client) error { return cl.Resume(c.Context()) },
				func(m *coordinator.Coordinator) error { return m.Resume(c.Context(), ledger.ByClient) })
		},
	}
	jsonFlag(c, &asJSON)
	return c
}

// setPaused pauses or resumes dispatch by a master, or in its state directory
// where none is to run, and says so.
func (a *app) setPaused(ctx context.Context, paused, asJSON bool, ask func(*client.Client) error, do func(*coordinator.Coordinator) error) error {
	if err := a.withCoordinator(ctx, ask, do); err != nil {
		return err
	}
	if !paused {
		a.tellConfig(ctx)
	}
	if asJSON {
		return printJSON(a.stdout, map[string]bool{"paused": paused})
	}
	text := "dispatch goes on"
	if paused {
		text = "paused: no task is started until stint resume"
	}
	_, err := fmt.Fprintln(a.stdout, text)
	return err
}

// tellPaused says on stderr that nothing is started, or next to nothing, if the last
// answer said so.
func (a *app) tellPaused() {
	if n := a.notice(); n != nil {
		a.tellPause(n.Paused, n.PauseWhy)
		if n.Shortage != "" {
			a.hint("stint: %s; until that is over, one task at a time is tried\n", escapeText(oneLine(n.Shortage)))
		}
	}
}

func (a *app) tellPause(paused bool, why string) {
	if paused {
		a.hint("stint: %s; to go on: stint resume\n", escapeText(because("dispatch is paused", oneLine(why))))
	}
}
