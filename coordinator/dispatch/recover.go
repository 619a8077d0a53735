package dispatch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/state"
	"stint/state/fold"
)

// Recover looks after what the last master has left: its runs, and the notes of masters that died. It returns when nothing is in
// the way of a start.
//
// The old processes are proved dead first, then their tasks go back into the queue. A task for
// which that cannot be done is held and shown, never started again by itself. Those that an earlier
// master has held are looked at beside all else: their lanes are taken, and nobody has to wait.
func (d *Dispatcher) Recover(ctx context.Context) {
	d.enterSafeMode(ctx)
	runs := d.tasks.Orphans()
	d.tasks.View(func(st *fold.State) {
		for _, id := range st.Orphaned() {
			if t, _ := st.Peek(id); runs[id] == "" {
				d.running.Go(func() { d.recoverTask(ctx, id, &oldRun{id: t.RunID, held: true}) })
			}
		}
		for _, id := range st.Running() {
			t, _ := st.Peek(id)
			runs[id] = t.RunID
		}
	})
	var wg sync.WaitGroup
	for id, run := range runs {
		wg.Go(func() { d.recoverTask(ctx, id, &oldRun{id: run}) })
	}
	wg.Wait()
}

// An oldRun is what is known of a run whose master has ended.
type oldRun struct {
	id      string
	held    bool   // an earlier master has held the task because of it
	alive   error  // why it cannot be proved dead; nil if it is
	session string // native session that its output names
	kept    bool   // that session has the prompt
}

// recoverTask proves the old run of a task dead and records what follows, unless the master ends meanwhile.
func (d *Dispatcher) recoverTask(ctx context.Context, id string, old *oldRun) {
	if d.tasks.Config.Recover != nil {
		limited, stop := context.WithTimeout(ctx, queue.RecoverTimeout)
		old.alive = d.tasks.Config.Recover(limited, d.tasks.RunDir(old.id), old.id)
		stop()
	}
	if old.alive != nil && ctx.Err() != nil {
		return
	}
	if t, err := d.tasks.Peek(id); err == nil && t.Phase == "" && d.tasks.Config.FindSession != nil { // what a verify command prints names no session
		old.session, old.kept = d.tasks.Config.FindSession(t.Agent, d.tasks.RunDir(old.id)) // here, because the output may be long
	}
	place := d.Admission.PlaceOf(id)
	err := d.tasks.UpdateWhenRoom(ctx, "an interrupted task", false, func(st *fold.State, tx *ledger.Tx) error {
		t, err := queue.PeekIn(st, id)
		if err != nil {
			return err
		}
		if rec := d.recovered(st, &t, old); rec != nil {
			d.Admission.End(st, tx, rec, nil, place)
		}
		return nil
	})
	if err != nil {
		d.tasks.Trouble("an interrupted task could not be requeued", err)
		return
	}
	d.tasks.Config.Log.Info("looked after an interrupted run", "task", id, "run", old.id, "dead", old.alive == nil)
}

// recovered returns the record for a task whose old run was looked after; nil if
// there is nothing to say. A person may have changed its status: that stays.
func (d *Dispatcher) recovered(st *fold.State, t *state.Task, old *oldRun) *ledger.Record {
	rec := task.RecordOf(t.ID)
	switch {
	case t.Status == state.Running && t.RunID == old.id:
		status, attempt, retries := d.Attempts.Interrupted(t)
		if old.alive != nil {
			status = state.Queued // the lane of one that has ended would be free
		}
		rec.Add(state.KeyStatus, string(status)).Add(state.KeyRetries, strconv.Itoa(retries)).Add(state.KeyAttempt, strconv.Itoa(attempt))
		if status == state.Dead {
			admission.AddError(rec, t, fmt.Sprintf("it was interrupted more often than max_retries (%d) permits; to begin anew: stint retry %s", retries-1, t.ID))
		}
		// What its output tells of its session, if the master had no time to record that.
		if t.AgentSession == "" {
			rec.AddIf(state.NativeKey(t.Agent), old.session)
		}
		isItsOwn := t.AgentSession == "" || t.AgentSession == old.session
		rec.AddWhen(isItsOwn && old.kept && old.session != "" && old.session != t.PromptInHistory && d.Attempts.HasSent(st, t), state.KeyPromptInHistory, old.session)
	case t.Orphaned() && t.RunID == old.id && old.alive == nil:
		rec.Add(state.KeyHold, "").Add(state.KeyNote, "")
	case old.held || old.alive == nil || t.Status != state.Queued:
		return nil // if it is no longer held, a person has released it
	}
	if old.alive != nil {
		rec.Add(state.KeyReason, string(state.ClassOrphaned)).Add(state.KeyHold, "true").
			Add(state.KeyNote, fmt.Sprintf("its agent may still be alive; once it is not: stint release %s (%v)", t.ID, old.alive))
	} else {
		rec.Add(state.KeyReason, string(state.ClassInterrupted))
	}
	return rec.Add(state.KeyUpdatedAt, state.FormatTime(d.tasks.Config.Now()))
}

// Safe mode. A task, or a fault of ours, may bring down the master each time that it is started; clients and
// service managers start the next master at once, and each time every running task loses a retry. So a master
// notes when it first starts a run, in a file that a clean end removes. One that finds too many such notes
// pauses dispatch in the ledger, where resume, why and doctor know it.

// startsPath is the file with the times, one a line, at which masters without a clean end first started a run.
func (d *Dispatcher) startsPath() string { return filepath.Join(d.tasks.Config.StateDir, "starts") }

// enterSafeMode pauses dispatch if the masters before this one died soon after they had started runs, or if tasks
// may be further than is known: the journal was lost, and not all of tasks.md can be read.
func (d *Dispatcher) enterSafeMode(ctx context.Context) {
	n, why := len(d.recentStarts()), ""
	switch {
	case d.tasks.Rebuilt() && len(d.tasks.Rejected())+len(d.tasks.Store.Findings()) > 0:
		why = "safe mode: the journal was lost, and records in tasks.md have no effect, so tasks may be further than they seem; see stint fsck"
	case d.tasks.Config.CrashLoop > 0 && n >= d.tasks.Config.CrashLoop:
		why = fmt.Sprintf("safe mode: %d masters died within a minute, each soon after it had started tasks; see master.log", n)
	default:
		return
	}
	err := d.tasks.UpdateWhenRoom(ctx, "safe mode", true, func(st *fold.State, tx *ledger.Tx) error {
		if paused, _ := st.Paused(); paused {
			return nil
		}
		r := &ledger.Record{Kind: ledger.KindControl, ID: state.ControlDispatch}
		tx.Append(r.Add(state.KeyPaused, "true").Add(state.KeyBy, "").Add(state.KeyReason, why).
			Add(state.KeyUpdatedAt, state.FormatTime(d.tasks.Config.Now())))
		return nil
	})
	if err != nil {
		d.tasks.Trouble("safe mode could not be entered", err)
		return
	}
	d.tasks.Config.Log.Error(why + "; to continue: stint resume")
	d.forgetStarts()
}

// recentStarts returns the lines of the file that are of the last minute.
func (d *Dispatcher) recentStarts() (lines []string) {
	const crashWindow = time.Minute // in which queue.Config.CrashLoop masters must have died
	data, err := durable.ReadFile(durable.OS, d.startsPath())
	if err != nil {
		return nil // there is none, or nobody can tell
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if t, err := time.Parse(time.RFC3339Nano, line); err == nil && d.tasks.Config.Now().Sub(t).Abs() < crashWindow {
			lines = append(lines, line)
		}
	}
	return lines
}

// noteStart notes this master's first run. It need not be durable: a machine that goes down is no crash of ours.
func (d *Dispatcher) noteStart() {
	if d.noted || d.tasks.Config.CrashLoop == 0 {
		return
	}
	d.noted = true
	lines := append(d.recentStarts(), d.tasks.Config.Now().UTC().Format(time.RFC3339Nano))
	d.tasks.TroubleUnlessStopped("a start could not be noted", durable.PutFile(d.startsPath(), []byte(strings.Join(lines, "\n")+"\n")))
}

// forgetStarts begins the count anew.
func (d *Dispatcher) forgetStarts() {
	d.tasks.TroubleUnlessStopped("the notes of starts could not be removed", os.RemoveAll(d.startsPath())) // there may be none
}
