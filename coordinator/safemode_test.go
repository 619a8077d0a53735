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
		bubble(t, tc.name, func(t *testing.T) {
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
				w.close()
				w.openUnwatched()
				more := w.submit(task.TaskSpec{Prompt: "more", Parallel: true}).ID
				if why := w.why(more); !strings.Contains(why, "safe mode: 5 masters died") || len(w.agent.turns) > 0 || w.task(id).Status != state.Queued {
					t.Errorf("%d runs; why: %s", len(w.agent.turns), why)
				}
				check(t, w.c.Resume(t.Context(), "client"))
				w.expect(w.ended(more), state.Done, "")
			}
			w.expect(w.ended(id), state.Done, "")
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
