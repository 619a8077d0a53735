package admission

import (
	"cmp"
	"errors"
	"fmt"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// Follow-ups. A task that ends failed or dead, or done with findings, queues another
// one, in the same change as its own end: no crash can come between them. It is a
// submission like any other, with a place and a prompt and without the rights of the
// task that it follows. What stands in its way is noted at that task's end.

// PlacesOf looks at the directory in which a follow-up of a task may be queued: before
// the end is recorded, because a file system may keep us waiting. nil: it has none.
func (a *Admission) PlacesOf(id string) map[string]*Place {
	t, err := a.Whole(id)
	if err != nil {
		return map[string]*Place{} // the end notes why
	}
	onFailure, _ := a.followUpText(&t, state.OnFailure)
	onIssue, _ := a.followUpText(&t, state.OnIssue)
	if onFailure+onIssue == "" {
		return nil
	}
	if t.Workspace == "" {
		return map[string]*Place{id: {agent: a.agentOf(&t)}}
	}
	w := a.lookAt(t.Workspace)
	w.agent = a.agentOf(&t)
	w.lane() // now: its end is recorded on the log's goroutine
	if wrong := a.Misplaced(&t); wrong != "" {
		w.err = errors.New(wrong)
	}
	return map[string]*Place{id: w}
}

// agentOf returns the agent of a task, or the default one, for which a program may be started.
func (a *Admission) agentOf(t *state.Task) string {
	if t.Agent != "" {
		return t.Agent
	}
	return a.Config.DefaultAgent()
}

// FollowUp returns the records of the task that is to follow the end that rec says;
// there are none where nothing is to follow. If what is to follow cannot be queued,
// it says so in rec. It is called on the log's goroutine, before rec is appended.
func (a *Admission) FollowUp(st *fold.State, rec *ledger.Record, findings []state.Issue, places map[string]*Place) *ledger.Tx {
	tx, trigger := &ledger.Tx{}, state.Trigger("")
	status, _ := rec.Get(state.KeyStatus)
	switch {
	case status == string(state.Failed) || status == string(state.Dead):
		trigger = state.OnFailure
	case status == string(state.Done) && len(findings) > 0:
		trigger = state.OnIssue
	}
	if trigger == "" || places == nil {
		return tx
	}
	t, err := a.WholeIn(st, rec.ID)
	if err == nil { // it is followed as it is after its end
		reason := ""
		for key, field := range map[string]*string{state.KeyReason: &reason, state.KeyError: &t.Error, state.KeyResult: &t.Result, state.KeyVerifyOutput: &t.VerifyOutput} {
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
		if text != "" && (own || st.Depth(t.ID, a.Config.FollowUpDepth) < a.Config.FollowUpDepth) { // a configured prompt is meant to end there: no note says so
			err = a.recordFollowUp(st, &t, trigger, text, own, places, tx)
		}
	}
	if err != nil {
		addNote(rec, "no follow-up was queued: "+err.Error())
		return &ledger.Tx{}
	}
	return tx
}

// followUpText returns the template of a task's follow-up, and whether it is the task's
// own; "" if there is to be none.
func (a *Admission) followUpText(t *state.Task, trigger state.Trigger) (text string, own bool) {
	set := a.Workspace(t.Workspace)
	text, configured := t.OnFailure, set.OnFailure
	if trigger == state.OnIssue {
		text, configured = t.OnIssue, set.OnIssue
	}
	own = text != ""
	if text = cmp.Or(text, configured); isNoFollowUp(text) {
		return "", own
	}
	return text, own
}

// recordFollowUp enqueues a follow-up of a task that ends just now. own says that the
// task itself has asked for it.
func (a *Admission) recordFollowUp(st *fold.State, t *state.Task, trigger state.Trigger, text string, own bool, places map[string]*Place, tx *ledger.Tx) error {
	prompt, err := fillTemplate(text, t)
	if err != nil {
		return err
	}
	in := a.emptyIntake()
	in.st = st
	place, ok := places[t.ID]
	if !ok {
		place = &Place{}
	}
	in.seen[t.Workspace], in.agent = place, place.agent
	spec := task.TaskSpec{
		Prompt: prompt, Workspace: t.Workspace, Agent: t.Agent, TenantID: t.TenantID, Queue: t.Queue, Priority: t.Priority,
		SessionKey: a.Workspace(t.Workspace).TriggerSession,
	}
	if !own && t.Status != state.Done { // it is to look at what has failed: the command cannot be expected to pass
		spec.VerifyCommand = task.NoVerify
	}
	err = in.add(submission{TaskSpec: spec, parent: t.ID, trigger: trigger})
	if err != nil {
		return err
	}
	if t.Trigger == state.ByAgent { // what follows it is its agent's wish as well
		a.capBy(&in.list[0], t)
	}
	if err := a.prepare(&in.list[0]); err != nil {
		return err
	}
	return in.record(st, tx)
}

// maxNote bounds a sentence in a note, in bytes: it may tell of a text that a person
// wrote.
const maxNote = 600

// addNote adds a sentence to a record's note.
func addNote(rec *ledger.Record, text string) {
	text = task.OneSentence(text, maxNote)
	for i := range rec.Fields {
		if f := &rec.Fields[i]; f.Key == state.KeyNote && f.Value != "" {
			f.Value += "; " + text
			return
		} else if f.Key == state.KeyNote {
			f.Value = text
			return
		}
	}
	rec.Add(state.KeyNote, text)
}

// checkFamily reports whether a task may queue one more, beside those that it has
// queued and those that it queues just now: chains and families are bounded, so that
// tasks that queue tasks come to an end. What its agent asks for and what is queued
// at its ends are counted apart: neither takes the other's place.
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
	switch depth := st.Depth(s.parent, a.Config.FollowUpDepth); {
	case a.Config.FollowUpDepth == 0:
		return refused("follow_up_depth", "follow_up_depth is 0: no task queues another")
	case depth >= a.Config.FollowUpDepth:
		return refused("follow_up_depth", "follow_up_depth is %d, and task %s is number %d of a chain", a.Config.FollowUpDepth, s.parent, depth)
	case have+now >= a.Config.MaxFollowUps:
		return refused("max_follow_ups", "max_follow_ups is %d, and %s has queued as many", a.Config.MaxFollowUps, who)
	}
	return nil
}
