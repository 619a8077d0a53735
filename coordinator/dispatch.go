package coordinator

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
)

// dispatchUntil starts what is ready whenever something has changed or a time has
// come, until the coordinator is to end.
func (c *Coordinator) dispatchUntil(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if c.mayEnd() {
			return
		}
		c.dispatch()
		timer.Reset(c.untilNext())
		select {
		case <-ctx.Done():
			return
		case <-c.Done():
			return
		case <-c.wake:
		case <-c.ended:
		case <-timer.C:
		}
	}
}

// farAway is how long the dispatcher sleeps when nothing is due.
const farAway = time.Hour

// clockCheck is how long the dispatcher sleeps at most while a task waits for a time.
// Its timer stands still while the machine is suspended, and knows nothing of a clock
// that is set: the time may come much earlier than the timer says.
const clockCheck = 30 * time.Second

// untilNext is how long nothing becomes ready by time alone, and no idle time ends.
func (c *Coordinator) untilNext() time.Duration {
	now := c.Config.Now()
	lim := c.limits()
	var ready, idle bool
	var next time.Time
	c.View(func(st *fold.State) {
		ready = len(st.Ready(now, lim)) > 0
		next, idle = st.NextWake(now), st.Idle()
	})
	wait := farAway
	if c.HadNoRoom() || ready {
		wait = task.TryAgain
	}
	if lim.Again.After(now) && (next.IsZero() || lim.Again.Before(next)) {
		next = lim.Again
	}
	if !next.IsZero() {
		wait = min(wait, max(next.Sub(now), time.Millisecond), clockCheck)
	}
	if c.Config.IdleExit > 0 && idle { // else a record or the end of a run wakes the dispatcher
		wait = min(wait, c.untilQuiet(now))
	}
	return wait
}

// untilQuiet is how long it is at least until mayEnd may find that nobody has called
// for IdleExit.
func (c *Coordinator) untilQuiet(now time.Time) time.Duration {
	since, ok := c.IdleSince()
	left := since.Add(c.Config.IdleExit).Sub(now)
	if !ok || c.isBusy() {
		left = c.Config.IdleExit // their end is still to come
	}
	return max(left, 10*time.Millisecond)
}

// mayEnd reports whether Run may return by itself: after a handover, or idle.
func (c *Coordinator) mayEnd() bool {
	idle := task.Read(c.Store, (*fold.State).Idle)
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	if len(c.runs) > 0 {
		return false
	}
	since, ok := c.IdleSince()
	quiet := ok && c.Config.Now().Sub(since) >= c.Config.IdleExit
	if c.IsLeaving() || c.Config.IdleExit > 0 && idle && quiet {
		c.Shut()
		return true
	}
	return false
}

// Handover makes Run return as soon as the runs at work have ended; nothing more
// is started. Another master takes over then.
func (c *Coordinator) Handover(context.Context) error {
	c.Leave()
	c.poke()
	return nil
}

// limits are what bounds the tasks that run at the same time.
func (c *Coordinator) limits() lanes.Limits {
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	settling := map[string]bool{}
	lim := lanes.Limits{MaxWorkers: c.Config.MaxWorkers, Lent: c.Lent(), Taken: c.takenLanes(), Settling: settling, WorkspaceRoot: c.Config.WorkspaceRoot}
	if c.short != nil {
		lim.Short, lim.Again = c.short.What, c.short.Next
	}
	for id, r := range c.runs {
		settling[id] = r.settling.Load()
		if r.probe {
			lim.Again = time.Time{}
		}
	}
	return lim
}

// dispatch starts all tasks that are ready: it appends `running` for them in one
// change, and only when that is durable anything is spawned.
func (c *Coordinator) dispatch() {
	if c.IsLeaving() {
		return
	}
	c.failDoomed()
	c.fallBack()
	c.failUnwilling()
	now, lim := c.Config.Now(), c.limits()
	reserved := c.reserve(lim, task.Read(c.Store, func(st *fold.State) []state.Task { return st.Ready(now, lim) }))
	if len(reserved) == 0 {
		return
	}
	agent := c.Config.DefaultAgent() // asked here, because it may start a program
	var chosen []*run
	err := c.Exclusive(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		chosen = nil
		for _, t := range st.Ready(now, lim) {
			if r := reserved[t.ID]; r == nil || t.Lane() != r.task.Lane() { // it comes next time
			} else if wait := c.joinAccount(st, &t, agent, now); wait != nil {
				tx.Append(wait)
			} else {
				r.recorded = true
				next := c.begin(st, r, &t, agent, now)
				next.probe = lim.Short != ""
				tx.Append(next.started)
				chosen = append(chosen, next)
			}
		}
		return nil
	})
	if err != nil {
		chosen = nil
		c.TroubleUnlessStopped("tasks could not be started", err)
	}
	c.replace(reserved, chosen)
	if len(chosen) > 0 {
		c.noteStart()
	}
	for _, r := range chosen {
		c.running.Go(func() { c.execute(r) })
	}
}

// reserve registers a run for each of the tasks that are ready, as far as there is room: so a
// cancel that comes right behind the record of its start finds it, and nothing else takes its lane
// meanwhile.
func (c *Coordinator) reserve(lim lanes.Limits, ready []state.Task) map[string]*run {
	reserved := map[string]*run{}
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	busy := len(c.runs) - c.countChecks()
	for i := range ready {
		if busy+len(reserved) == lim.MaxWorkers+lim.Lent {
			break
		}
		r := c.newRun(&ready[i])
		if c.inUse(r) {
			r.cancel(nil)
			continue
		}
		c.runs[r.task.ID], reserved[r.task.ID] = r, r
	}
	return reserved
}

// joinAccount gives the record that makes a task without an agent, as people write
// them, wait for the account of the default one; nil if there is nothing to wait for.
func (c *Coordinator) joinAccount(st *fold.State, t *state.Task, defaultAgent string, now time.Time) *ledger.Record {
	agent := c.agentFor(st, t, defaultAgent)
	a := st.Account(agent)
	if agent == "" || t.AccountName() != "" || !a.Hold && a.LimitWaits == 0 && !a.CoolUntil.After(now) {
		return nil
	}
	rec := &ledger.Record{Kind: ledger.KindTask, ID: t.ID}
	return rec.Add(state.KeyAgent, agent).Add(state.KeyAccount, agent).Add(state.KeyUpdatedAt, state.FormatTime(now))
}

// agentFor gives the agent of a task that may name none: a session goes on with its
// own.
func (c *Coordinator) agentFor(st *fold.State, t *state.Task, defaultAgent string) string {
	if t.Agent != "" || !task.IsNamedLane(t.SessionKey) {
		return cmp.Or(t.Agent, defaultAgent)
	}
	return cmp.Or(st.SessionAgent(t.SessionKey, slices.Sorted(maps.Keys(c.Config.Agents))), defaultAgent)
}

// inUse reports whether a run that is still being ended (its task was edited
// meanwhile) holds the task, its lane or its session. runsMu is held.
func (c *Coordinator) inUse(r *run) bool {
	for _, other := range c.runs {
		if other.inWayOf(r) {
			return true
		}
	}
	return false
}

// inWayOf reports whether a run uses what r needs: its task, its lane or its session.
func (r *run) inWayOf(next *run) bool {
	return r.task.ID == next.task.ID || r.task.SessionKey == next.task.SessionKey || r.task.SessionID != "" && r.task.SessionID == next.task.SessionID
}

// replace puts the runs that were started into the places that were reserved, and gives the
// others back.
func (c *Coordinator) replace(reserved map[string]*run, started []*run) {
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	for _, r := range started {
		c.runs[r.task.ID] = r
		delete(reserved, r.task.ID)
	}
	for id, r := range reserved {
		r.cancel(nil)
		delete(c.runs, id)
	}
}

// newRun makes the run of a task, for which nothing is decided yet but its place.
func (c *Coordinator) newRun(t *state.Task) *run {
	r := &run{id: c.Config.ID(), task: *t, begun: c.Config.Now()}
	r.task.SessionKey = t.Lane()
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	return r
}

// begin returns the run of t, as the ledger has it, in the place of a reserved one, with its
// `running` record.
func (c *Coordinator) begin(st *fold.State, reserved *run, t *state.Task, defaultAgent string, now time.Time) *run {
	r := &run{id: reserved.id, task: *t, begun: now, ctx: reserved.ctx, cancel: reserved.cancel, recorded: true}
	r.interrupted = t.Reason == state.ClassInterrupted
	if t.Reason == state.ClassInterrupted || t.Reason == state.ClassVerify || t.Phase != "" || t.Iteration > 0 {
		r.before = t.RunID
	}
	r.named = t.AgentSession != "" && t.RunID == ""
	r.task.Attempt++
	r.task.RunID = r.id
	r.task.RunStartedAt = now
	rec := &ledger.Record{Kind: ledger.KindTask, ID: t.ID}
	rec.Add(state.KeyStatus, string(state.Running)).Add(state.KeyRunID, r.id).Add(state.KeyAttempt, strconv.Itoa(r.task.Attempt)).
		Add(state.KeyStartedAt, state.FormatTime(now)).Add(state.KeyUpdatedAt, state.FormatTime(now))
	c.complete(st, r, defaultAgent, rec)
	r.session = t.AgentSession
	if s, ok := st.SessionByID(r.task.SessionID); ok && t.Resume != "never" && s.Agent == r.task.Agent && s.Native != "" && !r.named {
		r.session = s.Native // it may have been forked since the task's last run
	}
	task.Unset(rec, state.KeyReason, t.Reason != "")
	task.Unset(rec, state.KeyError, t.Error != "" && t.Phase != state.PhaseEvaluate) // else it is that of the answer
	task.Unset(rec, state.KeyNotBefore, !t.NotBefore.IsZero())
	task.Unset(rec, state.KeyExitCode, t.ExitCode != nil)
	r.started = rec
	return r
}

// complete fills in what a task written by hand has left out. One of a named session
// goes on with that.
func (c *Coordinator) complete(st *fold.State, r *run, defaultAgent string, rec *ledger.Record) {
	t := &r.task
	fill := func(field *string, key, value string) {
		if *field == "" && value != "" {
			*field = value
			rec.Add(key, value)
		}
	}
	fill(&t.Agent, state.KeyAgent, c.agentFor(st, t, defaultAgent))
	fill(&t.Account, state.KeyAccount, t.Agent)
	if dir, by := st.HomeOf(t, c.Config.WorkspaceRoot); t.Workspace == "" && dir != "" {
		t.Workspace, t.WorkspaceByHand = dir, by == ledger.ByHand
		rec.Add(state.KeyWorkspace, dir).AddIf(state.KeyWorkspaceBy, by)
	}
	fill(&t.VerifyCommand, state.KeyVerifyCommand, c.Workspace(t.Workspace).VerifyCommand)
	if t.MaxIterations == 0 && task.HasVerify(t) {
		t.MaxIterations = c.MaxIterations(t)
		rec.Add(state.KeyMaxIterations, strconv.Itoa(t.MaxIterations))
	}
	if t.CreatedAt.IsZero() {
		rec.Add(state.KeyCreatedAt, state.FormatTime(r.begun))
	}
	fill(&t.SessionKey, state.KeySessionKey, t.Lane())
	s, ok := st.CurrentSession(t.SessionKey, t.Agent, t.Account)
	if ok && task.IsNamedLane(t.SessionKey) && t.Resume != "never" && (t.AgentSession == "" || t.AgentSession == s.Native) {
		fill(&t.SessionID, state.KeySessionID, s.ID)
	}
	fill(&t.SessionID, state.KeySessionID, c.Config.ID())
}
