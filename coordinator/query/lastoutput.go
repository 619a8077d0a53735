package query

import (
	"strings"
	"time"

	"stint/coordinator/attempt"
	"stint/coordinator/task"
	"stint/state"
)

// LastOutput returns when the agent of a running task last put something out, or
// when its run began if it has not yet; the zero time if the task is not running.
func (q *Query) LastOutput(id string) time.Time {
	r := q.runOf(id)
	if r == nil {
		return time.Time{}
	}
	if last := r.LastOutput.Load(); last != nil {
		return *last
	}
	return r.Begun
}

// Settling reports whether the run of a running task has ended, and its result waits
// until a save of tasks.md is settled.
func (q *Query) Settling(id string) bool {
	r := q.runOf(id)
	return r != nil && r.Settling.Load()
}

// Event returns the newest event of the run of a running task: what it does now; nil if there
// was none yet.
func (q *Query) Event(id string) *task.LogEvent {
	if r := q.runOf(id); r != nil {
		return r.Event()
	}
	return nil
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
	text := "; no output for " + short(quiet.Truncate(unit))
	if limit > 0 {
		text += ", ended as " + string(state.ClassStalled) + " at " + short(limit)
	}
	return text
}

// short returns a duration without the zeros at its end: 50s, 9m, 1h30m.
func short(d time.Duration) string {
	text := d.String()
	if rest, ok := strings.CutSuffix(text, "m0s"); ok {
		text = rest + "m"
	}
	if rest, ok := strings.CutSuffix(text, "h0m"); ok {
		text = rest + "h"
	}
	return text
}
