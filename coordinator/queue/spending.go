package queue

import (
	"sync"
	"time"

	"stint/state"
	"stint/state/fold"
)

// spending adds up what ended runs have spent, by what budgets are for: a session, or a day, with all
// accounts or one. It knows of nothing until it is loaded, and is never stored: the records are.
type spending struct {
	mu     sync.Mutex // guards what follows
	loaded bool
	of     map[spender]state.Spending
}

// A spender is what a budget is for: a session, or a day (as 2006-01-02), with an account or with all.
type spender struct{ session, account, day string }

// LoadSpending reads what was spent so far, once, if any budget needs it. It may take a while.
func (s *Store) LoadSpending(accounts Accounts) error {
	if s.spending.isLoaded() || s.Config.BudgetSession == "" && s.Config.BudgetDay == "" && !accounts.haveBudget() {
		return nil
	}
	var err error
	s.View(func(st *fold.State) {
		s.spending.begin()
		err = st.EachTask(func(runs []state.Run) error {
			for i := range runs {
				s.spending.add(&runs[i], s.Config.Now().Location())
			}
			return nil
		})
	})
	return err
}

// Spend notes the run that a record has ended, if it has ended one. It is for the store's hook.
func (s *Store) Spend(before, after *state.Task) {
	if r, ended := state.EndedRun(before, after); ended && s.spending.isLoaded() {
		s.spending.add(&r, s.Config.Now().Location())
	}
}

func (p *spending) isLoaded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loaded
}

func (p *spending) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loaded, p.of = true, map[spender]state.Spending{}
}

func (p *spending) add(r *state.Run, in *time.Location) {
	p.mu.Lock()
	defer p.mu.Unlock()
	spent, day := state.SpendingOf(r.Usage, r.Took), r.Ended.In(in).Format(time.DateOnly)
	for _, of := range []spender{{session: r.SessionKey}, {account: r.Account, day: day}, {day: day}} {
		p.of[of] = p.of[of].Plus(spent)
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

// taskLimits returns the budgets of a task and its session. Its own stands in for what is configured.
func (s *Store) taskLimits(t *state.Task) []limit {
	own, _ := state.ParseBudget(t.Budget) // both were checked
	used := state.SpendingOf(t.Usage, 0)
	for _, step := range t.Steps {
		if step.Ended.After(step.Started) && !step.Started.IsZero() && step.Phase != state.PhaseVerify {
			used.Time += step.Ended.Sub(step.Started)
		}
	}
	if own != (state.Budget{}) {
		return []limit{{"its budget is spent", own, used}}
	}
	task, _ := state.ParseBudget(s.Config.BudgetTask)
	session, _ := state.ParseBudget(s.Config.BudgetSession)
	return []limit{{"the budget of a task is spent", task, used}, {"the budget of its session is spent", session, s.spending.by(spender{session: t.SessionKey})}}
}

// dayLimits returns the budgets of an account and of all for the day of now.
func (s *Store) dayLimits(account *state.AccountConfig, now time.Time) []limit {
	own, _ := state.ParseBudget(account.Budget)
	all, _ := state.ParseBudget(s.Config.BudgetDay)
	day := now.Format(time.DateOnly)
	return []limit{
		{"has spent its budget of today", own, s.spending.by(spender{account: account.ID, day: day})},
		{"may spend no more today, with all accounts", all, s.spending.by(spender{day: day})},
	}
}

// over returns which of some budgets is spent, and how much of it; "" if none is.
func over(limits []limit) string {
	for _, l := range limits {
		if text := l.budget.Over(l.spent); text != "" {
			return l.what + ": " + text
		}
	}
	return ""
}

// HasBudget reports whether a task, or its session, has a budget.
func (s *Store) HasBudget(t *state.Task) bool {
	return t.Budget != "" || s.Config.BudgetTask != "" || s.Config.BudgetSession != ""
}

// SpentNote returns what the person is told whose task is held because that is spent.
func SpentNote(id, spent string) string {
	return spent + "; to go on: stint release " + state.ShortID(id) + " --budget +5usd"
}

// OverBudget returns what a task, whole, has spent that it may not; "" if it may go on.
func (s *Store) OverBudget(t *state.Task) string { return over(s.taskLimits(t)) }

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

// NextDay returns when the next day begins by the clock on the wall.
func NextDay(now time.Time) time.Time {
	return time.Date(now.Year(), now.Month(), now.Day()+1, 0, 0, 0, 0, now.Location())
}
