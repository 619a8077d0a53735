package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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
	bin := b.TempDir()
	stint, hello := filepath.Join(bin, "stint"), filepath.Join(bin, "hello")
	source := filepath.Join(bin, "hello.go")
	writeBench(b, source, []byte("package main\n\nfunc main() { println(\"hello\") }\n"))
	buildBench(b, stint, ".")
	buildBench(b, hello, source)
	for _, tasks := range []int{0, 10_000, 100_000} {
		w := newBenchWorld(b, stint, tasks)
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
				w.compare(b, exec.Cmd{Path: hello, Args: []string{hello}}, exec.Cmd{Path: stint, Args: append([]string{stint}, strings.Fields(row.args)...)})
			})
		}
	}
}

// A benchRow is a command under the name of its row.
type benchRow struct{ name, args string }

func buildBench(b *testing.B, name, what string) {
	if out, err := exec.Command("go", "build", "-o", name, what).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
}

func writeBench(b *testing.B, name string, data []byte) {
	if err := os.WriteFile(name, data, 0o600); err != nil {
		b.Fatal(err)
	}
}

// A benchWorld is a state directory with a master that starts no tasks.
type benchWorld struct {
	dir string
	env []string
}

func newBenchWorld(b *testing.B, stint string, tasks int) *benchWorld {
	dir := b.TempDir()
	run, err := os.MkdirTemp("", "b") // short, as a socket's path must be
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(run) }) // in the temporary directory
	w := &benchWorld{dir: filepath.Join(dir, "ws")}
	w.env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_RUNTIME_DIR="+run, "STINT_STATE_DIR="+filepath.Join(dir, "state"), "STINT_CONFIG=")
	for _, name := range []string{"ws", "state"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			b.Fatal(err)
		}
	}
	writeBench(b, filepath.Join(dir, "state", "tasks.md"), benchLedger(b, tasks))
	w.serve(b, stint)
	if out, err := w.command(exec.Cmd{Path: stint, Args: []string{stint, "pause"}}).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return w
}

// serve runs a master until the benchmark ends. `stint ls` waits for it.
func (w *benchWorld) serve(b *testing.B, stint string) {
	var log bytes.Buffer
	m := w.command(exec.Cmd{Path: stint, Args: []string{stint, "serve"}})
	m.Stderr = &log
	if err := m.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := m.Process.Signal(syscall.SIGTERM); err != nil {
			b.Error(err)
		}
		if err := m.Wait(); err != nil {
			b.Errorf("%v\n%s", err, log.String())
		}
	})
	if out, err := w.command(exec.Cmd{Path: stint, Args: []string{stint, "ls"}}).CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
}

func (w *benchWorld) command(c exec.Cmd) *exec.Cmd {
	c.Dir, c.Env = w.dir, w.env
	return &c
}

// compare runs two commands in turn and reports the medians.
func (w *benchWorld) compare(b *testing.B, limit, cmd exec.Cmd) {
	var limits, took []time.Duration
	for b.Loop() {
		limits = append(limits, w.time(b, limit))
		took = append(took, w.time(b, cmd))
	}
	slices.Sort(limits)
	slices.Sort(took)
	median, least := took[len(took)/2], limits[len(limits)/2]
	b.ReportMetric(float64(median.Nanoseconds()), "ns/op")
	b.ReportMetric(float64(least.Nanoseconds()), "hello-ns")
	b.ReportMetric(float64(median)/float64(least), "x-hello")
}

func (w *benchWorld) time(b *testing.B, cmd exec.Cmd) time.Duration {
	c := w.command(cmd)
	begun := time.Now()
	if err := c.Run(); err != nil {
		b.Fatalf("%v: %v", cmd.Args, err)
	}
	return time.Since(begun)
}

// benchID gives the id of task i, with a tail that looks like chance.
func benchID(i int) string {
	return fmt.Sprintf("019ab3f0-6f1e-7c3a-9a51-%012x", uint64(i+1)*0x9e3779b97f4a7c15>>16)
}

// benchLedger gives a ledger of tasks that were queued, run and done.
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
