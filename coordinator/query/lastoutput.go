package query

import (
	"time"

	"stint/coordinator/attempt"
	"stint/coordinator/task"
	"stint/state"
)

// Live returns when the agent of a running task last put something out, or when its run began
// if it has not yet; what the run does now, nil if that is not known; and whether the run has
// ended, and its result waits until a save of tasks.md is settled.
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

// runOf returns the run of a running task; nil if it is not running, though its run
// may still be on the list.
func (q *Query) runOf(id string) *attempt.Run {
	if t, _ := q.tasks.Peek(id); t.Status != state.Running {
		return nil
	}
	return q.live.RunOf(id)
}

// silentAfter is how long an agent may be silent before that is told, if its idle
// limit is not so short that it is told earlier.
const silentAfter = time.Minute

// silence returns for how long a running task has put nothing out, and when that ends it; ""
// if there is nothing remarkable.
func (q *Query) silence(id string, now time.Time) string {
	r := q.runOf(id)
	if r == nil || r.Settling.Load() {
		return ""
	}
	last, limit := r.Begun, q.tasks.Config.StartupTimeout
	if out := r.LastOutput.Load(); out != nil {
		last, limit = *out, q.tasks.Config.IdleTimeout
	}
	if r.Task.Phase == state.PhaseVerify {
		limit = 0 // it has its own limit, however silent it is
	}
	quiet := now.Sub(last)
	if quiet <= silentAfter && (limit <= 0 || quiet <= limit/5) {
		return ""
	}
	unit := time.Second
	if quiet >= 2*time.Minute {
		unit = time.Minute
	}
	text := "; no output for " + task.FormatLimit(quiet.Truncate(unit))
	if limit > 0 {
		text += ", ended as " + string(state.ClassStalled) + " at " + task.FormatLimit(limit)
	}
	return text
}
