package coordinator_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// ended waits for a task within a bubble, where a long time is short.
func (w *world) ended(id string) state.Task {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Hour)
	defer cancel()
	t, err := w.c.Wait(ctx, id)
	if err != nil {
		why, _ := w.c.Why(id)
		w.t.Fatalf("%v; why: %s", err, why)
	}
	return t
}

// limitedWorld is a world with the waits of a real one, whose provider is busy.
func limitedWorld(t *testing.T) *world {
	w := newWorld(t)
	w.cfg.BackoffBase, w.cfg.BackoffMax, w.cfg.MaxLimitWait = 30*time.Second, 5*time.Minute, 24*time.Hour
	w.cfg.HeartbeatInterval = time.Hour
	return w
}

// A provider is busy until a time, and notes who asked. Each answer takes a second.
type provider struct {
	busyUntil time.Time

	mu              sync.Mutex
	now, most       int // runs at once, and the most of those that began after a refusal and before the first success
	refused, served int
}

func (p *provider) answer(context.Context, task.Turn, func(task.Event)) task.Outcome {
	p.mu.Lock()
	p.now++
	if p.refused > 0 && p.served == 0 {
		p.most = max(p.most, p.now)
	}
	p.mu.Unlock()
	time.Sleep(time.Second)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now--
	if time.Now().Before(p.busyUntil) {
		p.refused++
		return task.Outcome{Class: state.ClassRateLimited, ExitCode: 1, Error: "429"}
	}
	p.served++
	return task.Outcome{Result: "ok"}
}

// TestRateLimitStorm: 500 tasks meet a provider that is busy for ten minutes. Few of
// them are started meanwhile, and none beside another until one got through.
func TestRateLimitStorm(t *testing.T) {
	t.Parallel()
	notShort(t)
	synctest.Test(t, func(t *testing.T) {
		const tasks, length = 500, 10 * time.Minute
		w := limitedWorld(t)
		p := &provider{}
		w.agent.do = p.answer
		w.cfg.MaxWorkers = 0
		w.openUnwatched()
		specs := make([]task.TaskSpec, tasks)
		for i := range specs {
			specs[i] = task.TaskSpec{Prompt: "p", Parallel: true}
		}
		list, err := w.submitAll(specs)
		check(t, err)
		w.close()
		w.cfg.MaxWorkers = 4
		p.busyUntil = time.Now().Add(length)
		// All workers at once, then one after each wait, the shortest of which is half of what it grows to.
		most, left := w.cfg.MaxWorkers, length
		for wait := w.cfg.BackoffBase; left > 0; wait = min(2*wait, 30*time.Minute) {
			left -= wait/2 + time.Second
			most++
		}
		w.openUnwatched()
		time.Sleep(2 * time.Second)
		if why := w.why(list[tasks-1].ID); !strings.Contains(why, "rate-limited: account demo is available again at ") || !strings.HasSuffix(why, " (wait 1)") {
			t.Errorf("four runs have met one limit: why %q", why)
		}
		w.close() // what the master knows of the limit outlives it
		w.openUnwatched()
		time.Sleep(time.Until(p.busyUntil))
		for i := range list {
			if got := w.ended(list[i].ID); got.Status != state.Done || got.Attempt != 1 {
				t.Fatalf("%s after %d attempts: %s", got.Status, got.Attempt, got.Error)
			}
		}
		t.Logf("limits: tasks=%d refused=%d bound=%d", tasks, p.refused, most)
		if p.refused < w.cfg.MaxWorkers+3 || p.refused > most {
			t.Errorf("%d runs met the limit, want %d at most", p.refused, most)
		}
		if p.most != 1 || p.served != tasks {
			t.Errorf("until one got through up to %d ran at once; %d were served", p.most, p.served)
		}
	})
}

// A step is what one run of a task does.
type step struct {
	takes time.Duration
	out   task.Outcome
}

// script plays the steps of each task, a run at a time; further runs end well
// after a second. started gives the number of runs.
func (w *world) script(steps map[string][]step) (started func() int) {
	var mu sync.Mutex
	n := 0
	w.agent.do = func(ctx context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
		mu.Lock()
		n++
		now := step{time.Second, task.Outcome{Result: "ok"}}
		if list := steps[turn.TaskID]; len(list) > 0 {
			now, steps[turn.TaskID] = list[0], list[1:]
		}
		mu.Unlock()
		select {
		case <-ctx.Done():
			return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1}
		case <-time.After(now.takes):
			return now.out
		}
	}
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

func taskID(i int) string { return fmt.Sprintf("019ab3f0-6f1e-7c3a-9a51-%012d", i) }

// why returns what is said of a task once the bubble has come to rest.
func (w *world) why(id string) string {
	w.t.Helper()
	synctest.Wait()
	why, err := w.c.Why(id)
	if err != nil {
		w.t.Error(err)
	}
	return why
}

// TestRateLimitTimes: the account cools down until the time that an agent named,
// the latest of several, and else for longer each time.
func TestRateLimitTimes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		named [][]time.Duration // of each task, the times its runs name after the beginning; 0: none
		waits []time.Duration   // that the first task is told of, after each of its runs
	}{
		{"named", [][]time.Duration{{time.Hour}}, []time.Duration{time.Hour - time.Second}},
		{"the latest one", [][]time.Duration{{time.Minute}, {time.Hour}, {0}}, []time.Duration{time.Hour - time.Second}},
		{"too far away to be true", [][]time.Duration{{33 * 24 * time.Hour}}, []time.Duration{30 * time.Second}},
		{"too late while it cools down", [][]time.Duration{{time.Minute}, {33 * 24 * time.Hour}}, []time.Duration{time.Minute - time.Second}},
		{"past", [][]time.Duration{{-time.Hour}}, []time.Duration{30 * time.Second}},
		{"not named", [][]time.Duration{{0, 0, 0, 0, 0, 0, 0, 0}}, []time.Duration{
			30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 30 * time.Minute, 30 * time.Minute,
		}},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			w := limitedWorld(t)
			w.cfg.Rand = func() float64 { return 0.5 }
			steps := map[string][]step{}
			for i, list := range tc.named {
				for _, d := range list {
					out := task.Outcome{Class: state.ClassRateLimited, ExitCode: 1}
					if d != 0 {
						out.RetryAt = time.Now().Add(d)
					}
					steps[taskID(i)] = append(steps[taskID(i)], step{time.Second, out})
				}
			}
			w.script(steps)
			w.openUnwatched()
			for i := range tc.named {
				w.submit(task.TaskSpec{ID: taskID(i), Prompt: "p", Parallel: true})
			}
			for i, wait := range tc.waits {
				time.Sleep(time.Second)
				if why, want := w.why(taskID(0)), fmt.Sprintf(", in %s (wait %d)", wait, i+1); !strings.HasSuffix(why, want) {
					t.Errorf("why is %q, want %q", why, want)
				}
				time.Sleep(wait)
			}
			for i := range tc.named {
				w.expect(w.ended(taskID(i)), state.Done, "")
			}
		})
	}
}

// started expects so many runs after each of these times.
func (w *world) started(runs func() int, list ...startsAfter) {
	w.t.Helper()
	for _, at := range list {
		time.Sleep(at.after)
		synctest.Wait()
		if got := runs(); got != at.runs {
			w.t.Errorf("after %s more, %d runs were started, want %d", at.after, got, at.runs)
		}
	}
}

type startsAfter struct {
	after time.Duration
	runs  int
}

// TestOneAtATimeUntilOneGetsThrough: a run that began before the limit was met says
// nothing about it, and neither does one that did not come as far as the provider.
func TestOneAtATimeUntilOneGetsThrough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := limitedWorld(t)
		w.cfg.BackoffBase, w.cfg.Rand = 10*time.Second, func() float64 { return 0.5 }
		hour := []step{{time.Hour, task.Outcome{Result: "ok"}}}
		runs := w.script(map[string][]step{
			taskID(1): {{time.Second, task.Outcome{Class: state.ClassRateLimited}}, {20 * time.Second, task.Outcome{Class: state.ClassNetwork}}, hour[0]},
			taskID(2): {{5 * time.Second, task.Outcome{Result: "ok"}}},
			taskID(3): hour, taskID(4): hour, taskID(5): hour,
		})
		play := w.agent.do
		w.agent.do = func(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
			if turn.TaskID == taskID(3) { // works for an hour, and says something after a minute
				time.AfterFunc(time.Minute, func() { report(task.Event{Text: "working on it"}) })
			}
			return play(ctx, turn, report)
		}
		w.cfg.MaxWorkers, w.cfg.Timeout = 2, 0
		w.openUnwatched()
		for i := range 5 {
			w.submit(task.TaskSpec{ID: taskID(i + 1), Prompt: "p", Parallel: true})
		}
		w.started(
			runs,
			startsAfter{2 * time.Second, 2},  // task 1 has met the limit, task 2 goes on
			startsAfter{8 * time.Second, 2},  // it has ended well, and that lifts nothing
			startsAfter{2 * time.Second, 3},  // at 12 s: the cool-down is over, and task 1 is tried
			startsAfter{18 * time.Second, 3}, // alone
			startsAfter{2 * time.Second, 4},  // at 32 s: it did not reach the provider; task 3 is tried
			startsAfter{55 * time.Second, 4}, // alone
		)
		if why := w.why(taskID(5)); why != "account demo was rate-limited (wait 1); one task at a time until one gets through" {
			t.Errorf("why is %q", why)
		}
		w.started(runs, startsAfter{10 * time.Second, 5}) // it has got through, and is still at work: two at once
		w.ended(taskID(5))
	})
}

// TestVerifyCommandSaysNothingOfALimit: what a run of it shows is not that the provider
// answers again. The turn before it does, also when it has said nothing on its way.
func TestVerifyCommandSaysNothingOfALimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := limitedWorld(t)
		w.cfg.BackoffBase, w.cfg.Rand = 10*time.Second, func() float64 { return 0.5 }
		w.cfg.Shell, w.cfg.MaxIterations, w.cfg.VerifyTimeout = &fakeShell{do: exits(0, 0)}, 3, time.Minute
		fine := task.Outcome{Result: "ok"}
		runs := w.script(map[string][]step{
			taskID(1): {{time.Second, task.Outcome{Class: state.ClassRateLimited}}, {10 * time.Second, fine}},
			taskID(2): {{12 * time.Second, fine}},
			taskID(3): {{time.Hour, fine}},
			taskID(4): {{time.Hour, fine}},
		})
		w.openUnwatched()
		for i, command := range []string{"make test", "make test", "", ""} {
			if i == 2 {
				time.Sleep(2 * time.Second)
			}
			w.submit(task.TaskSpec{ID: taskID(i + 1), Prompt: "p", Parallel: true, VerifyCommand: command})
		}
		w.started(
			runs,
			startsAfter{11500 * time.Millisecond, 3}, // task 1 met the limit at 1 s and is tried since 11 s; the command of task 2 runs since 12 s
			startsAfter{3 * time.Second, 3},          // it has passed at 14 s, and lifts nothing
			startsAfter{5 * time.Second, 5},          // at 21 s task 1 has got through: while its command runs the others start
		)
		w.ended(taskID(4))
	})
}

// TestRateLimitEndings: who does not wait has failed, who has waited too long for a
// limit without an end is dead, and neither before a fallback that it names. For an
// end that is named, a week ahead, everybody else waits.
func TestRateLimitEndings(t *testing.T) {
	t.Parallel()
	const week, none = 7 * 24 * time.Hour, 0
	for _, tc := range []struct {
		name   string
		spec   task.TaskSpec
		named  []time.Duration // how far ahead the limits end that it meets
		most   time.Duration   // max_limit_wait
		status state.Status
		reason state.Class
		agent  string
	}{
		{"waits", task.TaskSpec{}, []time.Duration{none}, time.Hour, state.Done, "", "demo"},
		{"does not wait", task.TaskSpec{NoWaitLimit: true}, []time.Duration{none}, time.Hour, state.Failed, state.ClassRateLimited, "demo"},
		{"a week", task.TaskSpec{}, []time.Duration{week}, time.Hour, state.Done, "", "demo"},
		{"a week, then no end", task.TaskSpec{}, []time.Duration{none, week, none, week}, time.Hour, state.Done, "", "demo"},
		{"a week, and does not wait", task.TaskSpec{NoWaitLimit: true}, []time.Duration{week}, time.Hour, state.Failed, state.ClassRateLimited, "demo"},
		{"too long", task.TaskSpec{}, []time.Duration{none}, time.Second, state.Dead, state.ClassRateLimited, "demo"},
		{"too long in all", task.TaskSpec{}, slices.Repeat([]time.Duration{none}, 20), 4 * time.Hour, state.Dead, state.ClassRateLimited, "demo"},
		{"does not wait, falls back", task.TaskSpec{NoWaitLimit: true, Fallback: []string{"claude"}}, []time.Duration{none}, time.Hour, state.Done, "", "claude"},
		{"too long, falls back", task.TaskSpec{Fallback: []string{"claude"}}, []time.Duration{none}, time.Second, state.Done, "", "claude"},
		{"does not wait, and the fallback is not ready", task.TaskSpec{NoWaitLimit: true, Fallback: []string{"gemini"}}, []time.Duration{none}, time.Hour, state.Failed, state.ClassRateLimited, "demo"},
		{"too long, and the fallback is not ready", task.TaskSpec{Fallback: []string{"gemini"}}, []time.Duration{none}, time.Second, state.Dead, state.ClassRateLimited, "demo"},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			w := limitedWorld(t)
			w.cfg.MaxLimitWait = tc.most
			w.cfg.Agents["claude"], w.cfg.Agents["gemini"] = w.agent, w.agent
			w.cfg.AgentReady = func(agent string, _ []string) bool { return agent != "gemini" }
			met := 0
			w.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
				time.Sleep(time.Second)
				if met++; met > len(tc.named) {
					return task.Outcome{Result: "ok"}
				}
				out := task.Outcome{Class: state.ClassRateLimited, ExitCode: 1, Error: "429"}
				if d := tc.named[met-1]; d > 0 {
					out.RetryAt = time.Now().Add(d)
				}
				return out
			}
			w.openUnwatched()
			tc.spec.ID, tc.spec.Prompt, tc.spec.Agent = taskID(1), "p", "demo"
			w.submit(tc.spec)
			ctx, cancel := context.WithTimeout(t.Context(), 4*week)
			defer cancel()
			got, err := w.c.Wait(ctx, taskID(1))
			check(t, err)
			w.expect(got, tc.status, tc.reason)
			if got.Agent != tc.agent || got.Attempt != 1 && tc.status == state.Done {
				t.Errorf("%s has carried it out, at attempt %d", got.Agent, got.Attempt)
			}
			if tc.status == state.Dead && (!strings.Contains(got.Error, "max_limit_wait ("+tc.most.String()+")") || !strings.Contains(got.Error, "--fallback")) {
				t.Errorf("the error is %q", got.Error)
			}
		})
	}
}

// TestTaskWithoutAgentWaitsForTheAccount: a task by hand that names no agent does
// not run into the limit of the default one.
func TestTaskWithoutAgentWaitsForTheAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := limitedWorld(t)
		runs := w.script(map[string][]step{taskID(1): {{time.Second, task.Outcome{Class: state.ClassRateLimited, RetryAt: time.Now().Add(time.Hour)}}}})
		w.openUnwatched()
		w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p", Parallel: true})
		time.Sleep(time.Minute)
		w.reconcile("## Task mine\n- status: queued\n- workspace: %s\n- prompt: by hand\n", w.work)
		if why := w.why("mine"); !strings.HasPrefix(why, "rate-limited: account demo is available again at ") || runs() != 1 {
			t.Errorf("why is %q after %d runs", why, runs())
		}
		w.expect(w.ended("mine"), state.Done, "")
	})
}

// TestCanceledAfterTheTimeout: a person who cancels a run that is being ended for
// its timeout does not see it queued again.
func TestCanceledAfterTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := limitedWorld(t)
		release := make(chan struct{})
		w.agent.do = func(ctx context.Context, _ task.Turn, _ func(task.Event)) task.Outcome {
			<-ctx.Done()
			<-release
			return task.Outcome{Class: state.ClassTimeout, ExitCode: -1}
		}
		w.openUnwatched()
		task := w.submit(task.TaskSpec{Prompt: "p", Parallel: true, MaxAttempts: 2})
		time.Sleep(w.cfg.Timeout + time.Second)
		canceled := make(chan state.Task)
		go func() {
			got, err := w.c.Cancel(t.Context(), task.ID, "client")
			if err != nil {
				t.Error(err)
			}
			canceled <- got
		}()
		synctest.Wait()
		close(release)
		w.expect(<-canceled, state.Canceled, state.ClassCanceled)
	})
}

// TestUnwillingIsFollowed: a task that ends because it would have to wait for its account
// is followed as one that ends in a run of its own.
func TestUnwillingIsFollowed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := followWorld(t)
		w.cfg.MaxLimitWait, w.cfg.BackoffBase = 30*time.Minute, 15*time.Minute
		w.openUnwatched()
		w.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
			return task.Outcome{Class: state.ClassRateLimited, ExitCode: 1}
		}
		w.submit(task.TaskSpec{Prompt: "p", Parallel: true})
		time.Sleep(time.Minute)
		got := w.ended(w.submit(task.TaskSpec{Prompt: "q", NoWaitLimit: true, OnFailure: "Look: {{.Error}}"}).ID)
		w.expect(got, state.Failed, state.ClassRateLimited)
		if child := w.task(got.ID).FollowUps; len(child) != 1 || w.task(child[0]).Prompt != "Look: "+strconv.Quote(got.Error) || got.Note != "" || got.Result != got.Error {
			t.Errorf("note %q, result %q, followed by %q", got.Note, got.Result, child)
		}
	})
}
