package state

import (
	"maps"
	"slices"
	"strings"
	"time"

	"stint/ledger"
)

// An Account is what the control records say of an account's credentials.
type Account struct {
	Name       string    `json:"name"`
	Hold       bool      `json:"hold,omitempty"`
	Reason     string    `json:"reason,omitempty"`     // why it is on hold or cools down
	CoolUntil  time.Time `json:"coolUntil,omitzero"`   // no task starts before
	LimitWaits int       `json:"limitWaits,omitempty"` // rate limits in a row; while it is not 0, one task at a time starts
}

// control is what a control record can say: of dispatch, or of an account.
type control struct {
	paused     bool
	hold       bool
	reason     string
	coolUntil  time.Time
	limitWaits int
}

// readControl folds a control record into c.
func readControl(sec *ledger.Section, c control) (control, error) {
	for i := range sec.Fields {
		f := &sec.Fields[i]
		var err error
		switch string(f.Key) {
		case KeyPaused:
			c.paused, err = parseBool(f.Bytes())
		case KeyHold:
			c.hold, err = parseBool(f.Bytes())
		case KeyReason:
			c.reason = f.String()
		case KeyCoolUntil:
			c.coolUntil, err = parseTime(f.Bytes())
		case KeyLimitWaits:
			c.limitWaits, err = parseCount(f.Bytes())
		}
		if err != nil {
			return c, recordError(sec, f, err)
		}
	}
	return c, nil
}

// applyControl folds a control record; one with a name that nobody here knows is
// passed over.
func (s *State) applyControl(sec *ledger.Section) error {
	if string(sec.ID) == ControlDeleted {
		s.applyDeleted(sec)
		return nil
	}
	if string(sec.ID) == ControlCarried {
		return s.applyCarried(sec)
	}
	name, isAccount := strings.CutPrefix(string(sec.ID), ControlAccount)
	if !isAccount && name != ControlDispatch {
		return nil
	}
	now := s.dispatch
	if a := s.accounts[name]; isAccount {
		now = control{}
		if a != nil {
			now = a.control
		}
	}
	next, err := readControl(sec, now)
	switch {
	case err != nil:
		return err
	case isAccount:
		s.account(name).control = next
		s.plan.accounts = true
	default:
		s.dispatch = next
	}
	return nil
}

// Paused reports whether dispatch is paused, and why.
func (s *State) Paused() (paused bool, reason string) {
	return s.dispatch.paused, s.dispatch.reason
}

// Account gives what is known of the account of that name ([Task.AccountName]).
// One that no record names is free.
func (s *State) Account(name string) Account {
	v := Account{Name: name}
	if a := s.accounts[name]; a != nil {
		v.Hold, v.Reason, v.CoolUntil, v.LimitWaits = a.hold, a.reason, a.coolUntil, a.limitWaits
	}
	return v
}

// An AccountUse is an account, and the tasks that use it or want to.
type AccountUse struct {
	Account
	Agent   string `json:"agent,omitempty"` // of such a task; "" if there is none
	Running int    `json:"running"`
	Waiting int    `json:"waiting"` // queued tasks
}

// Accounts gives the accounts that control records say something of, and those of
// tasks that run or wait, in the order of their names. It costs as much as there are
// tasks that have not ended.
func (s *State) Accounts() []AccountUse {
	uses := map[string]*AccountUse{}
	use := func(name string) *AccountUse {
		if uses[name] == nil {
			uses[name] = &AccountUse{Account: s.Account(name)}
		}
		return uses[name]
	}
	for name, a := range s.accounts {
		if a.control != (control{}) {
			use(name)
		}
	}
	for _, l := range s.live {
		name := l.AccountName()
		switch {
		case name == "" || l.Status == Draft:
			continue
		case l.Status == Queued:
			use(name).Waiting++
		case l.acct.name == name:
			use(name).Running++
		}
		if u := uses[name]; u != nil {
			u.Agent = max(u.Agent, l.Agent) // tasks of several agents name it: the same one each time
		}
	}
	var list []AccountUse
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		list = append(list, *uses[name])
	}
	return list
}

// account gives the account of that name, made anew if need be.
func (s *State) account(name string) *account {
	a := s.accounts[name]
	if a == nil {
		a = &account{name: name}
		s.accounts[name] = a
	}
	return a
}
