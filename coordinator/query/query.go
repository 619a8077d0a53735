// Package query is the read side of a master: lists and single tasks, why one waits, its runs, prompts and
// files, sessions, usage, metrics, a search of the notes, and a preview of what a submit would do. It changes
// nothing. What it asks of the runs at work, the dispatcher answers ([Live]).
package query

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/attempt"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/archive"
	"stint/session"
	"stint/state"
	"stint/state/explain"
	"stint/state/fold"
	"stint/state/lanes"
)

// A Query answers what is asked of a master's tasks. Its methods may be called by any goroutine.
type Query struct {
	Counters *Counters

	tasks     *queue.Store
	admission *admission.Admission
	attempts  *attempt.Attempts
	live      Live
	start     time.Time // of the master
}

// Live is what is asked of the runs at work. The dispatcher has them.
type Live interface {
	// Limits returns what bounds the tasks that run at the same time.
	Limits() lanes.Limits
	// RunOf returns the run of a task, which may be just being started or ended; nil if it has none.
	RunOf(id string) *attempt.Run
}

// New returns the read side of a master that starts now.
func New(s *queue.Store, adm *admission.Admission, a *attempt.Attempts, live Live) *Query {
	return &Query{Counters: newCounters(s.Config.Agents), tasks: s, admission: adm, attempts: a, live: live, start: s.Config.Now()}
}

// Task returns the whole task that ref stands for: an id, any unique piece of one,
// or @last. If its run just ended, Task waits for the last event of the run's log, briefly.
func (q *Query) Task(ctx context.Context, ref string) (state.Task, error) {
	id, err := q.tasks.Find(ref)
	if err != nil {
		return state.Task{}, err
	}
	t, err := q.tasks.Whole(id)
	if r := q.live.RunOf(id); r != nil && r.ID == t.RunID && t.Status != state.Running {
		r.AwaitEvents(ctx)
	}
	return t, err
}

// List returns tasks, newest first, without prompts and results.
func (q *Query) List(f state.Filter) []state.Task {
	return q.list(func(st *fold.State) ([]state.Task, error) { return st.List(f) })
}

// list returns what read reads; what it cannot read is left out.
func (q *Query) list(read func(*fold.State) ([]state.Task, error)) (tasks []state.Task) {
	var err error
	if q.tasks.View(func(st *fold.State) { tasks, err = read(st) }); err != nil {
		q.tasks.Trouble("the list is not whole", err)
	}
	return tasks
}

// Rows is List for who writes the tasks down; see [fold.State.Rows]. encode must not call the
// coordinator. The error has CodeInvalid if f.Before is no place in this list.
func (q *Query) Rows(f state.Filter, encode func(*state.Task) ([]byte, error)) (rows []state.Row, err error) {
	q.tasks.View(func(st *fold.State) {
		if f.Before > st.Seq() {
			err = task.BadCursor("it is from another list")
		} else if rows, err = st.Rows(f, encode); err != nil {
			err = fmt.Errorf("the list of tasks: %w", err)
		}
	})
	for i := 0; f.Prompts && i < len(rows) && err == nil; i++ { // each by itself: nobody waits for all of them
		var t state.Task
		t, err = q.tasks.Whole(rows[i].Task.ID)
		rows[i].Task.Prompt = t.Prompt
	}
	return rows, err
}

// Why returns in one sentence why the task is where it is.
func (q *Query) Why(ref string) (string, error) {
	id, err := q.tasks.Find(ref)
	if err != nil {
		return "", err
	}
	_, why := q.Waits(id)
	return why, nil
}

// Waits returns what the task of that id waits for in a few words, "" if for nothing, and what Why returns.
func (q *Query) Waits(id string) (short, why string) {
	now := q.tasks.Config.Now()
	lim := q.live.Limits()
	q.tasks.View(func(st *fold.State) { short, why = st.Waits(id, now, lim) })
	return short, why + q.silence(id, now)
}

// Wait returns when the task has ended, with the whole task.
func (q *Query) Wait(ctx context.Context, ref string) (state.Task, error) {
	id, err := q.tasks.Find(ref)
	if err != nil {
		return state.Task{}, err
	}
	return q.tasks.Until(ctx, id, func(t *state.Task) bool { return t.Status.Terminal() })
}

// Raw returns the records of a task as they stand in the journal.
func (q *Query) Raw(_ context.Context, ref string) (out []byte, err error) {
	id, err := q.tasks.Find(ref)
	if err != nil {
		return nil, err
	}
	q.tasks.View(func(st *fold.State) { // no offset is one of another file
		if e, ok := st.Archived(id); ok {
			var s *ledger.Section
			if s, err = archive.ReadRecord(nil, q.tasks.Config.StateDir, e); err == nil {
				out = []byte(strings.TrimRight(string(s.Raw), "\n") + "\n\n")
			}
			return
		}
		for _, off := range st.Offsets(id) {
			var s *ledger.Section
			if s, err = q.tasks.SectionAt(off); err != nil {
				return
			}
			out = append(append(out, s.Raw...), '\n')
		}
	})
	return out, err
}

// Sessions returns the current sessions, newest first.
func (q *Query) Sessions() []state.Session {
	return queue.Read(q.tasks, (*fold.State).Sessions)
}

// Session returns the session with that key or id, and what was said in it: the last n
// messages, or with before those that stand before that place; see [session.ReadPage].
func (q *Query) Session(ref string, before int64, n int) (state.Session, session.Page, error) {
	sessions := q.Sessions()
	i := slices.IndexFunc(sessions, func(s state.Session) bool {
		return s.Key == ref || s.ID == ref || s.Native == ref || s.Key == state.LanePrefixDir+ref
	})
	if i < 0 {
		return state.Session{}, session.Page{}, &task.Error{Code: task.CodeNotFound, Message: fmt.Sprintf("there is no session %q", ref), Hint: "stint session ls"}
	}
	s := sessions[i]
	p, err := session.ReadPage(session.TranscriptPath(q.tasks.Config.StateDir, s.ID), before, n)
	switch {
	case errors.Is(err, fs.ErrNotExist) && before == 0:
		err = nil // nothing was said yet
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, session.ErrNoPlace):
		err = task.BadCursor("the transcript has no such place")
	}
	return s, p, err
}

// Queue returns the tasks that wait in the lane of that key, in the order in which they will run, without
// prompts and results but with titles.
func (q *Query) Queue(key string) []state.Task {
	return q.list(func(st *fold.State) ([]state.Task, error) { return st.Queue(key) })
}

// Runs returns all runs of a task, the oldest first, as far as its records tell of them.
func (q *Query) Runs(_ context.Context, ref string) ([]task.TaskRun, error) {
	id, err := q.tasks.Find(ref)
	if err != nil {
		return nil, err
	}
	i, err := q.TaskRecord(id)
	return i.Runs, err
}

// Accounts returns the accounts that are known, by name: those that are configured, with the default one of each
// agent, and those of control records and of tasks that run or wait. What they log in with is nowhere in the
// ledger.
func (q *Query) Accounts() []state.AccountUse {
	accounts := q.tasks.AccountsNow()
	list := state.WithConfigured(queue.Read(q.tasks, (*fold.State).Accounts), accounts.List)
	for i := range list {
		a := &list[i]
		a.Closed, a.Why = explain.Account(&a.Account, accounts.Rule(&a.Account), q.tasks.Config.Now())
		a.Spent = q.tasks.SpentToday(a.Name).String()
	}
	return list
}

// TaskIDs returns the next n ids at most, behind the first done ones, of all tasks, in the order of age, those of
// the archive first. After a compaction who goes through all begins anew.
func (q *Query) TaskIDs(done, n int) []string {
	return queue.Read(q.tasks, func(st *fold.State) []string { return st.IDs(done, n) })
}

// TaskRecord returns a task as it is now, by its whole id. The error has CodeNotFound if there is none.
func (q *Query) TaskRecord(id string) (task.TaskRecord, error) {
	return queue.TaskRecord(q.tasks.Config.StateDir, id, q.tasks.View)
}

// TwinOf returns the task that has that idempotency key; see [admission.Admission.Fired].
func (q *Query) TwinOf(key string) (t state.Task, ok bool) { return q.admission.Fired(key) }

// Live returns when the agent of a running task last put something out, or when its run began if it has not yet; what the run
// does now, nil if that is not known; and whether the run has ended, and its result waits until a save of tasks.md is settled.
func (q *Query) Live(id string) (last time.Time, event *task.LogEvent, settling bool) {
	r := q.runOf(id)
	if r == nil {
		return last, nil, false
	}
	if last = r.Begun; r.LastOutput.Load() != nil {
		last = *r.LastOutput.Load()
	}
	return last, r.Event(), r.Settling.Load()
}

// runOf returns the run of a running task; nil if it is not running, also if its run is still listed.
func (q *Query) runOf(id string) *attempt.Run {
	if t, _ := q.tasks.Peek(id); t.Status != state.Running {
		return nil
	}
	return q.live.RunOf(id)
}

// silence returns for how long a running task has put nothing out; "" if that is less than a minute.
func (q *Query) silence(id string, now time.Time) string {
	r := q.runOf(id)
	if r == nil || r.Settling.Load() {
		return ""
	}
	last, limit := r.Begun, q.tasks.Config.StartupTimeout
	if out := r.LastOutput.Load(); out != nil {
		last, limit = *out, q.tasks.Config.IdleTimeout
	}
	quiet := now.Sub(last)
	if quiet < time.Minute {
		return ""
	}
	text := "; no output for " + task.FormatElapsed(quiet)
	if limit > 0 && r.Task.Phase != state.PhaseVerify { // which has its own limit, however silent it is
		text += ", ended as " + string(state.ClassStalled) + " at " + task.FormatLimit(limit)
	}
	return text
}
