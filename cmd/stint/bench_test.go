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

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// BenchmarkStart is the time from a submit over the socket until the agent says its
// first word, with a worker that waits, beside a bare fork and exec of the same
// program. The target: p50 at most 5 ms, p99 at most 15 ms.
func BenchmarkStart(b *testing.B) {
	w := newBenchWorld(b)
	said := w.fakeCodex()
	w.serve()
	heard := func() { w.must2(said.Read(make([]byte, 1))) }
	w.sideBySide(func(begin time.Time) time.Duration {
		cmd := exec.Command(filepath.Join(w.dir, "codex"))
		w.must(cmd.Start())
		heard()
		took := time.Since(begin)
		w.must(cmd.Wait())
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
// stint uses. The target: at most 10 ms more, and 5 MB for a run.
func BenchmarkCodexTurn(b *testing.B) {
	codex := realCLIs[0]
	path := codex.find(b)
	w := newBenchWorld(b)
	model := newModelServer(nil)
	b.Cleanup(model.Close)
	more, err := codex.configure(filepath.Join(w.dir, "codex"), model.URL)
	w.must(err)
	for name, value := range more {
		w.env = append(w.env, name+"="+value)
	}
	w.env = append(w.env, "STINT_CODEX_BIN="+path, codex.secret+"=secret")
	w.serve()
	run, memory := w.look(w.submit("[[slow:1]] hello"))
	w.sideBySide(func(begin time.Time) time.Duration {
		cmd := &exec.Cmd{Path: run.Argv[0], Args: run.Argv, Env: w.env, Dir: w.work, Stdin: strings.NewReader("hello")}
		w.must2(cmd.Output())
		return time.Since(begin)
	}, func(begin time.Time) time.Duration {
		w.wait(w.submit("hello"))
		return time.Since(begin)
	})
	b.ReportMetric(memory, "gate-MB")
}

// A benchWorld is a state directory with a master of its own.
type benchWorld struct {
	*testing.B
	dir, work string
	program   string   // stint as it is installed, once there is a master
	env       []string // of the master and of commands
	client    *client.Client
}

func newBenchWorld(b *testing.B) *benchWorld {
	w := &benchWorld{B: b, dir: b.TempDir()}
	w.work = filepath.Join(w.dir, "ws")
	w.must(os.Mkdir(w.work, 0o700))
	run, err := os.MkdirTemp("", "s") // short, as a socket's path must be
	w.must(err)
	b.Cleanup(func() { w.must(os.RemoveAll(run)) })
	w.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "XDG_CONFIG_HOME=" + w.dir, "XDG_RUNTIME_DIR=" + run,
		"STINT_STATE_DIR=" + w.state(), "STINT_AGENT=codex", "STINT_HTTP=off",
	}
	return w
}

func (w *benchWorld) state() string { return filepath.Join(w.dir, "state") }

func (w *benchWorld) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *benchWorld) must2(_ any, err error) {
	w.Helper()
	w.must(err)
}

// fakeCodex writes a codex that says one byte to a pipe when it starts, and then
// what codex says in a turn. It gives the other end of the pipe.
func (w *benchWorld) fakeCodex() *os.File {
	pipe, bin := filepath.Join(w.dir, "pipe"), filepath.Join(w.dir, "codex")
	w.must(syscall.Mkfifo(pipe, 0o600))
	said, err := os.OpenFile(pipe, os.O_RDWR, 0) // with a writer it has no end
	w.must(err)
	w.Cleanup(func() { _ = said.Close() })
	script := fmt.Sprintf(`#!/bin/sh
printf x >%s
echo '{"type":"thread.started","thread_id":"'$STINT_RUN_ID'"}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"hello"}}
{"type":"turn.completed","usage":{"input_tokens":1,"cached_input_tokens":0,"output_tokens":1}}'
`, pipe)
	w.must(os.WriteFile(bin, []byte(script), 0o700))
	w.env = append(w.env, "STINT_CODEX_BIN="+bin)
	return said
}

// serve starts the master: the program as it is installed, because the test binary
// takes longer to start, and a gate is a start.
func (w *benchWorld) serve() {
	w.program = filepath.Join(w.dir, "program")
	w.build(w.program, ".")
	cmd := w.command(w.program, "serve")
	w.must(cmd.Start())
	w.Cleanup(func() {
		w.must(cmd.Process.Signal(syscall.SIGTERM))
		w.must(cmd.Wait())
	})
	var h heartbeat
	if !poll(scriptDeadline, func() bool { h = (&scriptState{state: w.state()}).master(); return h.PID == cmd.Process.Pid }) {
		w.Fatal("the master does not come")
	}
	w.client = client.Dial(h.Socket)
	w.Cleanup(w.client.Close)
}

func (w *benchWorld) build(program, source string) {
	w.Helper()
	build := exec.Command("go", "build", "-o", program, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	w.must2(build.Output())
}

func (w *benchWorld) command(program string, args ...string) *exec.Cmd {
	return &exec.Cmd{Path: program, Args: append([]string{program}, args...), Env: w.env, Dir: w.work}
}

// submit queues a task that waits for no other.
func (w *benchWorld) submit(prompt string) (id string) {
	w.Helper()
	view, err := w.client.Submit(context.Background(), task.TaskSpec{Prompt: prompt, Workspace: w.work, Parallel: true})
	w.must(err)
	return view.ID
}

// wait waits for a task that must end well.
func (w *benchWorld) wait(id string) wire.TaskView {
	w.Helper()
	view, err := w.client.Wait(context.Background(), id)
	w.must(err)
	if view.Status != state.Done {
		w.Fatalf("the task is %s: %s", view.Status, view.Why)
	}
	return view
}

// A benchRun is what is needed of run.json.
type benchRun struct {
	GatePID int
	Argv    []string
}

// look returns the run of a task and, while its agent works, how many megabytes the
// gate has for itself, beside what it shares with the master.
func (w *benchWorld) look(id string) (run benchRun, memory float64) {
	w.Helper()
	if !poll(scriptDeadline, func() bool {
		found, _ := filepath.Glob(filepath.Join(w.state(), "runs", "*", "lock"))
		if len(found) != 1 {
			return false
		}
		agent, err := os.ReadFile(found[0])
		return err == nil && len(agent) > 0
	}) {
		w.Fatal("no agent was started")
	}
	found, err := filepath.Glob(filepath.Join(w.state(), "runs", "*", "run.json"))
	w.must(err)
	text, err := os.ReadFile(found[0])
	w.must(err)
	w.must(json.Unmarshal(text, &run))
	smaps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", run.GatePID))
	w.must(err)
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
	w.ReportMetric(0, "ns/op") // both together say nothing
}
