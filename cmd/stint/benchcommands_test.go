package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/ledger"
	"stint/state"
)

// BenchmarkCommands runs commands as a person does, each as a process of its own,
// beside a Go program that prints one line and does nothing else: with a master that
// runs and knows no task, 10,000 and 100,000 that have ended. x-hello is the ratio
// of the medians.
func BenchmarkCommands(b *testing.B) {
	for _, tasks := range []int{0, 10_000, 100_000} {
		w := newBenchWorld(b)
		w.must(os.Mkdir(w.state(), 0o700))
		w.must(os.WriteFile(filepath.Join(w.state(), "tasks.md"), benchLedger(b, tasks), 0o600))
		w.serve()
		w.must(w.command(w.program, "pause").Run())
		hello := filepath.Join(w.dir, "hello")
		w.must(os.WriteFile(hello+".go", []byte("package main\n\nfunc main() { println(\"hello\") }\n"), 0o600))
		w.build(hello, hello+".go")
		id := benchID(tasks / 2)
		rows := []benchRow{
			{"version", "version"}, {"task-d", "task -d -q --agent demo x"}, {"ls", "ls"}, {"show", "show @last"}, {"why", "why @last"},
		}
		if tasks > 0 {
			rows = append(rows, benchRow{"show-old", "show " + id}, benchRow{"why-piece", "why " + shortID(id)})
		}
		if tasks == 10_000 {
			rows = append(rows, benchRow{"ls-all", "ls -n 0"}, benchRow{"ls-all-json", "ls -n 0 --json"})
		}
		for _, row := range rows {
			b.Run(fmt.Sprintf("tasks=%d/%s", tasks, row.name), func(b *testing.B) {
				compare(b, w.command(hello), w.command(w.program, strings.Fields(row.args)...))
			})
		}
	}
}

// A benchRow is a command under the name of its row.
type benchRow struct{ name, args string }

// compare runs two commands in turn and reports the medians.
func compare(b *testing.B, limit, cmd *exec.Cmd) {
	var limits, took []time.Duration
	for b.Loop() {
		limits = append(limits, timed(b, limit))
		took = append(took, timed(b, cmd))
	}
	slices.Sort(limits)
	slices.Sort(took)
	median, least := took[len(took)/2], limits[len(limits)/2]
	b.ReportMetric(float64(median.Nanoseconds()), "ns/op")
	b.ReportMetric(float64(least.Nanoseconds()), "hello-ns")
	b.ReportMetric(float64(median)/float64(least), "x-hello")
}

// timed runs a command like c.
func timed(b *testing.B, c *exec.Cmd) time.Duration {
	again := &exec.Cmd{Path: c.Path, Args: c.Args, Env: c.Env, Dir: c.Dir}
	begun := time.Now()
	if err := again.Run(); err != nil {
		b.Fatalf("%v: %v", c.Args, err)
	}
	return time.Since(begun)
}

// benchID returns the id of task i, with a tail that looks like chance.
func benchID(i int) string {
	return fmt.Sprintf("019ab3f0-6f1e-7c3a-9a51-%012x", uint64(i+1)*0x9e3779b97f4a7c15>>16)
}

// benchLedger returns a ledger of tasks that were queued, run and done.
func benchLedger(b *testing.B, tasks int) []byte {
	text, seq := []byte(ledger.VersionLine+"\n\n"), uint64(0)
	prompt, result := strings.Repeat("Fix the flaky login test. ", 16), strings.Repeat("The test waited for a timer. ", 16)
	add := func(i int, fields ...string) {
		seq++
		r := &ledger.Record{Kind: ledger.KindTask, ID: benchID(i), Seq: seq}
		for j := 0; j < len(fields); j += 2 {
			r.Add(fields[j], fields[j+1])
		}
		sec, err := ledger.Encode(r)
		if err != nil {
			b.Fatal(err)
		}
		text = append(text, sec.Raw...)
	}
	begun := time.Now().Add(-time.Hour)
	for i := range tasks {
		now := state.FormatTime(begun.Add(time.Duration(i) * time.Millisecond))
		add(i, "status", "queued", "sessionKey", fmt.Sprint("s", i%10), "workspace", "/home/ana/shop", "agent", "codex",
			"createdAt", now, "updatedAt", now, "prompt", prompt)
		add(i, "status", "running", "runId", strings.Replace(benchID(i), "7c3a", "7aaa", 1), "attempt", "1", "updatedAt", now)
		add(i, "status", "done", "exitCode", "0", "inputTokens", "12345", "updatedAt", now, "result", result)
	}
	return text
}
