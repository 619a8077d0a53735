package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

func (a *app) sendCommand() *cobra.Command {
	o := &taskOptions{}
	var wait bool
	c := &cobra.Command{
		Use:   "send [OPTIONS] SESSION PROMPT",
		Short: "queue the next message of a session, busy or not, and print its id",
		Long: `Queue the next message of a session and print its id. It runs after what waits there
already, with the agent, account, model and directory of the session's last task.

SESSION is a name, an id, or the directory of tasks without a session. PROMPT is
one or more arguments, - for stdin, @FILE for a file, or whatever follows --.`,
		Example: `  stint send web "Now add a test for it"
  stint send --wait web @review.md
  stint session queue web`,
		RunE: func(c *cobra.Command, args []string) error {
			o.detach = !wait
			a.quiet = o.quiet
			atDash := c.ArgsLenAtDash()
			if len(args) == 0 || atDash == 0 {
				return usage(`stint send SESSION "PROMPT"; the sessions: stint session ls`, "stint send names no session")
			}
			prompt := promptSource{args: args[1:], literal: atDash > 0, edit: o.edit, stdin: a.stdin, editor: runEditor}
			if len(prompt.args) == 0 && !o.edit {
				return usage(`stint send `+args[0]+` "PROMPT", @FILE, or - for stdin`, "there is no prompt for the session %s", args[0])
			}
			if err := o.check(c, time.Now()); err != nil {
				return err
			}
			if err := a.putInto(c.Context(), &o.spec, args[0]); err != nil {
				return err
			}
			if err := a.place(o, &o.spec); err != nil {
				return err
			}
			var err error
			if o.spec.Prompt, err = readInterruptibly(c.Context(), prompt.read); err != nil {
				return err
			}
			return a.runOne(c.Context(), o)
		},
	}
	quietFlag(c, &o.quiet)
	c.Flags().BoolVar(&wait, "wait", false, "wait for the answer and print it")
	o.addCommonFlags(c)
	a.completeIDOption(c, "after")
	c.ValidArgsFunction = a.completeSessions
	return c
}

// putInto puts a task into the session that ref means, with what the session's
// last task had.
func (a *app) putInto(ctx context.Context, s *task.TaskSpec, ref string) error {
	ses, err := a.findSession(ctx, ref)
	if errors.Is(err, &task.Error{Code: task.CodeNotFound}) {
		message, _ := explain(err)
		return &cliError{code: exitNotFound, message: message, try: `stint session ls, or to begin one: stint task --session NAME "PROMPT"`}
	}
	if err != nil {
		return err
	}
	last, err := a.lastTask(ctx, &ses)
	if err != nil {
		return err
	}
	s.Agent, s.Account, s.Workspace = ses.Agent, ses.Account, last.Workspace
	if s.Model == "" {
		s.Model = last.Model
	}
	if strings.HasPrefix(ses.Key, state.LanePrefixDir) {
		s.Continue = true // the session has no name
	} else {
		s.SessionKey = ses.Key
	}
	return nil
}

// lastTask returns the newest task of a session that is kept, in the archive at worst.
func (a *app) lastTask(ctx context.Context, ses *wire.SessionView) (state.Task, error) {
	if i := slices.IndexFunc(ses.Tasks, func(v wire.TaskView) bool { return v.SessionID == ses.ID }); i >= 0 {
		return ses.Tasks[i].Task, nil
	}
	var view wire.TaskView
	err := a.call(ctx, func(c *client.Client) (err error) { view, err = c.Task(ctx, ses.LastTask); return err })
	if errors.Is(err, &task.Error{Code: task.CodeNotFound}) {
		return state.Task{}, nil // deleted by hand: then the directory is that of any new task
	}
	return view.Task, err
}
