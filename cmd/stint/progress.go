package main

import (
	"cmp"
	"context"
	"fmt"
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

// look calls see with a task again and again, until ctx ends.
func (a *app) look(ctx context.Context, id string, first, pace time.Duration, see func(*wire.TaskView, error)) {
	for next := first; pause(ctx, next) == nil; next = pace {
		var view wire.TaskView
		err := a.callRunning(func(c *client.Client) (err error) { view, err = c.Task(ctx, id); return err })
		if ctx.Err() == nil {
			see(&view, err)
		}
	}
}

// startProgress shows on stderr what a task does while it is waited for: on a terminal one line
// that is drawn again each second, elsewhere a line now and then. The function that it
// returns removes the line and ends it.
func (a *app) startProgress(ctx context.Context, id string) (stop func()) {
	one, told := a.another(), "" // while a finds its way to another master
	switch {
	case a.quiet:
		return func() {}
	case !canDraw(a.stderr):
		return inBackground(ctx, func(ctx context.Context) {
			one.look(ctx, id, progressPace, progressPace, func(v *wire.TaskView, err error) {
				if err == nil && !v.Status.Terminal() && doing(v) != told {
					told = doing(v)
					one.hint("stint: %s\n", progressLine(v, time.Now(), 200))
				}
			})
		})
	}
	return a.drawWhile(ctx, func(ctx context.Context) {
		one.look(ctx, id, firstProgress, time.Second, func(v *wire.TaskView, err error) {
			line := "waiting for a master"
			if err == nil {
				line = progressLine(v, time.Now(), lineWidth(one.stderr))
			}
			if err == nil && told == "" && !v.Status.Terminal() {
				told = v.ID
				one.hint("\r\x1b[Kstint: Ctrl-C detaches; task %s continues\n", shortID(v.ID))
			}
			_, _ = fmt.Fprint(one.stderr, "\r\x1b[K", line)
		})
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
// ./… · 12s · 2m14s in all · 48.2k tokens". What does not fit is left out, the step last.
func progressLine(v *wire.TaskView, now time.Time, width int) string {
	step := doing(v)
	if v.Status != state.Running || v.Settling || v.RunStartedAt.IsZero() {
		if v.Waits != "" && textWidth(step) > width {
			step = "waiting: " + escapeText(oneLine(v.Waits))
		}
		return clip(step, width)
	}
	var ends []string
	all := ""
	if e := v.Event; e != nil && e.State == task.LogStarted {
		ends = append(ends, ago(now.Sub(e.Time)))
		all = " in all"
	} else if silent := now.Sub(v.LastOutput); !v.LastOutput.IsZero() && silent >= silentAfter {
		ends = append(ends, "silent "+ago(silent))
	}
	ends = append(ends, ago(now.Sub(v.RunStartedAt))+all)
	used := v.Usage.InputTokens + v.Usage.OutputTokens
	if v.Event != nil {
		used += v.Event.Tokens
	}
	if used > 0 {
		ends = append(ends, task.FormatTokens(used))
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

// outcomeLine returns how a task ended, on one line: the outcome, how long it took, what it has
// changed, used and found.
func outcomeLine(v *wire.TaskView) string {
	parts := []string{string(v.Status)}
	if !v.StartedAt.IsZero() && v.UpdatedAt.After(v.StartedAt) {
		parts[0] += " in " + task.FormatElapsed(v.UpdatedAt.Sub(v.StartedAt))
	}
	hasChanged := v.Changes.String() != ""
	if hasChanged {
		parts = append(parts, strings.Replace(changesLine(v), uncertain, "uncertain", 1))
	}
	if used := v.Usage.InputTokens + v.Usage.OutputTokens; used > 0 {
		parts = append(parts, task.FormatTokens(used))
	}
	if v.Usage.CostUSD > 0 {
		parts = append(parts, dollars(v.Usage.CostUSD))
	}
	if len(v.Findings) > 0 {
		parts = append(parts, count(len(v.Findings), "finding"))
	}
	if hasChanged {
		parts = append(parts, "stint diff "+shortID(v.ID))
	}
	return strings.Join(parts, " · ")
}

// dollars returns a cost; of less than a cent it has two more digits.
func dollars(cost float64) string {
	if cost > 0 && cost < 0.01 {
		return fmt.Sprintf("$%.4f", cost)
	}
	return fmt.Sprintf("$%.2f", cost)
}
