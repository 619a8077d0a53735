package fold

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"stint/ledger"
	"stint/ledger/mark"
	"stint/state"
)

// A Save is what people wrote in one save of the ledger, looked at section by section:
// each one is a step behind those before it that have passed, and none is read twice.
type Save struct {
	state *State
	next  map[string]*step
}

// A step is a task as it is behind the sections that have passed.
type step struct {
	state.Folded
	isNew bool // the state has no such task
}

// NewSave begins a save: no section has passed yet.
func (s *State) NewSave() *Save { return &Save{s, map[string]*step{}} }

// now returns a task behind the sections that have passed.
func (v *Save) now(id []byte) (*step, error) {
	if t := v.next[string(id)]; t != nil {
		return t, nil
	}
	t, err := v.state.nowOf(string(id))
	if err != nil {
		return nil, err
	}
	v.next[string(id)] = &step{Folded: t, isNew: t.Status == ""}
	return v.next[string(id)], nil
}

// ImpliedChanges is [state.Folded.ImpliedChanges] for the next record. What makes a new task is taken together.
func (v *Save) ImpliedChanges(r *ledger.Record) []ledger.Pair {
	if r.Kind != ledger.KindTask {
		return nil
	}
	now, err := v.now([]byte(r.ID))
	switch {
	case err != nil:
		return nil // Check reports it
	case now.isNew:
		return new(state.Folded).ImpliedChanges(r)
	}
	return now.ImpliedChanges(r)
}

// ImpliedChanges is [state.Folded.ImpliedChanges] of the task that a record names.
func (s *State) ImpliedChanges(r *ledger.Record) []ledger.Pair { return s.NewSave().ImpliedChanges(r) }

// CheckNext reports whether a section that a person wrote can be accepted by itself: it
// passes [Save.Check] and [State.CheckTogether]. The error is a [*state.RecordError].
func (s *State) CheckNext(sec *ledger.Section) error {
	if err := s.NewSave().Check(sec); err != nil {
		return err
	}
	return s.CheckTogether([]*ledger.Section{sec})[0]
}

// Check reports whether the next section that a person wrote can be accepted: [Check] passes it, the status that it sets can
// follow the one that the task has now, and a task that is to be queued can run at all: it has a prompt. Whether it waits for
// itself [State.CheckTogether] says. What follows is a step behind one that passes. The error is a [*state.RecordError].
func (v *Save) Check(sec *ledger.Section) error {
	if err := Check(sec); err != nil {
		return err
	}
	if sec.Kind != ledger.KindTask {
		return nil
	}
	if _, ok := v.state.Archived(string(sec.ID)); ok {
		return state.NewRecordError(sec, nil, fmt.Errorf("the task was archived; stint retry %s brings it back, or give yours another name", sec.ID))
	}
	now, err := v.now(sec.ID)
	if err != nil {
		return state.NewRecordError(sec, nil, err)
	}
	if f := sec.Get(state.KeyStatus); f != nil {
		to, err := state.ParseStatus(f.String())
		switch {
		case err != nil:
			return state.NewRecordError(sec, f, err)
		case !state.CanFollow(now.Status, to, true):
			return state.NewRecordError(sec, f, &state.TransitionError{From: now.Status, To: to, ByHand: true})
		case now.isNew && now.PromptAt == 0 && to == state.Queued && sec.Get(state.KeyPrompt) == nil:
			return state.NewRecordError(sec, f, errors.New("there is no task of that name yet, and this one has no prompt; add - prompt: what to do"))
		}
	}
	next := *now
	if err := next.Apply(sec, nil, state.KeepNone); err != nil {
		return err
	}
	*now = next
	return nil
}

// Check reports whether a section that a person wrote can be accepted: every value can be read and is within
// its bounds, and the status is one that a person may set. It looks at the section alone, so that a step
// which the task's present status forbids is only found by Apply. For an edited section it is to be given
// what was changed, not the whole. The error is a [*state.RecordError].
func Check(sec *ledger.Section) error {
	switch sec.Kind {
	case ledger.KindTask:
		var t state.Folded
		if err := t.Apply(sec, nil, state.KeepNone); err != nil {
			return err
		}
		if f := sec.Get(state.KeyPrompt); f != nil && len(f.Bytes()) > state.MaxPrompt {
			return state.NewRecordError(sec, f, fmt.Errorf("the prompt has more than the %d bytes that are taken; put the text into a file of the workspace and name it in the prompt", state.MaxPrompt))
		}
		if f := sec.Get(state.KeyOutputPolicy); f != nil && len(f.Bytes()) > state.MaxPolicy {
			return state.NewRecordError(sec, f, fmt.Errorf("the output policy has more than %d bytes; put the text into a file of the workspace and name it in the prompt", state.MaxPolicy))
		}
		if f := sec.Get(state.KeyAccount); f != nil && t.Account != "" && !ledger.ValidID(state.ControlAccount+t.Account) {
			return state.NewRecordError(sec, f, fmt.Errorf("%q cannot be the name of an account: letters, digits, . _ : and - only", t.Account))
		}
		if f := sec.Get(state.KeyAfterPolicy); f != nil && t.AfterPolicy != "" && t.AfterPolicy != state.AfterAny && t.AfterPolicy != state.AfterDone {
			return state.NewRecordError(sec, f, fmt.Errorf("%q is neither done nor any", t.AfterPolicy))
		}
		if f := sec.Get(state.KeyStatus); f != nil && t.Status == state.Running {
			return state.NewRecordError(sec, f, &state.TransitionError{To: state.Running, ByHand: true})
		}
		return checkKeys(sec)
	case ledger.KindControl:
		id, byHand := string(sec.ID), sec.Value(state.KeyBy) == ledger.ByHand
		if byHand && (id == controlCarried || id == mark.Compaction || id == mark.Restore) {
			return state.NewRecordError(sec, nil, errors.New("stint writes this record, and nobody else; undo the change"))
		}
		if _, err := state.ReadControl(sec, state.Control{}); err != nil {
			return err
		}
		if err := checkKeys(sec); err != nil || !byHand || id == state.ControlDispatch || id == ControlDeleted || strings.HasPrefix(id, state.ControlAccount) || strings.HasPrefix(id, state.ControlSchedule) || strings.HasPrefix(id, state.ControlInstance) {
			return err
		}
		return state.NewRecordError(sec, nil, fmt.Errorf("there is no control %s; write ## Control dispatch, ## Control account:NAME, ## Control schedule:NAME or ## Control instance:ID", id))
	}
	if sec.Value(state.KeyBy) == ledger.ByHand {
		return state.NewRecordError(sec, nil, fmt.Errorf("a %s has no meaning here; write ## Task ID", sec.Kind))
	}
	return nil
}

// checkKeys looks for keys that a person has misspelled: as unknown keys they would be kept, and do nothing.
func checkKeys(sec *ledger.Section) error {
	if sec.Seq > 0 && sec.Value(state.KeyBy) != ledger.ByHand {
		return nil
	}
	for i := range sec.Fields {
		f := &sec.Fields[i]
		if want := state.MeantKey(string(f.Key)); want != "" && want != string(f.Key) {
			return state.NewRecordError(sec, f, fmt.Errorf("unknown key; did you mean %s? (one of your own needs a name that is less like it)", want))
		}
	}
	return nil
}

// nowOf returns the task of that id as it is now; zero if there is none.
func (s *State) nowOf(id string) (now state.Folded, err error) {
	err = s.readNow(s.Number(id), &now)
	return now, err
}

// CheckTogether reports whether the tasks of sections, each of which [Save.Check] has passed, wait for each other for ever once
// all are accepted. Of each circle that it finds it returns the last section, by its index, with a [*state.RecordError].
// Without those there may be others: none are left when it returns nothing.
func (s *State) CheckTogether(list []*ledger.Section) map[int]error {
	next, ids := map[string]*state.Folded{}, []string{}
	for _, sec := range list {
		if sec.Kind != ledger.KindTask {
			continue
		}
		id := string(sec.ID)
		if next[id] == nil {
			now, err := s.nowOf(id)
			if err != nil {
				continue // Check has reported it
			}
			now.ID, next[id], ids = id, &now, append(ids, id)
		}
		after := *next[id]
		if after.Apply(sec, nil, state.KeepNone) == nil {
			*next[id] = after
		}
	}
	var tasks []state.Task
	for _, id := range ids {
		if st := next[id].Status; st == state.Queued || st == state.Running {
			tasks = append(tasks, next[id].Task)
		}
	}
	last, bad := map[string]int{}, map[int]error{} // last: by index, plus 1
	for _, only := range []bool{false, true} {     // a section with after or order, before one that only may cause the circle
		for i, sec := range list {
			if f := orderField(sec); f != nil && (!only || slices.Contains([]string{state.KeyAfter, state.KeyOrder}, string(f.Key))) {
				last[string(sec.ID)] = i + 1
			}
		}
	}
	for _, circle := range s.RefuseCycles(tasks, func(id string) int { return last[id] }) {
		if i := last[circle.ID] - 1; i >= 0 {
			bad[i] = state.NewRecordError(list[i], orderField(list[i]), circle)
		}
	}
	return bad
}

// orderField returns the field of a section that most likely makes a task wait for another; nil if none can.
func orderField(sec *ledger.Section) *ledger.Field {
	for _, key := range []string{state.KeyAfter, state.KeyOrder, state.KeySessionKey, state.KeyWorkspace, state.KeyStatus} {
		if f := sec.Get(key); f != nil {
			return f
		}
	}
	return nil
}
