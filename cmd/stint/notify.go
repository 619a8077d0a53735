package main

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/notify"
	"stint/state"
)

const notifyHelp = `Send a test message to every [[notify]] block of the configuration, whatever it filters,
and print how each one went. The exit code is 1 if one of them failed. A desktop message
counts as delivered when the system has taken it; nobody can tell whether it was shown.

A running master has the environment and the configuration that it was started with.`

func (a *app) notifyCommand() *cobra.Command {
	var kind string
	test := &cobra.Command{
		Use:     "test [OPTIONS]",
		Short:   "send a test message to each destination",
		Long:    notifyHelp,
		Example: "  stint notify test\n  stint notify test --event failed",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !slices.Contains(notify.Kinds, kind) {
				return usage("stint notify test --help", "--event: %q is not one of %s", kind, strings.Join(notify.Kinds, ", "))
			}
			cfg, err := a.base()
			if err != nil {
				return err
			}
			if len(cfg.Notify) == 0 {
				return usage("stint help configuration", "the configuration has no [[notify]] block")
			}
			e := &notify.Event{Event: kind, Time: time.Now().UTC(), Text: "this is a test of stint notify"}
			s, failed := sender(0), 0
			for i := range cfg.Notify {
				ch := &cfg.Notify[i]
				for _, to := range ch.Destinations() {
					result := "ok"
					if err := s.Deliver(c.Context(), ch, to, e); err != nil {
						result, failed = "failed: "+err.Error(), failed+1
					}
					if err := printText(a.stdout, escapeText(to.Name+": "+result)); err != nil {
						return err
					}
				}
				if ch.Terminal != "" {
					result := "ok"
					if !a.ringBy(ch, e) {
						result = "not here: stderr is no terminal"
					}
					if err := printText(a.stdout, "terminal "+ch.Terminal+": "+result); err != nil {
						return err
					}
				}
			}
			if failed > 0 {
				return &cliError{code: exitFailure, message: fmt.Sprintf("%d of the messages could not be delivered", failed), try: "correct [[notify]] in " + cfg.file}
			}
			return nil
		},
	}
	test.Flags().StringVar(&kind, "event", notify.Done, "`kind` of the event: "+strings.Join(notify.Kinds, ", "))
	complete(test, "event", func() []string { return notify.Kinds })
	c := &cobra.Command{Use: "notify", Short: "try the notifications", Example: "  stint notify test"}
	c.AddCommand(noRun(func(*app) *cobra.Command { return test })(a))
	return c
}

// notifyRetry is how long a master waits before it tries again to deliver a message.
const notifyRetry = time.Second

// sender returns what delivers messages.
func sender(retry time.Duration) notify.Sender {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return notify.Sender{Client: &http.Client{CheckRedirect: stay}, Env: os.Environ(), Retry: retry}
}

// ring tells whoever waits at the terminal that a task has ended.
func (a *app) ring(t *state.Task) {
	cfg, err := a.base()
	e := notify.EventOf(t)
	if err != nil || e == nil {
		return
	}
	for i := range cfg.Notify {
		if c := &cfg.Notify[i]; c.Terminal != "" && c.Wants(e) && a.ringBy(c, e) {
			return // once is enough
		}
	}
}

// ringBy rings the bell, or has the terminal show a message, and reports whether there is one.
func (a *app) ringBy(c *notify.Channel, e *notify.Event) bool {
	if !isTTY(a.stderr) {
		return false
	}
	ring := "\a"
	if c.Terminal == "osc9" {
		shown := *e
		if !c.Prompt {
			shown.Title = ""
		}
		ring = "\x1b]9;stint: " + shown.Line() + "\a"
	}
	_, _ = fmt.Fprint(a.stderr, ring) // nothing is left to do about a broken terminal
	return true
}
