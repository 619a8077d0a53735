package coordinator

import (
	"errors"
	"fmt"
	"strings"

	"stint/ledger"
	"stint/state"
)

// Follow-ups. A task that ends failed or dead, or done with findings, queues another
// one, in the same change as its own end: no crash can come between them. It is a
// submission like any other, with a place and a prompt and without the rights of the
// task that it follows. What stands in its way is noted at that task's end.

// followUp gives the records of the task that is to follow the end that rec says;
// there are none where nothing is to follow. If what is to follow cannot be queued,
// it says so in rec. It is called on the log's goroutine, before rec is appended.
func (c *Coordinator) followUp(rec *ledger.Record, findings []state.Issue) *ledger.Tx {
	trigger := triggerOf(rec, findings)
	if trigger == "" {
		return &ledger.Tx{}
	}
	tx := &ledger.Tx{}
	t, err := c.whole(rec.ID)
	if err == nil {
		endAs(&t, rec, findings)
		if text := c.followUpText(&t, trigger); text != "" {
			err = c.recordFollowUp(&t, trigger, text, tx)
		}
	}
	if err != nil {
		addNote(rec, "no follow-up was queued: "+err.Error())
		return &ledger.Tx{}
	}
	return tx
}

// triggerOf says what an end sets off; "" if nothing.
func triggerOf(rec *ledger.Record, findings []state.Issue) state.Trigger {
	status, _ := rec.Get(state.KeyStatus)
	switch {
	case status == string(state.Failed) || status == string(state.Dead):
		return state.OnFailure
	case status == string(state.Done) && len(findings) > 0:
		return state.OnIssue
	}
	return ""
}

// endAs makes a task what it is after the record of its end.
func endAs(t *state.Task, rec *ledger.Record, findings []state.Issue) {
	status, reason := "", ""
	for key, field := range map[string]*string{
		state.KeyStatus: &status, state.KeyReason: &reason, state.KeyError: &t.Error, state.KeyResult: &t.Result, state.KeyVerifyOutput: &t.VerifyOutput,
	} {
		if value, named := rec.Get(key); named {
			*field = value
		}
	}
	t.Status, t.Reason, t.Findings = state.Status(status), state.Class(reason), findings
}

// followUpText gives the template of a task's follow-up; "" if there is to be none.
func (c *Coordinator) followUpText(t *state.Task, trigger state.Trigger) string {
	set := c.workspace(t.Workspace)
	text := first(t.OnFailure, set.OnFailure)
	if trigger == state.OnIssue {
		text = first(t.OnIssue, set.OnIssue)
	}
	if isNoFollowUp(text) {
		return ""
	}
	return text
}

// recordFollowUp takes in a follow-up of a task that ends just now.
func (c *Coordinator) recordFollowUp(t *state.Task, trigger state.Trigger, text string, tx *ledger.Tx) error {
	if wrong := c.misplaced(t); wrong != "" {
		return errors.New(wrong)
	}
	prompt, err := fillTemplate(text, t)
	if err != nil {
		return err
	}
	in := c.emptyIntake()
	err = in.add(submission{
		TaskSpec: TaskSpec{
			Prompt: prompt, Workspace: t.Workspace, Agent: t.Agent, TenantID: t.TenantID, Queue: t.Queue, Priority: t.Priority,
			SessionKey: c.workspace(t.Workspace).TriggerSession,
		},
		parent: t.ID, trigger: trigger,
	})
	if err != nil {
		return err
	}
	return in.record(tx)
}

// addNote adds a sentence to a record's note.
func addNote(rec *ledger.Record, text string) {
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "")
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

// checkFamily says whether a task may queue one more, beside those that it has
// queued and those that it queues just now: chains and families are bounded, so that
// tasks that queue tasks come to an end.
func (in *intake) checkFamily(parent string) error {
	c, now := in.c, 0
	for i := range in.fresh {
		if in.fresh[i].TriggeredBy == parent {
			now++
		}
	}
	c.mu.Lock()
	depth, have := c.state.Depth(parent, c.cfg.FollowUpDepth), len(c.state.FollowUps(parent))
	c.mu.Unlock()
	switch {
	case depth >= c.cfg.FollowUpDepth:
		return &Error{
			Code:    CodeForbidden,
			Message: fmt.Sprintf("task %s has %d others before it that queued each other, and follow_up_depth is %d", parent, depth, c.cfg.FollowUpDepth),
			Hint:    "queue it by hand, or set follow_up_depth in the configuration",
		}
	case have+now >= c.cfg.MaxFollowUps:
		return &Error{
			Code:    CodeForbidden,
			Message: fmt.Sprintf("task %s has queued %d others, and max_follow_ups is %d", parent, have+now, c.cfg.MaxFollowUps),
			Hint:    "queue it by hand, or set max_follow_ups in the configuration",
		}
	}
	return nil
}
