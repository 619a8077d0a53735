package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/archive"
	"stint/state"
	"stint/state/fold"
	"stint/state/lanes"
	"stint/state/limits"
)

// Accounts are the accounts as they are configured at a time, those of each agent together, its default one first.
type Accounts struct {
	List []state.AccountConfig
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

// Missing returns why no task of an agent can run with the account of that id, "" if one can.
func (a Accounts) Missing(agent, id string) string {
	if _, ok := a.Find(id); ok || a.any || len(a.Of(agent)) == 0 {
		return "" // or else the agent itself is not there
	}
	return fmt.Sprintf("there is no account %q; %s has %s", id, agent, strings.Join(a.Of(agent), ", "))
}

// Find returns the account of that id; ok is false if there is none.
func (a Accounts) Find(id string) (c state.AccountConfig, ok bool) {
	for _, c := range a.List {
		if c.ID == id {
			return c, true
		}
	}
	return c, false
}

// Of returns the ids of an agent's accounts, the default one first.
func (a Accounts) Of(agent string) (ids []string) {
	for _, c := range a.List {
		if c.Tool == agent {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// Rule is the Account of [lanes.Limits]. An account that is not configured has no bounds: what
// needs it begins, and ends with a sentence.
func (a Accounts) Rule(of *state.Account) (rule state.AccountRule) {
	known, _ := a.Find(of.Name)
	rule.Slots = known.Max
	if len(a.List) == 0 {
		rule.Closed = "is not known while accounts.toml has a mistake, which stint doctor names"
	}
	hours, _ := limits.ParseHours(known.Hours) // it was checked
	if rule.Until = hours.Opens(a.now); !rule.Until.IsZero() {
		rule.Closed = "starts queued tasks at " + known.Hours + " only"
	}
	if text, _ := over(a.of.dayLimits(&known, a.now), limits.Spending{}); text != "" && rule.Closed == "" {
		rule.Closed, rule.Until = text, NextDay(a.now)
	}
	reserve, _ := limits.ParsePercent(known.Reserve) // it was checked
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

// Choose returns the account with which a task of an agent is to run: one that can take it now, of these the one
// whose last rate limit is longest ago, and then the one that is used least. lim is [lanes.Limits.For] it, and
// taken are tasks by account that count as running. ok is false if none can take it now.
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

// spending adds up what ended runs have spent, by what budgets are for: a session, or a day, with all
// accounts or one. It knows of nothing until it is loaded, and is never stored: the records are.
type spending struct {
	mu sync.Mutex                  // guards what follows
	of map[spender]limits.Spending // nil: not loaded
}

// A spender is what a budget is for: a session, or a day (as 2006-01-02), with an account or with all.
type spender struct{ session, account, day string }

// LoadSpending reads what was spent so far, once, if any budget needs it. It may take a while.
func (s *Store) LoadSpending(accounts Accounts) (err error) {
	s.spending.mu.Lock()
	isLoaded := s.spending.of != nil
	s.spending.mu.Unlock()
	haveBudget := slices.ContainsFunc(accounts.List, func(c state.AccountConfig) bool { return c.Budget != "" })
	if isLoaded || s.Config.BudgetSession == "" && s.Config.BudgetDay == "" && !haveBudget {
		return nil
	}
	s.View(func(st *fold.State) { // so that no run ends meanwhile
		of := map[spender]limits.Spending{}
		err = EachRuns(st, s.Config.StateDir, func(runs []state.Run) error {
			for i := range runs {
				add(of, &runs[i], s.Config.Now().Location())
			}
			return nil
		})
		if err == nil {
			s.spending.mu.Lock()
			s.spending.of = of
			s.spending.mu.Unlock()
		}
	})
	return err
}

// EachRuns passes on the runs of each task that has any in the journal, or in the archive of a state
// directory. The error is that of reading, or f's, which ends it.
func EachRuns(st *fold.State, dir string, f func(runs []state.Run) error) error {
	if err := st.EachTask(f); err != nil {
		return err
	}
	entries, err := archive.Read(nil, dir, ledger.TaskFiles)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, inJournal := st.Peek(e.ID); inJournal {
			if _, away := st.Archived(e.ID); !away {
				continue // brought back, or moved out since the journal was read
			}
		}
		_, runs, err := ReadArchived(dir, e)
		if err == nil {
			err = f(runs)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Spend notes what a record tells that was spent. It is for the store's hook.
func (s *Store) Spend(before, after *state.Task) {
	r, ok := state.Spent(before, after)
	if !ok {
		return
	}
	s.spending.mu.Lock()
	defer s.spending.mu.Unlock()
	if s.spending.of != nil {
		add(s.spending.of, &r, s.Config.Now().Location())
	}
}

func add(to map[spender]limits.Spending, r *state.Run, in *time.Location) {
	spent, day := state.SpendingOf(r.Usage, r.Took), r.Ended.In(in).Format(time.DateOnly)
	for _, of := range []spender{{session: r.SessionKey}, {account: r.Account, day: day}, {day: day}} {
		to[of] = to[of].Plus(spent)
	}
}

func (p *spending) by(of spender) limits.Spending {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[of]
}

// A limit is a budget, and what was spent of it.
type limit struct {
	what   string // that is said when it is spent
	budget string // which was checked
	spent  limits.Spending
}

// taskLimits returns the budgets of a task, whole, and of its session, or its own alone.
func (s *Store) taskLimits(t *state.Task) []limit {
	if own, _ := limits.ParseBudget(t.Budget); own != (limits.Budget{}) {
		return []limit{{"its budget is spent", t.Budget, state.SpentBy(t)}}
	}
	bounds := []limit{{"the budget of a task is spent", s.Config.BudgetTask, state.SpentBy(t)}}
	if task.IsNamedLane(t.SessionKey) { // else it has the lane, and no session, in common with others
		bounds = append(bounds, limit{"the budget of its session is spent", s.Config.BudgetSession, s.spending.by(spender{session: t.SessionKey})})
	}
	return bounds
}

// dayLimits returns the budgets of an account and of all for the day of now.
func (s *Store) dayLimits(account *state.AccountConfig, now time.Time) []limit {
	day := now.Format(time.DateOnly)
	return []limit{
		{"has spent its budget of today", account.Budget, s.spending.by(spender{account: account.ID, day: day})},
		{"waits, for budget_day is spent", s.Config.BudgetDay, s.spending.by(spender{day: day})},
	}
}

// over returns which budget is spent, with what was not counted, and how much more it could be; "" for none.
func over(bounds []limit, uncounted limits.Spending) (what, more string) {
	for _, l := range bounds {
		budget, _ := limits.ParseBudget(l.budget)
		if text, more := budget.Over(l.spent.Plus(uncounted)); text != "" {
			return l.what + ": " + text, more
		}
	}
	return "", ""
}

// HasBudget reports whether any budget bounds a task.
func (s *Store) HasBudget(t *state.Task) bool {
	account, _ := s.AccountsNow().Find(t.AccountName())
	return cmp.Or(t.Budget, account.Budget, s.Config.BudgetTask, s.Config.BudgetSession, s.Config.BudgetDay) != ""
}

// Overspent returns which budget a task, whole, has spent, and how it goes on; "" if it may go on.
func (s *Store) Overspent(t *state.Task, uncounted limits.Spending) string {
	what, more := over(s.taskLimits(t), uncounted)
	if what == "" {
		return ""
	}
	return Release(t.ID, what, more)
}

// Release returns that sentence with the command that gives a task so much more.
func Release(id, why, more string) string {
	return why + "; to go on: stint release " + state.ShortID(id) + " --budget " + more
}

// DayIsSpent reports whether a task may spend no more today, with more than was counted.
func (s *Store) DayIsSpent(t *state.Task, now time.Time, uncounted limits.Spending) bool {
	account, _ := s.AccountsNow().Find(t.AccountName())
	what, _ := over(s.dayLimits(&account, now), uncounted)
	return what != ""
}

// SpentToday returns what an account has spent today; nothing if no budget needs that.
func (s *Store) SpentToday(account string) limits.Spending {
	return s.spending.by(spender{account: account, day: s.Config.Now().Format(time.DateOnly)})
}

// Rest returns what the next run of a task, whole, may spend; zero: any amount.
func (s *Store) Rest(t *state.Task) (rest limits.Budget) {
	bounds := s.taskLimits(t)
	if account, ok := s.AccountsNow().Find(t.AccountName()); ok {
		bounds = append(bounds, s.dayLimits(&account, s.Config.Now())...)
	}
	for _, l := range bounds {
		budget, _ := limits.ParseBudget(l.budget)
		rest = budget.Rest(l.spent, rest)
	}
	return rest
}

// NextDay returns when the next day begins by the clock on the wall, which may have no midnight.
func NextDay(now time.Time) time.Time {
	t := time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, now.Location())
	for t.Day() == now.Day() {
		t = t.Add(time.Hour)
	}
	return t
}
