package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/notify"
	"stint/state"
)

func (a *app) notifyCommand() *cobra.Command {
	test := command("test", "send a test message to each destination", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		cfg, err := a.base()
		if err != nil {
			return err
		}
		if len(cfg.Notify) == 0 {
			return usage("stint help configuration", "the configuration has no [[notify]] block")
		}
		e, failed := notify.Event{Event: notify.Done, Time: time.Now().UTC(), Text: "this is a test of stint notify", Test: true}, 0
		for i := range cfg.Notify {
			b := &cfg.Notify[i]
			var lines []string
			for _, to := range b.Destinations(os.Environ(), readSecret) {
				result := "ok"
				if err := to.Deliver(c.Context(), e, 1); err != nil {
					result, failed = "failed: "+err.Error(), failed+1
				}
				lines = append(lines, to.Name+": "+result)
			}
			switch {
			case b.Terminal == "":
			case a.ringBy(b, &e):
				lines = append(lines, "terminal "+b.Terminal+": ok")
			default:
				lines = append(lines, "terminal "+b.Terminal+": not here: stderr is no terminal")
			}
			if err := printText(a.stdout, escapeText(strings.Join(lines, "\n"))); err != nil {
				return err
			}
		}
		if failed > 0 {
			return &cliError{code: exitFailure, message: fmt.Sprintf("%s could not be delivered; correct [[notify]] in %s", count(failed, "message"), cfg.file), try: "stint config edit"}
		}
		return nil
	})
	return group(command("notify", "try the notifications", nil, nil), a.noRun(test))
}

// ring notifies whoever waits at the terminal that a task has ended.
func (a *app) ring(t *state.Task) {
	cfg, err := a.base()
	e := notify.EventOf(t)
	if err != nil || e == nil {
		return
	}
	for i := range cfg.Notify {
		if b := &cfg.Notify[i]; b.Terminal != "" && b.Kind(e) != "" && a.ringBy(b, e) {
			return // once is enough
		}
	}
}

// ringBy rings the bell, or has the terminal show a message, and reports whether there is one.
func (a *app) ringBy(b *notify.Block, e *notify.Event) bool {
	if !isTTY(a.stderr) {
		return false
	}
	ring := "\a"
	if b.Terminal == "osc9" {
		shown := *e
		if !b.Prompt {
			shown.Title = ""
		}
		ring = "\x1b]9;stint: " + shown.Line() + "\a"
	}
	_, _ = fmt.Fprint(a.stderr, ring) // nothing is left to do about a broken terminal
	return true
}
