package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/statedir"
	"stint/state"
)

// lsOptions are the options of `stint ls`.
type lsOptions struct {
	filter state.Filter
	status []string
	json   bool
	quiet  bool

	archive bool // of the archive, not of the master
}

const statuses = "draft, queued, running, done, failed, canceled, dead"

func (a *app) lsCommand() *cobra.Command {
	o := &lsOptions{}
	c := &cobra.Command{
		Use:   "ls [OPTIONS]",
		Short: "list tasks, newest first",
		Example: `  stint ls
  stint ls --status queued,running --session web
  stint ls --agent claude --tenant ana --queue nightly
  stint ls --archive --status failed
  stint ls --json -n 0 | jq -r 'select(.status=="failed") | .id'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.runLs(c, o) },
	}
	f := c.Flags()
	f.StringSliceVar(&o.status, "status", nil, "only these `statuses`: "+statuses)
	f.StringVar(&o.filter.Session, "session", "", "only tasks of this `session`")
	f.StringVar(&o.filter.Label, "label", "", "only tasks with this `label`")
	f.StringVar(&o.filter.Agent, "agent", "", "only tasks of this `agent`")
	f.StringVar(&o.filter.TenantID, "tenant", "", "only tasks of this `tenant`")
	f.StringVar(&o.filter.Queue, "queue", "", "only tasks of this `queue`")
	f.IntVarP(&o.filter.Limit, "limit", "n", 50, "at most this `number`; 0: all")
	f.BoolVar(&o.archive, "archive", false, "tasks that compaction has moved to the archive, the one that ended last first")
	quietFlag(c, &o.quiet)
	jsonFlag(c, &o.json)
	complete(c, "status", func() []string {
		var names []string
		for _, s := range state.Statuses[:] {
			names = append(names, string(s))
		}
		return names
	})
	complete(c, "session", func() []string { return a.sessionNames(contextOf(c)) })
	complete(c, "agent", func() []string { return agentNames })
	return c
}

func (a *app) runLs(c *cobra.Command, o *lsOptions) error {
	for _, s := range o.status {
		st, err := state.ParseStatus(s)
		if err != nil {
			return usage("stint ls --help", "%v", err)
		}
		o.filter.Status = append(o.filter.Status, st)
	}
	if o.filter.Limit < 0 {
		return usage("stint ls --help", "--limit %d is negative; 0 is all", o.filter.Limit)
	}
	if o.json && !o.archive {
		return a.listJSON(c.Context(), o)
	}
	var views []wire.TaskView
	var err error
	if o.archive { // for which no master is needed
		dir, derr := a.state()
		if derr != nil {
			return derr
		}
		var tasks []state.Task
		tasks, err = statedir.ListArchive(dir, o.filter)
		views = viewsOf(tasks)
	} else {
		err = a.call(c.Context(), func(cl *client.Client) (err error) { views, err = cl.List(c.Context(), o.filter); return err })
	}
	if err != nil {
		return err
	}
	if !o.archive {
		defer a.tellFindings(c.Context())
	}
	if !o.archive && !o.quiet {
		defer a.tellPaused()
		defer a.tellAccounts(c.Context(), views)
	}
	switch {
	case o.json:
		return printEach(a.stdout, views)
	case o.quiet:
		return printIDs(a.stdout, views)
	}
	if len(views) == 0 && o.archive {
		a.hint("stint: no such task in the archive; what it holds was moved there by: stint compact-tasks\n")
		return nil
	}
	if len(views) == 0 && !o.filter.Match(&state.Task{}) {
		a.hint("stint: no such tasks; all of them: stint ls -n 0\n")
		return nil
	}
	if len(views) == 0 {
		a.hint("stint: no tasks; add one with: stint task -d \"PROMPT\"\n")
		return nil
	}
	if err := a.printTasks(views, time.Now()); err != nil {
		return err
	}
	for i := range views { // whose runs have ended
		if v := &views[i]; v.Settling {
			a.hint("stint: task %s: %s\n", shortID(v.ID), escapeText(oneLine(v.Why)))
		}
	}
	if len(views) == o.filter.Limit {
		all := "stint ls -n 0"
		if o.archive {
			all = "stint ls --archive -n 0"
		}
		a.hint("stint: the newest %d; all of them: %s\n", o.filter.Limit, all)
	}
	return nil
}

// listJSON copies the lines of the master, which has written most of them before.
func (a *app) listJSON(ctx context.Context, o *lsOptions) error {
	out := &runeWriter{w: a.stdout, escape: escapeJSON}
	err := a.call(ctx, func(c *client.Client) error {
		err := c.ListJSON(ctx, o.filter, out)
		if out.wrote && isGone(err) { // to begin again would repeat what was printed
			return &cliError{code: exitNoMaster, message: "the master has exited", try: "stint ls"}
		}
		return err
	})
	if err != nil {
		return err
	}
	if !o.quiet {
		a.tellPaused()
	}
	a.tellFindings(ctx)
	return nil
}

// printEach prints JSON lines.
func printEach[T any](w io.Writer, list []T) error {
	for _, v := range list {
		if err := printJSON(w, v); err != nil {
			return err
		}
	}
	return nil
}

func idsOf(views []wire.TaskView) []string {
	ids := make([]string, len(views))
	for i, v := range views {
		ids[i] = v.ID
	}
	return ids
}

func printIDs(w io.Writer, views []wire.TaskView) error {
	for _, v := range views {
		if _, err := fmt.Fprintln(w, v.ID); err != nil {
			return err
		}
	}
	return nil
}

// printTasks prints the table for people.
func (a *app) printTasks(views []wire.TaskView, now time.Time) error {
	rows := [][]string{{"ID", "STATUS", "AGE", "SESSION", "AGENT", "PROMPT"}}
	for i, short := range shortIDs(idsOf(views)) {
		v, mark := &views[i], ""
		if v.TriggeredBy != "" {
			mark = "↳ " // another task has queued it
		}
		rows = append(rows, []string{
			short, statusNow(v, now), age(v.CreatedAt, now), clip(laneName(v.SessionKey), 20), v.Agent, mark + v.Title,
		})
	}
	fit(rows, terminalWidth(a.stdout))
	plain := !isTTY(a.stdout) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
	return writeTable(a.stdout, escapeRows(rows), func(row, col int, cell string) string {
		if plain || row == 0 || col != 1 || sgr[views[row-1].Status] == "" {
			return cell
		}
		return "\x1b[" + sgr[views[row-1].Status] + "m" + cell + "\x1b[0m"
	})
}

// statusText returns the status, and what is special about it.
func statusText(v *wire.TaskView) string {
	switch {
	case v.Hold && !v.Status.Terminal():
		return string(v.Status) + " (held)"
	case v.Status == state.Running && phaseOf(&v.Task) != "":
		return string(v.Status) + " (" + phaseOf(&v.Task) + ")"
	case v.Status == state.Failed && v.Reason != "":
		return string(v.Status) + " (" + string(v.Reason) + ")"
	default:
		return string(v.Status)
	}
}

// silentAfter is how long an agent writes nothing until its task is marked.
const silentAfter = time.Minute

// statusNow is statusText, with a mark at a running task whose agent is silent.
func statusNow(v *wire.TaskView, now time.Time) string {
	silent := now.Sub(v.LastOutput)
	if v.Status != state.Running || v.Phase == state.PhaseVerify || v.LastOutput.IsZero() || silent < silentAfter {
		return statusText(v)
	}
	return string(v.Status) + " (silent " + ago(silent) + ")"
}

// laneName shows a lane as people know it: the name of a session, or the last
// part of a directory.
func laneName(key string) string {
	if dir, ok := strings.CutPrefix(key, "dir:"); ok {
		return filepath.Base(dir) + "/"
	}
	if strings.HasPrefix(key, "task:") {
		return "-"
	}
	return key
}

// fit cuts the last column so that rows fit into a terminal of that width.
func fit(rows [][]string, width int) {
	if width == 0 {
		return
	}
	last := len(rows[0]) - 1
	used := 0
	for col := range last {
		widest := 0
		for _, row := range rows {
			widest = max(widest, textWidth(row[col]))
		}
		used += widest + 2
	}
	for _, row := range rows {
		row[last] = clip(row[last], max(10, width-used))
	}
}

// escapeRows makes every cell safe to show, one line each.
func escapeRows(rows [][]string) [][]string {
	for _, row := range rows {
		for i := range row {
			row[i] = escapeText(strings.ReplaceAll(oneLine(row[i]), "\t", " "))
		}
	}
	return rows
}

// age returns how long ago a task was made; one that was written by hand says so
// only once it has run.
func age(created, now time.Time) string {
	if created.IsZero() {
		return "-"
	}
	return ago(now.Sub(created))
}
