package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/session"
	"stint/state"
	"stint/state/fold"
)

// Task gives the whole task that ref stands for: an id, any unique piece of one,
// or @last.
func (c *Coordinator) Task(_ context.Context, ref string) (state.Task, error) {
	defer c.Call()()
	id, err := c.Find(ref)
	if err != nil {
		return state.Task{}, err
	}
	return c.Whole(id)
}

// List gives tasks, newest first, without prompts and results.
func (c *Coordinator) List(f state.Filter) []state.Task {
	defer c.Call()()
	var tasks []state.Task
	var err error
	c.View(func(st *fold.State) { tasks, err = st.List(f) })
	if err != nil {
		c.Trouble("the list is not whole", err)
	}
	return tasks
}

// Rows is List for who writes the tasks down; see [fold.State.Rows]. encode must
// not call the coordinator. The error has CodeInvalid if f.Before is no place in this
// list.
func (c *Coordinator) Rows(f state.Filter, encode func(*state.Task) ([]byte, error)) (rows []fold.Row, err error) {
	defer c.Call()()
	c.View(func(st *fold.State) {
		if f.Before > st.Seq() {
			err = task.BadCursor("it is from another list")
		} else if rows, err = st.Rows(f, encode); err != nil {
			err = fmt.Errorf("the list of tasks: %w", err)
		}
	})
	return rows, err
}

// Why says in one sentence why the task is where it is.
func (c *Coordinator) Why(ref string) (string, error) {
	defer c.Call()()
	id, err := c.Find(ref)
	if err != nil {
		return "", err
	}
	now := c.Config.Now()
	lim := c.limits()
	why := task.Read(c.Store, func(st *fold.State) string { return st.Why(id, now, lim) })
	return why + c.silence(id, now), nil
}

// Cancel ends a task: a waiting one at once; of a running one the agent is ended
// first, with all its descendants, and then Cancel returns. by is who asks. The error has
// CodeBusy if that does not come to an end; the task is canceled when it does.
func (c *Coordinator) Cancel(ctx context.Context, ref, by string) (state.Task, error) {
	defer c.Call()()
	id, err := c.Find(ref)
	if err != nil {
		return state.Task{}, err
	}
	for again := false; ; again = true {
		run, err := c.cancelWaiting(ctx, id, by)
		if again && errors.Is(err, &task.Error{Code: task.CodeConflict}) {
			return c.Whole(id) // it has ended meanwhile
		}
		if err == nil && run != "" {
			err = c.cancelRun(ctx, id, run, by)
		}
		if err != nil {
			return state.Task{}, err
		}
		t, err := c.Whole(id)
		if err != nil || t.Status.Terminal() {
			return t, err
		}
		// The run ended and left the task in the queue, or at its next step: it was
		// interrupted just then, or belonged to a master before this one.
	}
}

// cancelWaiting cancels a task that waits, or names the run of one that is running.
func (c *Coordinator) cancelWaiting(ctx context.Context, id, by string) (run string, err error) {
	err = c.Update(ctx, func(st *fold.State, tx *ledger.Tx) error {
		t, err := task.PeekIn(st, id)
		if err != nil {
			return err
		}
		switch {
		case t.Status == state.Running:
			run = t.RunID
		case t.Status.Terminal():
			return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s has ended already: %s", id, t.Status), Hint: "stint show " + id}
		default:
			r := &ledger.Record{Kind: ledger.KindTask, ID: id}
			tx.Append(r.Add(state.KeyStatus, string(state.Canceled)).Add(state.KeyReason, string(state.ClassCanceled)).
				Add(state.KeyBy, by).Add(state.KeyUpdatedAt, state.FormatTime(c.Config.Now())))
		}
		return nil
	})
	return run, err
}

// cancelRun ends a run of a task and waits for its end. Another run may have begun
// by then: one of a master before this one is put back and started anew at once.
func (c *Coordinator) cancelRun(ctx context.Context, id, run, by string) error {
	c.runsMu.Lock()
	if r := c.runs[id]; r != nil {
		r.cancel(cancelBy(by))
	}
	c.runsMu.Unlock()
	limit := task.EndLimit(c.Config.Grace)
	ctx, stop := context.WithTimeoutCause(ctx, limit, &task.Error{
		Code: task.CodeBusy, Message: fmt.Sprintf("task %s is to end, and its run has not ended for %s", id, limit), Hint: "once it has, the task is canceled: stint show " + id,
	})
	defer stop()
	_, err := c.Until(ctx, id, func(t *state.Task) bool { return t.Status != state.Running || t.RunID != run })
	return err
}

// cancelBy is ErrCanceled with who asked for it.
type cancelBy string

func (cancelBy) Error() string { return task.ErrCanceled.Error() }
func (cancelBy) Unwrap() error { return task.ErrCanceled }

// canceledBy gives who has canceled a run.
func canceledBy(ctx context.Context) string {
	var by cancelBy
	if errors.As(context.Cause(ctx), &by) {
		return string(by)
	}
	return ledger.ByClient
}

// Retry queues a task again that has ended or waits, with its counters at zero.
// A hold of its account is lifted: whoever retries has mended it. by is who asks.
func (c *Coordinator) Retry(ctx context.Context, ref, by string) (state.Task, error) {
	defer c.Call()()
	if c.IsShut() {
		return state.Task{}, c.StoppedError()
	}
	id, err := c.Find(ref)
	if err != nil {
		return state.Task{}, err
	}
	err = c.Exclusive(ctx, func(st *fold.State, tx *ledger.Tx) error { // others may come after it, or be behind it
		t, err := c.WholeIn(st, id) // of an ended task only the journal knows the account
		if err != nil {
			return err
		}
		if t.Status == state.Running {
			return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is running", id), Hint: "stint cancel " + id}
		}
		if err := checkRetry(st, &t); err != nil {
			return err
		}
		if err := c.revive(st, tx, id); err != nil {
			return err
		}
		now := c.Config.Now()
		r := &ledger.Record{Kind: ledger.KindTask, ID: id}
		unset(r, state.KeyOutputFiles, len(t.OutputFiles) > 0)
		unset(r, state.KeyPhase, t.Phase != "")
		unset(r, state.KeyIteration, t.Iteration > 0)
		unset(r, state.KeyRequeues, t.Requeues > 0)
		if t.VerifyExitCode != nil { // the command may be another one now
			r.Add(state.KeyVerifyExitCode, "").Add(state.KeyVerifyTime, "").Add(state.KeyVerifyOutput, "")
		}
		unset(r, state.KeyFindings, len(t.Findings) > 0)
		if !t.Hold || t.Trigger != state.ByAgent || t.Orphaned() { // else nobody has released yet what an agent asked for
			r.Add(state.KeyHold, "").Add(state.KeyNote, "")
		}
		tx.Append(r.Add(state.KeyStatus, string(state.Queued)).Add(state.KeyReason, "").Add(state.KeyError, "").
			Add(state.KeyResult, "").Add(state.KeyNotBefore, "").
			Add(state.KeyAttempt, "0").Add(state.KeyRetries, "0").Add(state.KeyLimitWaits, "0").Add(state.KeyLimitSince, "").
			Add(state.KeyBy, by).Add(state.KeyUpdatedAt, state.FormatTime(now)))
		if st.Account(t.AccountName()).Hold {
			tx.Append(accountRecord(t.AccountName()).Add(state.KeyHold, "").Add(state.KeyReason, "").Add(state.KeyBy, by))
		}
		return nil
	})
	if err != nil {
		return state.Task{}, err
	}
	return c.Whole(id)
}

// checkRetry says why a task that has ended cannot be queued again where it was: it
// would fail at once, or never run.
func checkRetry(st *fold.State, t *state.Task) error {
	if id, status, bad := st.EndedBadly(t); bad {
		return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s comes after %s, which is %s", t.ID, id, status), Hint: "first: stint retry " + id}
	}
	again := *t
	again.Status = state.Queued
	if err := st.CheckOrder([]state.Task{again}); err != nil {
		return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s cannot be queued: %v", t.ID, err), Hint: "stint show " + t.ID}
	}
	return nil
}

// Wait returns when the task has ended, with the whole task.
func (c *Coordinator) Wait(ctx context.Context, ref string) (state.Task, error) {
	defer c.Call()()
	id, err := c.Find(ref)
	if err != nil {
		return state.Task{}, err
	}
	return c.Until(ctx, id, func(t *state.Task) bool { return t.Status.Terminal() })
}

// Raw gives the records of a task as they stand in the journal.
func (c *Coordinator) Raw(_ context.Context, ref string) (out []byte, err error) {
	defer c.Call()()
	id, err := c.Find(ref)
	if err != nil {
		return nil, err
	}
	c.View(func(st *fold.State) { // no offset is one of another file
		if e, ok := st.Archived(id); ok {
			var s *ledger.Section
			if s, err = ledger.ReadArchived(nil, c.Config.StateDir, e); err == nil {
				out = []byte(strings.TrimRight(string(s.Raw), "\n") + "\n\n")
			}
			return
		}
		for _, off := range st.Offsets(id) {
			var s *ledger.Section
			if s, err = c.SectionAt(off); err != nil {
				return
			}
			out = append(append(out, s.Raw...), '\n')
		}
	})
	return out, err
}

// Sessions gives the current sessions, newest first.
func (c *Coordinator) Sessions() []state.Session {
	defer c.Call()()
	return task.Read(c.Store, (*fold.State).Sessions)
}

// Session gives the session with that key or id, and what was said in it.
func (c *Coordinator) Session(ref string) (state.Session, []session.Message, error) {
	s, err := c.findSession(ref)
	if err != nil {
		return s, nil, err
	}
	messages, _, err := session.ReadTranscript(session.TranscriptPath(c.Config.StateDir, s.ID))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // nothing was said yet
	}
	return s, messages, err
}

// SessionPage is Session with the last n messages alone, or with before those that stand
// before that place; see [session.ReadPage].
func (c *Coordinator) SessionPage(ref string, before int64, n int) (state.Session, session.Page, error) {
	s, err := c.findSession(ref)
	if err != nil {
		return s, session.Page{}, err
	}
	p, err := session.ReadPage(session.TranscriptPath(c.Config.StateDir, s.ID), before, n)
	switch {
	case errors.Is(err, fs.ErrNotExist) && before == 0:
		err = nil // nothing was said yet
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, session.ErrNoPlace):
		err = task.BadCursor("the transcript has no such place")
	}
	return s, p, err
}

func (c *Coordinator) findSession(ref string) (state.Session, error) {
	for _, s := range c.Sessions() {
		if s.Key == ref || s.ID == ref || s.Native == ref || s.Key == state.LanePrefixDir+ref {
			return s, nil
		}
	}
	return state.Session{}, &task.Error{Code: task.CodeNotFound, Message: fmt.Sprintf("there is no session %q", ref), Hint: "stint session ls"}
}
