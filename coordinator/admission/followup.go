package admission

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"stint/coordinator/followup"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// Follow-ups. A task that ends failed or dead, or done with findings, queues another one in the change that ends
// it: no crash can come between them. It is a submission like any other, with a place and a prompt and without
// the rights of its task. What stands in its way is noted at that task's end.

// PlaceOf looks at the directory in which a follow-up of a task may be queued: before
// the end is recorded, because a file system may keep us waiting. nil: it has none.
func (a *Admission) PlaceOf(id string) *Place {
	t, err := a.tasks.Whole(id)
	if err != nil {
		return &Place{} // the end notes why
	}
	onFailure, _ := a.followUpText(&t, state.OnFailure)
	onIssue, _ := a.followUpText(&t, state.OnIssue)
	if onFailure+onIssue == "" {
		return nil
	}
	w := &Place{}
	if t.Workspace != "" {
		w = a.lookAt(t.Workspace, t.Within)
		if wrong := a.WorkspaceError(&t); wrong != "" {
			w.err = errors.New(wrong)
		}
	}
	if w.agent = t.Agent; w.agent == "" {
		env, _ := a.tasks.Environment(t.Environment)
		w.agent = a.tasks.Config.DefaultAgent(env) // which may start a program
	}
	return w
}

// AddError adds the error with which a task ends: also as its result, while its attempt has no answer.
func AddError(rec *ledger.Record, t *state.Task, text string) *ledger.Record {
	rec.AddIf(state.KeyError, text)
	if t.Phase == "" && t.Iteration <= 1 {
		rec.AddIf(state.KeyResult, text)
	}
	return rec
}

// End appends the record with which a task may end, and those of the task that then follows
// it, for which place was looked at. If what is to follow cannot be queued, the record says so.
func (a *Admission) End(st *fold.State, tx *ledger.Tx, rec *ledger.Record, findings []state.Issue, place *Place) {
	follow := &ledger.Tx{}
	if place != nil {
		if err := a.followUp(st, follow, rec, findings, place); err != nil {
			addNote(rec, "no follow-up was queued: "+err.Error())
			follow = &ledger.Tx{}
		}
	}
	tx.Append(rec)
	tx.Merge(follow)
}

// followUp enqueues what is to follow the end that rec says, if anything is.
func (a *Admission) followUp(st *fold.State, tx *ledger.Tx, rec *ledger.Record, findings []state.Issue, place *Place) error {
	var trigger state.Trigger
	switch status, _ := rec.Get(state.KeyStatus); {
	case status == string(state.Failed) || status == string(state.Dead):
		trigger = state.OnFailure
	case status == string(state.Done) && len(findings) > 0:
		trigger = state.OnIssue
	default:
		return nil
	}
	t, err := a.tasks.WholeIn(st, rec.ID)
	if err != nil {
		return err
	}
	status, reason := "", "" // it is followed as it is after its end
	for key, field := range map[string]*string{
		state.KeyStatus: &status, state.KeyReason: &reason, state.KeyError: &t.Error, state.KeyResult: &t.Result, state.KeyVerifyOutput: &t.VerifyOutput,
	} {
		if value, named := rec.Get(key); named {
			*field = value
		}
	}
	t.Status, t.Reason, t.Findings = state.Status(status), state.Class(reason), findings
	text, own := a.followUpText(&t, trigger)
	if text == "" && len(findings) > 0 { // it has failed, and is flagged as well
		trigger = state.OnIssue
		text, own = a.followUpText(&t, trigger)
	}
	if text == "" || !own && st.Depth(t.ID, a.tasks.Config.FollowUpDepth) >= a.tasks.Config.FollowUpDepth { // a configured prompt is meant to end there: no note says so
		return nil
	}
	prompt, err := followup.Prompt(text, &t)
	if err != nil {
		return err
	}
	s := submission{parent: t.ID, trigger: trigger, environment: t.Environment, TaskSpec: task.TaskSpec{
		Prompt: prompt, Workspace: t.Workspace, Agent: t.Agent, TenantID: t.TenantID, Queue: t.Queue, Priority: t.Priority,
		SessionKey: a.tasks.Workspace(t.Workspace).TriggerSession, Budget: t.Budget, Spare: t.Spare,
	}}
	if t.Pinned {
		s.Account = t.Account
	}
	if !own && t.Status != state.Done { // it is to look at what has failed: the command cannot be expected to pass
		s.VerifyCommand = task.NoVerify
	}
	in := a.emptyIntake()
	in.st, in.agent, in.seen[t.Workspace] = st, place.agent, place
	if err := in.add(s); err != nil {
		return err
	}
	if t.Trigger == state.ByAgent { // what follows it is its agent's wish as well
		a.capBy(&in.list[0], &t)
	}
	a.prepare(&in.list[0])
	return in.record(st, tx)
}

// followUpText returns the template of a task's follow-up, "" for none, and whether it is the task's own.
func (a *Admission) followUpText(t *state.Task, trigger state.Trigger) (text string, own bool) {
	set := a.tasks.Workspace(t.Workspace)
	text, configured := t.OnFailure, set.OnFailure
	if trigger == state.OnIssue {
		text, configured = t.OnIssue, set.OnIssue
	}
	own = text != ""
	if text = cmp.Or(text, configured); followup.IsNone(text) {
		return "", own
	}
	return text, own
}

// addNote adds a sentence to a record's note.
func addNote(rec *ledger.Record, text string) {
	const most = 600 // bytes: it may tell of a text that a person wrote
	note, _ := rec.Get(state.KeyNote)
	rec.Set(ledger.Pair{Key: state.KeyNote, Value: strings.TrimPrefix(note+"; "+task.OneSentence(text, most), "; ")})
}

// checkFamily reports whether a task may queue one more, beside those that it has queued and those that it
// queues just now: chains and families are bounded, so that tasks that queue tasks come to an end. What its
// agent asks for and what is queued at its ends are counted apart: neither takes the other's place.
func (in *intake) checkFamily(st *fold.State, s *submission) error {
	a, now := in.a, 0
	for i := range in.fresh {
		if in.fresh[i].TriggeredBy == s.parent {
			now++
		}
	}
	have, who := st.Asked(s.parent), "the agent of task "+s.parent
	if s.trigger != state.ByAgent {
		have, who = len(st.FollowUps(s.parent))-have, "task "+s.parent
	}
	refused := func(key, format string, args ...any) error {
		return &task.Error{Code: task.CodeForbidden, Message: fmt.Sprintf(format, args...), Hint: "queue it by hand, or set " + key + " in the configuration"}
	}
	switch depth := st.Depth(s.parent, a.tasks.Config.FollowUpDepth); {
	case a.tasks.Config.FollowUpDepth == 0:
		return refused("follow_up_depth", "follow_up_depth is 0: no task queues another")
	case depth >= a.tasks.Config.FollowUpDepth:
		return refused("follow_up_depth", "follow_up_depth is %d, and task %s is number %d of a chain", a.tasks.Config.FollowUpDepth, s.parent, depth)
	case have+now >= a.tasks.Config.MaxFollowUps:
		return refused("max_follow_ups", "max_follow_ups is %d, and %s has queued as many", a.tasks.Config.MaxFollowUps, who)
	}
	return nil
}
