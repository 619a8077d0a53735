package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api"
	"stint/coordinator/query"
	"stint/coordinator/schedule"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/jobs"
)

func (a *app) digestCommand() *cobra.Command {
	var since string
	c := command("digest [OPTIONS]", "print what happened overnight, and what waits for you", cobra.NoArgs, func(c *cobra.Command, _ []string) error {
		now := time.Now()
		from, err := parsePast(since, now, 0, 0)
		if err == nil && (since == "" || !from.Before(now)) {
			err = fmt.Errorf("%q is not in the past; such a time is 18:00, 12h, 7d or 2026-11-21", since)
		}
		if err != nil {
			return usage("stint digest --help", "--since: %v", err)
		}
		dir, _, err := a.stateMissing()
		if err != nil {
			return err
		}
		read, st, err := statedir.ReadDigest(c.Context(), dir, a.workspaceRoot(), from, now, a.isLive(c.Context())())
		if err != nil {
			return err
		}
		rows, err := query.UsageOf(c.Context(), st, dir, task.UsageQuery{Since: from})
		if err != nil {
			return err
		}
		read.Usage = rows[0]
		d := &digest{Digest: read}
		d.due(a, dir, st.Controls(state.ControlSchedule), now)
		return a.print(d, d.text(cmp.Or(terminalWidth(a.stdout), math.MaxInt32)))
	})
	c.Flags().StringVar(&since, "since", "12h", "from this `time` on: 18:00, 12h, 7d, 2026-11-21, \"2026-11-21 15:04\"")
	return a.withJSON(c)
}

// A digest has what happens at set times too.
type digest struct {
	*statedir.Digest
	Schedules []task.Schedule `json:"schedules"`
	Jobs      []jobs.Job      `json:"jobs"`     // that are due or at work, and dead letters
	JobsDone  map[string]int  `json:"jobsDone"` // that have succeeded in that time, by action
}

// due fills in schedules and jobs as their files have them. What is wrong there is a finding.
func (d *digest) due(a *app, dir string, controls map[string]state.Control, now time.Time) {
	var list []schedule.Schedule
	cfg, wrong := a.base()
	if wrong == nil {
		list, wrong = newSchedulesFile(dir, cfg).read()
	}
	st, err := statedir.ReadJobs(dir)
	d.Schedules, _ = schedule.Views(list, controls, filepath.Join(dir, "job_runs.jsonl"), now)
	d.Jobs = append([]jobs.Job{}, api.DueJobs(st, now, jobs.MaxLimit)...) // JSON has no null
	d.JobsDone = map[string]int{}
	for _, j := range st.Where(jobs.Filter{Status: jobs.Succeeded}, func(j *jobs.Job) bool { return !j.UpdatedAt.Before(d.Since) && j.UpdatedAt.Before(d.Until) }) {
		d.JobsDone[j.Action]++
	}
	for i, err := range []error{wrong, err} {
		if err != nil {
			d.Ledger = append(d.Ledger, task.Finding{File: [...]string{schedulesName, ledger.JobFiles.Ledger()}[i], Message: err.Error()})
		}
	}
	if text, _ := stateText(filepath.Join(dir, ledger.JobFiles.Ledger())); len(text) > 0 && err == nil {
		r, _, _ := statedir.Preview(dir, ledger.JobFiles, text) // what cannot be read is said above
		d.Ledger = append(d.Ledger, r.Findings...)
	}
}

// maxDigest is how many tasks a list of the digest shows.
const maxDigest = 20

// text returns the digest for people, with titles cut to that width.
func (d *digest) text(width int) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(escapeText(oneLine(fmt.Sprintf(format, args...))) + "\n")
	}
	list := func(head string, tasks []statedir.DigestTask) {
		if len(tasks) == 0 {
			return
		}
		rows := mapped(tasks[:min(len(tasks), maxDigest)], func(t *statedir.DigestTask) []string { return []string{"  " + shortID(t.ID), t.Title} })
		line("")
		line("%s", head)
		fit(escapeRows(rows), width)
		for i, row := range rows {
			why := tasks[i].Why
			if t := &tasks[i]; t.Status == state.Failed || t.Status == state.Dead {
				why = state.Because(fmt.Sprintf("%s (%s)", t.Status, cmp.Or(state.Cause(t.Reason, why), "no reason")), why)
			}
			row[1] = strings.TrimRight(row[1]+"\n"+strings.Repeat(" ", 12)+escapeText(oneLine(why)), " \n") // it may be ""
		}
		_ = writeTable(&b, rows, nil) // a Builder takes everything
		if more := len(tasks) - maxDigest; more > 0 {
			fmt.Fprintf(&b, "  and %d more: stint digest --json\n", more)
		}
	}
	if d.Journal != "" {
		line("%s", d.Journal)
	}
	line("since %s (%s)", localTime(d.Since), ago(d.Until.Sub(d.Since)))
	line("%s", endedText(d.Digest))
	if len(d.JobsDone) > 0 {
		done := mapped(slices.Sorted(maps.Keys(d.JobsDone)), func(action *string) string { return fmt.Sprintf("%d %s", d.JobsDone[*action], *action) })
		line("due jobs done: %s; what each has changed is in audit.jsonl", strings.Join(done, ", "))
	}
	for _, g := range d.Gaps {
		what := fmt.Sprintf("%s waited", count(g.Ready, "ready task"))
		if g.Running > 0 {
			what = fmt.Sprintf("%s cut off and %s", ledger.Plural(g.Running, "run was", "runs were"), what)
		}
		line("nothing happened from %s to %s (%s): %s; no master was running, or the machine was asleep", localTime(g.From), localTime(g.To), ago(g.To.Sub(g.From)), what)
	}
	list("failed:", d.Failed)
	list("waits for you, to release or cancel:", d.Held)
	list("findings, to check:", d.Findings)
	list("schedules:", mapped(d.Schedules, func(s *task.Schedule) statedir.DigestTask {
		return statedir.DigestTask{ID: s.Name, Title: scheduleText(s)}
	}))
	list("jobs that are due, and dead letters:", mapped(d.Jobs, func(j *jobs.Job) statedir.DigestTask {
		return statedir.DigestTask{ID: j.ID, Title: j.Action + " " + j.ObjectID + ", due " + localTime(j.RunAt) + ": " + jobStatus(j), Why: task.OneSentence(cmp.Or(j.WaitsFor, j.Reason()), maxReason)}
	}))
	line("")
	for _, f := range d.Ledger {
		line("waits for you: %s", oneLine(f.String()))
	}
	for i := range d.Accounts {
		u := &d.Accounts[i]
		line("%s; %s", oneLine(u.Why), count(u.Waiting, "waiting task"))
	}
	if d.Paused {
		line("%s; to start tasks again: stint resume", state.Because("dispatch is paused", d.PauseWhy))
	}
	line("%s", nowText(d.Digest))
	return b.String()
}

func endedText(d *statedir.Digest) string {
	if len(d.Ended)+d.Usage.Runs == 0 {
		return "nothing ran and nothing ended"
	}
	var parts []string
	for _, s := range []state.Status{state.Done, state.Failed, state.Dead, state.Canceled} {
		if n := d.Ended[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	text := cmp.Or(strings.Join(parts, ", "), "no task ended")
	u := &d.Usage
	text += fmt.Sprintf("; %s, %d tokens in, %d out", count(u.Runs, "run"), u.InputTokens, u.OutputTokens)
	if u.CostUSD > 0 {
		text += fmt.Sprintf(", $%.2f", u.CostUSD)
	}
	return text
}

func nowText(d *statedir.Digest) string {
	text := fmt.Sprintf("now: %d running, %d queued", d.Running, d.Queued)
	if d.Running+d.Queued == 0 {
		text = "now: nothing is running or queued"
	}
	if !d.Next.IsZero() {
		text += "; the next one waits until " + localTime(d.Next)
	}
	if !d.Master {
		text += "; no master is running"
		if d.Running+d.Queued > 0 {
			text += ", so no task runs: stint ls starts one"
		}
	}
	return text
}
