package metrics

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/task"
	"stint/state"
	"stint/state/jobs"
)

// someMetrics are metrics of a master that has done something of everything.
func someMetrics() task.Metrics {
	h := task.NewHistogram([]float64{0.001, 0.01})
	for _, v := range []float64{0.0005, 0.001, 0.002, 3} {
		h.Observe(v)
	}
	return task.Metrics{
		Start: time.Unix(1_795_000_000, 5e8), Version: `1.2 "x"`,
		Tasks: map[state.Status]int{state.Queued: 100_000, state.Running: 3, state.Done: 7}, Held: 2, OldestWait: 90 * time.Second,
		MaxWorkers: 4, MaxQueued: 200_000, Paused: true, Findings: 1, JournalSize: 12_345_678,
		Mirror:   &task.MirrorStatus{Target: "x", State: task.MirrorFollowing, Seq: 9, LagRecords: 4, LagSeconds: 1.5, Rows: 100, Failures: 2, LastError: "y"},
		Shared:   &task.SharedStatus{IsUp: true, Tasks: map[string]int{"queued": 12, "running": 2}, Oldest: 90 * time.Second, Workers: make([]task.WorkerRow, 3)},
		Accounts: []task.AccountMetrics{{Name: "claude", Cooling: true}, {Name: "codex", Held: true}},
		Counted: task.Counted{
			Added:      12,
			Outcomes:   map[task.Ending]uint64{{Status: state.Done}: 7, {Status: state.Failed, Reason: "timeout"}: 2, {Status: state.Failed, Reason: "exit"}: 1},
			Retries:    map[task.Retry]uint64{task.RetryAttempt: 4},
			RateLimits: map[string]uint64{"codex": 3, "claude": 1},
			Usage: map[task.Spender]state.Usage{
				{Agent: "codex", Model: "o9\n"}: {InputTokens: 1000, CachedInputTokens: 400, OutputTokens: 50, ReasoningTokens: 5, CostUSD: 0.25},
				{Agent: "claude"}:               {InputTokens: 1},
			},
			Commits: h, Sync: h, Append: h, Failures: 1,
		},
	}
}

var someJobs = jobs.Metrics{Due: 2, LagSeconds: 1.5, SuccessRate: 0.75, RetryRate: 0.5, DeadLetters: 3}

var update = flag.Bool("update", false, "write the golden file anew")

// TestExpositionIsAsBefore pins names, labels, help texts and the escaping of labels.
func TestExpositionIsAsBefore(t *testing.T) {
	m := someMetrics()
	got, _, _ := strings.Cut(string(Text(&m, &someJobs)), "# HELP process_start_time_seconds") // what follows differs from machine to machine
	got = strings.ReplaceAll(got, runtime.Version(), "goX")
	golden := filepath.Join("testdata", "metrics.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); go test ./coordinator/api/metrics -update, if this is meant:\n%s", golden, diff)
	}
}

// valuesOf returns the samples of m by name and labels.
func valuesOf(t *testing.T, m *task.Metrics) map[string]float64 {
	t.Helper()
	values := map[string]float64{}
	for line := range strings.Lines(string(Text(m, &someJobs))) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		values[line[:at]] = v
	}
	return values
}

// TestProcessMetrics: the figures of the process are there and can be true.
func TestProcessMetrics(t *testing.T) {
	m := someMetrics()
	values := valuesOf(t, &m)
	for name, least := range map[string]float64{
		"process_start_time_seconds": 1_795_000_000.5, "process_cpu_seconds_total": 0.000_001, "process_open_fds": 3, "process_max_fds": 16,
		"go_goroutines": 2, "go_memstats_heap_alloc_bytes": 100_000, "go_memstats_sys_bytes": 1_000_000, "go_memstats_alloc_bytes_total": 100_000,
	} {
		if got, ok := values[name]; !ok || got < least {
			t.Errorf("%s is %g, %v; at least %g", name, got, ok, least)
		}
	}
	if resident, ok := values["process_resident_memory_bytes"]; runtime.GOOS == "linux" && (!ok || resident < 1<<20 || resident > values["process_virtual_memory_bytes"]) {
		t.Errorf("resident memory: %g", resident)
	}
}

// TestMetricsOfACopy: whether its database can be used, and nothing where there is no copy.
func TestMetricsOfACopy(t *testing.T) {
	m := someMetrics()
	for state, up := range map[task.MirrorState]float64{
		task.MirrorConnecting: 0, task.MirrorFailing: 0, task.MirrorRebuilding: 1, task.MirrorFollowing: 1,
	} {
		m.Mirror = &task.MirrorStatus{State: state}
		if got := valuesOf(t, &m)["stint_postgres_up"]; got != up {
			t.Errorf("up is %g while it is %s", got, state)
		}
	}
	m.Shared.IsUp = false
	if values := valuesOf(t, &m); values["stint_shared_up"] != 0 || strings.Contains(fmt.Sprint(values), "stint_shared_tasks") {
		t.Errorf("of a queue of which nothing is known: %v", values)
	}
	m.Mirror, m.Shared = nil, nil
	if text := string(Text(&m, &someJobs)); strings.Contains(text, "stint_postgres") || strings.Contains(text, "stint_shared") {
		t.Error("there are metrics of a copy that nobody wants")
	}
}
