package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/wire"
	"stint/coordinator/attempt"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state"
)

func (a *app) taskCommand() *cobra.Command {
	o := &taskOptions{}
	c := command("task [OPTIONS] PROMPT", "run a task and print the agent's answer", nil, func(c *cobra.Command, args []string) error {
		return a.runTask(c, o, args)
	})
	c.Flags().BoolVarP(&o.detach, "detach", "d", false, "queue the task, print its id and go")
	o.addFlags(a, c)
	return a.withShared(c, sharedTask, "dry-run")
}

func (a *app) runTask(c *cobra.Command, o *taskOptions, args []string) error {
	a.quiet = a.ids
	if a.shared && !o.detach {
		return usage("stint enqueue --shared \"PROMPT\", then stint tasks get --shared ID", "stint task --shared cannot wait for the answer, which any machine may give")
	}
	if c.Flags().Changed("spec") {
		if len(args) > 0 {
			return usage(c.CommandPath()+" --help", "--spec has the prompts; %q is one too many", clip(args[0], 40))
		}
		if err := o.check(c, time.Now()); err != nil {
			return err
		}
		specs, many, err := a.readSpecs(c.Context(), o.file)
		if err != nil {
			return err
		}
		for i := range specs {
			to, from := reflect.ValueOf(&specs[i]).Elem(), reflect.ValueOf(o.spec)
			for i := range to.NumField() { // what the spec leaves open and the options name
				if to.Field(i).IsZero() {
					to.Field(i).Set(from.Field(i))
				}
			}
			if err := a.place(o, &specs[i]); err != nil {
				return inSpecs(err, i, len(specs), many)
			}
		}
		return a.runTasks(c, o, specs, many)
	}
	return a.runPrompt(c, o, args, "")
}

// runPrompt runs the task of a command line, with the prompt of args, in that session if one is named.
func (a *app) runPrompt(c *cobra.Command, o *taskOptions, args []string, session string) error {
	ctx := c.Context()
	_, err := interruptibly(ctx, nothingQueued, func() (bool, error) { return true, o.check(c, time.Now()) }) // @FILE may be a pipe
	if err == nil && session != "" {
		err = a.putInto(ctx, &o.spec, session)
	}
	if err == nil {
		err = a.place(o, &o.spec)
	}
	if err == nil {
		o.spec.Prompt, err = interruptibly(ctx, nothingQueued, func() (string, error) { return a.readPrompt(args, c.ArgsLenAtDash() >= 0, o.edit) })
	}
	if err != nil {
		return err
	}
	return a.runTasks(c, o, []task.TaskSpec{o.spec}, false)
}

// nothingQueued is what Ctrl-C leaves behind while a prompt is read.
const nothingQueued = "interrupted; nothing was queued"

// interruptibly lets Ctrl-C end a command that changes nothing yet. What is at work ends with the program.
func interruptibly[T any](ctx context.Context, message string, f func() (T, error)) (T, error) {
	var value T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, err = f()
	}()
	select {
	case <-done:
		return value, err
	case <-ctx.Done(): // f may still write to value
		var none T
		return none, &cliError{code: exitInterrupted, message: message}
	}
}

// workspace returns the absolute path of a directory, without links: two names of it are one lane.
func workspace(option, root string) (string, error) {
	dir := cmp.Or(option, root, ".")
	abs, err := filepath.Abs(dir)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs + "/") // only a directory can have a slash behind it
	}
	if err != nil {
		return "", usage("stint task -C DIRECTORY ...", "cannot use the directory %q: %v", dir, plainError(err))
	}
	return abs, nil
}

// plainError returns the reason without the path and the name of the system call.
func plainError(err error) error { return cmp.Or(errors.Unwrap(err), err) }

// hint prints something on stderr that is not an error, unless -q.
func (a *app) hint(format string, args ...any) {
	if !a.quiet {
		_, _ = fmt.Fprintf(a.stderr, format, args...) // nothing is left to do about a broken stderr
	}
}

// awaitAnswer waits for the end of a task, unless Ctrl-C, prints the answer and returns its exit code.
func (a *app) awaitAnswer(ctx context.Context, submitted *wire.TaskView) error {
	id := submitted.ID
	defer a.warnSilence(ctx)()
	stop := a.startProgress(ctx, id)
	view, err := a.wait(ctx, id)
	stop()
	if isDetached(ctx) {
		return &cliError{
			code: exitInterrupted, message: "detached; the task continues",
			try: "stint wait " + id + " && stint show --answer " + id,
		}
	}
	if err != nil {
		return err
	}
	a.ring(&view.Task)
	if view.Note != submitted.Note && view.Note != "" {
		a.hint("stint: note: %s\n", escapeText(oneLine(view.Note)))
	}
	switch {
	case a.json:
		err = printJSON(a.stdout, &view)
	case a.ids:
		err = printIDs(a.stdout, []wire.TaskView{view})
	case view.Status == state.Done, view.Answer() != "" && slices.Contains([]state.Class{state.ClassVerify, state.ClassOutputMissing, state.ClassDenied}, view.Reason):
		// what failed is the check of the answer at most; what an agent that failed has said is for `stint show`
		err = a.writeAnswer(a.stdout, &view)
	}
	if err != nil {
		return err
	}
	if text := strings.TrimRight(view.VerifyOutput, "\n"); view.Reason == state.ClassVerify && text != "" { // its end
		const most = 20
		lines := strings.Split(text, "\n")
		a.hint("stint: %s printed:\n", escapeText(oneLine(view.VerifyCommand)))
		for _, line := range lines[max(0, len(lines)-most):] {
			a.hint("  %s\n", clip(escapeText(line), 200))
		}
	}
	for _, f := range view.Findings {
		a.hint("stint: finding: %s: %s\n", escapeText(f.Kind), escapeText(oneLine(f.Message)))
	}
	if len(view.FollowUps) > 0 {
		a.hint("stint: it has queued %s\n", strings.Join(shortIDs(view.FollowUps), " "))
	}
	a.hint("stint: %s\n", outcomeLine(&view))
	return taskEnd(&view)
}

// isDetached reports that Ctrl-C ended the wait.
func isDetached(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errDetached) }

// writeAnswer prints the whole answer. The ledger holds a long one cut; the run's directory has it whole as long as it is kept.
func (a *app) writeAnswer(w io.Writer, view *wire.TaskView) error {
	text := view.Result
	if view.RunDir != "" && len(text) > attempt.MaxResult {
		data, err := rundir.ReadOutput(view.RunDir, "answer")
		if err == nil && len(data) > attempt.MaxResult { // it is not synced: a power cut may have left less
			text = string(data)
		}
	}
	return printText(w, text)
}

// ending returns how a task ended badly.
var ending = map[state.Status]string{
	state.Failed: "failed", state.Canceled: "was canceled", state.Dead: "is dead",
}

// taskEnd returns nil for a task that ended well, else the exit code with what and why.
func taskEnd(view *wire.TaskView) error {
	code := taskCode(&view.Task)
	if code == exitOK {
		return nil
	}
	message := fmt.Sprintf("task %s %s", shortID(view.ID), ending[view.Status])
	if view.Reason != "" && string(view.Reason) != string(view.Status) {
		message += " (" + state.Cause(view.Reason, view.Error) + ")"
	}
	if view.Error != "" && view.Error != string(view.Reason) {
		message += ": " + view.Error
	}
	return &cliError{code: code, message: message, try: nextStep(view, code)}
}

// nextStep returns the command that helps after a task has ended badly.
func nextStep(view *wire.TaskView, code int) string {
	id := shortID(view.ID)
	switch {
	case view.Reason == state.ClassAgentMissing:
		return "stint doctor"
	case view.Reason == state.ClassAuth && slices.ContainsFunc([]string{"billing", "check your plan", "credit", "payment"}, func(s string) bool {
		return strings.Contains(strings.ToLower(view.Error), s) // the provider wants money, and no login helps; it chooses a hint and nothing else
	}):
		return "settle it with the provider, then stint retry " + id
	case code == exitAgent && loginCommand(view.Agent) != "":
		return loginCommand(view.Agent) + ", then stint retry " + id
	case code == exitCanceled, code == exitRateLimited:
		return "stint retry " + id
	case view.Reason == state.ClassContextFull && strings.Contains(view.Error, "--resume never"):
		return "stint task --resume never ..., for a new conversation"
	case view.RunID == "": // there is nothing to read
		return "stint why " + id + ", or stint retry " + id
	default:
		return "stint logs " + id + ", or stint retry " + id
	}
}
