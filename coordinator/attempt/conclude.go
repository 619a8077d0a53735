package attempt

import (
	"cmp"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"stint/coordinator/admission"
	"stint/coordinator/queue"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/prompt"
	"stint/state"
	"stint/state/fold"
)

// MaxResult is how much of an answer stands in the ledger; the whole answer is in runs/<runId>/answer.
const MaxResult = 64 << 10

// recordEnd puts a run's answer into its file and appends what end decides. If a person has taken the task
// out of its run meanwhile, runs is false, and only what the run has used is recorded. Where the disk is full
// it waits until there is room, so that a result is not lost; the lane stays taken meanwhile.
func (a *Attempts) recordEnd(r *Run, out *task.Outcome, place *admission.Place, what string, isExclusive bool, end func(*fold.State, *ledger.Tx, *state.Task)) (runs bool, err error) {
	unwritten := a.writeAnswer(r, out)
	for task.ShortageOf(unwritten) != 0 && a.tasks.WaitForRoom(r.Ctx, "an answer", unwritten) {
		unwritten = a.writeAnswer(r, out) // the record has not all of it
	}
	err = a.tasks.UpdateWhenRoom(context.Background(), what, isExclusive, func(st *fold.State, tx *ledger.Tx) error {
		var t state.Task
		if t, runs = stillRuns(st, r); runs {
			end(st, tx, &t)
		} else {
			a.tally(st, r, out, place, tx)
		}
		return nil
	})
	if unwritten != nil && err == nil { // there was room for the record
		unwritten = a.writeAnswer(r, out)
	}
	a.tasks.TroubleUnlessStopped("an answer could not be written to its file", unwritten)
	a.tasks.KeepSessions(r.Task.SessionKey)
	return runs, err
}

// writeAnswer puts an answer that the ledger does not have whole into the run's directory: all of it or nothing.
func (a *Attempts) writeAnswer(r *Run, out *task.Outcome) error {
	if len(out.Result) <= MaxResult || r.cut {
		return nil
	}
	path := filepath.Join(a.tasks.RunDir(r.ID), rundir.AnswerName)
	err := durable.PutFile(path, []byte(out.Result))
	if err != nil {
		_ = os.Remove(path) // the error that matters is err
	}
	return err
}

// retriesIteration are the reasons of runs that are made again in the same iteration: the agent came to no end.
var retriesIteration = []state.Class{
	state.ClassInterrupted, state.ClassRateLimited, state.ClassSessionLost, state.ClassContextFull,
	state.ClassNetwork, state.ClassStalled, state.ClassSessionBusy, state.ClassAgentMissing, state.ClassBudget,
}

// conclude appends the records with which a run and its attempt end, and returns what the task is then.
func (a *Attempts) conclude(st *fold.State, tx *ledger.Tx, r *Run, out task.Outcome, place *admission.Place) state.Status {
	if out.Class == state.ClassSessionLost && r.Session == "" && a.tasks.Config.ResumeMissing != "error" {
		out.Class = state.ClassExit // it cannot have lost what it was not asked for; asking again would go on for ever
	}
	now := a.tasks.Config.Now()
	v := a.judge(st, &r.Task, out, now, a.tasks.IsShut())
	v.account = cmp.Or(r.account, v.account)
	if len(out.Quota) > 0 {
		account := st.Account(r.Task.AccountName())
		for i, w := range out.Quota {
			if w.At.IsZero() || w.At.After(now) {
				out.Quota[i].At = now
			}
		}
		v.account = cmp.Or(v.account, task.AccountRecord(account.Name))
		v.account.Add(state.KeyQuota, state.FormatQuota(state.MergeQuota(account.Quota, out.Quota)))
	}
	rec := a.endRecord(st, r, &out, &v)
	if r.Task.Phase != state.PhaseEvaluate || v.Reason != state.ClassInterrupted { // else the task keeps the error of what is judged
		rec.AddIf(state.KeyError, joined(out.Error, v.why))
	}
	rec.AddIf(state.KeyNotBefore, state.FormatTime(v.NotBefore)).AddIf(state.KeyHold, state.Flag(v.Hold))
	rec.AddWhen(out.Class == "" || out.ExitCode >= 0, state.KeyExitCode, strconv.Itoa(out.ExitCode))
	rec.AddWhen(v.Reason == state.ClassCanceled, state.KeyBy, admission.CanceledBy(r.Ctx)) // an edit would have taken the task out of its run
	// The outputs of an earlier run are gone. An interrupted task goes on with its phase.
	addList(rec, state.KeyOutputFiles, r.outputs, len(r.Task.OutputSpec) > 0)
	if v.Reason != state.ClassInterrupted {
		rec.AddWhen(r.Task.Phase != "", state.KeyPhase, "")
	}
	if v.Status == state.Queued && !slices.Contains(retriesIteration, v.Reason) { // the next attempt begins from the first iteration
		rec.AddWhen(r.Task.Iteration > 0, state.KeyIteration, "")
	}
	a.addAnswer(rec, r, &out)
	if failed := v.Status == state.Failed || v.Status == state.Dead; failed && out.Result == "" && r.Task.Phase == "" && r.Task.Iteration <= 1 { // there is no answer: the error is the result
		rec.AddIf(state.KeyResult, joined(out.Error, v.why))
	}
	a.admission.End(st, tx, rec, out.Findings, place)
	if v.loseSession { // those that only share the stint session forget it by the record of the task
		for _, t := range st.Naming(r.Task.Agent, r.Session) {
			if t.ID == r.Task.ID {
				continue
			}
			rec := task.RecordOf(t.ID)
			rec.AddWhen(t.PromptInHistory != "", state.KeyPromptInHistory, "")
			tx.Append(rec.Add(state.NativeKey(t.Agent), "").Add(state.KeyNote, v.Note).Add(state.KeyUpdatedAt, state.FormatTime(now)))
		}
	}
	if v.account != nil {
		tx.Append(v.account)
	}
	return v.Status
}

// joined puts two sentences, either of which may be empty, on one line.
func joined(a, b string) string { return strings.Trim(a+"; "+b, "; ") }

// endRecord begins the record of a run's end, with what is said whatever follows.
func (a *Attempts) endRecord(st *fold.State, r *Run, out *task.Outcome, v *verdict) *ledger.Record {
	t := &r.Task
	rec := task.RecordOf(t.ID).Add(state.KeyStatus, string(v.Status)).AddIf(state.KeyReason, string(v.Reason)).AddIf(state.KeyNote, joined(cmp.Or(out.Note, v.Note), r.note))
	addCount(rec, state.KeyAttempt, t.Attempt, v.Attempt)
	addCount(rec, state.KeyRetries, t.Retries, v.Retries)
	addCount(rec, state.KeyRequeues, t.Requeues, v.Requeues)
	addCount(rec, state.KeyLimitWaits, t.LimitWaits, v.LimitWaits)
	rec.AddWhen(!v.LimitSince.Equal(t.LimitSince), state.KeyLimitSince, state.FormatTime(v.LimitSince))
	now, _ := st.Peek(t.ID)
	moved := now.Agent == t.Agent && now.AccountName() != t.AccountName() // by a person: what it has begun lies in the old one's home
	switch {                                                              // a stint session whose native one is lost keeps its own id, and so its transcript
	case v.loseSession, moved && v.Status == state.Queued:
		rec.Add(state.NativeKey(t.Agent), "")
	case out.Session != "" && out.Session != t.AgentSession:
		rec.Add(state.NativeKey(t.Agent), out.Session)
	}
	kept := "" // the native session with the prompt of a turn that did not end well: a later run goes on with it
	switch {
	case out.Class == "" || v.loseSession:
	case r.kept: // it went on with one, and did not end well either
		kept = t.PromptInHistory
	case out.Kept && a.HasSent(st, t):
		kept = cmp.Or(out.Session, r.Session)
	}
	rec.AddWhen(kept != t.PromptInHistory, state.KeyPromptInHistory, kept)
	if r.changes != nil {
		text, _ := json.Marshal(r.changes) // numbers and names of trees
		rec.Add(state.KeyChanges, string(text))
		addList(rec, state.KeyChangedFiles, r.files, true)
	}
	addUsage(st, rec, r, out)
	addCheck(rec, r.check)
	if r.looked {
		addList(rec, state.KeyFindings, out.Findings, r.flagged)
	}
	return rec
}

// addList sets a field to a list. Without one it is emptied, if it may have one.
func addList[T any](rec *ledger.Record, key string, list []T, has bool) {
	text, _ := json.Marshal(list) // texts and numbers
	rec.AddWhen(len(list) > 0, key, string(text)).AddWhen(len(list) == 0 && has, key, "")
}

// addAnswer ends that record with the answer of an agent's turn, which may be empty.
func (a *Attempts) addAnswer(rec *ledger.Record, r *Run, out *task.Outcome) {
	rec.Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now()))
	rec.AddWhen(r.Task.Phase == "" && (out.Class == "" || out.Result != ""), state.KeyResult, task.HeadAndTail(out.Result, MaxResult, "; the whole answer is in the run's file answer"))
}

// HasSent reports whether the task's run has sent the prompt that the task has now, whatever was changed.
func (a *Attempts) HasSent(st *fold.State, t *state.Task) bool {
	sent, err := durable.ReadFile(durable.OS, filepath.Join(a.tasks.RunDir(t.RunID), rundir.PromptName))
	if err != nil {
		return false
	}
	now, err := a.tasks.WholeIn(st, t.ID)
	message := prompt.UserMessage(string(sent))
	theirs := prompt.UserMessage(a.EscapePrompt(t.Agent, prompt.Build(prompt.Input{Message: now.Prompt})))
	return err == nil && (message == theirs || now.Iteration > 1 && message == prompt.FixIt)
}

// addUsage adds what the task has used with this run, and what the CLI has counted over the native session. What
// one that began outside of stint had used before cannot be known: nothing is made up.
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
	rec.AddWhen(thread != (state.Usage{}), state.KeyThreadTokens, state.FormatThread(thread))
}

// addCount sets a field to a number that was another one before.
func addCount[T int | int64](rec *ledger.Record, key string, was, is T) {
	rec.AddWhen(is != was, key, strconv.FormatInt(int64(is), 10))
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

// tally records what a run has used whose task a person took out of it. A task that is back in the queue goes on,
// unless that came about too often, for it may be its own doing. A stint retry has begun it anew. A task that was
// archived meanwhile keeps the figures that it has.
func (a *Attempts) tally(st *fold.State, r *Run, out *task.Outcome, place *admission.Place, tx *ledger.Tx) {
	if !inJournal(st, r.Task.ID) {
		return
	}
	rec := task.RecordOf(r.Task.ID)
	addUsage(st, rec, r, out)
	t, err := queue.PeekIn(st, r.Task.ID)
	again, requeues := err == nil && t.Status == state.Queued && t.Attempt > 0, r.Task.Requeues+1
	rec.AddWhen(again, state.KeyRequeues, strconv.Itoa(requeues))
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

// inJournal reports whether a task is there and was not archived: a record would begin a new task.
func inJournal(st *fold.State, id string) bool {
	_, archived := st.Archived(id)
	_, known := st.Peek(id)
	return known && !archived
}
