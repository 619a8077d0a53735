package attempt

import (
	"cmp"
	"math"
	"strconv"

	"stint/coordinator/admission"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// addUsage adds what the task has used over all its runs with this one, and what the CLI has
// now counted over the native session. What a session that was begun outside of stint had used
// before cannot be known: then nothing is made up.
func addUsage(st *fold.State, rec *ledger.Record, r *Run, out *task.Outcome) {
	used, thread := out.Usage, state.Usage{}
	if now := out.Thread; now != (state.Usage{}) {
		native := cmp.Or(r.strayed, out.Session, r.Session)
		before, counted := st.ThreadOf(r.Task.Agent, native)
		if counted || !r.named || native != r.Session {
			used = used.Plus(since(now, before))
		}
		if r.strayed == "" { // a field of 0 was not counted this time
			thread = now.Combine(before, newer, newer)
		}
	}
	was, is := r.Task.Usage, r.Task.Usage.Plus(used)
	r.used = is
	addCount(rec, state.KeyInputTokens, was.InputTokens, is.InputTokens)
	addCount(rec, state.KeyCachedInputTokens, was.CachedInputTokens, is.CachedInputTokens)
	addCount(rec, state.KeyOutputTokens, was.OutputTokens, is.OutputTokens)
	addCount(rec, state.KeyReasoningTokens, was.ReasoningTokens, is.ReasoningTokens)
	if is.CostUSD != was.CostUSD {
		nano := math.Round(is.CostUSD*1e9) / 1e9 // sums of floats have odd ends
		rec.Add(state.KeyCostUSD, strconv.FormatFloat(nano, 'f', -1, 64))
	}
	if thread != (state.Usage{}) {
		rec.Add(state.KeyThreadTokens, state.FormatThread(thread))
	}
}

// addCount sets a field to a number that was another one before.
func addCount[T int | int64](rec *ledger.Record, key string, was, is T) {
	if is != was {
		rec.Add(key, strconv.FormatInt(int64(is), 10))
	}
}

// since returns what was added to a count. A count that went down began anew.
func since(now, before state.Usage) state.Usage {
	fell := func(now, before int64) bool { return 0 < now && now < before }
	if fell(now.InputTokens, before.InputTokens) || fell(now.OutputTokens, before.OutputTokens) || 0 < now.CostUSD && now.CostUSD < before.CostUSD {
		return now
	}
	return now.Grown(before)
}

func newer[T int64 | float64](now, before T) T { return cmp.Or(now, before) }

// tally records what a run has used whose task a person took out of it, and counts
// that where the task is back in the queue, by whatever edits: it goes on, unless
// that came about too often, for it may be its own doing. A stint retry has begun it
// anew, with no attempt counted. A task that was archived meanwhile keeps the figures that it has.
func (a *Attempts) tally(st *fold.State, r *Run, out *task.Outcome, place *admission.Place, tx *ledger.Tx) {
	if !InJournal(st, r.Task.ID) {
		return
	}
	rec := task.RecordOf(r.Task.ID)
	addUsage(st, rec, r, out)
	t, err := queue.PeekIn(st, r.Task.ID)
	again, requeues := err == nil && t.Status == state.Queued && t.Attempt > 0, r.Task.Requeues+1
	if again {
		rec.Add(state.KeyRequeues, strconv.Itoa(requeues))
	}
	if len(rec.Fields) > 0 {
		tx.Append(rec)
	}
	if again && requeues > a.tasks.Config.MaxRetries {
		rec := task.RecordOf(t.ID).Add(state.KeyStatus, string(state.Dead)).Add(state.KeyReason, string(state.ClassInterrupted))
		admission.AddError(rec, &t, "it was queued again by hand while it ran, time and again; to begin anew: stint retry "+t.ID).
			Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now()))
		a.admission.End(st, tx, rec, nil, place)
	}
}

// InJournal reports whether a task is there and was not archived: a record of one that
// was would be taken for the first of a new task.
func InJournal(st *fold.State, id string) bool {
	_, archived := st.Archived(id)
	_, known := st.Peek(id)
	return known && !archived
}
