package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/state"
)

// firstProgress is how long a task may take before a line is shown.
const firstProgress = 300 * time.Millisecond

// startProgress shows one line on a terminal while a task is waited for. The
// function that it gives removes the line and ends it.
func (a *app) startProgress(ctx context.Context, id string) (stop func()) {
	one := a.another() // while a finds its way to another master
	return a.drawWhile(ctx, func(ctx context.Context) {
		next := firstProgress
		for pause(ctx, next) == nil {
			next = time.Second
			err := one.callRunning(func(c *client.Client) error {
				view, err := c.Task(ctx, id)
				if err == nil {
					line := progressLine(&view, time.Now(), lastOutput(view.RunDir))
					_, _ = fmt.Fprintf(one.stderr, "\r\x1b[K%s", clip(line, lineWidth(one.stderr)))
				}
				return err
			})
			if err != nil {
				_, _ = fmt.Fprint(one.stderr, "\r\x1b[Kwaiting for a master")
			}
		}
	})
}

// drawWhile lets draw write to a terminal, in a goroutine that the function that it
// gives ends; where stderr is none, nothing is drawn.
func (a *app) drawWhile(ctx context.Context, draw func(context.Context)) (stop func()) {
	if a.quiet || !isTTY(a.stderr) || os.Getenv("TERM") == "dumb" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { draw(ctx) })
	return func() {
		cancel()
		wg.Wait()
		_, _ = fmt.Fprint(a.stderr, "\r\x1b[K") // removes the line
	}
}

// lastOutput returns the time of the agent's last sign of life, zero if there is
// none yet.
func lastOutput(runDir string) (last time.Time) {
	if runDir == "" {
		return last
	}
	for _, name := range []string{"stdout", "stderr"} {
		fi, err := os.Stat(filepath.Join(runDir, name))
		if err == nil && fi.Size() > 0 && fi.ModTime().After(last) {
			last = fi.ModTime()
		}
	}
	return last
}

// progressLine returns what a task does: "running 2m14s · last output 4s ago".
func progressLine(view *wire.TaskView, now, output time.Time) string {
	switch {
	case (view.Status != state.Running || view.Settling) && view.Why != "":
		return escapeText(oneLine(view.Why))
	case view.Status != state.Running:
		return string(view.Status)
	case view.RunStartedAt.IsZero():
		return "running"
	}
	line := doing(&view.Task) + " " + ago(now.Sub(view.RunStartedAt))
	if round := roundOf(&view.Task); round != "" && (view.Phase != "" || view.Iteration > 1) {
		line += ", round " + round
	}
	if !output.IsZero() {
		line += " · last output " + ago(now.Sub(output)) + " ago"
	}
	return line
}

// doing returns what the run of a task carries out.
func doing(t *state.Task) string {
	switch t.Phase {
	case state.PhaseVerify:
		return "verifying"
	case state.PhaseEvaluate:
		return "evaluating"
	}
	return "running"
}

// lineWidth returns the room of one line that must not wrap.
func lineWidth(w any) int {
	if n := terminalWidth(w); n > 20 {
		return n - 1
	}
	return 79 // a terminal that does not know
}
