package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stint/coordinator/query"
	"stint/coordinator/task"
	"stint/state"
)

// TestReadUsage: figures are the same while a master works, after it, after a
// compaction, with tasks in the archive and with one that was brought back.
func TestReadUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Agents["claude"] = w.agent
	next := map[string][]task.Outcome{
		taskID(0): {
			{Class: state.ClassNetwork, ExitCode: 1, Usage: state.Usage{InputTokens: 100, OutputTokens: 10, CostUSD: 0.1}},
			{Result: "ok", Usage: state.Usage{InputTokens: 50, CachedInputTokens: 20, OutputTokens: 5, CostUSD: 0.2}},
		},
		taskID(1): {{Result: "ok", Usage: state.Usage{InputTokens: 1000, OutputTokens: 1}}},
		taskID(3): {{Result: "ok"}},
		taskID(2): {{Class: state.ClassExit, ExitCode: 1}, {Result: "ok", Usage: state.Usage{OutputTokens: 7}}},
	}
	w.agent.do = func(_ context.Context, turn task.Turn, _ func(task.Event)) task.Outcome {
		out := next[turn.TaskID][0]
		next[turn.TaskID] = next[turn.TaskID][1:]
		return out
	}
	w.open()
	ctx := context.Background()
	run := func(i int, spec task.TaskSpec) {
		t.Helper()
		spec.ID, spec.Prompt = taskID(i), "p"
		w.submit(spec)
		w.wait(spec.ID)
	}
	run(0, task.TaskSpec{SessionKey: "web", Model: "m1"})
	run(1, task.TaskSpec{SessionKey: "web", Agent: "claude"})
	run(2, task.TaskSpec{Parallel: true})
	run(3, task.TaskSpec{Parallel: true})
	expect := func(q task.UsageQuery, want ...string) {
		t.Helper()
		rows, err := query.ReadUsage(ctx, w.dir, q)
		got := []string{}
		for _, r := range rows {
			got = append(got, fmt.Sprintf("%s %d/%d %d+%d $%v", r.Key, r.Runs, r.Tasks, r.InputTokens, r.OutputTokens, r.CostUSD))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("by %s: got %q, %v, want %q", q.By, got, err, want)
		}
	}
	expect(task.UsageQuery{}, " 5/4 1150+16 $0.3")
	expect(task.UsageQuery{By: "task"}, taskID(1)+" 1/1 1000+1 $0", taskID(0)+" 2/1 150+15 $0.3", taskID(2)+" 1/1 0+0 $0", taskID(3)+" 1/1 0+0 $0")
	expect(task.UsageQuery{By: "session"}, "web 3/2 1150+16 $0.3", " 2/2 0+0 $0") // tasks with lanes of their own are one row
	expect(task.UsageQuery{By: "agent"}, "claude 1/1 1000+1 $0", "demo 4/3 150+15 $0.3")
	expect(task.UsageQuery{By: "account"}, "claude 1/1 1000+1 $0", "demo 4/3 150+15 $0.3")
	expect(task.UsageQuery{By: "model"}, " 3/3 1000+1 $0", "m1 2/1 150+15 $0.3")
	first, second := w.agent.turns[0].RunID, w.agent.turns[1].RunID
	if runs, err := query.ReadUsage(ctx, w.dir, task.UsageQuery{By: "run"}); err != nil || len(runs) != 5 ||
		runs[1].Key != first || runs[1].OutputTokens != 10 || runs[2].Key != second || runs[2].OutputTokens != 5 || runs[2].CachedInputTokens != 20 {
		t.Errorf("by run: %+v, %v", runs, err)
	}
	w.compact(0)
	expect(task.UsageQuery{}, " 5/4 1150+16 $0.3")
	expect(task.UsageQuery{By: "agent"}, "claude 1/1 1000+1 $0", "demo 4/3 150+15 $0.3")
	w.retry(taskID(2))
	w.wait(taskID(2))
	expect(task.UsageQuery{By: "session"}, "web 3/2 1150+16 $0.3", " 3/2 0+7 $0")
	w.close()
	expect(task.UsageQuery{}, " 6/4 1150+23 $0.3")
}

// TestReadUsageOfDays: a day is that of the zone that is asked for, and of the end of a run.
func TestReadUsageOfDays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	start := time.Date(2026, 11, 21, 23, 30, 0, 0, time.UTC)
	var now atomic.Pointer[time.Time]
	w.cfg.Now = func() time.Time { return *now.Load() }
	now.Store(&start)
	w.open()
	for hour := range time.Duration(3) {
		at := start.Add(hour * time.Hour)
		now.Store(&at)
		w.wait(w.submit(task.TaskSpec{Prompt: "p"}).ID)
	}
	w.close()
	for _, tc := range []struct {
		q    task.UsageQuery
		want string
	}{
		{task.UsageQuery{}, "2026-11-22:2 2026-11-21:1"},
		{task.UsageQuery{Location: time.FixedZone("", 3600)}, "2026-11-22:3"},
		{task.UsageQuery{Location: time.FixedZone("", -3600)}, "2026-11-22:1 2026-11-21:2"},
		{task.UsageQuery{Since: start.Add(time.Hour)}, "2026-11-22:2"},
		{task.UsageQuery{Until: start.Add(time.Hour)}, "2026-11-21:1"},
		{task.UsageQuery{Since: start.Add(time.Hour), Until: start.Add(2 * time.Hour)}, "2026-11-22:1"},
	} {
		tc.q.By = "day"
		rows, err := query.ReadUsage(context.Background(), w.dir, tc.q)
		var got []string
		for _, r := range rows {
			got = append(got, fmt.Sprintf("%s:%d", r.Key, r.Runs))
		}
		if strings.Join(got, " ") != tc.want || err != nil {
			t.Errorf("%+v: got %q, %v, want %q", tc.q, got, err, tc.want)
		}
	}
}

// An asked context ends with the n-th time that somebody asks whether it has ended.
type asked struct {
	context.Context
	n int
}

func (a *asked) Err() error {
	if a.n--; a.n <= 0 {
		return context.Canceled
	}
	return nil
}

// TestReadUsageEnds: where every run is read it ends wherever it is when nobody waits for it any more: within
// the file, between records, tasks and those of the archive, whether they ran or not.
func TestReadUsageEnds(t *testing.T) {
	t.Parallel()
	const tasks, archived = 20, 5
	w := openWorld(t)
	for range archived {
		w.wait(w.submit(task.TaskSpec{Prompt: "p"}).ID)
	}
	w.compact(0)
	for range tasks {
		w.submit(task.TaskSpec{Prompt: "p", Hold: true})
	}
	w.close()
	const most = 1 << 20
	whole := &asked{context.Background(), most}
	if _, err := query.ReadUsage(whole, w.dir, task.UsageQuery{By: "run"}); err != nil {
		t.Fatal(err)
	}
	times := most - whole.n
	if least := tasks /* records */ + tasks + archived; times < least {
		t.Fatalf("it asks %d times whether to go on, want %d at least", times, least)
	}
	for n := 1; n <= times; n++ {
		ctx := &asked{context.Background(), n}
		if _, err := query.ReadUsage(ctx, w.dir, task.UsageQuery{By: "run"}); !errors.Is(err, context.Canceled) || ctx.n < -1 {
			t.Errorf("ended at question %d of %d: %v, and %d more questions", n, times, err, -ctx.n)
		}
	}
}
