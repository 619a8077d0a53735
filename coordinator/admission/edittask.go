package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
)

// Edit changes fields of a task that waits, a draft or a queued one, all or none of them, with the checks of
// Submit. The task stays in its place, with its attempts. As after an edit by hand it leaves its session
// where it gets another session key or agent; a task of no session goes with its workspace to the lane of
// that directory. A field that is unset is chosen as for a new task. What is as it was is not written.
//
// The error has CodeConflict if the task does not wait, and CodeChanged if p is for an earlier state of it. by is who asks.
func (a *Admission) Edit(ctx context.Context, ref string, p task.Patch, by string) (state.Task, error) {
	if a.tasks.IsShut() {
		return state.Task{}, a.tasks.StoppedError()
	}
	id, err := a.tasks.Find(ref)
	if err != nil {
		return state.Task{}, err
	}
	for err = errMeanwhile; errors.Is(err, errMeanwhile); {
		var e *edit
		if e, err = a.newEdit(id, p); err == nil {
			err = a.tasks.Exclusive(ctx, func(st *fold.State, tx *ledger.Tx) error { return e.record(st, tx, by) })
		}
	}
	if err != nil {
		return state.Task{}, err
	}
	return a.tasks.Whole(id)
}

// errMeanwhile means that the task has changed since an edit was checked.
var errMeanwhile = errors.New("the task has changed meanwhile")

// An edit is what is to be changed of a task, as it was when the edit was checked.
type edit struct {
	in      *intake
	was     state.Task
	now     submission        // the task as it is to be
	given   map[string]string // the fields that the patch names
	changes ledger.Record     // of all fields but after
}

// newEdit checks what does not depend on other tasks. It may ask the file system: not on the log's goroutine.
func (a *Admission) newEdit(id string, p task.Patch) (*edit, error) {
	t, err := a.tasks.Whole(id)
	if err == nil {
		err = twinError(&t, "get")
	}
	if err != nil {
		return nil, err
	}
	switch {
	case t.Status == state.Running:
		return nil, &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is running; only one that waits can be edited", id), Hint: "stint cancel " + id + ", and submit another one"}
	case t.Status.Terminal():
		return nil, &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is %s; only one that waits can be edited", id, t.Status), Hint: "to run it again: stint retry " + id}
	case len(p.Seqs) > 0 && !slices.Contains(p.Seqs, t.Seq):
		return nil, &task.Error{Code: task.CodeChanged, Message: fmt.Sprintf("task %s has changed since", id), Hint: "look at it again: stint show " + id}
	}
	e := &edit{in: a.emptyIntake(a.tasks.View), was: t, now: submission{TaskSpec: SpecOf(&t), within: t.Within}, changes: ledger.Record{Kind: ledger.KindTask, ID: id}}
	if e.given, err = task.ReadPatch(p.Fields, &e.now.TaskSpec); err != nil {
		return nil, err
	}
	if err := e.checkChanged(); err != nil {
		return nil, err
	}
	return e, e.fill()
}

// SpecOf returns the fields of a task that can be edited, as a spec has them.
func SpecOf(t *state.Task) task.TaskSpec {
	return task.TaskSpec{
		ID: t.ID, Prompt: t.Prompt, Agent: t.Agent, Account: t.Account, Budget: t.Budget, Model: t.Model, Workspace: t.Workspace, SessionKey: t.SessionKey, Label: t.Label,
		Resume: t.Resume, Timeout: t.Timeout, Priority: t.Priority, MaxAttempts: t.MaxAttempts, NotBefore: t.NotBefore,
		After: t.After, AfterPolicy: t.AfterPolicy, Hold: t.Hold, TenantID: t.TenantID, Queue: t.Queue, Fallback: t.Fallback, Allow: t.Allow,
		VerifyCommand: t.VerifyCommand, MaxIterations: t.MaxIterations, VerifyTimeout: t.VerifyTimeout,
		OnFailure: t.OnFailure, OnIssue: t.OnIssue, OutputPolicy: t.OutputPolicy, OutputSpec: t.OutputSpec, Spare: t.Spare,
	}
}

// isChanged reports whether the patch gives the task another value of a field.
func (e *edit) isChanged(field string) bool {
	was := SpecOf(&e.was)
	return task.FieldText(&was, field) != task.FieldText(&e.now.TaskSpec, field)
}

// checkChanged checks the fields that are changed, and no others, as those of a new task.
func (e *edit) checkChanged() error {
	var changed task.TaskSpec
	from, to := task.Fields(&e.now.TaskSpec), task.Fields(&changed)
	set := func(to, from any) { reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem()) }
	for _, field := range task.EditableFields {
		if e.isChanged(field) {
			set(to[field], from[field])
		}
	}
	if err := CheckFields(&changed); err != nil {
		return err
	}
	if err := task.CheckPrompt(e.now.Prompt); err != nil && e.isChanged(state.KeyPrompt) {
		return err
	}
	if e.isChanged(state.KeyOutputSpec) {
		e.now.OutputSpec = changed.OutputSpec // cleaned
	}
	return e.in.checkNotPast(&changed)
}

// fill completes the task as a new one, and notes what differs from the task as it was.
func (e *edit) fill() error {
	s, a := &e.now, e.in.a
	if e.isChanged(state.KeyWorkspace) {
		if e.was.Isolation != "" {
			return task.Wrong("workspace", "stint cancel "+s.ID+", and submit another one", "task %s has a directory of its own", s.ID)
		}
		s.within = "" // a person names the directory
		if err := e.in.checkPlace(s); err != nil {
			return err
		}
	} else if s.Workspace != "" && (e.given[state.KeySessionKey] != "" || e.isChanged(state.KeyAgent)) {
		s.root = a.lookAt(s.Workspace, s.within).root
	}
	// A task of no session goes with its workspace, and one that leaves its session goes to the lane of its directory.
	inDirectory := strings.HasPrefix(s.SessionKey, state.LanePrefixDir) && e.isChanged(state.KeyWorkspace)
	if (s.SessionKey == "" && e.given[state.KeySessionKey] != "" || inDirectory) && s.root != "" {
		s.SessionKey = state.LanePrefixDir + s.root
	}
	if e.isChanged(state.KeyAgent) {
		agent := submission{TaskSpec: task.TaskSpec{Agent: s.Agent}, root: s.root}
		if task.IsNamedLane(s.SessionKey) {
			agent.SessionKey = s.SessionKey
		}
		if err := e.in.checkAgent(&agent); err != nil {
			return err
		}
		s.Agent = agent.Agent
		if !e.isChanged(state.KeyAccount) {
			s.Account = ""
		}
	}
	if err := e.in.checkAccount(s); err != nil && (e.isChanged(state.KeyAccount) || e.isChanged(state.KeyAgent)) {
		return err
	}
	if _, hasModel := e.given[state.KeyModel]; hasModel || e.isChanged(state.KeyAgent) {
		if !hasModel { // that of another agent means nothing to it
			s.Model = ""
		}
		s.Model = cmp.Or(s.Model, a.tasks.Workspace(s.Workspace).Models[s.Agent])
	}
	if s.Resume == "" && e.given[state.KeyResume] != "" {
		s.Resume = a.resumeOf(s)
	}
	if e.isChanged(state.KeyFallback) {
		s.named = true // so that nothing is filled in from the configuration
		if err := a.fillFallback(s); err != nil {
			return err
		}
	}
	if err := a.CheckAllow(s.Agent, s.Workspace, s.Allow); err != nil && (e.isChanged(state.KeyAllow) || e.isChanged(state.KeyAgent) || e.isChanged(state.KeyWorkspace)) {
		return err
	}
	for _, field := range task.EditableFields {
		if field != state.KeyAfter && e.isChanged(field) {
			e.changes.Add(field, task.FieldText(&s.TaskSpec, field))
		}
	}
	if s.within != e.was.Within {
		e.changes.Add(state.KeyWithin, s.within)
	}
	if e.was.Hold && !s.Hold && e.was.Note != "" {
		e.changes.Add(state.KeyNote, "") // it says why the task was held
	}
	return nil
}

// record appends what is changed, if anything is. The log may call it more than once.
func (e *edit) record(st *fold.State, tx *ledger.Tx, by string) error {
	a := e.in.a
	if t, err := a.tasks.WholeIn(st, e.was.ID); err != nil {
		return err
	} else if t.Seq != e.was.Seq {
		return errMeanwhile
	}
	r := e.changes
	r.Fields = slices.Clone(r.Fields)
	if _, named := e.given[state.KeyAfter]; named {
		if err := e.in.resolveAfter(st, &e.now); err != nil {
			return err
		}
		r.AddWhen(!slices.Equal(e.now.after, e.was.After), state.KeyAfter, strings.Join(e.now.after, " "))
	}
	if len(r.Fields) == 0 {
		return nil
	}
	r.Fields = append(r.Fields, st.ImpliedChanges(&r)...)
	r.Add(state.KeyBy, by).Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now()))
	section, err := ledger.Encode(&r)
	if err != nil {
		return err
	}
	section.Seq = 0 // it has no number yet
	var bad *state.RecordError
	var cycle *lanes.CycleError
	switch err := st.CheckNext(section); {
	case errors.As(err, &cycle) && errors.As(err, &bad):
		return task.Wrong(bad.Key, "let it come after other tasks, or be in another session", "it would wait for itself: %s", cycle.Text)
	case errors.As(err, &bad):
		return task.Wrong(bad.Key, "stint show "+r.ID, "%v", bad.Err)
	case err != nil:
		return err
	}
	tx.Append(&r)
	return nil
}
