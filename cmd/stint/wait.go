package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

func (a *app) waitCommand() *cobra.Command {
	var isAny bool
	var timeout string
	c := command("wait [OPTIONS] ID...", "wait until tasks have ended; the exit code is theirs", cobra.MinimumNArgs(1), func(c *cobra.Command, args []string) error {
		return a.runWait(c.Context(), isAny, timeout, args)
	}, a.completeIDs())
	f := c.Flags()
	f.Bool("all", false, "until all have ended (the default)")
	f.BoolVar(&isAny, "any", false, "until one has ended")
	f.StringVar(&timeout, "timeout", "", "wait no longer than this `duration`")
	a.withJSON(a.withIDs(c))
	exclusive(c, "any", "all")
	return c
}

// errWaitTimeout is the cause with which --timeout ends the wait.
var errWaitTimeout = errors.New("wait timed out")

// maxWaits is for how many tasks one command waits at once: each takes a connection.
const maxWaits = 200

// A waited is the end of one task.
type waited struct {
	index int
	view  wire.TaskView
	err   error
}

func (a *app) runWait(ctx context.Context, isAny bool, timeout string, refs []string) error {
	a.quiet = a.ids
	if timeout != "" {
		d, err := parseDuration(timeout)
		if err != nil {
			return usage("stint wait --help", "--timeout %v", err)
		}
		timed, cancel := context.WithTimeoutCause(ctx, d, errWaitTimeout)
		defer cancel()
		ctx = timed
	}
	stop := func() {}
	if len(refs) == 1 && !a.json {
		stop = a.startProgress(ctx, refs[0])
	}
	defer a.warnSilence(ctx)()
	err := a.waitAll(ctx, isAny, refs, stop)
	stop()
	switch {
	case isDetached(ctx):
		return &cliError{code: exitInterrupted, message: "detached; the tasks continue", try: "stint ls"}
	case errors.Is(err, errWaitTimeout):
		return &cliError{code: exitTimeout, message: "wait timed out after " + timeout + "; the tasks continue", try: "stint why " + refs[0]}
	}
	return err
}

// waitAll waits for tasks side by side, calls before and prints each end, and returns what decides the exit code.
func (a *app) waitAll(ctx context.Context, isAny bool, refs []string, before func()) error {
	if _, err := a.base(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	ends := make(chan waited, len(refs)) // nobody blocks on it when we have enough
	slots := make(chan struct{}, maxWaits)
	if isAny {
		slots = make(chan struct{}, len(refs)) // the first end may be that of the last
	}
	each := a.another() // a itself prints the ends meanwhile
	for i, ref := range refs {
		waiting.Go(func() {
			slots <- struct{}{}
			one := each.another()
			one.warned = each.warned || i > 0
			view, err := one.wait(ctx, ref)
			ends <- waited{i, view, err}
			<-slots
		})
	}
	errs := make([]error, len(refs))
	for range refs {
		end := <-ends
		before()
		if end.err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if end.err == nil {
			if err := a.printEnd(end.view, nil); err != nil {
				return err
			}
			who := ""
			if len(refs) > 1 {
				who = shortID(end.view.ID) + " "
			}
			a.hint("stint: %s%s\n", who, outcomeLine(&end.view))
			end.err = taskEnd(&end.view)
		}
		errs[end.index] = end.err
		if isAny && !errors.Is(end.err, &task.Error{Code: task.CodeConflict}) { // that one is waited for in vain
			return end.err
		}
	}
	return cmp.Or(errs...) // of the others nothing is said: their tasks were printed
}

// printEnd prints how a task stands now, unless what was asked for failed.
func (a *app) printEnd(v wire.TaskView, err error) error {
	if err != nil {
		return err
	}
	a.ring(&v.Task)
	text := v.ID
	if !a.ids {
		text += " " + statusText(&v)
	}
	return a.print(v, text)
}

// inBackground runs f in a goroutine that the function that it returns ends.
func inBackground(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// lineWidth returns the room of one line that must not wrap, also on a terminal that does not know.
func lineWidth(w any) int { return cmp.Or(terminalWidth(w), 80) - 1 }

const (
	firstProgress = 300 * time.Millisecond // how long a task may take before a line is shown
	progressPace  = 30 * time.Second       // between two lines where stderr is no terminal
)

// look calls see with a task again and again, until ctx ends.
func (a *app) look(ctx context.Context, id string, first, pace time.Duration, see func(*wire.TaskView, error)) {
	for next := first; task.Sleep(ctx, next) == nil; next = pace {
		view, err := ask(ctx, a.callRunning, func(c *client.Client) (wire.TaskView, error) { return c.Task(ctx, id) })
		if ctx.Err() == nil {
			see(&view, err)
		}
	}
}

// startProgress shows on stderr what a task does, until stop is called: on a terminal in one line that is drawn again
// each second, elsewhere in a line now and then.
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
	end := inBackground(ctx, func(ctx context.Context) {
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
	return func() {
		end()
		_, _ = fmt.Fprint(a.stderr, "\r\x1b[K") // removes the line
	}
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

// progressLine returns what a task does, cut to width columns: "codex 5f21a9c2 · 2m14s ·
// 48.2k tokens · for 12s: $ go test ./…". The step stands last, for it may be long.
func progressLine(v *wire.TaskView, now time.Time, width int) string {
	step := doing(v)
	if v.Status != state.Running || v.Settling || v.RunStartedAt.IsZero() {
		return clip(step, width)
	}
	parts := []string{strings.TrimSpace(v.Agent + " " + shortID(v.ID)), ago(now.Sub(v.RunStartedAt))}
	used := v.Usage.InputTokens + v.Usage.OutputTokens
	if v.Event != nil {
		used += v.Event.Tokens
	}
	if used > 0 {
		parts = append(parts, task.FormatTokens(used))
	}
	if e := v.Event; e != nil && e.State == task.LogStarted {
		step = "for " + ago(now.Sub(e.Time)) + ": " + step
	} else if silent := now.Sub(v.LastOutput); !v.LastOutput.IsZero() && silent >= silentAfter {
		parts = append(parts, "silent "+ago(silent))
	}
	return clip(strings.Join(append(parts, step), " · "), width)
}

// outcomeLine returns in a line how a task ended, how long it took, what it has changed, used and found.
func outcomeLine(v *wire.TaskView) string {
	parts := []string{string(v.Status)}
	if !v.StartedAt.IsZero() && v.UpdatedAt.After(v.StartedAt) {
		parts[0] += " in " + task.FormatElapsed(v.UpdatedAt.Sub(v.StartedAt))
	}
	hasChanged := v.Changes.String() != "" && v.Changes.Before != ""
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
