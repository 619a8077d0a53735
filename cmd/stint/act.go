package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
	"stint/state/limits"
)

func (a *app) whyCommand() *cobra.Command {
	return a.withJSON(command("why ID", "print in one sentence why a task waits, or how it ended", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		out, err := fetch[wire.WhyBody](c.Context(), a.call, http.MethodGet, client.TaskPath(args[0], "/why"), nil)
		if err != nil {
			return err
		}
		return a.print(out, out.Why)
	}, a.completeIDs()))
}

var (
	cancelCommand = acting("cancel", "end tasks that are queued or running", acts("cancel"), state.Draft, state.Queued, state.Running)
	holdCommand   = acting("hold", "let queued tasks wait until they are released", acts("hold"), state.Queued)
	retryCommand  = acting("retry", "queue tasks that have ended again", (*app).retryTask, state.Draft, state.Done, state.Failed, state.Canceled, state.Dead)
	rmCommand     = acting("rm", "remove tasks from the lists", acts("remove"))
	pauseTasks    = dispatching("pause [OPTIONS] [REASON]", "start no more tasks until resume; running tasks continue", nil, true)
	resumeTasks   = dispatching("resume [OPTIONS]", "start tasks again after pause", cobra.NoArgs, false)
)

func (a *app) releaseCommand() *cobra.Command {
	var budget string
	c := acting("release", "let held tasks run", func(a *app, cl *client.Client, ctx context.Context, ref string) (wire.TaskView, error) {
		if budget != "" {
			if err := a.raiseBudget(ctx, cl, ref, budget); err != nil {
				return wire.TaskView{}, err
			}
		}
		return cl.Act(ctx, ref, "release")
	}, state.Queued)(a)
	c.Flags().StringVar(&budget, "budget", "", "what they may spend then: 5usd in all, or +5usd more than they have spent")
	return c
}

// raiseBudget gives a task another budget: an amount in all, or, with a plus, more than it has spent.
func (a *app) raiseBudget(ctx context.Context, cl *client.Client, ref, text string) error {
	more, isMore := strings.CutPrefix(text, "+")
	b, err := limits.ParseBudget(more)
	if err != nil || b == (limits.Budget{}) {
		return usage("stint release "+ref+" --budget +5usd", "--budget: %q is no budget such as 5usd, +200ktok or +90m", text)
	}
	if isMore {
		cfg, _ := a.base() // it is known: cl was found with it
		v, err := cl.Task(ctx, ref)
		if err != nil {
			return err
		}
		had, _ := limits.ParseBudget(cmp.Or(v.Budget, cfg.BudgetTask)) // it was checked
		spent := state.SpentBy(&v.Task)
		if b.USD > 0 {
			had.USD = max(had.USD, spent.USD) + b.USD
		}
		if b.Tokens > 0 {
			had.Tokens = max(had.Tokens, spent.Tokens) + b.Tokens
		}
		if b.Time > 0 {
			had.Time = max(had.Time, spent.Time) + b.Time
		}
		b = had
	}
	_, err = client.Fetch[wire.TaskView](ctx, cl, http.MethodPatch, client.TaskPath(ref, ""), map[string]string{"budget": b.String()})
	return err
}

type act = func(*app, *client.Client, context.Context, string) (wire.TaskView, error)

func acts(name string) act {
	return func(_ *app, c *client.Client, ctx context.Context, ref string) (wire.TaskView, error) {
		return c.Act(ctx, ref, name)
	}
}

// acting returns how to build a command for several tasks; it completes ids of tasks with these statuses.
func acting(name, short string, do act, statuses ...state.Status) func(*app) *cobra.Command {
	return func(a *app) *cobra.Command {
		c := a.withIDs(a.withJSON(command(name+" [OPTIONS] ID...", short, cobra.MinimumNArgs(1), func(c *cobra.Command, refs []string) error {
			if name == "rm" && slices.Contains(refs, state.LastRef) {
				return usage("stint ls, then stint rm ID", "rm takes no @last: the next time that is another task")
			}
			var failed error
			for _, ref := range refs {
				view, err := wire.TaskView{}, error(nil)
				if a.shared {
					view, err = a.actShared(c, name, ref)
				} else if view, err = ask(c.Context(), a.call, func(cl *client.Client) (wire.TaskView, error) { return do(a, cl, c.Context(), ref) }); err == nil && (name == "retry" || name == "release") { // it lets the task run
					a.warnConfig(c.Context())
				}
				switch {
				case err == nil && name == "rm" && !a.json && !a.ids:
					_, err = fmt.Fprintln(a.stdout, "removed", view.ID)
				case err == nil:
					err = a.printEnd(view, nil)
				case len(refs) > 1:
					printError(a.stderr, fmt.Errorf("%s: %w", ref, err))
					err = &cliError{code: exitCode(err)}
				}
				failed = cmp.Or(failed, err)
			}
			return failed
		}, a.completeIDs(statuses...))))
		if name == "cancel" || name == "retry" {
			a.withShared(c, "tasks of the shared queue")
		}
		return c
	}
}

func (a *app) moveCommand() *cobra.Command {
	var to task.Place
	c := command("move [OPTIONS] ID --first | --before ID", "change a queued task's place in its session or directory", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		if !to.First && to.Before == "" {
			return usage("stint move "+args[0]+" --first, or --before ID", "stint move does not say where to")
		}
		return a.printEnd(fetch[wire.TaskView](c.Context(), a.call, http.MethodPost, client.TaskPath(args[0], "/move"), to))
	})
	c.Flags().BoolVar(&to.First, "first", false, "before all others that wait there")
	c.Flags().StringVar(&to.Before, "before", "", "before the task with this `id`")
	a.withIDs(a.withJSON(c))
	exclusive(c, "first", "before")
	c.ValidArgsFunction = a.completeIDs(state.Queued)
	completeBy(c, "before", a.completeIDs(state.Queued))
	return c
}

// dispatching returns how to build a command that pauses or resumes dispatch, also where no master is to run.
func dispatching(use, short string, args cobra.PositionalArgs, paused bool) func(*app) *cobra.Command {
	return func(a *app) *cobra.Command {
		return a.withJSON(command(use, short, args, func(c *cobra.Command, args []string) error {
			ctx, reason, text := c.Context(), strings.Join(args, " "), "paused: no task is started until stint resume"
			path, body := "/v1/pause", any(wire.PauseBody{Reason: reason})
			if !paused {
				text, path, body = "tasks start again", "/v1/resume", nil
			}
			a.creates = true
			if _, err := fetch[[]byte](ctx, a.callOrOpen, http.MethodPost, path, body); err != nil {
				return err
			}
			if !paused {
				a.warnConfig(ctx)
			}
			return a.print(map[string]bool{"paused": paused}, text)
		}))
	}
}

// warnPaused warns on stderr that nothing is started, or next to nothing, if the last answer said so.
func (a *app) warnPaused() {
	if n := a.notice(); n != nil {
		if n.Paused {
			a.hint("stint: %s; to continue: stint resume\n", escapeText(state.Because("dispatch is paused", n.PauseWhy)))
		}
		if n.Shortage != "" {
			a.hint("stint: %s; until that is over, one task at a time is tried\n", escapeText(oneLine(n.Shortage)))
		}
	}
}
