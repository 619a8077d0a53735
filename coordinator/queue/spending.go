package queue

import (
	"cmp"
	"sync"
	"time"

	"stint/coordinator/task"
	"stint/ledger/archive"
	"stint/state"
	"stint/state/fold"
)

// spending adds up what ended runs have spent, by what budgets are for: a session, or a day, with all
// accounts or one. It knows of nothing until it is loaded, and is never stored: the records are.
type spending struct {
	mu sync.Mutex                 // guards what follows
	of map[spender]state.Spending // nil: not loaded
}

// A spender is what a budget is for: a session, or a day (as 2006-01-02), with an account or with all.
type spender struct{ session, account, day string }

// LoadSpending reads what was spent so far, once, if any budget needs it. It may take a while.
func (s *Store) LoadSpending(accounts Accounts) (err error) {
	if s.spending.isLoaded() || s.Config.BudgetSession == "" && s.Config.BudgetDay == "" && !accounts.haveBudget() {
		return nil
	}
	s.View(func(st *fold.State) { // so that no run ends meanwhile
		of := map[spender]state.Spending{}
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
	entries, err := archive.Read(nil, dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, inJournal := st.Peek(e.ID); inJournal {
			if _, away := st.Archived(e.ID); !away {
				continue // brought back, or moved out since the journal was read
			}
		}
		sec, err := archive.ReadRecord(nil, dir, e)
		if err != nil {
			return err
		}
		runs, err := fold.RunsOf(sec)
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

func (p *spending) isLoaded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of != nil
}

func add(to map[spender]state.Spending, r *state.Run, in *time.Location) {
	spent, day := state.SpendingOf(r.Usage, r.Took), r.Ended.In(in).Format(time.DateOnly)
	for _, of := range []spender{{session: r.SessionKey}, {account: r.Account, day: day}, {day: day}} {
		to[of] = to[of].Plus(spent)
	}
}

func (p *spending) by(of spender) state.Spending {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[of]
}

// A limit is a budget, and what was spent of it.
type limit struct {
	what   string // that is said when it is spent
	budget state.Budget
	spent  state.Spending
}

// taskLimits returns the budgets of a task, whole, and of its session. Its own stands in for what is
// configured.
func (s *Store) taskLimits(t *state.Task) []limit {
	own, _ := state.ParseBudget(t.Budget) // both were checked
	spent := state.SpentBy(t)
	if own != (state.Budget{}) {
		return []limit{{"its budget is spent", own, spent}}
	}
	all, _ := state.ParseBudget(s.Config.BudgetTask)
	limits := []limit{{"the budget of a task is spent", all, spent}}
	if task.IsNamedLane(t.SessionKey) { // else it has the lane, and no session, in common with others
		session, _ := state.ParseBudget(s.Config.BudgetSession)
		limits = append(limits, limit{"the budget of its session is spent", session, s.spending.by(spender{session: t.SessionKey})})
	}
	return limits
}

// dayLimits returns the budgets of an account and of all for the day of now.
func (s *Store) dayLimits(account *state.AccountConfig, now time.Time) []limit {
	own, _ := state.ParseBudget(account.Budget)
	all, _ := state.ParseBudget(s.Config.BudgetDay)
	day := now.Format(time.DateOnly)
	return []limit{
		{"has spent its budget of today", own, s.spending.by(spender{account: account.ID, day: day})},
		{"waits, for budget_day is spent", all, s.spending.by(spender{day: day})},
	}
}

// over returns which of some budgets is spent, with more than was counted, and how much more it could be;
// "" if none is.
func over(limits []limit, uncounted state.Spending) (what, more string) {
	for _, l := range limits {
		if text, more := l.budget.Over(l.spent.Plus(uncounted)); text != "" {
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

// Overspent returns what a task, whole, has spent that it may not, with more than was counted, and how it
// goes on; "" if it may go on.
func (s *Store) Overspent(t *state.Task, uncounted state.Spending) string {
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
func (s *Store) DayIsSpent(t *state.Task, now time.Time, uncounted state.Spending) bool {
	account, _ := s.AccountsNow().Find(t.AccountName())
	what, _ := over(s.dayLimits(&account, now), uncounted)
	return what != ""
}

// SpentToday returns what an account has spent today; nothing if no budget needs that.
func (s *Store) SpentToday(account string) state.Spending {
	return s.spending.by(spender{account: account, day: s.Config.Now().Format(time.DateOnly)})
}

// Rest returns what the next run of a task, whole, may spend; zero: any amount.
func (s *Store) Rest(t *state.Task) (rest state.Budget) {
	limits := s.taskLimits(t)
	if account, ok := s.AccountsNow().Find(t.AccountName()); ok {
		limits = append(limits, s.dayLimits(&account, s.Config.Now())...)
	}
	for _, l := range limits {
		rest = l.budget.Rest(l.spent, rest)
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
