// Package admission decides about what is asked for, and appends it to the ledger: submit, edit, move, hold, release, cancel,
// retry and pause of a client, the follow-ups that a task queues at its end, and what the agent within a run may ask for.
//
// What depends on the value alone is checked by package task, what asks the file system is checked before the ledger's
// goroutine is asked, and what depends on other tasks is decided there, on the fold, in the same change that appends the
// records. So a batch is accepted whole or not at all, and two that ask for one thing at once get one answer.
package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/singleflight"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/archive"
	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
)

// An Admission decides about what clients ask for. Its methods may be called by any goroutine.
type Admission struct {
	tasks *queue.Store
	live  Live
	waits sync.Map // by pointers to the ids of runs, one for each task that a client within one waits for

	looks singleflight.Group // at workspaces, that have not begun; see lookTogether
}

// Live is what is asked of the runs at work. The dispatcher has them.
type Live interface {
	// TaskOf returns a task as its run knows it, with a workspace without links; nil if none is at work.
	TaskOf(id string) *state.Task
	// Cancel ends the run of a task with a cause, if there is one.
	Cancel(id string, cause error)
}

// New returns the admission to a store.
func New(s *queue.Store, live Live) *Admission {
	return &Admission{tasks: s, live: live}
}

// change changes the task that ref names, by Update or Exclusive, and returns it whole.
func (a *Admission) change(ctx context.Context, ref string, update func(context.Context, func(*fold.State, *ledger.Tx) error) error, f func(st *fold.State, tx *ledger.Tx, id string) error) (state.Task, error) {
	id, err := a.tasks.Find(ref)
	if err == nil {
		err = update(ctx, func(st *fold.State, tx *ledger.Tx) error { return f(st, tx, id) })
	}
	if err != nil {
		return state.Task{}, err
	}
	return a.tasks.Whole(id)
}

// Hold keeps a queued task from being run until it is released. One that is held already stays as
// it is. The error has CodeConflict if the task is not queued. by is who asks.
func (a *Admission) Hold(ctx context.Context, ref, by string) (state.Task, error) {
	return a.setHold(ctx, ref, by, true)
}

// Release ends what Hold has begun, with the same rules.
func (a *Admission) Release(ctx context.Context, ref, by string) (state.Task, error) {
	return a.setHold(ctx, ref, by, false)
}

func (a *Admission) setHold(ctx context.Context, ref, by string, hold bool) (state.Task, error) {
	return a.change(ctx, ref, a.tasks.Update, func(st *fold.State, tx *ledger.Tx, id string) error {
		t, err := queue.PeekIn(st, id)
		if err == nil && hold {
			err = twinError(&t, "get")
		}
		switch {
		case !hold && a.tasks.IsShut():
			return a.tasks.StoppedError()
		case err != nil:
			return err
		case t.Status != state.Queued:
			hint := "stint show " + id
			if t.Status == state.Draft && !hold {
				hint = "stint retry " + id
			}
			return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is %s; only a queued task can be held or released", id, t.Status), Hint: hint}
		case t.Hold == hold:
			return nil
		}
		r := task.RecordOf(id).Add(state.KeyStatus, string(state.Queued)).Add(state.KeyHold, state.Flag(hold))
		r.AddWhen(!hold && t.Note != "", state.KeyNote, "") // it says why the task was held
		tx.Append(r.Add(state.KeyBy, by).Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now())))
		return nil
	})
}

// Pause stops dispatch until Resume, over restarts too; what runs goes on. reason may be "". by is who asks.
func (a *Admission) Pause(ctx context.Context, reason, by string) error {
	return a.setPaused(ctx, true, reason, by)
}

// Resume lets dispatch go on after a Pause. by is who asks.
func (a *Admission) Resume(ctx context.Context, by string) error {
	return a.setPaused(ctx, false, "", by)
}

// Paused reports whether dispatch is stopped, and why.
func (a *Admission) Paused() (paused bool, reason string) {
	a.tasks.View(func(st *fold.State) { paused, reason = st.Paused() })
	return paused, reason
}

func (a *Admission) setPaused(ctx context.Context, paused bool, reason, by string) error {
	return a.tasks.Exclusive(ctx, func(st *fold.State, tx *ledger.Tx) error {
		if was, why := st.Paused(); was == paused && why == reason {
			return nil
		}
		r := &ledger.Record{Kind: ledger.KindControl, ID: state.ControlDispatch}
		tx.Append(r.Add(state.KeyPaused, state.Flag(paused)).Add(state.KeyReason, reason).Add(state.KeyBy, by).
			Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now())))
		return nil
	})
}

// Cancel ends a task: a waiting one at once, a running one when its agent and all descendants have ended. by is
// who asks. The error has CodeBusy if that takes too long; the task is canceled when it does.
func (a *Admission) Cancel(ctx context.Context, ref, by string) (state.Task, error) {
	id, err := a.tasks.Find(ref)
	if err != nil {
		return state.Task{}, err
	}
	for again := false; ; again = true {
		run := "" // of one that is running
		err := a.tasks.Update(ctx, func(st *fold.State, tx *ledger.Tx) error {
			t, err := queue.PeekIn(st, id)
			if err == nil && by != ledger.ByWorker {
				err = twinError(&t, "cancel")
			} else if err == nil && t.Orphaned() { // else somebody else would begin it beside what may be left of its run
				err = &task.Error{Code: task.CodeBusy, Message: fmt.Sprintf("what is left of task %s is not known to have ended", id), Hint: "stint why " + id}
			}
			if err != nil {
				return err
			}
			switch {
			case t.Status == state.Running:
				run = t.RunID
			case t.Status.Terminal() && again: // meanwhile
			case t.Status.Terminal():
				return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s has ended already: %s", id, t.Status), Hint: "stint show " + id}
			default:
				tx.Append(a.canceled(id, by))
			}
			return nil
		})
		if err == nil && run != "" {
			a.live.Cancel(id, Cancellation(by))
			limit := queue.EndLimit(a.tasks.Config.Grace)
			limited, stop := context.WithTimeoutCause(ctx, limit, &task.Error{
				Code: task.CodeBusy, Message: fmt.Sprintf("task %s is to end, and its run has not ended for %s", id, limit), Hint: "once it has, the task is canceled: stint show " + id,
			})
			_, err = a.tasks.Until(limited, id, func(t *state.Task) bool { return t.Status != state.Running || t.RunID != run })
			stop()
		}
		if err != nil {
			return state.Task{}, err
		}
		t, err := a.tasks.Whole(id)
		if err != nil || t.Status.Terminal() {
			return t, err
		}
		// The run ended and left the task in the queue, or at its next step: it was
		// interrupted just then, or belonged to a master before this one, and another has begun.
	}
}

// twinError refuses to change the twin of a shared task, which is its worker's; nil: it is none.
func twinError(t *state.Task, do string) error {
	if t.SharedID == "" {
		return nil
	}
	return task.Conflict(fmt.Sprintf("stint tasks %s --shared %s", do, t.SharedID), "task %s runs here for shared task %s, and nothing but that can be changed", t.ID, t.SharedID)
}

// canceled returns the record of a waiting task that is canceled.
func (a *Admission) canceled(id, by string) *ledger.Record {
	return task.RecordOf(id).Add(state.KeyStatus, string(state.Canceled)).Add(state.KeyReason, string(state.ClassCanceled)).
		Add(state.KeyBy, by).Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now()))
}

// Remove takes a task out of all lists; one that waits is canceled. Its sections stay until the next compaction
// moves them to the archive; its id, end and idempotency key still count. by is who asks. The error has
// CodeConflict if the task runs, or is archived, or if others come after it and would fail.
func (a *Admission) Remove(ctx context.Context, ref, by string) (state.Task, error) {
	const maxNamed = 20 // tasks that an error names
	return a.change(ctx, ref, a.tasks.Update, func(st *fold.State, tx *ledger.Tx, id string) error {
		t, err := queue.PeekIn(st, id)
		_, archived := st.Archived(id)
		switch {
		case err != nil:
			return err
		case archived:
			return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is in the archive, which keeps it", id), Hint: "stint ls --archive"}
		case t.Status == state.Running:
			return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is running", id), Hint: "stint cancel " + id}
		case !t.Status.Terminal() && t.SharedID != "":
			return twinError(&t, "cancel")
		case !t.Status.Terminal():
			if after := st.Dependants(id); len(after) > maxNamed {
				return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("%d tasks come after %s and would fail", len(after), id), Hint: "to let them fail: stint cancel " + id}
			} else if ids := strings.Join(after, " "); ids != "" {
				return task.Conflict(fmt.Sprintf("stint rm %s %s, or to let them fail: stint cancel %s", ids, id, id), "tasks come after %s and would fail: %s", id, ids)
			}
			tx.Append(a.canceled(id, by))
		}
		r := &ledger.Record{Kind: ledger.KindControl, ID: fold.ControlDeleted}
		tx.Append(r.Add(fold.KeyRemoved, id).Add(state.KeyBy, by).Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now())))
		return nil
	})
}

// A Cancellation is the cause with which a run is canceled: [task.ErrCanceled], and who asked for that.
type Cancellation string

func (Cancellation) Error() string { return task.ErrCanceled.Error() }

func (Cancellation) Unwrap() error { return task.ErrCanceled }

// CanceledBy returns who has canceled a run.
func CanceledBy(ctx context.Context) string {
	var by Cancellation
	if errors.As(context.Cause(ctx), &by) {
		return string(by)
	}
	return ledger.ByClient
}

// Retry queues a task again that has ended or waits, with its counters at zero.
// A hold of its account is lifted: whoever retries has repaired it. by is who asks.
func (a *Admission) Retry(ctx context.Context, ref, by string) (state.Task, error) {
	return a.change(ctx, ref, a.tasks.Exclusive, func(st *fold.State, tx *ledger.Tx, id string) error { // others may come after it, or be behind it
		if a.tasks.IsShut() {
			return a.tasks.StoppedError()
		}
		t, err := a.tasks.WholeIn(st, id) // of an ended task only the journal knows the account
		if err == nil {
			err = twinError(&t, "requeue")
		}
		if err != nil {
			return err
		}
		if t.Status == state.Running {
			return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is running", id), Hint: "stint cancel " + id}
		}
		// It must not fail at once, or never run.
		if before, status, bad := st.EndedBadly(t.After, t.AfterPolicy == state.AfterAny); bad {
			return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s comes after %s, which is %s", id, before, status), Hint: "first: stint retry " + before}
		}
		again := t
		again.Status = state.Queued
		if err := st.CheckOrder([]state.Task{again}); err != nil {
			return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s cannot be queued: %v", id, err), Hint: "stint show " + id}
		}
		if err := a.revive(st, tx, id); err != nil {
			return err
		}
		now := a.tasks.Config.Now()
		r := task.RecordOf(id)
		r.AddWhen(len(t.OutputFiles) > 0, state.KeyOutputFiles, "")
		r.AddWhen(t.Phase != "", state.KeyPhase, "")
		r.AddWhen(t.Iteration > 0, state.KeyIteration, "")
		r.AddWhen(t.Requeues > 0, state.KeyRequeues, "")
		if t.VerifyExitCode != nil { // the command may be another one now
			r.Add(state.KeyVerifyExitCode, "").Add(state.KeyVerifyTime, "").Add(state.KeyVerifyOutput, "")
		}
		r.AddWhen(len(t.Findings) > 0, state.KeyFindings, "")
		if !t.Hold || t.Trigger != state.ByAgent || t.Orphaned() { // else nobody has released yet what an agent asked for
			r.Add(state.KeyHold, "").Add(state.KeyNote, "")
		}
		tx.Append(r.Add(state.KeyStatus, string(state.Queued)).Add(state.KeyReason, "").Add(state.KeyError, "").
			Add(state.KeyResult, "").Add(state.KeyNotBefore, "").
			Add(state.KeyAttempt, "0").Add(state.KeyRetries, "0").Add(state.KeyLimitWaits, "0").Add(state.KeyLimitSince, "").
			Add(state.KeyBy, by).Add(state.KeyUpdatedAt, state.FormatTime(now)))
		if st.Account(t.AccountName()).Hold {
			tx.Append(task.AccountRecord(t.AccountName()).Add(state.KeyHold, "").Add(state.KeyReason, "").Add(state.KeyBy, by))
		}
		return nil
	})
}

// revive appends the whole record of a task in the archive, before what changes it: so it comes back.
func (a *Admission) revive(st *fold.State, tx *ledger.Tx, id string) error {
	e, ok := st.Archived(id)
	if !ok {
		return nil
	}
	s, err := archive.ReadRecord(nil, a.tasks.Config.StateDir, e)
	if err != nil {
		return err
	}
	r := s.Record()
	r.Fields = slices.DeleteFunc(r.Fields, func(f ledger.Pair) bool { return f.Key == ledger.KeyArchived })
	tx.Append(&r)
	return nil
}

// SetAccount lets tasks use an account, which also ends its hold and cool-down, or lets none start with it. by is who asks.
func (a *Admission) SetAccount(ctx context.Context, id string, enabled bool, by string) (use state.AccountUse, err error) {
	c, ok := a.tasks.AccountsNow().Find(id)
	if !ok && !queue.Read(a.tasks, func(st *fold.State) bool { return st.Account(id).Hold }) {
		return use, &task.Error{Code: task.CodeNotFound, Message: "there is no account " + id, Hint: "stint account ls"}
	}
	r := task.AccountRecord(id)
	if r.Add(state.KeyDisabled, state.Flag(!enabled)); enabled {
		r.Add(state.KeyHold, "").Add(state.KeyReason, "").Add(state.KeyCoolUntil, "").Add(state.KeyLimitWaits, "")
	}
	r.Add(state.KeyBy, by)
	err = a.tasks.Exclusive(ctx, func(_ *fold.State, tx *ledger.Tx) error { tx.Append(r); return nil })
	return state.AccountUse{Account: queue.Read(a.tasks, func(st *fold.State) state.Account { return st.Account(id) }), AccountConfig: c, Agent: c.Tool}, err
}

// Controls returns the control records that a prefix is for, such as [state.ControlSchedule], by their names.
func (a *Admission) Controls(prefix string) map[string]state.Control {
	return queue.Read(a.tasks, func(st *fold.State) map[string]state.Control { return st.Controls(prefix) })
}

// ChangeControl changes the control record with that prefix and name, durably. change may be called more than once.
func (a *Admission) ChangeControl(ctx context.Context, prefix, name string, change func(*state.Control)) error {
	return a.tasks.Update(ctx, func(st *fold.State, tx *ledger.Tx) error {
		changeControl(st, tx, prefix, name, change)
		return nil
	})
}

// Fire is Submit of the task of a schedule's firing, and ChangeControl of the schedule, in one durable change.
func (a *Admission) Fire(ctx context.Context, s task.TaskSpec, name string, change func(*state.Control)) (state.Task, error) {
	tasks, err := a.submit(ctx, request{specs: []task.TaskSpec{s}, also: func(st *fold.State, tx *ledger.Tx) { changeControl(st, tx, state.ControlSchedule, name, change) }})
	if err != nil {
		return state.Task{}, err
	}
	return tasks[0], nil
}

// Fired returns the task with that idempotency key as it is now, one that has ended with its error; ok is
// false if there is none, or it cannot be read.
func (a *Admission) Fired(key string) (t state.Task, ok bool) {
	a.tasks.View(func(st *fold.State) {
		id, known := st.ByIdempotencyKey(key)
		if t, ok = st.Peek(id); known && (!ok || t.Status.Terminal()) {
			var err error
			t, err = a.tasks.WholeIn(st, id)
			ok = err == nil
		}
	})
	return t, ok
}

// changeControl appends what change makes of a control record, if it makes anything of it.
func changeControl(st *fold.State, tx *ledger.Tx, prefix, name string, change func(*state.Control)) {
	id := prefix + name
	tx.Claim(string(ledger.KindControl) + " " + id) // also where this appends nothing
	was := st.Controls(prefix)[name]
	now := was
	change(&now)
	before, after, r := was.Record(id), now.Record(id), &ledger.Record{Kind: ledger.KindControl, ID: id}
	for _, f := range slices.Concat(before.Fields, after.Fields) {
		old, _ := before.Get(f.Key)
		if value, _ := after.Get(f.Key); value != old {
			r.Set(ledger.Pair{Key: f.Key, Value: value})
		}
	}
	if len(r.Fields) > 0 {
		tx.Append(r)
	}
}

// Move puts a queued task into another place in its lane. The error has CodeConflict if one of the two does not
// wait there, or if it would come before what it has to come after. by is who asks.
func (a *Admission) Move(ctx context.Context, ref string, to task.Place, by string) (state.Task, error) {
	if to.First == (to.Before != "") {
		return state.Task{}, task.Invalid("say either that it is to be the first, or before which task", "it is not clear where the task is to go")
	}
	return a.change(ctx, ref, a.tasks.Exclusive, func(st *fold.State, tx *ledger.Tx, id string) error {
		before := ""
		if to.Before != "" {
			var err error
			if before, err = queue.FindIn(st, to.Before); err != nil {
				return err
			}
		}
		moved, err := moved(st, id, before)
		if err != nil {
			return err
		}
		for _, t := range moved {
			tx.Append(task.RecordOf(t.ID).Add(state.KeyOrder, strconv.FormatInt(t.Order, 10)).Add(state.KeyBy, by).
				Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now())))
		}
		return nil
	})
}

// moved returns the tasks whose order must change, with the new one, so that a task comes before another, or
// before all that wait if that is "". Running ones keep their places, to which they may come back.
func moved(st *fold.State, id, before string) ([]state.Task, error) {
	t, err := waiting(st, id)
	if err != nil {
		return nil, err
	}
	if before != "" {
		if before == id {
			return nil, task.Invalid("name another task", "task %s cannot come before itself", id)
		}
		other, err := waiting(st, before)
		if err != nil {
			return nil, err
		}
		if other.Lane() != t.Lane() {
			return nil, &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s waits in %s, and task %s in %s", id, t.Lane(), before, other.Lane()), Hint: "stint session queue " + t.Lane()}
		}
	}
	lane := st.Lane(t.Lane())
	was := slices.IndexFunc(lane, func(o state.Task) bool { return o.ID == id })
	lane = slices.Delete(lane, was, was+1)
	at := slices.IndexFunc(lane, func(o state.Task) bool {
		return o.ID == before || before == "" && isQueued(o)
	})
	if at < 0 || was <= at && !slices.ContainsFunc(lane[was:at], isQueued) { // alone, or there already
		return nil, nil
	}
	changed := reorder(slices.Insert(lane, at, t), at)
	var cycle *lanes.CycleError
	if err := st.CheckOrder(changed); errors.As(err, &cycle) {
		return nil, &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s cannot be there: %s", id, cycle.Text), Hint: "stint show " + id}
	}
	return changed, nil
}

func isQueued(t state.Task) bool { return t.Status == state.Queued }

// waiting returns a task that is queued.
func waiting(st *fold.State, id string) (state.Task, error) {
	t, _ := st.Peek(id)
	if t.Status != state.Queued {
		return t, &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is %s; only queued tasks have a place in a queue", id, t.Status), Hint: "stint show " + id}
	}
	return t, nil
}

const (
	orderStep = 1000    // distance of the orders that are given out, so that there is room between them
	maxOrder  = 1 << 60 // bounds the orders to which others are added: a person can write any
)

// reorder returns the tasks of a lane whose order must change, with it, so that the one at a place comes there.
func reorder(lane []state.Task, at int) []state.Task {
	var left, right int64
	if at > 0 {
		left = lane[at-1].Order
	}
	if at+1 < len(lane) {
		right = lane[at+1].Order
	}
	isAmongAges := at > 0 && left == 0
	if right == 0 { // the last of those that have an order, or the only one
		right = left + 2*orderStep
	}
	if at == 0 {
		left = right - 2*orderStep
	}
	order := cmp.Or(left+(right-left)/2, 1) // with which all others can stay as they are; 0 is none
	if left < order && order < right && !isAmongAges && right <= maxOrder && left >= -maxOrder {
		lane[at].Order = order
		return lane[at : at+1]
	}
	last := at
	for i := range lane {
		if lane[i].Order != 0 {
			last = max(last, i)
		}
	}
	var changed []state.Task
	for i := range lane[:last+1] {
		if order := int64(i+1) * orderStep; lane[i].Order != order {
			lane[i].Order = order
			changed = append(changed, lane[i])
		}
	}
	return changed
}
