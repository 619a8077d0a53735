package lanes

import (
	"maps"
	"slices"
	"strings"

	"stint/ledger"
	"stint/state"
	"stint/state/heap"
)

// ApplyControl folds a control record of dispatch, of an account, a schedule or an instance; one with another name is passed over.
func (s *Queues) ApplyControl(sec *ledger.Section) error {
	id := string(sec.ID)
	name, isAccount := strings.CutPrefix(id, state.ControlAccount)
	if !isAccount && id != state.ControlDispatch && !strings.HasPrefix(id, state.ControlSchedule) && !strings.HasPrefix(id, state.ControlInstance) {
		return nil
	}
	next, err := state.ReadControl(sec, s.controls[id])
	if err != nil {
		return err
	}
	if s.controls[id] = next; len(next.Record(id).Fields) == 0 {
		delete(s.controls, id)
	}
	if isAccount {
		a := s.account(name)
		s.plan.accounts = true
		a.Account = next.Account
		a.Name = name
	}
	return nil
}

// Paused reports whether dispatch is paused, and why.
func (s *Queues) Paused() (paused bool, reason string) {
	c := s.controls[state.ControlDispatch]
	return c.Paused, c.Reason
}

// Controls returns what is known of all that a prefix is for, such as [state.ControlSchedule], by their names.
func (s *Queues) Controls(prefix string) map[string]state.Control {
	known := map[string]state.Control{}
	for id, c := range s.controls {
		if name, is := strings.CutPrefix(id, prefix); is {
			known[name] = c
		}
	}
	return known
}

// Account returns what is known of the account of that name ([state.Task.AccountName]). One that no record names is free.
func (s *Queues) Account(name string) state.Account {
	if a := s.accounts[name]; a != nil {
		return a.Account
	}
	return state.Account{Name: name}
}

// Missing returns the accounts that are on hold because their agents' programs or keys are missing.
// It costs nothing where there are none.
func (s *Queues) Missing() []state.AccountUse {
	if !slices.ContainsFunc(slices.Collect(maps.Keys(s.accounts)), func(name string) bool { a := s.Account(name); return a.IsMissing() || a.IsKeyless() }) {
		return nil
	}
	return slices.DeleteFunc(s.Accounts(), func(a state.AccountUse) bool { return !a.IsMissing() && !a.IsKeyless() })
}

// HasRun reports whether a run has begun a session of that agent, as far as the journal shows: its program was there once.
func (s *Queues) HasRun(agent string) bool { return s.ran[agent] }

// Accounts returns the accounts that control records say something of, and those of tasks that run or wait,
// in the order of their names. It costs as much as there are tasks that have not ended.
func (s *Queues) Accounts() []state.AccountUse {
	uses := map[string]*state.AccountUse{}
	use := func(name string) *state.AccountUse {
		if uses[name] == nil {
			uses[name] = &state.AccountUse{Account: s.Account(name)}
		}
		return uses[name]
	}
	for id := range s.controls {
		if name, isAccount := strings.CutPrefix(id, state.ControlAccount); isAccount {
			use(name)
		}
	}
	for _, l := range s.live {
		if l.acct == nil || l.acct.Name == "" {
			continue // a draft, or at its verify command
		}
		u := use(l.acct.Name)
		if l.is(state.Queued) {
			u.Waiting++
		} else {
			u.Running++
		}
		u.Agent = max(u.Agent, s.agent(l)) // tasks of several agents name it: the same one each time
	}
	var list []state.AccountUse
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		list = append(list, *uses[name])
	}
	return list
}

// account returns the account of that name, made anew if need be.
func (s *Queues) account(name string) *account {
	a := s.accounts[name]
	if a == nil {
		a = &account{
			Account: state.Account{Name: name},

			ready:  heap.Heap[*lane]{Before: (*lane).before, Place: func(ln *lane) *uint32 { return &ln.readyAt }},
			backed: heap.Heap[*lane]{Before: (*lane).before, Place: func(ln *lane) *uint32 { return &ln.backedAt }},
		}
		s.accounts[name] = a
	}
	return a
}

// ControlRecords returns a record of each control that says anything.
func (s *Queues) ControlRecords() (list []ledger.Record) {
	for _, id := range slices.Sorted(maps.Keys(s.controls)) {
		c := s.controls[id]
		list = append(list, c.Record(id))
	}
	return list
}
