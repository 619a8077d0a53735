package coordinator_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// short is a run that could not begin.
func short(n syscall.Errno) task.Outcome {
	return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1, Error: n.Error(), Shortage: n}
}

// lines is a log of which the warnings and errors count.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (w *world) logs() *lines {
	l := &lines{}
	w.cfg.Log = slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return l
}

// TestShortage: while the machine lacks something, a queue of tasks costs one start now and then, which
// spends nothing. It is logged once, why and Health tell of it, and all goes on when it is over.
func TestShortage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := limitedWorld(t)
		log := w.logs()
		back := time.Now().Add(time.Hour)
		var tries atomic.Int64
		w.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
			if time.Now().Before(back) {
				tries.Add(1)
				return short(syscall.EMFILE)
			}
			return task.Outcome{Result: "fine"}
		}
		w.openUnwatched()
		var ids []string
		for range 20 {
			ids = append(ids, w.submit(task.TaskSpec{Prompt: "p", Parallel: true}).ID)
		}
		size := func() int64 {
			fi, err := os.Stat(filepath.Join(w.dir, "journal.md"))
			check(t, err)
			return fi.Size()
		}
		before := size()
		time.Sleep(time.Minute)
		const what = "stint has as many files open as it may (ulimit -n)"
		for _, id := range ids {
			if why, err := w.c.Why(id); err != nil || !strings.HasPrefix(why, what+"; one task is tried again at ") {
				t.Errorf("why: %s, %v", why, err)
			}
		}
		if s := w.c.Health().Shortage; s == nil || s.What != what || s.Next.Before(time.Now()) || time.Since(s.Since) < 50*time.Second {
			t.Errorf("health: %+v", s)
		}
		time.Sleep(58 * time.Minute)
		if grown := size() - before; tries.Load() > 34 || grown > 30_000 {
			t.Errorf("%d starts in an hour, and the journal has grown by %d bytes", tries.Load(), grown)
		}
		for _, id := range ids {
			got := w.ended(id)
			w.expect(got, state.Done, "")
			if got.Attempt != 1 || got.Retries != 0 {
				t.Errorf("attempt %d, %d retries", got.Attempt, got.Retries)
			}
		}
		if late := time.Since(back); late > 6*time.Minute || w.c.Health().Shortage != nil {
			t.Errorf("the last one ended %s after it was back; health: %+v", late, w.c.Health().Shortage)
		}
		w.close()
		if said := log.String(); strings.Count(said, "\n") != 2 || !strings.Contains(said, what+": no task is started") || !strings.Contains(said, "the shortage is over") {
			t.Errorf("log:\n%s", said)
		}
	})
}

// TestShortageEndsWhenAnAgentIsAtWork: the others need not wait until the task that has
// found out has ended, nor do those at work end; it is told once.
func TestShortageEndsWhenAnAgentIsAtWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := limitedWorld(t)
		log := w.logs()
		var over atomic.Bool
		w.agent.do = func(_ context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
			if turn.Model != "first" && !over.Load() {
				return short(syscall.EAGAIN)
			}
			report(task.Event{Started: true})
			time.Sleep(time.Hour)
			return task.Outcome{Result: "fine"}
		}
		w.openUnwatched()
		ids := []string{w.submit(task.TaskSpec{Prompt: "p", Model: "first", Parallel: true, Timeout: "2h"}).ID}
		time.Sleep(time.Second)
		for range 3 {
			ids = append(ids, w.submit(task.TaskSpec{Prompt: "p", Parallel: true, Timeout: "2h"}).ID)
		}
		time.Sleep(10 * time.Second)
		over.Store(true)
		time.Sleep(20 * time.Second) // the next try comes 16 s after the last one at most
		for _, id := range ids {
			if got := w.task(id); got.Status != state.Running {
				t.Errorf("a task is %s, 20 s after its shortage was over", got.Status)
			}
		}
		for _, id := range ids {
			if got := w.ended(id); got.Status != state.Done || got.Retries != 0 {
				t.Errorf("it is %s, %d retries", got.Status, got.Retries)
			}
		}
		if n := strings.Count(log.String(), "no more processes can be started: "); n != 1 {
			t.Errorf("log:\n%s", log)
		}
	})
}

// TestAgentMeetsAShortage: an agent that ends with an error while the machine lacks something, or just after
// that, may have met that itself: its task is tried again, but not for ever.
func TestAgentMeetsAShortage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := limitedWorld(t)
		w.cfg.MaxRetries = 3
		var tries, runs atomic.Int64
		w.agent.do = func(_ context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
			exit := task.Outcome{Class: state.ClassExit, ExitCode: 2, Error: "the agent ended with exit code 2"}
			switch {
			case turn.Model == "unlucky" && tries.Add(1) == 1:
				time.Sleep(10 * time.Second) // the shortage comes meanwhile, and is over
				return exit
			case turn.Model == "broken":
				runs.Add(1)
				return exit
			case turn.Model == "" && tries.Add(1) < 5:
				return short(syscall.EAGAIN)
			}
			report(task.Event{Started: true})
			return task.Outcome{Result: "fine"}
		}
		w.openUnwatched()
		unlucky := w.submit(task.TaskSpec{Prompt: "p", Model: "unlucky", Parallel: true}).ID
		time.Sleep(time.Second)
		other := w.submit(task.TaskSpec{Prompt: "p", Parallel: true}).ID
		broken := w.submit(task.TaskSpec{Prompt: "p", Model: "broken", Parallel: true}).ID
		w.expect(w.ended(other), state.Done, "")
		if got := w.ended(unlucky); got.Status != state.Done || got.Attempt != 1 || got.Retries != 1 {
			t.Errorf("it is %s after attempt %d and %d retries: %s", got.Status, got.Attempt, got.Retries, got.Error)
		}
		w.expect(w.ended(broken), state.Failed, state.ClassExit)
		if n := runs.Load(); n > 4 {
			t.Errorf("%d runs of a task that always fails", n)
		}
	})
}

// TestShortageOfAStep: neither a verify command nor an evaluator that cannot be started for
// want of something is left out, and what the agent has answered is not asked for again.
func TestShortageOfAStep(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]state.Status{0: state.Done, 1: state.Failed} {
		synctest.Test(t, func(t *testing.T) {
			w := newJudgeWorld(t)
			w.cfg.MaxIterations = 1
			checks, judged := 0, 0
			w.cfg.Shell = &fakeShell{do: func(context.Context, task.VerifyRun) task.VerifyResult {
				if checks++; checks <= 2 {
					return task.VerifyResult{Class: state.ClassInterrupted, ExitCode: -1, Shortage: syscall.EAGAIN}
				}
				return task.VerifyResult{ExitCode: code, Error: "checked"}
			}}
			w.judge = func(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
				if judged++; judged <= 3 {
					return short(syscall.ENOMEM)
				}
				return judges(`{"findings":[{"kind":"wrong","message":"it is wrong"}]}`)(ctx, turn, report)
			}
			w.openUnwatched()
			got := w.ended(w.submit(task.TaskSpec{Prompt: "p", VerifyCommand: "make test"}).ID)
			w.close()
			agent, _ := w.turns()
			if got.Status != want || got.Result != "the answer" || got.Attempt != 1 || got.Retries != 0 || agent != 1 || checks != 3 || judged != 4 || len(got.Findings) != 1 {
				t.Errorf("%s, attempt %d, %d retries, answer %q, findings %v, error %q; %d turns, %d checks, %d evaluations",
					got.Status, got.Attempt, got.Retries, got.Result, got.Findings, got.Error, agent, checks, judged)
			}
		})
	}
}
