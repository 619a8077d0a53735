// Package govern is the built-in worker, which has the entries of governed notes looked after.
//
// The file says when an entry is due. A job is enqueued only then, so that what a person writes there until then counts. It
// stays queued until it can be applied at once: while the gate is closed, and while the agent that was asked has not answered.
// So its lease never ends while an agent works. The agent's task is known by the job and the text that it was asked about:
// after a crash nobody is asked again, and an answer about another text is of no use. The entry names the job that changed it
// last, so a job that was done, and whose end was not noted, changes nothing a second time.
package govern

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"stint/coordinator/task"
	"stint/memory"
	"stint/memory/care"
	"stint/state"
	"stint/state/jobs"
)

// Jobs is what a [Worker] asks the room of due jobs.
type Jobs interface {
	Enqueue(ctx context.Context, spec jobs.Spec) (job jobs.Job, isNew bool, err error)
	// HasKey reports whether a job has an idempotency key, also one in the archive.
	HasKey(key string) bool
	// Where returns the jobs for which is holds, those first that are due first.
	Where(is func(*jobs.Job) bool) []jobs.Job
	Pull(ctx context.Context, p jobs.Pull) ([]jobs.Job, error)
	Ack(ctx context.Context, id string, a jobs.Ack) (jobs.Job, error)
	Fail(ctx context.Context, id string, f jobs.Fail) (jobs.Job, error)
	// Wait notes what a queued job waits for; "": for nothing but its time.
	Wait(ctx context.Context, id, why string) error
}

// Tasks is what a [Worker] asks the master.
type Tasks interface {
	Submit(ctx context.Context, spec task.TaskSpec) (state.Task, error)
	// Fired returns the task with that idempotency key, with its answer if it has ended.
	Fired(key string) (t state.Task, ok bool)
	// IsLeaving reports whether the master starts nothing more.
	IsLeaving() bool
}

// A Worker enqueues and runs the jobs of governed notes.
type Worker struct {
	Jobs   Jobs
	Tasks  Tasks
	Files  []memory.Governed
	Budget int                                           // entries that are uncertain and verified, per day (UTC) and workspace
	Queue  string                                        // of the tasks that ask agents
	Uses   func(g memory.Governed, id string) memory.Use // of an entry
	Now    func() time.Time
	Agent  func() string                               // that is asked: the configured one, or one that is installed, else demo
	NewID  func() string                               // another one each time; at most 32 letters and digits
	Alone  func(workspace string, do func()) (ok bool) // calls do while no task is at work in that checkout, whose changes it would be taken for
	Log    *slog.Logger

	told   string // the trouble that was logged last
	agent  string // what Agent said last, and when: it may start programs
	agentT time.Time
}

const (
	workerID  = "stint"
	lookEvery = 5 * time.Second
	most      = 10  // jobs that are pulled at once, and agents that are asked at the same time
	mostNew   = 100 // jobs that are enqueued at once
)

// Run looks every 5 seconds what is to be done, until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	for on := true; on; on = task.Sleep(ctx, lookEvery) == nil {
		w.look(context.WithoutCancel(ctx)) // it takes no time, and what was pulled is not left behind
	}
}

func (w *Worker) look(ctx context.Context) {
	asked, why := 0, ""
	for _, g := range w.Files {
		if w.Tasks.IsLeaving() {
			return // the next master goes on
		}
		if err := w.lookAt(ctx, g, &asked); err != nil {
			why += fmt.Sprintf("%s: %v\n", filepath.Join(g.Workspace, g.Path), err)
		}
	}
	if why != w.told && why != "" {
		w.Log.Warn("cannot process governed notes, trying again", "error", why)
	}
	w.told = why
}

// lookAt does for one file what is to be done now. asked counts the agents at work.
func (w *Worker) lookAt(ctx context.Context, g memory.Governed, asked *int) error {
	now := w.Now()
	if g.IsBeingSaved(now) {
		return nil
	}
	f, err := g.Read()
	entries, next := f.Entries(), now.Add(care.DecayEvery)
	if !bytes.Equal(f.Adopt(w.NewID, next)[0], f[0]) {
		w.Alone(g.Workspace, func() { entries, err = g.Entries(w.NewID, next) })
	}
	if err != nil {
		return err
	}
	trouble := w.enqueue(ctx, g, entries, now)
	byObject, plans := map[string]care.Entry{}, map[string]*plan{}
	for _, e := range entries {
		byObject[g.ObjectID(e.ID)] = e
	}
	for _, j := range w.Jobs.Where(func(j *jobs.Job) bool {
		return j.Status == jobs.Queued && !j.RunAt.After(now) && strings.HasPrefix(j.ObjectID, g.ObjectID(""))
	}) {
		p := &plan{entry: byObject[j.ObjectID], change: care.Change{Action: care.Action(j.Action), Job: j.ID, Now: now}}
		isReady, err := w.prepare(ctx, g, j, p, asked)
		if p.waits != j.WaitsFor {
			err = errors.Join(err, w.Jobs.Wait(ctx, j.ID, p.waits))
		}
		if trouble = errors.Join(trouble, err); isReady && len(plans) < most {
			plans[j.ID] = p
		}
	}
	if len(plans) == 0 {
		return trouble
	}
	w.Alone(g.Workspace, func() {
		pulled, err := w.Jobs.Pull(ctx, jobs.Pull{WorkerID: workerID, IDs: slices.Sorted(maps.Keys(plans))})
		trouble = errors.Join(trouble, err)
		for _, j := range pulled {
			trouble = errors.Join(trouble, w.applyPlan(ctx, g, j.ID, plans[j.ID]))
		}
	})
	return trouble
}

// enqueue adds the jobs of the entries that are due, unless they are there. What is over the budget of today
// is due tomorrow, and what is over that of tomorrow is left for then.
func (w *Worker) enqueue(ctx context.Context, g memory.Governed, entries []care.Entry, now time.Time) (trouble error) {
	added := 0
	queued, open, due := map[string]bool{}, map[string]bool{}, map[string]int{}
	onDay := func(a care.Action, at time.Time) string { return string(a) + at.UTC().Format(time.DateOnly) }
	for _, j := range w.Jobs.Where(func(j *jobs.Job) bool { return strings.HasPrefix(j.ObjectID, g.Workspace+":") }) {
		queued[j.IdempotencyKey] = j.Status == jobs.Queued
		isOpen := j.Status == jobs.Running || queued[j.IdempotencyKey] && (j.Attempt > 0 || j.WaitsFor != "" || !j.RunAt.After(now))
		hasFailed := j.Status == jobs.DeadLetter || j.Status == jobs.Failed
		open[j.ObjectID] = open[j.ObjectID] || isOpen || hasFailed && onDay("", j.UpdatedAt) == onDay("", now)
		day := onDay(care.Action(j.Action), j.RunAt)
		due[day]++
		due[day+j.ObjectID]++
	}
	for i := range entries {
		e := &entries[i]
		action, object := w.action(g, e), g.ObjectID(e.ID)
		at, why, isOver := now, "", false
		if (action == care.Verify || action == care.Reinstate) && due[onDay(action, now)] >= w.Budget {
			at = now.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
			why, isOver = fmt.Sprintf("auto_verify_budget: %d %s jobs per day (UTC) and workspace are used up", w.Budget, action), due[onDay(action, at)] >= w.Budget
		}
		isOver = isOver || action == care.Reinstate && w.isUnused(g, e)                    // nobody has missed it
		isOver = isOver || action == care.Revalidate && due[onDay(action, now)+object] > 0 // agents can write that it is due again
		if e.ID == "" || e.Next.IsZero() || e.Next.After(now) || open[object] || isOver || e.May(action) != nil || added == mostNew {
			continue
		}
		key := fmt.Sprintf("%s:%s:%s", object, action, e.Next.UTC().Format(time.RFC3339))
		if e.Job != "" { // a person may write the same time again
			key += ":" + e.Job
		}
		if w.Jobs.HasKey(key) && !queued[key] { // it is a dead letter, or the file was put back since, as git does: once a day, lest something always does
			key += now.UTC().Format(":" + time.DateOnly)
		}
		if w.Jobs.HasKey(key) {
			continue
		}
		job, isNew, err := w.Jobs.Enqueue(ctx, jobs.Spec{ObjectType: g.Kind, ObjectID: object, Action: string(action), RunAt: at, Priority: e.Risk, IdempotencyKey: key})
		if trouble = errors.Join(trouble, err); err == nil && isNew {
			added++
			due[onDay(action, at)]++
			trouble = errors.Join(trouble, w.Jobs.Wait(ctx, job.ID, why))
		}
	}
	return trouble
}

// action returns what is to be done with an entry that is due. Only those that are uncertain are
// verified, so that the jobs themselves say how much of the budget is used.
func (w *Worker) action(g memory.Governed, e *care.Entry) care.Action {
	switch {
	case e.Status == care.Archived:
		return care.Reinstate
	case e.Status == care.Uncertain:
		return care.Verify
	case !w.isUnused(g, e):
		return care.Revalidate
	case e.Confidence > care.Least:
		return care.Decay
	}
	return care.Archive
}

func (w *Worker) isUnused(g memory.Governed, e *care.Entry) bool {
	return w.Now().Sub(w.Uses(g, e.ID).Last) >= care.DecayEvery
}

// A plan is what is done with a job once it is pulled.
type plan struct {
	entry    care.Entry // as it was when its verdict was found
	change   care.Change
	evidence string
	waits    string // for what the job waits
	err      error  // why the attempt fails
}

// prepare completes the plan of a job that is due. isReady is false while the job has to wait; the error says
// what keeps it waiting that should not.
func (w *Worker) prepare(ctx context.Context, g memory.Governed, j jobs.Job, p *plan, asked *int) (isReady bool, err error) {
	e, use := &p.entry, w.Uses(g, p.entry.ID)
	switch {
	case e.Job == j.ID:
		p.evidence = "it was applied before, and that could not be noted"
	case e.ID == "":
		p.err = care.ErrGone
	case e.Risk == care.High && g.Open() != nil:
		p.waits = memory.OneLine(fmt.Sprint(g.Open()), 500)
		return false, nil
	case e.May(p.change.Action) != nil:
		p.err = e.May(p.change.Action)
	case p.change.Action == care.Archive, p.change.Action == care.Decay:
		p.evidence = fmt.Sprintf("%d prompts had it, the last one at %s", use.Count, use.Last.UTC().Format(time.RFC3339))
		if use.Count == 0 {
			p.evidence = "no prompt had it"
		}
		if p.change.Action == care.Decay && w.isUnused(g, e) {
			p.change.Verdict = care.Fails
		}
	default:
		return w.ask(ctx, g, j, p, asked)
	}
	return true, nil
}

// applyPlan makes the change of a job that was pulled, and notes its end.
func (w *Worker) applyPlan(ctx context.Context, g memory.Governed, id string, p *plan) error {
	var before, after care.Entry
	if p.err == nil {
		before, after, p.err = g.Apply(p.entry, p.change)
	}
	if errors.Is(p.err, care.ErrGone) { // somebody has taken it out: nothing is left to do, and nobody to be alarmed
		p.evidence, p.err = p.err.Error(), nil
	}
	if p.err != nil {
		_, err := w.Jobs.Fail(ctx, id, jobs.Fail{Error: p.err.Error(), WorkerID: workerID})
		return err
	}
	_, err := w.Jobs.Ack(ctx, id, jobs.Ack{WorkerID: workerID, NextActionAt: after.Next, NoNext: true, Before: describe(before), After: describe(after), Evidence: p.evidence})
	return err
}

// describe returns an entry as the audit has it.
func describe(e care.Entry) string {
	e.Text = memory.OneLine(e.Text, 4000)
	text, _ := json.Marshal(e) // it has texts and numbers
	return string(text)
}
