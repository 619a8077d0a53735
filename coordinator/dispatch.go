package coordinator

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
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
		case <-c.ledger.Done():
			return
		case <-c.wake:
		case <-c.ended:
		case <-timer.C:
		}
	}
}

// farAway is how long the dispatcher sleeps when nothing is due.
const farAway = time.Hour

// lookAgain is how soon the dispatcher looks again when a task is ready that it has
// not started, because the time came after its look, or when the disk is full.
const lookAgain = time.Second

// clockCheck is how long the dispatcher sleeps at most while a task waits for a time.
// Its timer stands still while the machine is suspended, and knows nothing of a clock
// that is set: the time may come much earlier than the timer says.
const clockCheck = 30 * time.Second

// untilNext is how long nothing becomes ready by time alone, and no idle time ends.
func (c *Coordinator) untilNext() time.Duration {
	now := c.cfg.Now()
	c.mu.Lock()
	lim := c.limits()
	ready := len(c.state.Ready(now, lim)) > 0
	next, idle := c.state.NextWake(now), c.state.Idle()
	c.mu.Unlock()
	wait := farAway
	if c.full.Swap(false) || ready {
		wait = lookAgain
	}
	if lim.Again.After(now) && (next.IsZero() || lim.Again.Before(next)) {
		next = lim.Again
	}
	if !next.IsZero() {
		wait = min(wait, max(next.Sub(now), time.Millisecond), clockCheck)
	}
	if c.cfg.IdleExit > 0 && idle { // else a record or the end of a run wakes the dispatcher
		wait = min(wait, c.untilQuiet(now))
	}
	return wait
}

// untilQuiet is how long it is at least until mayEnd may find that nobody has called
// for IdleExit.
func (c *Coordinator) untilQuiet(now time.Time) time.Duration {
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	left := c.lastCall.Add(c.cfg.IdleExit).Sub(now)
	if c.clients > 0 || len(c.runs) > 0 {
		left = c.cfg.IdleExit // their end is still to come
	}
	return max(left, 10*time.Millisecond)
}

// mayEnd reports whether Run may return by itself: after a handover, or idle.
func (c *Coordinator) mayEnd() bool {
	c.mu.Lock()
	idle := c.state.Idle()
	c.mu.Unlock()
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	if len(c.runs) > 0 {
		return false
	}
	quiet := c.clients == 0 && c.cfg.Now().Sub(c.lastCall) >= c.cfg.IdleExit
	if c.handover || c.cfg.IdleExit > 0 && idle && quiet {
		c.closing = true // a task that comes from here on is for the next master
	}
	return c.closing
}

// isGoing reports whether Run is about to return: nobody would carry out a task
// that is taken in now.
func (c *Coordinator) isGoing() bool {
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	return c.closing
}

// isLeaving reports whether nothing more is started: Run returns when the runs at work
// have ended.
func (c *Coordinator) isLeaving() bool {
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	return c.handover || c.closing
}

// call notes that a client is being served; what it gives notes the end.
func (c *Coordinator) call() func() {
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	c.clients++
	return func() {
		c.runsMu.Lock()
		c.clients--
		c.lastCall = c.cfg.Now()
		c.runsMu.Unlock()
	}
}

// Handover makes Run return as soon as the runs at work have ended; nothing more
// is started. Another master takes over then.
func (c *Coordinator) Handover(context.Context) error {
	c.runsMu.Lock()
	c.handover = true
	c.runsMu.Unlock()
	c.poke()
	return nil
}

// limits returns what bounds the tasks that run at the same time. mu is held.
func (c *Coordinator) limits() state.Limits {
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	settling := map[string]bool{}
	lim := state.Limits{MaxWorkers: c.cfg.MaxWorkers, Lent: c.lent(), Taken: c.takenLanes(), Settling: settling, WorkspaceRoot: c.cfg.WorkspaceRoot}
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
	if c.isLeaving() {
		return
	}
	c.failDoomed()
	c.fallBack()
	c.failUnwilling()
	if !c.anyReady() {
		return
	}
	var chosen []*run
	agent := c.cfg.DefaultAgent() // asked here, because it may start a program
	err := c.exclusive(context.Background(), func(tx *ledger.Tx) error {
		c.release(chosen)
		var waiting []*ledger.Record
		chosen, waiting = c.choose(agent)
		for _, r := range chosen {
			tx.Append(r.started)
		}
		for _, r := range waiting {
			tx.Append(r)
		}
		return nil
	})
	if err != nil {
		c.release(chosen)
		if !errors.Is(err, &task.Error{Code: task.CodeStopped}) {
			c.trouble("tasks could not be started", err)
		}
		return
	}
	if len(chosen) > 0 {
		c.noteStart()
	}
	for _, r := range chosen {
		c.running.Go(func() { c.execute(r) })
	}
}

func (c *Coordinator) anyReady() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.state.Ready(c.cfg.Now(), c.limits())) > 0
}

// choose takes the tasks that are ready and registers a run for each, so that a
// cancel that comes right behind the record finds it. waiting has records for those
// that turn out to wait for an account.
func (c *Coordinator) choose(defaultAgent string) (chosen []*run, waiting []*ledger.Record) {
	now := c.cfg.Now()
	c.mu.Lock()
	lim := c.limits()
	ready := c.state.Ready(now, lim)
	runs := make([]*run, 0, len(ready))
	for i := range ready {
		if r := c.joinAccount(&ready[i], defaultAgent, now); r != nil {
			waiting = append(waiting, r)
			continue
		}
		run := c.newRun(&ready[i], defaultAgent, now)
		run.probe = lim.Short != ""
		runs = append(runs, run)
	}
	c.mu.Unlock()
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	free, busy := runs[:0], len(c.runs)-c.countChecks()
	for _, r := range runs {
		if busy+len(free) < c.cfg.MaxWorkers+lim.Lent && !c.inUse(r) {
			c.runs[r.task.ID] = r
			free = append(free, r)
		} else {
			r.cancel(nil)
		}
	}
	return free, waiting
}

// joinAccount gives the record that makes a task without an agent, as people write
// them, wait for the account of the default one; nil if there is nothing to wait for.
// mu is held.
func (c *Coordinator) joinAccount(t *state.Task, defaultAgent string, now time.Time) *ledger.Record {
	agent := c.agentFor(t, defaultAgent)
	a := c.state.Account(agent)
	if agent == "" || t.AccountName() != "" || !a.Hold && a.LimitWaits == 0 && !a.CoolUntil.After(now) {
		return nil
	}
	rec := &ledger.Record{Kind: ledger.KindTask, ID: t.ID}
	return rec.Add(state.KeyAgent, agent).Add(state.KeyAccount, agent).Add(state.KeyUpdatedAt, state.FormatTime(now))
}

// agentFor gives the agent of a task that may name none: a session goes on with its
// own. mu is held.
func (c *Coordinator) agentFor(t *state.Task, defaultAgent string) string {
	if t.Agent != "" || !task.IsNamedLane(t.SessionKey) {
		return cmp.Or(t.Agent, defaultAgent)
	}
	return cmp.Or(c.state.SessionAgent(t.SessionKey, slices.Sorted(maps.Keys(c.cfg.Agents))), defaultAgent)
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

// release takes back runs that were registered and not started.
func (c *Coordinator) release(runs []*run) {
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	for _, r := range runs {
		r.cancel(nil)
		delete(c.runs, r.task.ID)
	}
}

// newRun makes the run of a task with its `running` record. mu is held.
func (c *Coordinator) newRun(t *state.Task, defaultAgent string, now time.Time) *run {
	r := &run{id: c.cfg.ID(), task: *t, begun: now}
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
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
	c.complete(r, defaultAgent, rec)
	r.session = t.AgentSession
	if s, ok := c.state.SessionByID(r.task.SessionID); ok && t.Resume != "never" && s.Agent == r.task.Agent && s.Native != "" && !r.named {
		r.session = s.Native // it may have been forked since the task's last run
	}
	unset(rec, state.KeyReason, t.Reason != "")
	unset(rec, state.KeyError, t.Error != "" && t.Phase != state.PhaseEvaluate) // else it is that of the answer
	unset(rec, state.KeyNotBefore, !t.NotBefore.IsZero())
	unset(rec, state.KeyExitCode, t.ExitCode != nil)
	r.started = rec
	return r
}

// unset takes away what the run before has left, if it has left anything.
func unset(rec *ledger.Record, key string, was bool) {
	if was {
		rec.Add(key, "")
	}
}

// complete fills in what a task written by hand has left out. One of a named session
// goes on with that. mu is held.
func (c *Coordinator) complete(r *run, defaultAgent string, rec *ledger.Record) {
	t := &r.task
	fill := func(field *string, key, value string) {
		if *field == "" && value != "" {
			*field = value
			rec.Add(key, value)
		}
	}
	fill(&t.Agent, state.KeyAgent, c.agentFor(t, defaultAgent))
	fill(&t.Account, state.KeyAccount, t.Agent)
	if dir, by := c.state.HomeOf(t, c.cfg.WorkspaceRoot); t.Workspace == "" && dir != "" {
		t.Workspace, t.WorkspaceByHand = dir, by == ledger.ByHand
		rec.Add(state.KeyWorkspace, dir).AddIf(state.KeyWorkspaceBy, by)
	}
	fill(&t.VerifyCommand, state.KeyVerifyCommand, c.workspace(t.Workspace).VerifyCommand)
	if t.MaxIterations == 0 && task.HasVerify(t) {
		t.MaxIterations = c.maxIterations(t)
		rec.Add(state.KeyMaxIterations, strconv.Itoa(t.MaxIterations))
	}
	if t.CreatedAt.IsZero() {
		rec.Add(state.KeyCreatedAt, state.FormatTime(r.begun))
	}
	fill(&t.SessionKey, state.KeySessionKey, t.Lane())
	s, ok := c.state.CurrentSession(t.SessionKey, t.Agent, t.Account)
	if ok && task.IsNamedLane(t.SessionKey) && t.Resume != "never" && (t.AgentSession == "" || t.AgentSession == s.Native) {
		fill(&t.SessionID, state.KeySessionID, s.ID)
	}
	fill(&t.SessionID, state.KeySessionID, c.cfg.ID())
}
