package queue

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
)

// Accounts are the accounts of all agents as they are configured at a time, those of each together,
// its default one first.
type Accounts struct {
	list []state.AccountConfig
	now  time.Time
	any  bool // nothing is configured: whatever a task names is one
	of   *Store
}

// AccountsNow returns them. It may read a file.
func (s *Store) AccountsNow() Accounts {
	if s.Config.Accounts == nil {
		return Accounts{s.defaults, s.Config.Now(), true, s}
	}
	return Accounts{s.Config.Accounts(), s.Config.Now(), false, s}
}

// List returns them all.
func (a Accounts) List() []state.AccountConfig { return a.list }

// Missing returns why no task of an agent can run with the account of that id, "" if one can.
func (a Accounts) Missing(agent, id string) string {
	if _, ok := a.Find(id); ok || a.any || len(a.Of(agent)) == 0 {
		return "" // or else the agent itself is not there
	}
	return fmt.Sprintf("there is no account %q; %s has %s", id, agent, strings.Join(a.Of(agent), ", "))
}

// Find returns the account of that id; ok is false if there is none.
func (a Accounts) Find(id string) (c state.AccountConfig, ok bool) {
	for _, c := range a.list {
		if c.ID == id {
			return c, true
		}
	}
	return c, false
}

// Of returns the ids of an agent's accounts, the default one first.
func (a Accounts) Of(agent string) (ids []string) {
	for _, c := range a.list {
		if c.Tool == agent {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// Several reports whether any agent has more than one.
func (a Accounts) Several() bool {
	for i := range a.list {
		if i > 0 && a.list[i].Tool == a.list[i-1].Tool {
			return true
		}
	}
	return false
}

func (a Accounts) haveBudget() bool {
	return slices.ContainsFunc(a.list, func(c state.AccountConfig) bool { return c.Budget != "" })
}

// Rule is the Account of [lanes.Limits]. An account that is not configured has no bounds: what
// needs it begins, and ends with a sentence.
func (a Accounts) Rule(of *state.Account) (rule lanes.AccountRule) {
	known, _ := a.Find(of.Name)
	rule.Slots = known.Max
	if len(a.list) == 0 {
		rule.Closed = "is not known while accounts.toml has a mistake, which stint doctor names"
	}
	if h, err := state.ParseHours(known.Hours); err == nil && known.Hours != "" {
		if rule.Until = h.Opens(a.now); !rule.Until.IsZero() {
			rule.Closed = "starts queued tasks at " + known.Hours + " only"
		}
	}
	if text, _ := over(a.of.dayLimits(&known, a.now), state.Spending{}); text != "" && rule.Closed == "" {
		rule.Closed, rule.Until = text, NextDay(a.now)
	}
	reserve, _ := state.ParsePercent(known.Reserve) // it was checked
	for _, w := range of.Quota {
		if reserve > 0 && 100-w.Used <= reserve && !w.Lapsed(a.now) && rule.Closed == "" {
			rule.Closed, rule.Until = "keeps "+known.Reserve+" of its quota for you, and "+w.Told(a.now), w.ResetsAt
		}
		if from := w.SpareFrom(a.now, reserve); from.After(rule.SpareFrom) {
			rule.SpareFrom, rule.Told = from, w.Told(a.now)
		}
	}
	return rule
}

// Choose returns the account of an agent with which a task that names none is to run: one that can
// take it now, and of these the one whose last rate limit is longest ago, and then the one that is
// used least. lim is [lanes.Limits.For] it, and taken are tasks by account that count as running.
// ok is false if none can take it now.
func (a Accounts) Choose(st *fold.State, agent string, lim lanes.Limits, taken map[string]int) (id string, ok bool) {
	ids := a.Of(agent)
	if len(ids) == 0 {
		ids = []string{agent} // which is not there: the run will say so
	}
	isFree := func(id string) bool { return st.Free(id, a.now, lim) > taken[id] }
	isWorse := func(x, y string) bool {
		was, is := st.Account(x), st.Account(y)
		switch {
		case isFree(x) != isFree(y):
			return isFree(y)
		case isOut(&was) != isOut(&is):
			return isOut(&was)
		case !was.LimitedAt.Equal(is.LimitedAt):
			return was.LimitedAt.After(is.LimitedAt)
		}
		return len(st.RunningWith(x))+taken[x] > len(st.RunningWith(y))+taken[y]
	}
	id = ids[0]
	for _, other := range ids[1:] {
		if isWorse(id, other) {
			id = other
		}
	}
	return id, isFree(id)
}

// isOut reports whether a person has to let tasks use an account again.
func isOut(a *state.Account) bool { return a.Hold || a.Disabled }

// Elsewhere returns the account to which a task goes that its own takes no more; "" if there is none. A
// person who pinned it, and a conversation, decide. taken is that of Choose.
func (a Accounts) Elsewhere(st *fold.State, t *state.Task, lim lanes.Limits, taken map[string]int) string {
	own := st.Account(t.AccountName())
	lim = lim.For(t.Spare)
	id, isFree := a.Choose(st, t.Agent, lim, taken)
	if at := st.BoundTo(t); at != "" {
		id, isFree = at, st.Free(at, a.now, lim) > taken[at]
	}
	other := st.Account(id)
	if t.Pinned || t.Agent == "" || id == own.Name || !isFree && (!isOut(&own) || isOut(&other)) { // else nobody would come back to it
		return ""
	}
	return id
}

// CanMove reports whether a task that its account takes no more could begin with another one of
// its agent: nothing binds it to its own, and nothing but its slots closes that other one.
func (a Accounts) CanMove(st *fold.State, t *state.Task) bool {
	at := st.BoundTo(t)
	return !t.Pinned && (at == "" || at != t.AccountName()) && a.HasOther(st, t)
}

// HasOther reports whether the agent of a task has an account that may be used beside the task's own.
func (a Accounts) HasOther(st *fold.State, t *state.Task) bool {
	lim := lanes.Limits{Account: a.Rule}.For(t.Spare)
	return slices.ContainsFunc(a.Of(t.Agent), func(id string) bool {
		other := st.Account(id)
		return id != t.AccountName() && !isOut(&other) && !other.CoolUntil.After(a.now) && lim.RuleFor(&other).Closed == ""
	})
}
