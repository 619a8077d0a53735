package queue

import (
	"maps"
	"slices"
	"time"

	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
)

// ConfiguredAccounts returns the accounts of all agents, those of each together, its default one first.
func (s *Store) ConfiguredAccounts() []state.AccountConfig {
	if s.Config.Accounts == nil {
		return state.DefaultAccounts(slices.Sorted(maps.Keys(s.Config.Agents)))
	}
	return s.Config.Accounts()
}

// FindAccount returns the account of that id; ok is false if there is none.
func (s *Store) FindAccount(id string) (a state.AccountConfig, ok bool) {
	all := s.ConfiguredAccounts()
	i := slices.IndexFunc(all, func(a state.AccountConfig) bool { return a.ID == id })
	if i < 0 {
		return a, false
	}
	return all[i], true
}

// AccountsOf returns the ids of an agent's accounts, the default one first.
func (s *Store) AccountsOf(agent string) (ids []string) {
	for _, a := range s.ConfiguredAccounts() {
		if a.Tool == agent {
			ids = append(ids, a.ID)
		}
	}
	return ids
}

// AccountRule is the Account of [lanes.Limits].
func (s *Store) AccountRule(a *state.Account) lanes.AccountRule {
	if s.Config.Accounts == nil || a.Name == "" {
		return lanes.AccountRule{}
	}
	known, ok := s.FindAccount(a.Name)
	if !ok {
		return lanes.AccountRule{Closed: "is not in accounts.toml (stint account ls)"}
	}
	rule := lanes.AccountRule{Slots: known.Max}
	if h, err := state.ParseHours(known.Hours); err == nil {
		if rule.Until = h.Opens(s.Config.Now()); !rule.Until.IsZero() {
			rule.Closed = "starts queued tasks at " + known.Hours + " only"
		}
	}
	return rule
}

// ChooseAccount returns the account of an agent with which a task that names none is to run:
// one that can take it now, and of these the one whose last rate limit is longest ago, and
// then the one that is used least. taken are tasks by account that count as running. ok is
// false if none can take it now.
func (s *Store) ChooseAccount(st *fold.State, agent string, now time.Time, lim lanes.Limits, taken map[string]int) (id string, ok bool) {
	ids := s.AccountsOf(agent)
	if len(ids) < 2 {
		id = agent
		if len(ids) == 1 {
			id = ids[0]
		}
		return id, st.Free(id, now, lim) > taken[id]
	}
	isWorse := func(a, b string) bool {
		x, y := st.Account(a), st.Account(b)
		freeX, freeY := st.Free(a, now, lim) > taken[a], st.Free(b, now, lim) > taken[b]
		switch {
		case freeX != freeY:
			return freeY
		case x.Disabled != y.Disabled:
			return x.Disabled
		case !x.LimitedAt.Equal(y.LimitedAt):
			return x.LimitedAt.After(y.LimitedAt)
		}
		return st.RunningOf(a)+taken[a] > st.RunningOf(b)+taken[b]
	}
	id = ids[0]
	for _, other := range ids[1:] {
		if isWorse(id, other) {
			id = other
		}
	}
	return id, st.Free(id, now, lim) > taken[id]
}

// CanMove reports whether a task that its account takes no more could begin with another one of
// its agent: nothing binds it to its own, and no limit and no person closes that other one.
func (s *Store) CanMove(st *fold.State, t *state.Task, now time.Time) bool {
	session, _ := st.SessionByID(t.SessionID)
	return !t.Pinned && t.AgentSession == "" && session.Native == "" && s.HasOther(st, t, now)
}

// HasOther reports whether the agent of a task has an account that may be used beside the task's own.
func (s *Store) HasOther(st *fold.State, t *state.Task, now time.Time) bool {
	return slices.ContainsFunc(s.AccountsOf(t.Agent), func(id string) bool {
		a := st.Account(id)
		return id != t.AccountName() && !a.Hold && !a.Disabled && !a.CoolUntil.After(now)
	})
}
