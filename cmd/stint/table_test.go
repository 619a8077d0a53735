package main

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"maps"
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

// A goal is a row of the table: a ratio to a limit or to a peer of the same run, or a bound.
type goal struct {
	what    string
	value   func(f figures) float64
	atLeast bool // else at most
	bound   float64
	unit    string
}

// one returns a goal whose value is one figure as it is.
func one(name string) func(figures) float64 { return func(f figures) float64 { return f[name] } }

// over returns a goal whose value is one figure divided by another.
func over(name, limit string) func(figures) float64 {
	return func(f figures) float64 { return f[name] / f[limit] }
}

// suites are the benchmarks that the table needs: package, names, and how long or how often each runs.
var suites = [][3]string{
	{"./coordinator/agent/gate", "ForkExec|Dispatch", "2s"},
	{"./ledger/journal", "Append/.*/waiters=256", "1s"},
	{"./memory", "Search", "1s"},
	{"./cmd/stint", "Start$|CodexTurn|Commands|Submit$|Batch$", "1s"},
	{"./cmd/stint", "Growth|Waiting", "1x"},
}

// goals are the rows.
var goals = []goal{
	{"compaction: longest submit meanwhile", one("Growth compact-worst-submit-ms/100k"), false, 50, "ms"},
	{"compaction: memory over the idle master", one("Growth compact-peak-MB/100k"), false, 150, "MB"},
	{"hand edit: until it counts", one("Growth edit-ms/100k"), false, 400, "ms"}, // of which 100 ms are its rest
	{"hand edit: memory", one("Growth edit-peak-MB/100k"), false, 60, "MB"},
	{"start after a hand edit", over("Growth start-edited-ms/100k", "Growth start-clean-ms/100k"), false, 1.2, "x a clean one"},
	{"start from the text, 3M records", one("Growth start-text-ms/1000k"), false, 3600, "ms"},
	{"start after an orderly end, 3M records", one("Growth start-clean-ms/1000k"), false, 300, "ms"},
	{"gate and agent, 1 worker, over fork+exec", func(f figures) float64 {
		return 1000/f["Dispatch/workers=1 runs/s"] - 1000/f["ForkExec/workers=1 runs/s"]
	}, false, 4, "ms"},
	{"submit to agent started, p50", one("Start stint-p50-ms"), false, 6, "ms"},
	{"submit to agent started, p99", one("Start stint-p99-ms"), false, 15, "ms"},
	{"runs of nothing, 8 workers", over("Dispatch/workers=8 runs/s", "ForkExec/workers=8 runs/s"), true, 0.2, "x fork+exec"},
	{"stint task -d", one("Commands/tasks=10000/task-d x-hello"), false, 2.5, "x a Go hello"},
	{"stint ls", one("Commands/tasks=10000/ls x-hello"), false, 2.5, "x a Go hello"},
	{"stint show", one("Commands/tasks=10000/show x-hello"), false, 2.5, "x a Go hello"},
	{"stint why", one("Commands/tasks=10000/why x-hello"), false, 2.5, "x a Go hello"},
	{"POST of a task, 64 clients", one("Submit x-bare"), true, 0.6, "x decode and answer"},
	{"POST of a task, 64 clients", one("Submit x-river"), true, 3.5, "x River"},
	{"POST of a task, p99", one("Submit p99-ms"), false, 12, "ms"},
	{"batch of 10,000 in the master", one("Batch x-river"), true, 1.6, "x River"},
	{"batch of 10,000 over the socket", over("Batch socket/s", "Batch river/s"), true, 1.2, "x River"},
	{"append, 256 waiters", over("Append/log/waiters=256 records/s", "Append/bare/waiters=256 records/s"), true, 0.55, "x group commit"},
	{"ls -n 0 of 10,000", func(f figures) float64 { return f["Commands/tasks=10000/ls-all ns/op"] / 1e6 }, false, 20, "ms"},
	{"memory search, 1,000 notes, few hits", one("Search/1000_files/few_hits ratio"), false, 1.15, "x rg"},
	{"memory search, 1,000 notes, many hits", one("Search/1000_files/very_many_hits ratio"), false, 1, "x rg"},
	{"turn of the real codex", func(f figures) float64 { return f["CodexTurn stint-p50-ms"] - f["CodexTurn bare-p50-ms"] }, false, 8, "ms over codex"},
}

// BenchmarkTable runs the benchmarks that have targets, in order and alone, and prints a row for each target with the
// medians of STINT_BENCH_COUNT (5) runs, the load of the machine before and after, and then how all grows:
//
//	STINT_BENCH_RIVER=1 go test -run '^$' -bench Table -benchtime 1x -timeout 0 ./cmd/stint
func BenchmarkTable(b *testing.B) {
	all := figures{}
	before := loadNow()
	for _, s := range suites {
		for name, value := range runSuite(b, s) {
			all[name] = value
		}
	}
	b.ReportMetric(0, "ns/op") // all of them together say nothing
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, t := range goals {
		value, verdict := t.value(all), "missed"
		if t.atLeast == (value >= t.bound) || value == t.bound {
			verdict = "met"
		}
		if value != value { // 0/0: a peer is not here
			verdict = "not measured"
		}
		sign := map[bool]string{true: ">=", false: "<="}[t.atLeast]
		_, _ = fmt.Fprintf(w, "%s\t%.3g %s\t%s %g\t%s\n", t.what, value, t.unit, sign, t.bound, verdict) // a buffer takes all
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasSuffix(name, "-exponent") {
			verdict := map[bool]string{true: "met", false: "missed"}[all[name] <= 1.05]
			_, _ = fmt.Fprintf(w, "%s\t%.2f\t<= 1.05\t%s\n", name, all[name], verdict)
		}
	}
	_ = w.Flush()
	b.Logf("load before: %s, after: %s\n%s", before, loadNow(), text.String())
}

// loadNow returns the machine's load of the last minute.
func loadNow() string {
	text, _ := os.ReadFile("/proc/loadavg") // elsewhere it is not known
	one, _, _ := strings.Cut(string(text), " ")
	return cmp.Or(one, "unknown")
}

// runSuite runs benchmarks and returns the median of each of their metrics.
func runSuite(b *testing.B, s [3]string) figures {
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", "^Benchmark("+s[1]+")", "-benchtime", s[2],
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
