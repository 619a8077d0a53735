package attempt

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// AgentFor returns the agent of a task that may name none: a session goes on with its
// own.
func (a *Attempts) AgentFor(st *fold.State, t *state.Task, defaultAgent string) string {
	if t.Agent != "" || !task.IsNamedLane(t.SessionKey) {
		return cmp.Or(t.Agent, defaultAgent)
	}
	return cmp.Or(st.SessionAgent(t.SessionKey, slices.Sorted(maps.Keys(a.tasks.Config.Agents))), defaultAgent)
}

// InWayOf reports whether a run uses what next needs: its task, its lane, its session or its checkout.
func (r *Run) InWayOf(next *Run) bool {
	return r.Task.ID == next.Task.ID || r.checkout != "" && next.checkout != "" && state.Overlap(r.checkout, next.checkout) || r.Task.SessionKey == next.Task.SessionKey || r.Task.SessionID != "" && r.Task.SessionID == next.Task.SessionID
}

// Reserve makes the run of a task, for which nothing is decided yet but its place.
func (a *Attempts) Reserve(t *state.Task) *Run {
	r := &Run{ID: a.tasks.Config.ID(), Task: *t, Begun: a.tasks.Config.Now()}
	r.Task.SessionKey = t.Lane()
	r.checkout, _ = a.admission.Checkout(t)
	r.Ctx, r.Cancel = context.WithCancelCause(context.Background())
	return r
}

// Begin returns the run of t, as the ledger has it, in the place of a reserved one, with its
// `running` record.
func (a *Attempts) Begin(st *fold.State, reserved *Run, t *state.Task, defaultAgent string, now time.Time) *Run {
	r := &Run{ID: reserved.ID, Task: *t, Begun: now, checkout: reserved.checkout, Ctx: reserved.Ctx, Cancel: reserved.Cancel, Recorded: true}
	r.interrupted = t.Reason == state.ClassInterrupted
	if slices.Contains(retriesIteration, t.Reason) || t.Reason == state.ClassVerify || t.Phase != "" || t.Iteration > 0 {
		r.before = t.RunID
	}
	r.named = t.AgentSession != "" && t.RunID == ""
	r.Task.Attempt++
	r.Task.RunID = r.ID
	r.Task.RunStartedAt = now
	rec := task.RecordOf(t.ID).Add(state.KeyStatus, string(state.Running)).Add(state.KeyRunID, r.ID).Add(state.KeyAttempt, strconv.Itoa(r.Task.Attempt)).
		Add(state.KeyStartedAt, state.FormatTime(now)).Add(state.KeyUpdatedAt, state.FormatTime(now))
	a.complete(st, r, defaultAgent, rec)
	r.Session = t.AgentSession
	if s, ok := st.SessionByID(r.Task.SessionID); ok && t.Resume != "never" && s.Agent == r.Task.Agent && s.Account == r.Task.Account && s.Native != "" && !r.named {
		r.Session = s.Native // it may have been forked since the task's last run
	}
	task.Unset(rec, state.KeyReason, t.Reason != "")
	task.Unset(rec, state.KeyError, t.Error != "" && t.Phase != state.PhaseEvaluate) // else it is that of the answer
	task.Unset(rec, state.KeyNotBefore, !t.NotBefore.IsZero())
	task.Unset(rec, state.KeyExitCode, t.ExitCode != nil)
	task.Unset(rec, state.KeyChanges, t.Changes != nil && r.before == "") // those of an earlier attempt
	task.Unset(rec, state.KeyChangedFiles, t.Changes != nil && r.before == "")
	r.Started = rec
	return r
}

// complete fills in what a task written by hand has left out. One of a named session
// goes on with that.
func (a *Attempts) complete(st *fold.State, r *Run, defaultAgent string, rec *ledger.Record) {
	t := &r.Task
	fill := func(field *string, key, value string) {
		if *field == "" && value != "" {
			*field = value
			rec.Add(key, value)
		}
	}
	fill(&t.Agent, state.KeyAgent, a.AgentFor(st, t, defaultAgent))
	fill(&t.Account, state.KeyAccount, t.Agent)
	if dir, by := st.HomeOf(t, a.tasks.Config.WorkspaceRoot); t.Workspace == "" && dir != "" {
		t.Workspace, t.WorkspaceByHand = dir, by == ledger.ByHand
		rec.Add(state.KeyWorkspace, dir).AddIf(state.KeyWorkspaceBy, by)
	}
	if dir := filepath.Join(a.tasks.Config.WorkDir, t.ID); t.Isolation != "" && a.tasks.Config.IsTemp(dir) && t.Workspace != dir { // a person's, or work_dir is another one now
		t.Workspace, t.WorkspaceByHand, t.Within = dir, false, ""
		rec.Add(state.KeyWorkspace, dir)
	}
	fill(&t.VerifyCommand, state.KeyVerifyCommand, a.tasks.Workspace(t.Workspace).VerifyCommand)
	if t.MaxIterations == 0 && task.HasVerify(t) {
		t.MaxIterations = a.tasks.MaxIterations(t)
		rec.Add(state.KeyMaxIterations, strconv.Itoa(t.MaxIterations))
	}
	if t.CreatedAt.IsZero() {
		rec.Add(state.KeyCreatedAt, state.FormatTime(r.Begun))
	}
	fill(&t.SessionKey, state.KeySessionKey, t.Lane())
	s, ok := st.CurrentSession(t.SessionKey, t.Agent, t.Account)
	if ok && task.IsNamedLane(t.SessionKey) && t.Resume != "never" && (t.AgentSession == "" || t.AgentSession == s.Native) {
		fill(&t.SessionID, state.KeySessionID, s.ID)
	}
	fill(&t.SessionID, state.KeySessionID, a.tasks.Config.ID())
}
