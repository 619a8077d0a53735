package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

const (
	firstProgress = 300 * time.Millisecond // how long a task may take before a line is shown
	progressPace  = 30 * time.Second       // between two lines where stderr is no terminal
)

// startProgress shows on stderr what a task does while it is waited for: on a terminal one line
// that is drawn again each second, elsewhere a line now and then. The function that it
// returns removes the line and ends it.
func (a *app) startProgress(ctx context.Context, id string) (stop func()) {
	one := a.another() // while a finds its way to another master
	look := func(ctx context.Context) (view wire.TaskView, err error) {
		err = one.callRunning(func(c *client.Client) (err error) { view, err = c.Task(ctx, id); return err })
		return view, err
	}
	if a.quiet {
		return func() {}
	}
	if !isTTY(a.stderr) || os.Getenv("TERM") == "dumb" {
		return inBackground(ctx, func(ctx context.Context) {
			said := ""
			for pause(ctx, progressPace) == nil {
				view, err := look(ctx)
				if err != nil || view.Status.Terminal() {
					continue
				}
				if line := progressLine(&view, time.Now(), 200); doing(&view) != said {
					one.hint("stint: %s\n", line)
					said = doing(&view)
				}
			}
		})
	}
	return a.drawWhile(ctx, func(ctx context.Context) {
		told := false
		for next := firstProgress; pause(ctx, next) == nil; next = time.Second {
			view, err := look(ctx)
			if err != nil {
				_, _ = fmt.Fprint(one.stderr, "\r\x1b[Kwaiting for a master")
				continue
			}
			if !told && !view.Status.Terminal() {
				told = true
				one.hint("\r\x1b[Kstint: Ctrl-C detaches; task %s goes on\n", shortID(view.ID))
			}
			_, _ = fmt.Fprintf(one.stderr, "\r\x1b[K%s", progressLine(&view, time.Now(), lineWidth(one.stderr)))
		}
	})
}

// doing returns what a task does, on one line, escaped: the step of its run, or why it waits.
func doing(v *wire.TaskView) string {
	switch {
	case (v.Status != state.Running || v.Settling) && v.Why != "":
		return escapeText(oneLine(v.Why))
	case v.Status != state.Running:
		return string(v.Status)
	case v.Event == nil:
		return cmp.Or(phaseOf(&v.Task), "starting")
	case v.Event.Kind == task.LogRun:
		return "working"
	case v.Event.Kind == task.LogRetry:
		return escapeText(oneLine(v.Event.Text))
	case v.Event.State == task.LogStarted || v.Event.Kind == task.LogMessage:
		return escapeText(oneLine(v.Event.Title()))
	}
	return "thinking"
}

// progressLine returns what a task does, in at most width columns: "codex 5f21a9c2 · $ go test
// ./… · 12s · 2m14s · 48.2k tokens". What does not fit is left out, the step last.
func progressLine(v *wire.TaskView, now time.Time, width int) string {
	step := doing(v)
	if v.Status != state.Running || v.Settling || v.RunStartedAt.IsZero() {
		return clip(step, width)
	}
	var ends []string
	if e := v.Event; e != nil && e.State == task.LogStarted {
		ends = append(ends, ago(now.Sub(e.Time)))
	} else if silent := now.Sub(v.LastOutput); !v.LastOutput.IsZero() && silent >= silentAfter {
		ends = append(ends, "silent "+ago(silent))
	}
	ends = append(ends, ago(now.Sub(v.RunStartedAt)))
	used := v.Usage.InputTokens + v.Usage.OutputTokens
	if v.Event != nil {
		used += v.Event.Tokens
	}
	if used > 0 {
		ends = append(ends, tokenCount(used)+" tokens")
	}
	who, end := strings.TrimSpace(v.Agent+" "+shortID(v.ID))+" · ", ""
	if width < 30 {
		who = ""
	}
	least := textWidth(who) + min(12, textWidth(step))
	for _, e := range ends {
		if least+textWidth(end+" · "+e) > width {
			break
		}
		end += " · " + e
	}
	return clip(who+clip(step, width-textWidth(who+end))+end, width)
}

// tokenCount returns a number of tokens in brief: 950, 48.2k, 1.3M.
func tokenCount(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprint(n)
	case n < 1e6:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1e6)
}

// outcomeLine returns how a task ended, on one line: the outcome, how long it took, what it has
// changed, used and found.
func outcomeLine(v *wire.TaskView) string {
	parts := []string{string(v.Status)}
	if !v.StartedAt.IsZero() && v.UpdatedAt.After(v.StartedAt) {
		parts[0] += " in " + task.FormatElapsed(v.UpdatedAt.Sub(v.StartedAt))
	}
	hasChanged := v.Changes.String() != ""
	if hasChanged {
		parts = append(parts, changesLine(v))
	}
	if used := v.Usage.InputTokens + v.Usage.OutputTokens; used > 0 {
		parts = append(parts, tokenCount(used)+" tokens")
	}
	switch cost := v.Usage.CostUSD; {
	case cost >= 0.01:
		parts = append(parts, fmt.Sprintf("$%.2f", cost))
	case cost > 0:
		parts = append(parts, fmt.Sprintf("$%.4f", cost))
	}
	if len(v.Findings) > 0 {
		parts = append(parts, count(len(v.Findings), "finding"))
	}
	if hasChanged {
		parts = append(parts, "stint diff "+shortID(v.ID))
	}
	return strings.Join(parts, " · ")
}
