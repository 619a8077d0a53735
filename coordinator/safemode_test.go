package coordinator_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// TestSafeMode: masters die one after the other, each soon after it had started a
// run. The fifth time within a minute the next one takes tasks in and starts none, which
// holds over restarts and until resume. Fewer deaths, or slower ones, or with a clean
// end between them, do not count.
func TestSafeMode(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		deaths int
		life   time.Duration // of each master
		clean  int           // this one ends cleanly; 0: none
		limit  int
		safe   bool
	}{
		{"five in a row", 5, 10 * time.Second, 0, 5, true},
		{"four", 4, time.Second, 0, 5, false},
		{"five, slowly", 5, 15 * time.Second, 0, 5, false},
		{"five, with a clean end", 5, time.Second, 3, 5, false},
		{"turned off", 5, time.Second, 0, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.cfg.CrashLoop, w.cfg.MaxRetries = tc.limit, 5
				w.hangs()
				w.openUnwatched()
				id := w.submit(task.TaskSpec{Prompt: "p"}).ID
				for n := 1; n <= tc.deaths; n++ {
					time.Sleep(tc.life)
					if w = w.dies(n == tc.clean); n < tc.deaths {
						w.openUnwatched()
					}
				}
				w.agent.do = answer("fine")
				w.openUnwatched()
				time.Sleep(time.Minute)
				if h := w.c.Health(); h.Paused != tc.safe || strings.Contains(h.PauseWhy, "safe mode") != tc.safe {
					t.Errorf("paused %v: %s", h.Paused, h.PauseWhy)
				}
				if tc.safe {
					w.resumes(id)
				}
				w.expect(w.ended(id), state.Done, "")
			})
		})
	}
}

// hangs makes the agent work until it is ended.
func (w *world) hangs() {
	w.agent.do = func(ctx context.Context, _ task.Turn, _ func(task.Event)) task.Outcome {
		<-ctx.Done()
		return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1}
	}
}

// dies returns a world with what a kill -9 of the master leaves, or its clean end.
func (w *world) dies(cleanly bool) *world {
	synctest.Wait()
	next := newWorld(w.t)
	next.cfg.CrashLoop, next.cfg.MaxRetries, next.agent.do = w.cfg.CrashLoop, w.cfg.MaxRetries, w.agent.do
	if cleanly {
		w.close()
	}
	next.copies(w)
	if !cleanly {
		w.close()
	}
	return next
}

// resumes expects that a master in safe mode takes tasks in, says why it starts none,
// still does so after a restart, and goes on after resume.
func (w *world) resumes(id string) {
	w.t.Helper()
	more := w.submit(task.TaskSpec{Prompt: "more", Parallel: true}).ID
	for range 2 {
		why, err := w.c.Why(more)
		if err != nil || !strings.Contains(why, "safe mode: 5 masters died") || !strings.HasSuffix(why, "stint resume") || len(w.agent.turns) > 0 {
			w.t.Errorf("%d runs; why: %s, %v", len(w.agent.turns), why, err)
		}
		w.close()
		w.openUnwatched()
	}
	if got := w.task(id); got.Status != state.Queued {
		w.t.Errorf("the task that ran is %s", got.Status)
	}
	if err := w.c.Resume(context.Background(), "client"); err != nil {
		w.t.Error(err)
	}
	w.expect(w.ended(more), state.Done, "")
}
