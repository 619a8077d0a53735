package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// BenchmarkTinyTask runs 1,000 tasks from one spec with 8 workers, whose agent prints four lines and ends, by turns with
// the same program under xargs -P8 and, where they are installed, task-spooler and nq. Of a task that has ended it reports
// what it takes of the disk, ledger and journal apart: at most 12 KB and 4 inodes are the target, 3 s for all of them.
// A file system that is slow to make files shows in make-file-us; ext4 without a journal is while it still knows of many
// removals.
func BenchmarkTinyTask(b *testing.B) {
	const tasks = 1000
	w := newBenchWorld(b, "STINT_MAX_WORKERS=8", "STINT_HTTP=off")
	agent := filepath.Join(w.dir, "codex")
	must(b, os.WriteFile(agent, []byte(`#!/bin/sh
echo '{"type":"thread.started","thread_id":"'$STINT_RUN_ID'"}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"hello"}}
{"type":"turn.completed","usage":{"input_tokens":1,"cached_input_tokens":0,"output_tokens":1}}'
`), 0o700))
	w.env = append(w.env, "STINT_CODEX_BIN="+agent, "TS_SOCKET="+filepath.Join(w.dir, "tsp"), "NQDIR="+filepath.Join(w.dir, "nq"), "TMPDIR="+w.dir)
	specs := make([]task.TaskSpec, tasks)
	for i := range specs {
		specs[i] = task.TaskSpec{Prompt: fmt.Sprint("Say hello, ", i), Parallel: true, Workspace: w.work}
	}
	text, err := json.Marshal(specs)
	must(b, err)
	spec := filepath.Join(w.dir, "spec.json")
	must(b, os.WriteFile(spec, text, 0o600))
	w.serve()
	r := rounds{}
	shell := func(name, command string) {
		cmd := exec.Command("sh", "-c", command)
		cmd.Env, cmd.Dir = w.env, w.work
		r.add(name, tasks, stopwatch(func() { must(b, cmd.Run()) }))
	}
	all := fmt.Sprintf("seq %d | xargs -P%%d -n1 ", tasks)
	for b.Loop() {
		before, inodes := w.diskUse()
		r.add("stint", tasks, stopwatch(func() {
			ids := strings.Fields(w.run("task", "-d", "-q", "--spec", spec))
			w.run("wait", append([]string{"--all", "-q"}, ids...)...)
		}))
		poll(scriptDeadline, func() bool { // what the master does when nothing runs
			locks, _ := filepath.Glob(filepath.Join(w.state, "runs", "*", "lock"))
			return len(locks) == 0
		})
		after, more := w.diskUse()
		b.ReportMetric(float64(after-before)/1024/tasks, "KB/task")
		b.ReportMetric(float64(more-inodes)/tasks, "inodes/task")
		shell("xargs", fmt.Sprintf(all, 8)+agent+" >/dev/null")
		if _, err := exec.LookPath("tsp"); err == nil {
			shell("tsp", "tsp -S 8; "+fmt.Sprintf(all, 1)+"tsp -n "+agent+" >/dev/null; tsp -w; tsp -K")
		}
		if _, err := exec.LookPath("nq"); err == nil {
			shell("nq", fmt.Sprintf(all, 1)+"nq -q "+agent+"; fq -q >/dev/null")
		}
		b.ReportMetric(float64(w.makeFile().Nanoseconds())/1e3, "make-file-us")
	}
	r.report(b, "stint")
}

// diskUse returns how many bytes and inodes runs and sessions take.
func (w *benchWorld) diskUse() (bytes, inodes int64) {
	for _, top := range []string{"runs", "sessions", "sessions.json"} {
		_ = filepath.WalkDir(filepath.Join(w.state, top), func(_ string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil // not made yet, or just removed
			}
			if fi, err := e.Info(); err == nil {
				bytes, inodes = bytes+fi.Sys().(*syscall.Stat_t).Blocks*512, inodes+1
			}
			return nil
		})
	}
	return bytes, inodes
}

// makeFile returns how long it takes to make a file in a new directory of the state directory.
func (w *benchWorld) makeFile() time.Duration {
	const files = 100
	dir, err := os.MkdirTemp(w.state, "files")
	must(w.B, err)
	took := stopwatch(func() {
		for i := range files {
			must(w.B, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
		}
	})
	must(w.B, os.RemoveAll(dir))
	return took / files
}

// BenchmarkThinking is what a master does while 8 agents run that write nothing, over 5 seconds: the share of a core, and
// how often an agent makes the machine switch. The target: at most 0.3 % and 10 a second.
func BenchmarkThinking(b *testing.B) {
	const agents, seconds = 8, 5
	w := newBenchWorld(b, "STINT_MAX_WORKERS=8", "STINT_AGENT=demo")
	l := w.serve()
	for range agents {
		w.submit("demo:sleep=600")
	}
	if !poll(scriptDeadline, func() bool {
		h, err := w.client.Health(context.Background())
		must(b, err)
		return h.Counts[state.Running] == agents
	}) {
		b.Fatal("they do not run")
	}
	for b.Loop() {
		time.Sleep(time.Second) // what follows a start is over
		switches, ticks := w.effort(l.cmd.Process.Pid)
		time.Sleep(seconds * time.Second)
		more, after := w.effort(l.cmd.Process.Pid)
		b.ReportMetric(float64(more-switches)/seconds/agents, "switches/s/agent")
		b.ReportMetric(float64(after-ticks)/seconds, "core-%") // a tick is 10 ms
	}
	b.ReportMetric(0, "ns/op")
}

// effort returns how often the threads of a process gave up a processor so far, and the ticks of time that it had.
func (w *benchWorld) effort(pid int) (switches, ticks int) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	must(w.B, err)
	for _, name := range threads {
		text, _ := os.ReadFile(name) // a thread may have ended
		for line := range strings.Lines(string(text)) {
			var n int
			if name, value, _ := strings.Cut(line, ":"); strings.HasSuffix(name, "voluntary_ctxt_switches") {
				w.must2(fmt.Sscan(value, &n))
				switches += n
			}
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(w.B, err)
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var user, system int
	w.must2(fmt.Sscan(fields[11]+" "+fields[12], &user, &system))
	return switches, user + system
}
