// Package dispatch decides who runs next. Its [Dispatcher] asks the fold what is ready whenever something has
// changed or a time has come, and appends `running` before anything is spawned. It hands tasks of a
// rate-limited account to their fallback agents, ends those that can never run, puts back what was running
// when the last master ended, and stops starting anything where masters die one after the other.
//
// The runs at work are a list with a lock of its own; nobody who holds that asks for the fold's.
package dispatch

import (
	"cmp"
	"context"
	"sync"
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/attempt"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
	"stint/state/limits"
)

// A Dispatcher starts what is ready. Its exported methods may be called by any goroutine.
type Dispatcher struct {
	Admission *admission.Admission
	Attempts  *attempt.Attempts
	tasks     *queue.Store
	runs      *runs
	wake      chan struct{}  // capacity 1: the dispatcher must look
	running   sync.WaitGroup // the runs' goroutines
	noted     bool           // that this master has started a run; the goroutine of Run has it
}

// New returns the dispatcher of a store, with its admission and its attempts.
func New(s *queue.Store) *Dispatcher {
	d := &Dispatcher{
		tasks: s, wake: make(chan struct{}, 1),
		runs: &runs{ended: make(chan struct{}, 1), byTask: map[string]*attempt.Run{}},
	}
	d.Admission = admission.New(s, d.runs)
	d.Attempts = attempt.New(s, d.Admission)
	return d
}

// EndTaken ends the run of a task that a person has taken out of it. The fold may be locked.
func (d *Dispatcher) EndTaken(id string) { d.runs.Cancel(id, task.ErrCanceled) }

// Wake makes the dispatcher look for what is ready. It never blocks.
func (d *Dispatcher) Wake() { task.Wake(d.wake) }

// Shutdown ends what the dispatcher has started, once DispatchUntil has returned. It leaves the runs the grace time to end by
// themselves, then ends them; they are recorded as interrupted and run again under the next master. One that does not end even
// so (the kernel does not let a process go, or a disk stays full) is left to the next master as a kill -9 would leave it.
func (d *Dispatcher) Shutdown() {
	defer func() {
		if d.tasks.Err() == nil {
			d.forgetStarts()
		}
	}()
	d.tasks.Shut()
	grace, last := time.NewTimer(d.tasks.Config.Grace), time.NewTimer(queue.EndLimit(d.tasks.Config.Grace))
	defer grace.Stop()
	defer last.Stop()
	failed := d.tasks.Done()
	for len(d.runs.ids()) > 0 {
		select {
		case <-d.runs.ended:
		case <-grace.C:
			d.runs.cancelAll(task.ErrShutdown)
		case <-failed:
			failed = nil
			d.runs.cancelAll(task.ErrShutdown)
		case <-last.C:
			d.tasks.Config.Log.Error("some runs cannot be ended: the next master looks after them", "tasks", d.runs.ids())
			return
		}
	}
	d.running.Wait()
	for d.Attempts.Tidy() {
	}
}

// StopNow ends all runs at once, without the grace time of a shutdown.
func (d *Dispatcher) StopNow() { d.runs.cancelAll(task.ErrShutdown) }

// RunOf returns the run of a task, which may be just being started or ended; nil if it has none.
func (d *Dispatcher) RunOf(id string) *attempt.Run { return d.runs.get(id) }

// DispatchUntil starts what is ready whenever something has changed or is due, until the coordinator ends.
func (d *Dispatcher) DispatchUntil(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		idle := queue.Read(d.tasks, (*fold.State).Idle)
		if d.runs.ifNone(func() bool { return d.tasks.ShutIfDone(idle) }) {
			return
		}
		d.StartReady()
		if timer.Reset(d.untilNext()); len(d.runs.ids()) == 0 && d.Attempts.Tidy() {
			timer.Reset(0) // the next one, after what has come meanwhile
		}
		select {
		case <-ctx.Done():
			return
		case <-d.tasks.Done():
			return
		case <-d.wake:
		case <-d.runs.ended:
		case <-timer.C:
		}
	}
}

// untilNext is how long nothing becomes ready by time alone, or a tenth of the time that an idle master stays.
func (d *Dispatcher) untilNext() time.Duration {
	// While a task waits for a time: the timer knows nothing of a suspended machine or a clock that is set.
	const clockCheck = 30 * time.Second
	now := d.tasks.Config.Now()
	lim := d.Limits()
	var ready, idle bool
	var next time.Time
	d.tasks.View(func(st *fold.State) {
		ready = len(st.Ready(now, lim)) > 0
		next, idle = st.NextWake(now), st.Idle()
	})
	wait := time.Hour // nothing is due
	if ready {
		wait = queue.TryAgain
	}
	if d.tasks.Config.Accounts != nil && !idle { // which open, and may be configured otherwise, at any time
		wait = min(wait, clockCheck)
	}
	if lim.NoTree != nil && !idle { // no record tells when one is dropped
		wait = min(wait, 5*time.Second)
	}
	if lim.Again.After(now) && (next.IsZero() || lim.Again.Before(next)) {
		next = lim.Again
	}
	if !next.IsZero() {
		wait = min(wait, max(next.Sub(now), time.Millisecond), clockCheck)
	}
	if look := d.tasks.Config.IdleExit / 10; look > 0 && idle { // no record tells when the last call has ended
		wait = min(wait, max(look, 10*time.Millisecond))
	}
	return wait
}

// Handover makes Run return, for another master, as soon as the runs at work have ended.
func (d *Dispatcher) Handover(context.Context) error {
	d.tasks.Leave()
	d.Wake()
	return nil
}

// Limits returns what bounds the tasks that run at the same time.
func (d *Dispatcher) Limits() lanes.Limits {
	lim := lanes.Limits{MaxWorkers: d.tasks.Config.MaxWorkers, Lent: queue.Read(d.tasks, d.Admission.Lent), WorkspaceRoot: d.tasks.Config.WorkspaceRoot, Account: d.tasks.AccountsNow().Rule}
	if len(d.tasks.Config.QueueMax) > 0 {
		lim.Queue = func(name string) int { return d.tasks.Config.QueueMax[name] }
	}
	if d.tasks.Config.Exclusive || d.tasks.Config.Trees.Dir != "" {
		lim.Checkout = d.Admission.Checkout
	}
	if most := d.tasks.Config.MaxWorktrees; most > 0 && d.tasks.Config.Trees.Count()+lim.MaxWorkers >= most {
		list, _ := d.tasks.Config.Trees.List() // one that cannot be read is none
		begun := map[string]bool{}             // lanes that get one now
		lim.NoTree = func(t *state.Task) bool {
			isNew := !begun[t.Lane()] && d.tasks.Config.Trees.Lacks(list, t)
			if isNew && len(list)+len(begun) < most {
				begun[t.Lane()], isNew = true, false
			}
			return isNew
		}
		for _, id := range queue.Read(d.tasks, (*fold.State).Running) {
			if t, err := d.tasks.Peek(id); err == nil {
				lim.NoTree(&t)
			}
		}
	}
	if s, ok := d.Attempts.Shortages.Present(); ok {
		lim.Short, lim.Again = s.What, s.Next
	}
	d.runs.bound(&lim)
	return lim
}

// Room returns how many more tasks can begin with an account now, and until when it is rate-limited; the zero time: it is not.
func (d *Dispatcher) Room(account string) (free int, cool time.Time) {
	lim, now := d.Limits(), d.tasks.Config.Now()
	d.tasks.View(func(st *fold.State) {
		if a := st.Account(account); a.CoolUntil.After(now) {
			cool = a.CoolUntil
		}
		if paused, _ := st.Paused(); !paused && lim.Short == "" && !d.tasks.IsLeaving() {
			free = min(st.Free(account, now, lim), st.FreeWorkers(lim))
		}
	})
	return free, cool
}

// StartReady starts what is ready. It appends `running` in one change, and spawns once that is durable.
func (d *Dispatcher) StartReady() {
	if d.tasks.IsLeaving() {
		return
	}
	d.tasks.TroubleUnlessStopped("what was spent so far could not be read", d.tasks.LoadSpending(d.tasks.AccountsNow()))
	d.appendAll("tasks that come after a failed one could not be ended", d.blockedByDependency)
	d.moveToAccounts()
	d.fallBack()
	d.failLimitWaitExceeded()
	if len(d.ready(d.tasks.Config.Now(), d.Limits())) == 0 {
		return
	}
	agent := d.tasks.Config.DefaultAgent(nil) // asked here, because it may start a program
	now, lim := d.tasks.Config.Now(), d.Limits()
	reserved := d.runs.reserve(lim.MaxWorkers+len(lim.Lent), d.ready(now, lim), d.Attempts.Reserve)
	var chosen []*attempt.Run
	err := d.tasks.Exclusive(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		chosen = nil
		for _, t := range st.Ready(now, lim) {
			if r := reserved[t.ID]; r == nil || st.LaneOf(&t, lim.WorkspaceRoot) != r.Task.Lane() { // it comes next time
			} else if wait := d.joinAccount(st, &t, agent, now, lim); wait != nil {
				tx.Append(wait)
			} else {
				next := d.Attempts.Begin(st, r, &t, agent, now)
				next.Probe = lim.Short != ""
				tx.Append(next.Started)
				chosen = append(chosen, next)
			}
		}
		return nil
	})
	if err != nil {
		chosen = nil
		d.tasks.TroubleUnlessStopped("tasks could not be started", err)
	}
	d.runs.replace(reserved, chosen)
	if len(chosen) > 0 {
		d.noteStart()
	}
	for _, r := range chosen {
		d.running.Go(func() {
			d.Attempts.Run(r, d.runs.put)
			d.tasks.NoteUse()
			d.runs.remove(r) // its end is recorded: its lane is free
		})
	}
}

// ready returns the tasks that are ready, each with the workspace and the lane in which it will run.
func (d *Dispatcher) ready(now time.Time, lim lanes.Limits) (list []state.Task) {
	d.tasks.View(func(st *fold.State) {
		list = st.Ready(now, lim)
		for i := range list {
			list[i].Workspace, _ = st.HomeOf(&list[i], lim.WorkspaceRoot)
			list[i].SessionKey = list[i].Lane()
		}
	})
	return list
}

// joinAccount returns the record with which a task waits for another account than its own: that
// of the conversation which another task has begun meanwhile, or, without an agent, as people
// write them, one of the default agent; or with which it is held, because it has spent what it may. It is nil if there is
// nothing to wait for.
func (d *Dispatcher) joinAccount(st *fold.State, t *state.Task, defaultAgent string, now time.Time, lim lanes.Limits) *ledger.Record {
	rec := task.RecordOf(t.ID)
	if d.tasks.HasBudget(t) {
		whole, err := d.tasks.WholeIn(st, t.ID)
		if spent := d.tasks.Overspent(&whole, limits.Spending{}); err == nil && spent != "" {
			return rec.Add(state.KeyHold, "true").Add(state.KeyReason, string(state.ClassBudget)).Add(state.KeyNote, spent).Add(state.KeyUpdatedAt, state.FormatTime(now))
		}
	}
	s, _ := st.SessionByID(t.SessionID)
	accounts := d.tasks.AccountsNow()
	switch missing := accounts.Missing(t.Agent, t.AccountName()); {
	case missing == "":
	case t.Pinned:
		rec.Add(state.KeyHold, "true").Add(state.KeyNote, missing+"; stint edit "+t.ID+" --set account= && stint release "+t.ID)
		return rec.Add(state.KeyUpdatedAt, state.FormatTime(now))
	default:
		account, _ := accounts.Choose(st, t.Agent, lim.For(t.Spare), nil)
		rec.Add(state.KeyAccount, account)
		if native := cmp.Or(t.AgentSession, s.Native); native != "" { // which was in the home of that account
			rec.Add(state.NativeKey(t.Agent), "").Add(state.KeyNote, missing+"; a new conversation was begun")
			rec.AddWhen(t.PromptInHistory != "", state.KeyPromptInHistory, "")
		}
		return rec.Add(state.KeyUpdatedAt, state.FormatTime(now))
	}
	if !t.Pinned && t.Agent != "" && s.Agent == t.Agent && s.Native != "" && s.Account != "" && s.Account != t.AccountName() {
		return rec.Add(state.KeyAccount, s.Account).Add(state.KeyUpdatedAt, state.FormatTime(now))
	}
	agent := d.Attempts.AgentFor(st, t, defaultAgent)
	if agent == "" || t.AccountName() != "" {
		return nil
	}
	account, isFree := accounts.Choose(st, agent, lim.For(t.Spare), nil)
	if isFree && account == agent && st.Account(agent).LimitWaits == 0 {
		return nil
	}
	return rec.Add(state.KeyAgent, agent).Add(state.KeyAccount, account).Add(state.KeyUpdatedAt, state.FormatTime(now))
}
