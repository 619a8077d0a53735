package coordinator_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/state"
)

// spent is a run that takes a minute and uses that.
func spent(usd float64, tokens int64) step {
	return step{time.Minute, task.Outcome{Result: "ok", Session: "native-1", Usage: state.Usage{InputTokens: tokens, CostUSD: usd}}}
}

// TestBudgetOfATask: the runs of a task, and of a session, may spend what is theirs; then the task is
// held, and goes on with more. A task's own budget stands in for those of the configuration.
func TestBudgetOfATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := limitedWorld(t)
		w.cfg.BudgetSession = "5usd"
		w.script(map[string][]step{taskID(1): {spent(3, 0)}, taskID(2): {spent(3, 0)}, taskID(4): {
			{time.Second, task.Outcome{Class: state.ClassNetwork, Usage: state.Usage{InputTokens: 150}}}, spent(0, 1),
		}})
		w.openUnwatched()
		for i := 1; i < 4; i++ {
			w.submit(task.TaskSpec{ID: taskID(i), Prompt: "p", SessionKey: "web"})
		}
		w.endsAs(taskID(1), state.Done, "")
		w.endsAs(taskID(2), state.Done, "") // when it began, two of five were left
		time.Sleep(time.Minute)
		held, err := w.c.Whole(taskID(3))
		check(t, err)
		if !held.Hold || held.Reason != state.ClassBudget || !strings.HasPrefix(held.Note, "the budget of its session is spent: 6usd of 5usd; to go on: stint release ") {
			t.Errorf("the session is over its budget: %+v", held)
		}
		if _, err := w.c.Edit(t.Context(), taskID(3), task.Patch{Fields: []byte(`{"budget":"1usd"}`)}, "client"); err != nil {
			t.Error(err)
		}
		_, err = w.c.Release(t.Context(), taskID(3), "client")
		check(t, err)
		w.endsAs(taskID(3), state.Done, "")
		w.submit(task.TaskSpec{ID: taskID(4), Prompt: "p", Parallel: true, Budget: "100tok", MaxAttempts: 3})
		time.Sleep(10 * time.Minute)
		held, err = w.c.Whole(taskID(4))
		check(t, err)
		if !held.Hold || held.Attempt != 1 || !strings.HasPrefix(held.Note, "its budget is spent: 150tok of 100tok") {
			t.Errorf("the task is over its budget: %+v", held)
		}
	})
}

// TestBudgetEndsARun: a run that has used what is left is ended, spends no attempt, and keeps its session.
func TestBudgetEndsARun(t *testing.T) {
	for name, budget := range map[string]string{"tokens": "100tok", "time": "10m"} {
		bubble(t, name, func(t *testing.T) {
			w := limitedWorld(t)
			w.cfg.IdleTimeout, w.cfg.Timeout = 10*time.Hour, 10*time.Hour
			w.agent.do = func(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
				report(task.Event{Session: "native-1"})
				for used := int64(10); ctx.Err() == nil; used += 10 {
					report(task.Event{Log: &task.LogEvent{Kind: task.LogMessage, Text: "…", Tokens: used}})
					select {
					case <-ctx.Done():
					case <-time.After(time.Minute):
					}
				}
				if !errors.Is(context.Cause(ctx), task.ErrTimeout) {
					return task.Outcome{Class: state.ClassCanceled, ExitCode: -1}
				}
				return task.Outcome{Class: state.ClassTimeout, ExitCode: -1, Session: "native-1", Kept: true, Usage: state.Usage{InputTokens: 100}}
			}
			w.openUnwatched()
			w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p", Budget: budget, SessionKey: "web"})
			time.Sleep(time.Hour)
			synctest.Wait()
			got, err := w.c.Whole(taskID(1))
			check(t, err)
			if !got.Hold || got.Reason != state.ClassBudget || got.Attempt != 0 || got.AgentSession != "native-1" || len(w.agent.turns) != 1 {
				raw, _ := w.c.Raw(t.Context(), taskID(1))
				t.Errorf("%d turns; %s", len(w.agent.turns), raw)
			}
			w.cancel(taskID(1))
		})
	}
}

// TestBudgetOfADay: what is over the budget of a day, with an account or with all, waits for the next one.
func TestBudgetOfADay(t *testing.T) {
	for _, all := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { // it begins at midnight
			w := limitedWorld(t)
			config := state.AccountConfig{ID: "demo", Tool: "demo"}
			if w.cfg.BudgetDay = "5usd"; !all {
				w.cfg.BudgetDay, config.Budget = "", "5usd"
			}
			w.cfg.Accounts = func() []state.AccountConfig { return []state.AccountConfig{config} }
			w.script(map[string][]step{taskID(1): {spent(5, 0)}})
			w.openUnwatched()
			w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p"})
			w.endsAs(taskID(1), state.Done, "")
			begun := time.Now()
			w.submit(task.TaskSpec{ID: taskID(2), Prompt: "p"})
			if why := w.why(taskID(2)); !strings.Contains(why, "5usd of 5usd; next at 2000-01-02 00:00:00") {
				t.Errorf("why: %s", why)
			}
			if _, err := w.c.Compact(t.Context(), 0, false, false); err != nil { // what was spent is in the archive then
				t.Error(err)
			}
			check(t, w.quit())
			w.openUnwatched()
			w.endsAs(taskID(2), state.Done, "")
			if next := begun.Truncate(24 * time.Hour).Add(24 * time.Hour); time.Now().Before(next) || time.Since(next) > time.Minute {
				t.Errorf("it ended at %v", time.Now())
			}
		})
	}
}

// TestBudgetOfIterations: each iteration looks at the budgets; one that is spent at the end of a turn
// takes nothing from its answer, nor from the verify command.
func TestBudgetOfIterations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newJudgeWorld(t)
		w.cfg.MaxIterations, w.cfg.IdleTimeout = 5, time.Hour
		w.checks = []int{1}
		w.settings(queue.WorkspaceSettings{})
		w.agent.do = func(_ context.Context, _ task.Turn, report func(task.Event)) task.Outcome {
			report(task.Event{Session: "native-1", Log: &task.LogEvent{Kind: task.LogMessage, Text: "…", Tokens: 60}})
			return task.Outcome{Result: "the answer", Session: "native-1", Usage: state.Usage{InputTokens: 60, CostUSD: 3}}
		}
		w.openUnwatched()
		for budget, runs := range map[string]int{"5usd": 2, "100tok": 2, "50tok": 1} {
			w.agent.turns = nil
			id := w.submit(task.TaskSpec{Prompt: "p", VerifyCommand: "make", Parallel: true, Budget: budget}).ID
			time.Sleep(time.Hour)
			synctest.Wait()
			if got, err := w.c.Whole(id); err != nil || len(w.agent.turns) != runs || !got.Hold || got.Reason != state.ClassBudget || got.VerifyExitCode == nil {
				t.Errorf("%s: %d turns, %+v, %v", budget, len(w.agent.turns), got, err)
			}
			w.cancel(id)
		}
	})
}

// TestBudgetThatStopsARun: it is held if its own is spent, or nobody knows what; it waits for the next day if
// that of the day is spent.
func TestBudgetThatStopsARun(t *testing.T) {
	for _, c := range []struct {
		own, day string
		usage    state.Usage
		held     bool
	}{
		{own: "5usd", usage: state.Usage{CostUSD: 5}, held: true},
		{own: "5usd", held: true},
		{own: "50usd", day: "5usd", usage: state.Usage{CostUSD: 5}},
		{day: "5usd", usage: state.Usage{CostUSD: 5}},
		{day: "5usd", held: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := limitedWorld(t)
			w.cfg.BudgetDay = c.day
			w.script(map[string][]step{taskID(1): {{time.Minute, task.Outcome{Class: state.ClassBudget, Error: "spent", Usage: c.usage}}}})
			w.openUnwatched()
			w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p", Budget: c.own})
			time.Sleep(time.Hour)
			got, err := w.c.Whole(taskID(1))
			if check(t, err); got.Status != state.Queued || got.Hold != c.held || got.NotBefore.IsZero() != c.held || got.Attempt != 0 {
				t.Errorf("%+v: %+v", c, got)
			}
		})
	}
}

// TestARunGivesNoBudget: what a run queues may spend what is left of its own task's, and a smallest
// amount where nothing is.
func TestARunGivesNoBudget(t *testing.T) {
	for _, c := range []struct{ task, session, parent, asks, gets string }{
		{parent: "5usd", asks: "100usd", gets: "5usd"},
		{parent: "5usd", gets: "5usd"},
		{parent: "5usd 7tok", asks: "1usd", gets: "1usd 7tok"},
		{task: "300tok", asks: "900Mtok", gets: "300tok"},
		{session: "300tok", asks: "900Mtok", gets: ""},
		{asks: "5usd", gets: "5usd"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := followWorld(t)
			w.cfg.BudgetTask, w.cfg.BudgetSession = c.task, c.session
			w.during(taskID(1), func(run string) {
				got, err := w.try(task.TaskSpec{Prompt: "child", FromRun: run, Parallel: true, Budget: c.asks})
				if check(t, err); got.Budget != c.gets {
					t.Errorf("%+v: %s", c, got.Budget)
				}
			})
			w.openUnwatched()
			w.ended(w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p", Budget: c.parent}).ID)
		})
	}
}
