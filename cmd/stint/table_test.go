package main

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
)

// figures are what the metrics of benchmarks came to: "Dispatch/workers=1 runs/s".
type figures map[string]float64

// of returns a figure; one that was not measured is no number.
func (f figures) of(name string) float64 {
	if value, ok := f[name]; ok {
		return value
	}
	return math.NaN()
}

// A goal is a row of the table: a ratio to a limit or to a peer of the same run, or a bound.
type goal struct {
	what    string
	value   func(f figures) float64
	atLeast bool // else at most
	bound   float64
	unit    string
	kept    float64 // the bound that .ci/run keeps, with room for a busy machine; 0 where a figure is not stable enough
}

// meets reports whether a value is within a bound; what is no number is not.
func (g goal) meets(value, bound float64) bool {
	if g.atLeast {
		return value >= bound
	}
	return value <= bound
}

// one returns a goal whose value is one figure as it is.
func one(name string) func(figures) float64 { return func(f figures) float64 { return f.of(name) } }

// over returns a goal whose value is one figure divided by another.
func over(name, limit string) func(figures) float64 {
	return func(f figures) float64 { return f.of(name) / f.of(limit) }
}

// suites are the benchmarks that the table needs: package, names, how long or how often each runs, and the names of those
// whose figures .ci/run keeps.
var suites = [][4]string{
	{"./coordinator/agent/gate", "Dispatch", "2s", ""},
	{"./coordinator/api/web", "Page", "3x", "Page"},
	{"./ledger/journal", "Append/.*/sync=0s/waiters=256", "1s", ""},
	{"./memory", "Search", "1s", "Search/1000_files/(few|very_many)_hits"},
	{"./cmd/stint", "Start$|CodexTurn|Commands|Submit$|Batch$", "1s", "Commands/tasks=10000$"},
	{"./cmd/stint", "Shared$", "5x", ""},
	{"./cmd/stint", "Growth|Waiting|TinyTask|Thinking", "1x", "Growth|TinyTask|Thinking"},
}

// goals are the rows.
var goals = []goal{
	{"compaction: longest submit meanwhile", one("Growth compact-worst-submit-ms/100k"), false, 50, "ms", 1000},
	{"compaction: memory over the idle master", one("Growth compact-peak-MB/100k"), false, 150, "MB", 200},
	{"compaction: ledger and archive after it", over("Growth disk-compacted-KB/100k", "Growth disk-KB/100k"), false, 1, "x before", 1},
	{"hand edit: until it counts", one("Growth edit-ms/100k"), false, 400, "ms", 2000}, // of which 100 ms are its rest
	{"hand edit: memory", one("Growth edit-peak-MB/100k"), false, 60, "MB", 60},
	{"start after a hand edit", over("Growth start-edited-ms/100k", "Growth start-clean-ms/100k"), false, 1.2, "x a clean one", 0},
	{"start from the text, 3M records", one("Growth start-text-ms/1000k"), false, 3600, "ms", 0},
	{"start after an orderly end, 3M records", one("Growth start-clean-ms/1000k"), false, 300, "ms", 0},
	{"a tiny task on disk", one("TinyTask KB/task"), false, 12, "KB", 24},
	{"a tiny task on disk", one("TinyTask inodes/task"), false, 4, "inodes", 6},
	{"1,000 tiny tasks from one spec", func(f figures) float64 { return 1000 / f.of("TinyTask stint/s") }, false, 3, "s", 0},
	{"1,000 tiny tasks, task-spooler's time", one("TinyTask x-tsp"), true, 1, "x stint's", 0},
	{"1,000 tiny tasks, nq's time", one("TinyTask x-nq"), true, 1, "x stint's", 0},
	{"gate and agent, 1 worker, over fork+exec", one("Dispatch/stint-gate/workers=1 more-ms"), false, 4, "ms", 0},
	{"submit to agent started, p50", one("Start stint-p50-ms"), false, 6, "ms", 0},
	{"submit to agent started, p99", one("Start stint-p99-ms"), false, 15, "ms", 0},
	{"runs of nothing, 8 workers", one("Dispatch/stint-gate/workers=8 x-forkexec"), true, 0.2, "x fork+exec", 0},
	{"stint task -d", one("Commands/tasks=10000/task-d x-hello"), false, 2.5, "x a Go hello", 12},
	{"stint ls", one("Commands/tasks=10000/ls x-hello"), false, 2.5, "x a Go hello", 12},
	{"stint show", one("Commands/tasks=10000/show x-hello"), false, 2.5, "x a Go hello", 12},
	{"stint why", one("Commands/tasks=10000/why x-hello"), false, 2.5, "x a Go hello", 12},
	{"POST of a task, 64 clients", one("Submit x-bare"), true, 0.6, "x decode and answer", 0},
	{"POST of a task, 64 clients", one("Submit x-river"), true, 3.5, "x River", 0},
	{"POST of a task, p99", one("Submit p99-ms"), false, 12, "ms", 0},
	{"batch of 10,000 in the master", one("Batch x-river"), true, 1.6, "x River", 0},
	{"batch of 10,000 over the socket", over("Batch socket/s", "Batch river/s"), true, 1.2, "x River", 0},
	{"shared queue: insert, 8 clients", one("Shared/insert/clients=8 x-river"), true, 1, "x River", 0},
	{"shared queue: insert, batches of 100", one("Shared/insert/batch=100 x-river"), true, 1, "x River", 0},
	{"shared queue: insert, batches of 1,000", one("Shared/insert/batch=1000 x-river"), true, 1, "x River", 0},
	{"shared queue: queued to begun, p50", one("Shared/wake x-river-p50"), true, 1, "x River", 0},
	{"shared queue: queued to begun, p99", one("Shared/wake x-river-p99"), true, 1, "x River", 0},
	{"shared queue: runs of nothing, 8 slots", one("Shared/work/slots=8 x-river"), true, 0.25, "x River", 0},
	{"shared queue: runs of nothing, 100 slots", one("Shared/work/slots=100 x-river"), true, 0.25, "x River", 0},
	{"append, 256 waiters", over("Append/log/sync=0s/waiters=256 records/s", "Append/bare/sync=0s/waiters=256 records/s"), true, 0.55, "x group commit", 0},
	{"8 agents that only think", one("Thinking core-%"), false, 0.3, "% of a core", 2},
	{"8 agents that only think", one("Thinking switches/s/agent"), false, 10, "switches/s each", 30},
	{"ls -n 0 of 10,000", func(f figures) float64 { return f.of("Commands/tasks=10000/ls-all ns/op") / 1e6 }, false, 20, "ms", 1000},
	{"usage, 100,000 tasks", one("Growth usage-ms/100k"), false, 30, "ms", 200},
	{"usage, 1,000,000 tasks", one("Growth usage-ms/1000k"), false, 30, "ms", 0},
	{"memory search, 1,000 notes, few hits", one("Search/1000_files/few_hits ratio"), false, 1.15, "x rg", 2.5},
	{"memory search, 1,000 notes, many hits", one("Search/1000_files/very_many_hits ratio"), false, 1, "x rg", 2},
	{"turn of the real codex", func(f figures) float64 { return f.of("CodexTurn stint-p50-ms") - f.of("CodexTurn bare-p50-ms") }, false, 8, "ms over codex", 0},
	{"first load of the page", one("Page KB"), false, 25, "KB", 25},
}

// BenchmarkTable runs the benchmarks that have targets, in order and alone, and prints a row for each target with the
// medians of STINT_BENCH_COUNT (5) runs, the load of the machine before and after, and then how all grows:
//
//	STINT_BENCH_RIVER=1 go test -run '^$' -bench Table -benchtime 1x -timeout 0 ./cmd/stint
//
// With STINT_BENCH_KEPT=1 it runs only those whose figures are stable, and fails where one is beyond the bound that is kept.
func BenchmarkTable(b *testing.B) {
	all, before, kept := figures{}, loadNow(), os.Getenv("STINT_BENCH_KEPT") != ""
	for _, s := range suites {
		if kept {
			s[1] = s[3]
		}
		if s[1] != "" {
			maps.Copy(all, runSuite(b, s))
		}
	}
	b.ReportMetric(0, "ns/op") // all of them together say nothing
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, g := range goals {
		value, verdict := g.value(all), "missed"
		if g.meets(value, g.bound) {
			verdict = "met"
		}
		if math.IsNaN(value) { // a peer is not here
			verdict = "not measured"
		}
		if kept && g.kept == 0 {
			continue
		}
		if kept && !g.meets(value, g.kept) {
			b.Errorf("%s: %.3g %s, and %g is kept", g.what, value, g.unit, g.kept)
		}
		sign := map[bool]string{true: ">=", false: "<="}[g.atLeast]
		_, _ = fmt.Fprintf(w, "%s\t%.3g %s\t%s %g\t%s\n", g.what, value, g.unit, sign, g.bound, verdict) // a buffer takes all
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasSuffix(name, "-exponent") {
			verdict := map[bool]string{true: "met", false: "missed"}[all[name] <= 1.05]
			_, _ = fmt.Fprintf(w, "%s\t%.2f\t<= 1.05\t%s\n", name, all[name], verdict)
		}
	}
	_ = w.Flush()
	fmt.Printf("load before: %s, after: %s\n%s", before, loadNow(), text.String()) // what a benchmark logs is cut after ten lines
}

// loadNow returns the machine's load of the last minute.
func loadNow() string {
	text, _ := os.ReadFile("/proc/loadavg") // elsewhere it is not known
	one, _, _ := strings.Cut(string(text), " ")
	return cmp.Or(one, "unknown")
}

// runSuite runs benchmarks and returns the median of each of their metrics.
func runSuite(b *testing.B, s [4]string) figures {
	pattern := strings.ReplaceAll("^Benchmark("+s[1]+")", "/", ")/(") // each level of names is a pattern of its own
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", pattern, "-benchtime", s[2],
		"-count", cmp.Or(os.Getenv("STINT_BENCH_COUNT"), "5"), "-timeout", "0", s[0])
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	rounds := map[string][]float64{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(words[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 { // the number of processors
			name = name[:i]
		}
		for i := 2; i+1 < len(words); i += 2 {
			value, err := strconv.ParseFloat(words[i], 64)
			must(b, err)
			rounds[name+" "+words[i+1]] = append(rounds[name+" "+words[i+1]], value)
		}
	}
	medians := figures{}
	for name, values := range rounds {
		slices.Sort(values)
		medians[name] = values[len(values)/2]
	}
	return medians
}
