package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// BenchmarkStart is the time from a submit over the socket until the agent says its
// first word, with a worker that waits, beside a bare fork and exec of the same
// program. The target: p50 at most 6 ms, p99 at most 15 ms.
func BenchmarkStart(b *testing.B) {
	w := newBenchWorld(b)
	said := w.fakeCodex()
	w.serve()
	heard := func() { w.must2(said.Read(make([]byte, 1))) }
	w.sideBySide(func(begin time.Time) time.Duration {
		cmd := exec.Command(filepath.Join(w.dir, "codex"))
		must(w.B, cmd.Start())
		heard()
		took := time.Since(begin)
		must(w.B, cmd.Wait())
		return took
	}, func(begin time.Time) time.Duration {
		id := w.submit("hello")
		heard()
		took := time.Since(begin)
		w.wait(id)
		return took
	})
}

// BenchmarkCodexTurn is a turn of the real codex with a model that answers at once:
// through stint, from the submit to the answer, beside the very command line that
// stint uses. The target: at most 8 ms more, and 5 MB for a run.
func BenchmarkCodexTurn(b *testing.B) {
	codex := realCLIs[0]
	path := codex.find(b)
	w := newBenchWorld(b)
	model := newModelServer(nil)
	b.Cleanup(model.Close)
	more, err := codex.configure(filepath.Join(w.dir, "codex"), model.URL)
	must(w.B, err)
	for name, value := range more {
		w.env = append(w.env, name+"="+value)
	}
	w.env = append(w.env, "STINT_CODEX_BIN="+path, codex.secret+"=secret")
	w.serve()
	run, memory := w.look(w.submit("[[slow:1]] hello"))
	w.sideBySide(func(begin time.Time) time.Duration {
		cmd := &exec.Cmd{Path: run.Argv[0], Args: run.Argv, Env: append(slices.Clone(w.env), hold.EnvRunID+"=bare"), Dir: w.work, Stdin: strings.NewReader("hello")}
		w.must2(cmd.Output())
		took := time.Since(begin)
		poll(scriptDeadline, func() bool { // what it has left, such as a git that asks for plugins, would slow down the next turn
			all, err := hold.ListProcs()
			left := slices.DeleteFunc(hold.Alive(all), func(p hold.Proc) bool { mark, _ := hold.ReadMark(p.PID); return mark != "bare" })
			for _, p := range left {
				_ = hold.SignalProc(p, syscall.SIGKILL)
			}
			return err == nil && len(left) == 0
		})
		return took
	}, func(begin time.Time) time.Duration {
		w.wait(w.submit("hello"))
		return time.Since(begin)
	})
	b.ReportMetric(memory, "gate-MB")
}

// A benchWorld is a world whose master is the program as it is installed: the test binary
// takes longer to start, and a gate is a start. stint-gate lies beside it.
type benchWorld struct {
	*testing.B
	*world
}

func newBenchWorld(b *testing.B, settings ...string) *benchWorld {
	w := &benchWorld{b, newWorld(b, 1, append([]string{"STINT_AGENT=codex", "STINT_MAX_ATTEMPTS=3"}, settings...)...)}
	w.self = filepath.Join(w.dir, "program")
	w.build(w.self, ".")
	w.build(filepath.Join(w.dir, "stint-gate"), "../stint-gate")
	return w
}

func (w *benchWorld) must2(_ any, err error) {
	w.Helper()
	must(w.B, err)
}

// fakeCodex writes a codex that says one byte to a pipe when it starts, and then
// what codex says in a turn. It gives the other end of the pipe.
func (w *benchWorld) fakeCodex() *os.File {
	pipe, bin := filepath.Join(w.dir, "pipe"), filepath.Join(w.dir, "codex")
	must(w.B, syscall.Mkfifo(pipe, 0o600))
	said, err := os.OpenFile(pipe, os.O_RDWR, 0) // with a writer it has no end
	must(w.B, err)
	w.Cleanup(func() { _ = said.Close() })
	script := fmt.Sprintf(`#!/bin/sh
printf x >%s
echo '{"type":"thread.started","thread_id":"'$STINT_RUN_ID'"}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"hello"}}
{"type":"turn.completed","usage":{"input_tokens":1,"cached_input_tokens":0,"output_tokens":1}}'
`, pipe)
	must(w.B, os.WriteFile(bin, []byte(script), 0o700))
	w.env = append(w.env, "STINT_CODEX_BIN="+bin)
	return said
}

func (w *benchWorld) build(program, source string) {
	w.Helper()
	build := exec.Command("go", "build", "-o", program, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	w.must2(build.Output())
}

// submit queues a task that waits for no other.
func (w *benchWorld) submit(prompt string) (id string) {
	w.Helper()
	view, err := w.client.Submit(context.Background(), task.TaskSpec{Prompt: prompt, Workspace: w.work, Parallel: true})
	must(w.B, err)
	return view.ID
}

// wait waits for a task that must end well.
func (w *benchWorld) wait(id string) wire.TaskView {
	w.Helper()
	view, err := w.client.Wait(context.Background(), id)
	must(w.B, err)
	if view.Status != state.Done {
		w.Fatalf("the task is %s: %s", view.Status, view.Why)
	}
	return view
}

// A benchRun is what is needed of the record of a run.
type benchRun struct {
	GatePID int
	Argv    []string
}

// look returns the run of a task and, while its agent works, how many megabytes the
// gate has for itself, beside what it shares with the master.
func (w *benchWorld) look(id string) (run benchRun, memory float64) {
	w.Helper()
	if !poll(scriptDeadline, func() bool {
		found, _ := filepath.Glob(filepath.Join(w.state, "runs", "*", "lock"))
		if len(found) != 1 {
			return false
		}
		text, err := os.ReadFile(found[0])
		record, agent, _ := strings.Cut(string(text), "\n")
		return err == nil && agent != "" && json.Unmarshal([]byte(record), &run) == nil
	}) {
		w.Fatal("no agent was started")
	}
	smaps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", run.GatePID))
	must(w.B, err)
	for line := range strings.Lines(string(smaps)) {
		var kB float64
		if name, rest, _ := strings.Cut(line, ":"); strings.HasPrefix(name, "Private_") {
			w.must2(fmt.Sscan(rest, &kB))
			memory += kB / 1024
		}
	}
	w.wait(id)
	return run, memory
}

// sideBySide runs both in turn and reports how long they took.
func (w *benchWorld) sideBySide(bare, stint func(begin time.Time) time.Duration) {
	var alone, held []time.Duration
	for w.Loop() {
		alone = append(alone, bare(time.Now()))
		held = append(held, stint(time.Now()))
	}
	for name, all := range map[string][]time.Duration{"bare": alone, "stint": held} {
		slices.Sort(all)
		for _, p := range []int{50, 99} {
			w.ReportMetric(float64(all[len(all)*p/100])/1e6, fmt.Sprintf("%s-p%d-ms", name, p))
		}
	}
	w.ReportMetric(float64(held[len(held)/2]-alone[len(alone)/2])/1e6, "more-ms")
	w.ReportMetric(float64(held[len(held)/2])/float64(alone[len(alone)/2]), "x-bare")
	w.ReportMetric(0, "ns/op") // both together say nothing
}

// BenchmarkCommands runs commands as a person does, each as a process of its own, beside a Go program that
// prints one line and does nothing else: with a master that runs and knows no task, 10,000 and 100,000 that
// have ended. x-hello is the ratio of the medians.
func BenchmarkCommands(b *testing.B) {
	for _, tasks := range []int{0, 10_000, 100_000} {
		w := newBenchWorld(b)
		must(w.B, os.Mkdir(w.state, 0o700))
		must(w.B, os.WriteFile(filepath.Join(w.state, "tasks.md"), benchLedger(b, tasks), 0o600))
		w.serve()
		must(w.B, w.command("pause").Run())
		hello := filepath.Join(w.dir, "hello")
		must(w.B, os.WriteFile(hello+".go", []byte("package main\n\nfunc main() { println(\"hello\") }\n"), 0o600))
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
				compare(b, &exec.Cmd{Path: hello, Env: w.env}, w.command(strings.Fields(row.args)...))
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
		must(b, err)
		text = append(append(text, sec.Raw...), '\n') // as a master has them
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
