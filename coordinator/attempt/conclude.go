package attempt

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"stint/coordinator/admission"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/prompt"
	"stint/state"
	"stint/state/fold"
)

// MaxResult is how much of an answer stands in the ledger; the whole answer is
// in runs/<runId>/answer.
const MaxResult = 64 << 10

// bounded returns head and tail of a long answer, marked as cut.
func bounded(answer string) string {
	return task.HeadAndTail(answer, MaxResult, "; the whole answer is in the run's file answer")
}

// finish records how a run ended. Where the disk is full it waits until there is
// room, so that a result is not lost; the lane stays taken meanwhile.
func (a *Attempts) finish(r *Run, out task.Outcome) error {
	places := a.PlacesOf(r.Task.ID)
	err := a.keepAnswer(r, &out, func() error {
		closing := a.IsShut()
		return a.UpdateWhenRoom(context.Background(), "a result", false, func(st *fold.State, tx *ledger.Tx) error {
			if stillRuns(st, r) {
				a.conclude(st, r, out, places, closing, tx)
			} else {
				a.tally(st, r, &out, places, tx)
			}
			return nil
		})
	})
	a.KeepSession(r.Task.SessionID)
	return err
}

// keepAnswer puts a run's answer into its file and records the run's end. If there was
// no room for the file, it tries once more when there was some for the record.
func (a *Attempts) keepAnswer(r *Run, out *task.Outcome, record func() error) error {
	unwritten := a.writeAnswer(r, out)
	for len(out.Result) > MaxResult && task.ShortageOf(unwritten) != 0 && a.WaitForRoom(r.Ctx, "an answer", unwritten) {
		unwritten = a.writeAnswer(r, out) // the record has not all of it
	}
	err := record()
	if unwritten != nil && err == nil {
		unwritten = a.writeAnswer(r, out)
	}
	if unwritten != nil {
		a.Trouble("an answer could not be written to its file", unwritten)
	}
	return err
}

// writeAnswer puts the whole answer into the run's directory, or nothing: a part of
// it would be taken for all.
func (a *Attempts) writeAnswer(r *Run, out *task.Outcome) error {
	if out.Result == "" || r.cut {
		return nil
	}
	path := filepath.Join(a.RunDir(r.ID), rundir.AnswerName)
	err := durable.PutFile(path, []byte(out.Result))
	if err != nil {
		_ = os.Remove(path) // the error that matters is err
	}
	return err
}

// conclude appends the records with which a run and its attempt end.
func (a *Attempts) conclude(st *fold.State, r *Run, out task.Outcome, places map[string]*admission.Place, closing bool, tx *ledger.Tx) {
	if out.Class == state.ClassSessionLost && r.Session == "" && a.Config.ResumeMissing != "error" {
		out.Class = state.ClassExit // it cannot have lost what it was not asked for; asking again would go on for ever
	}
	v := a.judge(st, &r.Task, out, a.Config.Now(), closing)
	if r.account != nil {
		v.account = r.account
	}
	rec := a.endRecord(st, r, &out, &v)
	if r.Task.Phase != state.PhaseEvaluate || v.reason != state.ClassInterrupted { // else the task keeps the error of what is judged
		rec.AddIf(state.KeyError, joined(out.Error, v.why))
	}
	rec.AddIf(state.KeyNotBefore, state.FormatTime(v.notBefore))
	if out.Class == "" || out.ExitCode >= 0 {
		rec.Add(state.KeyExitCode, strconv.Itoa(out.ExitCode))
	}
	if v.reason == state.ClassCanceled {
		rec.Add(state.KeyBy, admission.CanceledBy(r.Ctx)) // an edit would have taken the task out of its run
	}
	addOutputs(rec, r)
	if v.reason != state.ClassInterrupted { // else the task goes on with that phase
		task.Unset(rec, state.KeyPhase, r.Task.Phase != "")
	}
	if v.status == state.Queued && !goesOn(v.reason) { // the next attempt begins from the first round
		task.Unset(rec, state.KeyIteration, r.Task.Iteration > 0)
	}
	a.addAnswer(rec, r, &out)
	a.End(st, tx, rec, out.Findings, places)
	if v.loseSession {
		a.loseSession(r, v.note, st, tx)
	}
	if v.account != nil {
		tx.Append(v.account)
	}
}

// joined puts two sentences, either of which may be empty, on one line.
func joined(a, b string) string { return strings.Trim(a+"; "+b, "; ") }

// End appends the record with which a task may end, and what then follows it.
// places are those of its follow-up, if they were looked at.
func (a *Attempts) End(st *fold.State, tx *ledger.Tx, rec *ledger.Record, findings []state.Issue, places map[string]*admission.Place) {
	follow := a.FollowUp(st, rec, findings, places)
	tx.Append(rec)
	tx.Merge(follow)
}

// endRecord begins the record of a run's end: what is to be said whether a step or
// the end of its attempt follows.
func (a *Attempts) endRecord(st *fold.State, r *Run, out *task.Outcome, v *verdict) *ledger.Record {
	rec := &ledger.Record{Kind: ledger.KindTask, ID: r.Task.ID}
	rec.Add(state.KeyStatus, string(v.status)).AddIf(state.KeyReason, string(v.reason)).AddIf(state.KeyNote, cmp.Or(out.Note, v.note))
	addCounters(rec, &r.Task, v)
	addSession(rec, r, out, v)
	a.addKept(st, rec, r, out, v)
	addUsage(st, rec, r, out)
	AddCheck(rec, r.check)
	if r.looked {
		addFindings(rec, out.Findings, r.flagged)
	}
	return rec
}

// addAnswer ends that record with the answer, which comes with the agent's turn. One
// that ended well has one, though it may be empty.
func (a *Attempts) addAnswer(rec *ledger.Record, r *Run, out *task.Outcome) {
	rec.Add(state.KeyUpdatedAt, state.FormatTime(a.Config.Now()))
	switch {
	case r.Task.Phase != "":
	case out.Class == "":
		rec.Add(state.KeyResult, bounded(out.Result))
	default:
		rec.AddIf(state.KeyResult, bounded(out.Result))
	}
}

// goesOn reports whether a run that ended so is made again in the same round of the
// verify loop: the agent never came to an end of its own.
func goesOn(reason state.Class) bool {
	switch reason {
	case state.ClassInterrupted, state.ClassRateLimited, state.ClassSessionLost, state.ClassContextFull, state.ClassNetwork, state.ClassStalled, state.ClassSessionBusy, state.ClassAgentMissing:
		return true
	}
	return false
}

// addCounters says which of a task's counters the run has changed.
func addCounters(rec *ledger.Record, t *state.Task, v *verdict) {
	number := func(key string, old, now int) {
		if old != now {
			rec.Add(key, strconv.Itoa(now))
		}
	}
	number(state.KeyAttempt, t.Attempt, v.attempt)
	number(state.KeyRetries, t.Retries, v.retries)
	number(state.KeyRequeues, t.Requeues, v.requeues)
	number(state.KeyLimitWaits, t.LimitWaits, v.limitWaits)
	if !v.limitSince.Equal(t.LimitSince) {
		rec.Add(state.KeyLimitSince, state.FormatTime(v.limitSince))
	}
}

// addSession says which native session the task goes on with. A stint session
// whose native one is lost keeps its own id, and so its transcript.
func addSession(rec *ledger.Record, r *Run, out *task.Outcome, v *verdict) {
	switch {
	case v.loseSession:
		rec.Add(state.NativeKey(r.Task.Agent), "")
	case out.Session != "" && out.Session != r.Task.AgentSession:
		rec.Add(state.NativeKey(r.Task.Agent), out.Session)
	}
}

// loseSession makes the other waiting tasks forget a native session that is gone.
// Those that only share the stint session forget it by the record of the task.
func (a *Attempts) loseSession(r *Run, note string, st *fold.State, tx *ledger.Tx) {
	for _, t := range st.Naming(r.Task.Agent, r.Session) {
		if t.ID == r.Task.ID {
			continue
		}
		rec := &ledger.Record{Kind: ledger.KindTask, ID: t.ID}
		task.Unset(rec, state.KeyPromptInHistory, t.PromptInHistory != "")
		tx.Append(rec.Add(state.NativeKey(t.Agent), "").Add(state.KeyNote, note).Add(state.KeyUpdatedAt, state.FormatTime(a.Config.Now())))
	}
}

// addKept says which native session has the prompt of a turn that did not end
// well, so that a later run goes on with it. A run that went on with it and did
// not end well either changes nothing.
func (a *Attempts) addKept(st *fold.State, rec *ledger.Record, r *Run, out *task.Outcome, v *verdict) {
	was, is := r.Task.PromptInHistory, ""
	switch {
	case out.Class == "" || v.loseSession:
	case r.kept:
		is = was
	case out.Kept && a.HasSent(st, &r.Task):
		is = cmp.Or(out.Session, r.Session)
	}
	if is != was {
		rec.Add(state.KeyPromptInHistory, is)
	}
}

// HasSent reports whether the task's run has sent the prompt that the task has now:
// a person may have changed it since, and that one is still to be sent.
func (a *Attempts) HasSent(st *fold.State, t *state.Task) bool {
	sent, err := durable.ReadFile(durable.OS, filepath.Join(a.RunDir(t.RunID), rundir.PromptName))
	if err != nil {
		return false
	}
	now, err := a.WholeIn(st, t.ID)
	message := prompt.UserMessage(string(sent))
	theirs := prompt.UserMessage(a.EscapePrompt(t.Agent, prompt.Build(prompt.Input{Message: now.Prompt})))
	return err == nil && (message == theirs || now.Iteration > 1 && (message == prompt.MendIt || message == prompt.MendOn))
}

// addOutputs names the files that were collected. Those of an earlier run are
// forgotten with its run id.
func addOutputs(rec *ledger.Record, r *Run) {
	switch list, err := json.Marshal(r.outputs); {
	case len(r.outputs) > 0 && err == nil:
		rec.Add(state.KeyOutputFiles, string(list))
	case len(r.Task.OutputSpec) > 0:
		rec.Add(state.KeyOutputFiles, "")
	}
}
