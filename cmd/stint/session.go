package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

func (a *app) sessionCommand() *cobra.Command {
	ls := a.withJSON(a.withIDs(command("ls [OPTIONS]", "list sessions", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		ctx := c.Context()
		var out wire.SessionsBody
		_, none, err := a.stateMissing()
		if !none && err == nil {
			out, err = fetch[wire.SessionsBody](ctx, a.call, http.MethodGet, "/v1/sessions", nil)
		}
		head, optional := []string{"SESSION", "AGENT", "AGENT SESSION", "USED", "LAST TASK"}, []string{"AGENT SESSION", "AGENT", "USED"}
		return printTable(a, out.Sessions, err, `no sessions; begin one with: stint task --session NAME "PROMPT"`, head, optional, func(s state.Session) (string, []string) {
			return s.ID, []string{s.Key, s.Agent, s.Native, ago(time.Since(s.UpdatedAt)) + " ago", shortID(s.LastTask)}
		})
	})))
	show := a.withJSON(command("show [OPTIONS] SESSION", "print the transcript of a session", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		view, err := a.findSession(c.Context(), args[0])
		switch {
		case err != nil:
			return err
		case a.json:
			return printEach(a.stdout, view.Transcript)
		}
		d := &description{}
		d.line("session", view.Key)
		d.line("id", view.ID)
		d.line("agent", view.Agent)
		d.line("agent session", view.Native)
		d.line("account", view.Account)
		for _, m := range view.Transcript {
			title := m.Role + ", " + localTime(m.TS)
			if m.TaskID != "" {
				title += ", task " + shortID(m.TaskID)
			}
			d.text(title, strings.TrimSpace(m.Text+"\n"+m.Error))
		}
		return printText(a.stdout, d.String())
	}, a.completeSessions))
	queue := a.withJSON(a.withIDs(command("queue [OPTIONS] SESSION", "list what waits in a session, in the order in which it will run", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		a.quiet = a.ids
		view, err := a.findSession(c.Context(), args[0])
		if err != nil {
			return err
		}
		defer a.warnPaused()
		place, short := 0, shortIDs(idsOf(view.Queue))
		none := fmt.Sprintf("nothing waits in %s; add a message with: stint send %s \"PROMPT\"", view.Key, args[0])
		return printTable(a, view.Queue, nil, none, []string{"PLACE", "ID", "STATUS", "WHY", "PROMPT"}, nil, func(v wire.TaskView) (string, []string) {
			place++
			return v.ID, []string{strconv.Itoa(place), short[place-1], statusText(&v), v.Why, v.Title}
		})
	}, a.completeSessions)))
	return group(command("session", "list sessions, show a transcript or what waits", nil, nil), ls, show, queue)
}

// findSession asks for a session by its key, its id, or the path of a directory: no other name has a slash.
func (a *app) findSession(ctx context.Context, ref string) (view wire.SessionView, err error) {
	if ref == "." || ref == ".." || strings.Contains(ref, "/") && !strings.HasPrefix(ref, state.LanePrefixDir) {
		if ref, err = filepath.Abs(ref); err != nil {
			return view, err
		}
		ref = task.WithoutLinks(ref) // of one that is gone there may still be a session
	}
	return fetch[wire.SessionView](ctx, a.call, http.MethodGet, "/v1/sessions/"+url.PathEscape(ref), nil)
}

func (a *app) sendCommand() *cobra.Command {
	o := &taskOptions{}
	var wait bool
	c := command("send [OPTIONS] SESSION PROMPT", "queue the next message of a session, and print its id", nil, func(c *cobra.Command, args []string) error {
		o.detach = !wait
		a.quiet = a.ids
		if len(args) == 0 || c.ArgsLenAtDash() == 0 {
			return usage(`stint send SESSION "PROMPT"; the sessions: stint session ls`, "stint send names no session")
		}
		if len(args) == 1 && !o.edit {
			return usage(`stint send `+args[0]+` "PROMPT", @FILE, or - for stdin`, "there is no prompt for the session %s", args[0])
		}
		return a.runPrompt(c, o, args[1:], args[0])
	})
	a.withIDs(c)
	c.Flags().BoolVar(&wait, "wait", false, "wait for the answer and print it")
	o.addCommonFlags(a, c)
	completeBy(c, "after", a.completeIDs())
	c.ValidArgsFunction = a.completeSessions
	return c
}

// putInto puts a task into the session that ref means, with what the session's last task had.
func (a *app) putInto(ctx context.Context, s *task.TaskSpec, ref string) error {
	ses, err := a.findSession(ctx, ref)
	if errors.Is(err, &task.Error{Code: task.CodeNotFound}) {
		message, _ := explain(err)
		return &cliError{code: exitNotFound, message: message, try: `stint session ls, or to begin one: stint task --session NAME "PROMPT"`}
	}
	if err != nil {
		return err
	}
	var last state.Task // the newest that is kept, in the archive at worst
	if i := slices.IndexFunc(ses.Tasks, func(v wire.TaskView) bool { return v.SessionID == ses.ID }); i >= 0 {
		last = ses.Tasks[i].Task
	} else if view, err := a.task(ctx, ses.LastTask); err == nil {
		last = view.Task
	} else if !errors.Is(err, &task.Error{Code: task.CodeNotFound}) { // else deleted by hand: then the directory is that of any new task
		return err
	}
	s.Agent, s.Account, s.Workspace, s.Model = ses.Agent, ses.Account, last.Workspace, cmp.Or(s.Model, last.Model)
	if strings.HasPrefix(ses.Key, state.LanePrefixDir) {
		s.Continue = true // the session has no name
	} else {
		s.SessionKey = ses.Key
	}
	trees, err := a.trees()
	if _, gone := os.Stat(s.Workspace); err == nil && gone != nil && s.SessionKey != "" {
		if _, origin, ok := trees.Origin(s.Workspace); ok { // the worktree, which is made anew
			s.Workspace = origin
		}
	}
	return err
}
