package coordinator_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// accountsWorld has an agent with three accounts, of which the first two may run two tasks each.
func accountsWorld(t *testing.T) *world {
	w := limitedWorld(t)
	w.cfg.MaxWorkers = 10
	w.cfg.Accounts = func() []state.AccountConfig {
		return []state.AccountConfig{{ID: "demo", Tool: "demo", Max: 2}, {ID: "two", Tool: "demo", Max: 2}, {ID: "three", Tool: "demo"}}
	}
	return w
}

// accountsOf returns with which accounts some tasks are, in order.
func (w *world) accountsOf(tasks ...string) string {
	w.t.Helper()
	synctest.Wait()
	var list []string
	for _, id := range tasks {
		t, err := w.c.Whole(id)
		check(w.t, err)
		list = append(list, t.Account)
	}
	return strings.Join(list, " ")
}

// TestAccountIsChosen: a task gets an account that has room, and of these the one whose last limit is
// longest ago; what starts when its own account is full moves, unless it is pinned or goes on with
// a conversation. No account runs more than it may.
func TestAccountIsChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := accountsWorld(t)
		steps := map[string][]step{taskID(0): {{time.Second, limitedUntil(time.Minute)}}}
		for i := 1; i < 20; i++ {
			steps[taskID(i)] = []step{{50 * time.Second, task.Outcome{Result: "ok", Session: "native-" + fmt.Sprint(i)}}}
		}
		w.script(steps)
		w.openUnwatched()
		w.submit(task.TaskSpec{ID: taskID(0), Prompt: "p", Account: "three"})
		time.Sleep(2 * time.Minute) // "three" was limited, and its task got through
		w.endsAs(taskID(0), state.Done, "")
		var ids []string
		for i := 1; i < 6; i++ {
			ids = append(ids, taskID(i))
			w.submit(task.TaskSpec{ID: taskID(i), Prompt: "p", SessionKey: "s" + fmt.Sprint(i)})
			synctest.Wait()
		}
		if got := w.accountsOf(ids...); got != "demo two demo two three" {
			t.Errorf("tasks are with %s", got)
		}
		w.submit(task.TaskSpec{ID: taskID(6), Prompt: "p", Parallel: true, Account: "two"})
		if why := w.why(taskID(6)); why != "all 2 slots of account two are in use" {
			t.Errorf("pinned to a full account: %s", why)
		}
		w.submit(task.TaskSpec{ID: taskID(7), Prompt: "p", SessionKey: "s2"}) // it goes on with "two"
		time.Sleep(40 * time.Second)
		if got := w.accountsOf(taskID(6), taskID(7)); got != "two two" {
			t.Errorf("bound tasks are with %s", got)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if i := slices.IndexFunc(w.agent.turns, func(turn task.Turn) bool { return turn.TaskID == taskID(7) }); w.agent.turns[i].Session != "native-2" {
			t.Errorf("the conversation goes on with %q", w.agent.turns[i].Session)
		}
	})
}

// TestAccountIsLimited: what has met a limit before its agent said anything, and all that waits, goes to
// another account, and spends no attempt; what had a conversation waits for its own.
func TestAccountIsLimited(t *testing.T) {
	for _, tc := range []struct {
		name string
		out  func(time.Duration) task.Outcome
		want string
	}{
		{"at once", func(d time.Duration) task.Outcome { out := limitedUntil(d); out.Usage = state.Usage{}; return out }, "two two"},
		{"after some work", limitedUntil, "demo two"},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			w := accountsWorld(t)
			limited := tc.out(time.Hour)
			limited.Fresh = true
			w.script(map[string][]step{taskID(1): {{time.Second, limited}, {time.Second, task.Outcome{Result: "ok"}}}})
			w.openUnwatched()
			w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p", SessionKey: "web", NoWaitLimit: tc.want == "two two"})
			w.submit(task.TaskSpec{ID: taskID(2), Prompt: "p", SessionKey: "web"}) // which begins with its session
			w.submit(task.TaskSpec{ID: taskID(3), Prompt: "p", NotBefore: time.Now().Add(10 * time.Second)})
			time.Sleep(20 * time.Second)
			if got := w.accountsOf(taskID(1), taskID(3)); got != tc.want {
				t.Errorf("tasks are with %s, want %s", got, tc.want)
			}
			time.Sleep(2 * time.Hour)
			if got := w.endsAs(taskID(1), state.Done, ""); got.Attempt != 1 || got.LimitWaits != 1 {
				t.Errorf("after a limit: %+v", got)
			}
			first, _, _ := strings.Cut(tc.want, " ")
			if got := w.accountsOf(taskID(1), taskID(2)); got != first+" "+first {
				t.Errorf("the conversation is with %s", got)
			}
		})
	}
}

// TestAccountIsOut: with a disabled account, one on hold and one out of its hours nothing starts; what
// waits moves away.
func TestAccountIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it begins at midnight
		w := accountsWorld(t)
		configs := w.cfg.Accounts()
		configs[2].Hours = time.Now().Add(2*time.Hour).Format("15:04") + "-" + time.Now().Add(3*time.Hour).Format("15:04")
		w.cfg.Accounts = func() []state.AccountConfig { return slices.Clone(configs) }
		w.script(map[string][]step{})
		w.openUnwatched()
		_, err := w.c.SetAccount(t.Context(), "demo", false, "client")
		check(t, err)
		w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p"})
		w.endsAs(taskID(1), state.Done, "")
		if got := w.accountsOf(taskID(1)); got != "two" {
			t.Errorf("a disabled account: with %s", got)
		}
		w.reconcile("## Control account:two\n- hold: true\n")
		w.submit(task.TaskSpec{ID: taskID(2), Prompt: "p"})
		begun := time.Now()
		w.endsAs(taskID(2), state.Done, "")
		if got, waited := w.accountsOf(taskID(2)), time.Since(begun); got != "three" || waited < time.Hour || waited > 3*time.Hour {
			t.Errorf("out of hours: with %s after %s", got, waited)
		}
		time.Sleep(2 * time.Hour)
		if _, err := w.c.SetAccount(t.Context(), "none", true, "client"); code(err) != task.CodeNotFound {
			t.Errorf("no such account: %v", err)
		}
	})
}

// inTwo has two accounts, each for that many tasks.
func inTwo(t *testing.T, most int, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := limitedWorld(t)
		w.cfg.MaxWorkers = 4
		w.cfg.Accounts = func() []state.AccountConfig {
			return []state.AccountConfig{{ID: "demo", Tool: "demo", Max: most}, {ID: "two", Tool: "demo", Max: most}}
		}
		w.script(map[string][]step{taskID(1): {{time.Minute, task.Outcome{Result: "ok", Session: "native-1"}}}})
		f(w)
	})
}

// TestSpareTaskMoves: a spare task goes to an account that has spare quota as soon as one has. What an account tells late of an earlier time does not count.
func TestSpareTaskMoves(t *testing.T) {
	inTwo(t, 1, func(w *world) {
		told := func(used float64, left, age time.Duration) step {
			now := time.Now()
			return step{time.Second, task.Outcome{Result: "ok", Quota: []state.Window{{Name: "w", Used: used, Minutes: 600, ResetsAt: now.Add(left), At: now.Add(-age)}}}}
		}
		w.script(map[string][]step{
			taskID(1): {told(99, 10*time.Hour, 0)}, taskID(2): {told(50, 5*time.Hour, 0)}, taskID(3): {told(0, time.Hour, time.Hour)},
		})
		w.openUnwatched()
		for i, account := range []string{"demo", "two", "demo"} {
			w.submit(task.TaskSpec{ID: taskID(i + 1), Prompt: "p", Parallel: true, Account: account})
			w.endsAs(taskID(i+1), state.Done, "")
		}
		begun := time.Now()
		w.reconcile("## Task %s\n- status: queued\n- spare: true\n- prompt: p\n", taskID(4)) // for whatever agent
		w.submit(task.TaskSpec{ID: taskID(5), Prompt: "p", Parallel: true, Spare: true})
		w.endsAs(taskID(4), state.Done, "")
		w.endsAs(taskID(5), state.Done, "")
		if got, waited := w.accountsOf(taskID(4), taskID(5)), time.Since(begun); got != "two two" || waited < 25*time.Minute || waited > 40*time.Minute {
			t.Errorf("with %s after %v", got, waited)
		}
	})
}

// TestAccountsDoNotChurn: what could not start for another reason than its account stays where it is.
func TestAccountsDoNotChurn(t *testing.T) {
	inTwo(t, 1, func(w *world) {
		w.cfg.QueueMax = map[string]int{"n": 1}
		w.openUnwatched()
		const n = 30
		for i := range n {
			w.submit(task.TaskSpec{ID: taskID(i), Prompt: "p", Parallel: true, Queue: "n"})
		}
		moves := 0
		for i := range n {
			w.endsAs(taskID(i), state.Done, "")
			raw, err := w.c.Raw(t.Context(), taskID(i))
			check(t, err)
			moves += strings.Count(string(raw), "- account: ") - 1
		}
		if moves > n {
			t.Errorf("%d tasks were moved %d times", n, moves)
		}
	})
}

// TestAccountOfASession: what goes on with a conversation follows it to the account that has it by then.
func TestAccountOfASession(t *testing.T) {
	inTwo(t, 1, func(w *world) {
		w.openUnwatched()
		for i := 1; i < 3; i++ {
			w.submit(task.TaskSpec{ID: taskID(i), Prompt: "p", SessionKey: "web", Hold: true})
		}
		_, err := w.c.SetAccount(t.Context(), "demo", false, "client")
		check(t, err)
		for i := 1; i < 3; i++ {
			_, err := w.c.Release(t.Context(), taskID(i), "client")
			check(t, err)
			w.endsAs(taskID(i), state.Done, "")
		}
		if got := w.accountsOf(taskID(1), taskID(2)); got != "two two" || w.agent.turns[1].Session != "native-1" {
			t.Errorf("the session is with %s, %+v", got, w.agent.turns[1])
		}
	})
}

// TestAccountWakes: a task whose account takes none starts as soon as another one does: when that has
// cooled down, or when more tasks may run with its own. The master stays for it.
func TestAccountWakes(t *testing.T) {
	cool := func(account string, d time.Duration) string {
		return fmt.Sprintf("## Control account:%s\n- coolUntil: %s\n- limitWaits: 1\n", account, state.FormatTime(time.Now().Add(d)))
	}
	for _, own := range []string{"cools down", "held", "full"} {
		t.Run(own, func(t *testing.T) {
			inTwo(t, 1, func(w *world) {
				w.cfg.IdleExit = 30 * time.Second
				w.cfg.IdleTimeout, w.cfg.Timeout = 10*time.Hour, 10*time.Hour
				var most atomic.Int64
				most.Store(1)
				w.cfg.Accounts = func() []state.AccountConfig {
					return []state.AccountConfig{{ID: "demo", Tool: "demo", Max: int(most.Load())}, {ID: "two", Tool: "demo", Max: 1}}
				}
				w.script(map[string][]step{taskID(2): {{5 * time.Hour, task.Outcome{Result: "ok"}}}})
				w.openUnwatched()
				w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p", Parallel: true, Hold: true})
				w.reconcile("%s", cool("two", 10*time.Minute))
				switch own {
				case "cools down":
					w.reconcile("%s", cool("demo", time.Hour))
				case "held":
					w.reconcile("## Control account:demo\n- hold: true\n")
				default:
					w.submit(task.TaskSpec{ID: taskID(2), Prompt: "p", Parallel: true, Account: "demo"})
				}
				_, err := w.c.Release(t.Context(), taskID(1), "client")
				check(t, err)
				begun, most10 := time.Now(), 11*time.Minute
				if own == "full" {
					time.Sleep(time.Minute)
					most.Store(2)
					most10 = 2 * time.Minute
				}
				w.endsAs(taskID(1), state.Done, "")
				if took := time.Since(begun); took > most10 {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestAccountsAndLimits: however many accounts there are, max_limit_wait ends the wait, and a task that
// does not wait is not kept for one that is out of its hours; a fallback comes after all accounts.
func TestAccountsAndLimits(t *testing.T) {
	inTwo(t, 1, func(w *world) {
		w.cfg.MaxLimitWait = 2 * time.Hour
		configs := w.cfg.Accounts()
		var hours atomic.Value // of the second
		hours.Store("")
		w.cfg.Accounts = func() []state.AccountConfig {
			now := slices.Clone(configs)
			now[1].Hours = hours.Load().(string)
			return now
		}
		limited := step{time.Second, task.Outcome{Class: state.ClassRateLimited, ExitCode: 1}}
		w.script(map[string][]step{taskID(1): slices.Repeat([]step{limited}, 400), taskID(2): {limited}})
		w.openUnwatched()
		w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p", Parallel: true})
		w.endsAs(taskID(1), state.Dead, state.ClassRateLimited)
		if took := time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); took > 5*time.Hour {
			t.Errorf("it waited %v", took)
		}
		time.Sleep(24 * time.Hour)
		hours.Store("22:00-23:00")
		w.submit(task.TaskSpec{ID: taskID(2), Prompt: "p", Parallel: true, NoWaitLimit: true})
		w.endsAs(taskID(2), state.Failed, state.ClassRateLimited)
	})
}
