package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// waitOptions are the options of `stint wait`.
type waitOptions struct {
	any, all bool
	timeout  string
}

func (a *app) waitCommand() *cobra.Command {
	o := &waitOptions{}
	c := &cobra.Command{
		Use:   "wait [OPTIONS] ID...",
		Short: "wait until tasks have ended; the exit code is theirs",
		Long: `Wait until tasks have ended, and print id and status of each as it ends.

The exit code is the task's own; of several tasks the first one, in the order of
the arguments, that is not 0. With --timeout it is 124 if they have not ended by then.`,
		Example: `  id=$(stint task -d "Fix the login test")
  stint wait $id && stint show --answer $id
  stint wait --any --timeout 10m 2b4f6c8e 91c0d3aa`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.runWait(c.Context(), o, args) },
	}
	f := c.Flags()
	f.BoolVar(&o.all, "all", false, "until all have ended (the default)")
	f.BoolVar(&o.any, "any", false, "until one has ended")
	f.StringVar(&o.timeout, "timeout", "", "wait no longer than this `duration`")
	a.withJSON(a.withIDs(c))
	exclusive(c, "any", "all")
	c.ValidArgsFunction = a.completeIDs()
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

func (a *app) runWait(ctx context.Context, o *waitOptions, refs []string) error {
	a.quiet = a.ids
	if o.timeout != "" {
		d, err := parseDuration(o.timeout)
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
	defer a.warnSilence(ctx, refs...)()
	err := a.waitAll(ctx, o, refs, stop)
	stop()
	switch {
	case isDetached(ctx):
		return &cliError{code: exitInterrupted, message: "detached; the tasks continue", try: "stint ls"}
	case errors.Is(err, errWaitTimeout):
		return &cliError{code: exitTimeout, message: "wait timed out after " + o.timeout + "; the tasks continue", try: "stint why " + refs[0]}
	}
	return err
}

// waitAll waits for the tasks side by side, prints each end, and returns the error
// that decides the exit code. before is called before anything is printed.
func (a *app) waitAll(ctx context.Context, o *waitOptions, refs []string, before func()) error {
	if _, err := a.base(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	ends := make(chan waited, len(refs)) // nobody blocks on it when we have enough
	slots := make(chan struct{}, maxWaits)
	if o.any {
		slots = make(chan struct{}, len(refs)) // the first end may be that of the last
	}
	each := a.another() // a itself prints the ends meanwhile
	waiting.Go(func() {
		for i, ref := range refs {
			slots <- struct{}{}
			waiting.Go(func() {
				one := each.another()
				one.warned = each.warned || i > 0
				view, err := one.wait(ctx, ref)
				ends <- waited{i, view, err}
				<-slots
			})
		}
	})
	errs := make([]error, len(refs))
	for range refs {
		end := <-ends
		before()
		if end.err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if end.err == nil {
			if err := a.printEnd(&end.view); err != nil {
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
		if o.any && !errors.Is(end.err, &task.Error{Code: task.CodeConflict}) { // that one is waited for in vain
			return end.err
		}
	}
	return cmp.Or(errs...) // of the others nothing is said: their tasks were printed
}

func (a *app) printEnd(v *wire.TaskView) (err error) {
	a.ring(&v.Task)
	switch {
	case a.json:
		return printJSON(a.stdout, v)
	case a.ids:
		_, err = fmt.Fprintln(a.stdout, v.ID)
	default:
		_, err = fmt.Fprintln(a.stdout, v.ID, statusText(v))
	}
	return err
}

// drawWhile lets draw write to a terminal, in a goroutine that the function that it
// returns ends; where stderr is none, nothing is drawn.
func (a *app) drawWhile(ctx context.Context, draw func(context.Context)) (stop func()) {
	if a.quiet || !canDraw(a.stderr) {
		return func() {}
	}
	end := inBackground(ctx, draw)
	return func() {
		end()
		_, _ = fmt.Fprint(a.stderr, "\r\x1b[K") // removes the line
	}
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

// lineWidth returns the room of one line that must not wrap.
func lineWidth(w any) int {
	if n := terminalWidth(w); n > 20 {
		return n - 1
	}
	return 79 // a terminal that does not know
}
