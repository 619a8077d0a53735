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
	Name       string    `json:"name" doc:"Name of the account" example:"codex-main"`
	Hold       bool      `json:"hold,omitempty" doc:"No task of the account starts until a person or an event ends the hold" example:"false"`
	Reason     string    `json:"reason,omitempty" doc:"Why it is on hold or cools down" example:"rate-limited"`
	CoolUntil  time.Time `json:"coolUntil,omitzero" doc:"No task of the account starts before this instant" example:"2026-11-21T03:15:09.482Z"`
	Guessed    bool      `json:"coolGuessed,omitempty" doc:"Nobody has named the end of the cool-down: it is a backoff" example:"false"`
	LimitWaits int       `json:"limitWaits,omitempty" doc:"Rate limits in a row; while there are any, one task at a time starts" example:"1"`
}

// TooLong reports whether a task does not wait until the account has cooled down: it waits
// for nothing, or, since it has met a limit without a named end, for no more than most.
// For a time that the provider or a person has named, every other task waits.
func (a *Account) TooLong(since time.Time, most time.Duration) bool {
	return most == 0 || a.Guessed && !since.IsZero() && a.CoolUntil.After(since.Add(most))
}

// control is what a control record can say: of dispatch, or of an account.
type control struct {
	paused     bool
	hold       bool
	reason     string
	coolUntil  time.Time
	guessed    bool // coolUntil is a backoff
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
			c.guessed = false // unless the record says it again
		case KeyCoolGuessed:
			c.guessed, err = parseBool(f.Bytes())
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
		v.Hold, v.Reason, v.CoolUntil, v.Guessed, v.LimitWaits = a.hold, a.reason, a.coolUntil, a.guessed, a.limitWaits
	}
	return v
}

// MissingReason is the reason of a hold because an agent's program is missing; what says
// how that shows. Such a hold ends by itself.
func MissingReason(what string) string { return missingPrefix + what }

const missingPrefix = string(ClassAgentMissing) + ": "

// IsMissing reports whether the account is on hold because its agent's program is missing.
func (a *Account) IsMissing() bool { return a.Hold && strings.HasPrefix(a.Reason, missingPrefix) }

// Missing gives the accounts that are on hold because their agents' programs are missing.
// It costs nothing where there are none.
func (s *State) Missing() []AccountUse {
	if !slices.ContainsFunc(slices.Collect(maps.Keys(s.accounts)), func(name string) bool { a := s.Account(name); return a.IsMissing() }) {
		return nil
	}
	return slices.DeleteFunc(s.Accounts(), func(a AccountUse) bool { return !a.IsMissing() })
}

// HasRun reports whether a run has begun a session of that agent, as far as the journal
// tells: its program was there once.
func (s *State) HasRun(agent string) bool { return s.ran[agent] }

// An AccountUse is an account, and the tasks that use it or want to.
type AccountUse struct {
	Account
	Agent   string `json:"agent,omitempty" doc:"Agent of the tasks that use it" example:"codex"`
	Running int    `json:"running" doc:"Tasks that run with it" example:"1"`
	Waiting int    `json:"waiting" doc:"Queued tasks" example:"4"`
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
		if l.acct == nil {
			continue // a draft
		}
		name := l.acct.name
		if l.judged {
			name = s.whole(l).AccountName()
		}
		switch {
		case name == "":
			continue
		case l.is(Queued):
			use(name).Waiting++
		case l.acct.name == name:
			use(name).Running++
		}
		if u := uses[name]; u != nil {
			u.Agent = max(u.Agent, s.agent(l)) // tasks of several agents name it: the same one each time
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
