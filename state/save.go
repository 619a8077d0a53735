package state

import (
	"errors"
	"fmt"

	"stint/ledger"
)

// A Save is what people wrote in one save of the ledger, looked at section by section:
// each one is a step behind those before it that have passed, and none is read twice.
type Save struct {
	state *State
	next  map[string]*step
}

// A step is a task as it is behind the sections that have passed.
type step struct {
	folded
	isNew bool // the state has no such task
}

// NewSave begins a save: no section has passed yet.
func (s *State) NewSave() *Save { return &Save{s, map[string]*step{}} }

// now gives a task behind the sections that have passed.
func (v *Save) now(id []byte) (*step, error) {
	if t := v.next[string(id)]; t != nil {
		return t, nil
	}
	t, err := v.state.nowOf(id)
	if err != nil {
		return nil, err
	}
	v.next[string(id)] = &step{folded: t, isNew: t.Status == ""}
	return v.next[string(id)], nil
}

// LeftBehind is [State.LeftBehind] for the next record. What makes a new task is taken
// together.
func (v *Save) LeftBehind(r *ledger.Record) []ledger.Pair {
	if r.Kind != ledger.KindTask {
		return nil
	}
	now, err := v.now([]byte(r.ID))
	switch {
	case err != nil:
		return nil // it is told when the record is checked
	case now.isNew:
		return leftBehind(r, &folded{})
	}
	return leftBehind(r, &now.folded)
}

// CheckNext reports whether a section that a person wrote can be accepted by itself: it
// passes [Save.Check] and [State.CheckTogether]. The error is a [*RecordError].
func (s *State) CheckNext(sec *ledger.Section) error {
	if err := s.NewSave().Check(sec); err != nil {
		return err
	}
	return s.CheckTogether([]*ledger.Section{sec})[0]
}

// Check says whether the next section that a person wrote can be taken over: [Check]
// passes it, the status that it sets can follow the one that the task has now, and a task
// that is to be queued can run at all: it has a prompt. Whether it waits for itself
// [State.CheckTogether] says. What follows is a step behind one that passes. The error is a
// [*RecordError].
func (v *Save) Check(sec *ledger.Section) error {
	if err := Check(sec); err != nil {
		return err
	}
	if sec.Kind != ledger.KindTask {
		return nil
	}
	if _, ok := v.state.Archived(string(sec.ID)); ok {
		return recordError(sec, nil, fmt.Errorf("the task was archived; stint retry %s brings it back, or give yours another name", sec.ID))
	}
	now, err := v.now(sec.ID)
	if err != nil {
		return recordError(sec, nil, err)
	}
	if f := sec.Get(KeyStatus); f != nil {
		to, err := ParseStatus(f.String())
		switch {
		case err != nil:
			return recordError(sec, f, err)
		case !CanFollow(now.Status, to, true):
			return recordError(sec, f, &TransitionError{From: now.Status, To: to, ByHand: true})
		case now.isNew && now.promptAt == 0 && to == Queued && sec.Get(KeyPrompt) == nil:
			return recordError(sec, f, errors.New("there is no task of that name yet, and this one has no prompt; add - prompt: what to do"))
		}
	}
	next := *now
	if err := next.apply(sec, nil, keepNone); err != nil {
		return err
	}
	*now = next
	return nil
}
