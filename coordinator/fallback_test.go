package coordinator_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// fallbackWorld has four agents that are all one, and knows which of them ran what.
func fallbackWorld(t *testing.T) (w *world, ran func(task string) []string) {
	w = limitedWorld(t)
	for _, name := range []string{"codex", "claude", "gemini"} {
		w.cfg.Agents[name] = w.agent
	}
	return w, func(task string) (list []string) {
		synctest.Wait()
		raw, err := w.c.Raw(context.Background(), task)
		check(t, err)
		for line := range strings.Lines(string(raw)) {
			if agent, ok := strings.CutPrefix(strings.TrimSpace(line), "- agent: "); ok {
				list = append(list, agent)
			}
		}
		return list
	}
}

func limitedUntil(d time.Duration) task.Outcome {
	return task.Outcome{Class: state.ClassRateLimited, ExitCode: 1, Session: "native-1", Usage: state.Usage{InputTokens: 5}, RetryAt: time.Now().Add(d)}
}

// TestFallback: while its agent is rate-limited, a task goes to the next one that it names, in a new session
// there, and to no other. Later tasks of its session go on with the first agent.
func TestFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ran := fallbackWorld(t)
		w.cfg.AgentReady = func(agent string, _ []string) bool { return agent != "gemini" }
		w.cfg.Models = map[string]string{"claude": "opus"}
		w.script(map[string][]step{taskID(1): {{time.Second, limitedUntil(time.Hour)}}})
		w.openUnwatched()
		spec := task.TaskSpec{ID: taskID(1), IdempotencyKey: "k", Prompt: "p", Agent: "codex", Model: "gpt", SessionKey: "web", Fallback: []string{"gemini", "claude", "demo"}}
		before := w.submit(spec)
		w.submit(task.TaskSpec{ID: taskID(2), Prompt: "p", Agent: "codex", SessionKey: "web"})
		got := w.endsAs(taskID(1), state.Done, "")
		if got.Account != "claude" || got.Model != "opus" || got.SessionID == before.SessionID || !slices.Equal(got.Fallback, []string{"gemini", "demo"}) || strings.Join(ran(taskID(1)), " ") != "codex claude" {
			t.Errorf("it went to %q: %+v", ran(taskID(1)), got)
		}
		if !strings.HasPrefix(got.Note, "codex is rate-limited until ") || !strings.HasSuffix(got.Note, "; claude runs it in a new session") {
			t.Errorf("the note is %q", got.Note)
		}
		spec.ID = ""
		if again, err := w.try(spec); err != nil || again.ID != got.ID {
			t.Errorf("a resend: %v", err)
		}
		if turn := w.agent.turns[1]; turn.Session != "" || turn.Model != "opus" {
			t.Errorf("the second run: %+v", turn)
		}
		if why := w.why(taskID(2)); !strings.HasPrefix(why, "rate-limited: account codex is available again at ") {
			t.Errorf("without a fallback: why %q", why)
		}
		w.expect(w.ended(taskID(2)), state.Done, "")
		if turn := w.agent.turns[2]; turn.Session != "native-1" {
			t.Errorf("the session goes on with %q", turn.Session)
		}
	})
}

// TestFallbackInTurn: a task is handed over when it would start, not before, and not
// to an account that is held, cools down or was just limited and is tried.
func TestFallbackInTurn(t *testing.T) {
	for _, tc := range []struct {
		name         string
		ownTask      bool     // the fallback has a task of its own, with which it is tried
		tried, later []string // whose the tasks are when it has cooled down, and after a second more
	}{
		{"tried with its own", true, []string{"codex", "codex", "codex"}, []string{"claude", "claude", "codex"}},
		{"tried with one of ours", false, []string{"claude", "codex", "codex"}, []string{"claude", "codex", "codex"}},
	} {
		bubble(t, tc.name, func(t *testing.T) {
			w, ran := fallbackWorld(t)
			w.cfg.MaxWorkers = 2
			long := step{10 * time.Minute, task.Outcome{Result: "ok"}}
			w.script(map[string][]step{
				taskID(0): {{time.Second, limitedUntil(time.Hour)}},
				taskID(1): {{time.Second, task.Outcome{Class: state.ClassAuth}}},
				taskID(2): {{time.Second, limitedUntil(30 * time.Minute)}},
				taskID(3): {long}, taskID(4): {long}, taskID(5): {long},
			})
			w.openUnwatched()
			for i, agent := range []string{"codex", "gemini", "claude"} {
				w.submit(task.TaskSpec{ID: taskID(i), Prompt: "p", Agent: agent, Parallel: true})
				time.Sleep(2 * time.Second)
			}
			for i := 3; i < 6; i++ {
				w.submit(task.TaskSpec{ID: taskID(i), Prompt: "p", Agent: "codex", Parallel: true, Fallback: []string{"gemini", "claude"}})
			}
			if !tc.ownTask {
				w.cancel(taskID(2))
			}
			agents := func(want []string) {
				t.Helper()
				for i, agent := range want {
					if got := ran(taskID(i + 3)); got[len(got)-1] != agent {
						t.Errorf("%s is at %s, want %s", taskID(i+3), got[len(got)-1], agent)
					}
				}
			}
			time.Sleep(30*time.Minute - 7*time.Second)
			agents([]string{"codex", "codex", "codex"})
			time.Sleep(1500 * time.Millisecond) // claude has cooled down
			agents(tc.tried)
			time.Sleep(time.Second)
			agents(tc.later)
			time.Sleep(12 * time.Minute)
			agents([]string{"claude", "claude", "claude"})
			for i := 3; i < 6; i++ {
				w.expect(w.ended(taskID(i)), state.Done, "")
			}
		})
	}
}

// TestFallbackIsBusy: a task that does not wait for the limit waits for a fallback that can take
// it and has no place yet.
func TestFallbackIsBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ran := fallbackWorld(t)
		w.cfg.MaxWorkers = 1
		w.script(map[string][]step{
			taskID(0): {{time.Second, limitedUntil(time.Hour)}},
			taskID(1): {{10 * time.Minute, task.Outcome{Result: "ok"}}},
		})
		w.openUnwatched()
		w.submit(task.TaskSpec{ID: taskID(0), Prompt: "p", Agent: "codex", Parallel: true})
		time.Sleep(2 * time.Second)
		w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p", Agent: "claude", Parallel: true})
		w.submit(task.TaskSpec{ID: taskID(2), Prompt: "p", Agent: "codex", Parallel: true, NoWaitLimit: true, Fallback: []string{"claude"}})
		w.endsAs(taskID(2), state.Done, "")
		if got := strings.Join(ran(taskID(2)), " "); got != "codex claude" {
			t.Errorf("it went to %q", got)
		}
		w.cancel(taskID(0))
	})
}
