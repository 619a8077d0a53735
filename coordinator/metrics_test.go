package coordinator_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// countedWorld is a world in which one task after the other runs, and ends as its prompt
// says: with a class, or well; "once" after it: the first time only.
func countedWorld(t *testing.T) *world {
	w := limitedWorld(t)
	w.cfg.MaxWorkers = 1
	tried := map[string]bool{}
	w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
		class, once := strings.CutSuffix(w.sent(len(w.agent.turns)-1), " once")
		if class == "fine" || once && tried[turn.TaskID] {
			return task.Outcome{Result: "fine", Session: "native", Usage: state.Usage{InputTokens: 100, CachedInputTokens: 40, OutputTokens: 20, ReasoningTokens: 5, CostUSD: 0.5}}
		}
		tried[turn.TaskID] = true
		return task.Outcome{Class: state.Class(class), ExitCode: 1, Error: class, Usage: state.Usage{InputTokens: 1}}
	}
	return w
}

// counted writes down what was counted of tasks, sorted.
func counted(m task.Metrics) string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	add("added %d", m.Added)
	for e, n := range m.Outcomes {
		add("%s %q %d", e.Status, e.Reason, n)
	}
	for kind, n := range m.Retries {
		add("retry %s %d", kind, n)
	}
	for name, n := range m.RateLimits {
		add("limit %s %d", name, n)
	}
	for who, u := range m.Usage {
		add("usage %s %q %d %d %d %d %g", who.Agent, who.Model, u.InputTokens, u.CachedInputTokens, u.OutputTokens, u.ReasoningTokens, u.CostUSD)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestMetricsCountWhatHappens: each kind of end, retry and limit counts once, and tokens
// by agent and model; a restart and a compaction count nothing again.
func TestMetricsCountWhatHappens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := countedWorld(t)
		w.openUnwatched()
		for _, prompt := range []string{"fine", "exit", "network once", "rate-limited once"} {
			w.ended(w.submit(task.TaskSpec{Prompt: prompt}).ID)
		}
		for _, prompt := range []string{"fine", "session-lost once"} {
			w.ended(w.submit(task.TaskSpec{Prompt: prompt, Model: "o9", SessionKey: "web"}).ID)
		}
		held := w.submit(task.TaskSpec{Prompt: "fine", Hold: true, SessionKey: "a"}).ID
		byHand := w.submit(task.TaskSpec{Prompt: "fine", Hold: true, SessionKey: "a"}).ID
		w.cancel(held)
		w.reconcile("## Task %s\n- status: canceled\n", byHand)
		const want = `added 8
canceled "canceled" 2
done "" 5
failed "exit" 1
limit demo 1
retry attempt 1
retry session 1
usage demo "" 303 120 60 15 1.5
usage demo "o9" 201 80 40 10 1`
		first := w.c.Metrics()
		if diff := cmp.Diff(want, counted(first)); diff != "" {
			t.Errorf("counted:\n%s", diff)
		}
		w.compact(0)
		if got := counted(w.c.Metrics()); got != counted(first) {
			t.Errorf("after a compaction\n%s", got)
		}
		if _, err := w.c.Retry(t.Context(), held, "client"); err != nil { // which brings it back from the archive
			t.Error(err)
		}
		w.expect(w.ended(held), state.Done, "")
		if got := w.c.Metrics(); got.Added != first.Added || got.Outcomes[task.Ending{Status: state.Done}] != 6 {
			t.Errorf("after the compaction a task is counted as\n%s", counted(got))
		}
		w.close()

		w.openUnwatched()
		if got := counted(w.c.Metrics()); got != "added 0" {
			t.Errorf("a restart has counted\n%s", got)
		}
		w.ended(w.submit(task.TaskSpec{Prompt: "fine"}).ID)
		if got := w.c.Metrics(); got.Added != 1 || got.Outcomes[task.Ending{Status: state.Done}] != 1 {
			t.Errorf("after the restart\n%s", counted(got))
		}
	})
}

// TestMetricsCountInterruptions: what the last master was killed in counts for the one that queues it again.
func TestMetricsCountInterruptions(t *testing.T) {
	t.Parallel()
	next, id := interrupted(t)
	next.open()
	next.wait(id)
	if got := next.c.Metrics(); got.Retries[task.RetryInterrupted] != 1 || got.Added != 0 {
		t.Errorf("counted\n%s", counted(got))
	}
	next.close()
}

// TestMetricsNamesAreBounded: no name that a user may choose freely is shown, and only so many models are.
func TestMetricsNamesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := countedWorld(t)
		check(t, durable.MkdirAll(durable.OS, w.dir))
		hand := "## Task hand\n- status: queued\n- agent: demo\n- account: secret\n- model: my secret plan\n- workspace: " + w.work + "\n- prompt: rate-limited once\n"
		check(t, os.WriteFile(filepath.Join(w.dir, "tasks.md"), []byte(hand), durable.FileMode))
		w.openUnwatched()
		w.ended("hand")
		for i := range 60 {
			w.ended(w.submit(task.TaskSpec{Prompt: "fine", Model: fmt.Sprint("model-", i)}).ID)
		}
		m := w.c.Metrics()
		w.close()
		if m.RateLimits[task.Other] != 1 || len(m.RateLimits) != 1 {
			t.Errorf("limits are shown for %v", slices.Sorted(maps.Keys(m.RateLimits)))
		}
		if u := m.Usage[task.Spender{Agent: "demo", Model: task.Other}]; len(m.Usage) != 51 || u.InputTokens != 1101 {
			t.Errorf("%d models are told apart, and the others have used %d tokens", len(m.Usage), u.InputTokens)
		}
	})
}

// TestMetricsAsItStands: what waits, for how long, and what stands in its way.
func TestMetricsAsItStands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := countedWorld(t)
		w.openUnwatched()
		w.ended(w.submit(task.TaskSpec{Prompt: "fine"}).ID)
		w.submit(task.TaskSpec{Prompt: "rate-limited once"})
		synctest.Wait()
		hasty := w.submit(task.TaskSpec{Prompt: "fine", NoWaitLimit: true}).ID
		w.expect(w.ended(hasty), state.Failed, state.ClassRateLimited) // without a run: it has met no limit itself
		check(t, w.c.Pause(t.Context(), "", "client"))
		w.submit(task.TaskSpec{Prompt: "fine", Hold: true})
		time.Sleep(10 * time.Second)
		m := w.c.Metrics()
		want := map[state.Status]int{state.Done: 1, state.Failed: 1, state.Queued: 2}
		accounts := []task.AccountMetrics{{Name: "demo", Cooling: true}}
		if !maps.Equal(m.Tasks, want) || m.Held != 1 || !m.Paused || m.MaxWorkers != 1 || !slices.Equal(m.Accounts, accounts) || m.RateLimits["demo"] != 1 {
			t.Errorf("%+v", m)
		}
		if m.OldestWait != 10*time.Second { // a cool-down is the account's: the task waits for its turn
			t.Errorf("the oldest waits for %s", m.OldestWait)
		}
		if m.JournalSize == 0 || m.Sync.Sum != 0 || m.Commits.Sum < 6 || sum(m.Append) < 6 || sum(m.Sync) != sum(m.Commits) || m.Failures != 0 {
			t.Errorf("the journal has %d bytes; %v %v %v", m.JournalSize, m.Commits, m.Sync, m.Append)
		}
	})
}

func sum(h task.Histogram) (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// TestHealthStatus: one word says whether tasks are taken in and started, and readiness is about the first.
func TestHealthStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, d := countedWorld(t), &fullDisk{FS: durable.OS}
		w.openOn(d)
		expect := func(status task.HealthStatus, unready task.Code) {
			t.Helper()
			if h, err := w.c.Health(), w.c.Unready(); h.Status != status || code(err) != unready {
				t.Errorf("the master is %q, want %q; unready: %v, want code %q", h.Status, status, err, unready)
			}
		}
		expect(task.HealthOK, "")
		check(t, w.c.Pause(t.Context(), "", "client"))
		expect(task.HealthPaused, "")
		d.full.Store(true)
		_, err := w.try(task.TaskSpec{Prompt: "fine"})
		if m := w.c.Metrics(); code(err) != task.CodeFull || m.Failures != 1 {
			t.Errorf("%v, %d failures", err, m.Failures)
		}
		expect(task.HealthFailing, task.CodeFull)
		time.Sleep(time.Minute) // nobody has tried meanwhile
		expect(task.HealthPaused, "")
		d.full.Store(false)
		check(t, w.c.Resume(t.Context(), "client"))
		expect(task.HealthOK, "")
		check(t, w.c.Handover(t.Context()))
		expect(task.HealthEnding, task.CodeStopped)
	})
}
