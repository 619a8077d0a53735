package main

import (
	"context"
	"fmt"
	"time"

	"stint/coordinator"
	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
)

// A master reads its configuration when it starts. Whoever changes the file later is told
// by the next command that lets a task or its verify command run, or would, and by doctor.

// tellConfig says on stderr, once, that the master that was asked last was started with
// another configuration than the file has now.
func (a *app) tellConfig(ctx context.Context) {
	n := a.notice()
	if n == nil || a.quiet || a.toldConfig || !a.isStale(n) {
		return
	}
	a.toldConfig = true
	ctx, cancel := context.WithTimeout(ctx, maxTell)
	defer cancel()
	_ = a.callRunning(func(c *client.Client) error { // who is gone uses no configuration
		h, err := c.Health(ctx)
		if err == nil {
			a.hint("stint: the master (pid %d) %s: %s\n", h.PID, a.staleText(&h), restart(&h))
		}
		return err
	})
}

// isStale reports whether a master was started with another configuration.
func (a *app) isStale(n *wire.Notice) bool {
	cfg, err := a.base()
	return err == nil && n.Config != "" && n.Config != cfg.digest()
}

func (a *app) staleText(h *coordinator.Health) string {
	cfg, err := a.base()
	if err != nil {
		return ""
	}
	start := h.Start.Local()
	at := start.Format(time.TimeOnly)
	if start.Format(time.DateOnly) != time.Now().Format(time.DateOnly) {
		at = start.Format(time.DateTime)
	}
	return fmt.Sprintf("still uses the configuration of %s; to use %s as it is now", at, cfg.file)
}

// restart gives the command that ends a master so that the next one starts anew; tasks
// are kept.
func restart(h *coordinator.Health) string {
	if h.Background {
		return fmt.Sprintf("kill %d", h.PID)
	}
	return fmt.Sprintf("kill %d, then stint serve", h.PID)
}
