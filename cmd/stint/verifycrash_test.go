package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"stint/coordinator/statedir"
	"stint/state"
)

// onceHanging is a verify command that hangs the first time, and leaves a daemon
// behind; the second time it passes.
const onceHanging = "echo x >>marks; [ $(wc -l <marks) -ge 2 ] || { setsid sleep 1000 & sleep 1000; }"

// marks returns how often the command was run.
func (w *world) marks() int {
	data, _ := os.ReadFile(filepath.Join(w.work, "marks")) // not there: never
	return strings.Count(string(data), "x")
}

// killWhileVerifying kills the master as soon as the command is at work, with its gates
// or without them.
func (w *world) killWhileVerifying(l *life, gates bool) {
	w.t.Helper()
	if !poll(scriptDeadline, func() bool { return w.marks() == 1 }) {
		w.t.Fatal("the verify command was not run")
	}
	if gates {
		if err := w.killTree(l.cmd.Process.Pid); err != nil {
			w.t.Fatal(err)
		}
	}
	w.end(l, syscall.SIGKILL)
}

// TestPromise3KilledWhileVerifying: the next master runs the verify command again,
// and the agent not; nothing of the first run of the command lives.
func TestPromise3KilledWhileVerifying(t *testing.T) {
	t.Parallel()
	for name, gates := range map[string]bool{"the master": false, "the master and the gate": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			l := w.serve()
			id := w.run("task", "-d", "--verify", onceHanging, "do it")
			w.killWhileVerifying(l, gates)
			l = w.serve()
			task, err := w.client.Wait(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if task.Attempt != 1 || task.Retries != 1 || task.Iteration != 1 || task.VerifyExitCode == nil || *task.VerifyExitCode != 0 || w.marks() != 2 {
				t.Errorf("the command was run %d times: %+v", w.marks(), task)
			}
			log, err := os.ReadFile(filepath.Join(w.state, "demo", "log.jsonl"))
			if n := strings.Count(string(log), `"event":"start"`); err != nil || n != 1 {
				t.Errorf("the agent was run %d times, %v:\n%s", n, err, log)
			}
			w.endAndCheck(l)
		})
	}
}

// TestKilledWhileVerifyingByItself: what stint verify runs is ended by the next master,
// and no task is left in a run that never ends.
func TestKilledWhileVerifyingByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	l := w.serve()
	id := w.run("task", "do it", "-q", "--verify", "true")
	if err := appendTo(filepath.Join(w.state, "tasks.md"), "\n## Task "+id+"\n- verifyCommand: "+onceHanging+"\n"); err != nil {
		t.Fatal(err)
	}
	if !poll(scriptDeadline, func() bool { return strings.Contains(w.run("show", "--json", id), "marks") }) {
		t.Fatal("the edit was not taken over")
	}
	cmd := w.command("verify", id)
	cmd.Env = append(slices.Clone(w.env), "STINT_AUTO_START=false")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.killWhileVerifying(l, true)
	_ = cmd.Wait() // it says that the master is gone
	l = w.serve()
	task, err := w.client.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if task.Status != state.Done || task.Retries != 0 {
		t.Errorf("%+v", task)
	}
	var left []string
	if !poll(scriptDeadline, func() bool { left, _ = filepath.Glob(filepath.Join(w.state, "checks", "*")); return len(left) == 0 }) {
		t.Errorf("still noted: %v", left)
	}
	w.endAndCheck(l)
}

// workers returns the processes that work in the workspace.
func (w *world) workers() (found []string) {
	w.t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, link := range links {
		if dir, err := os.Readlink(link); err == nil && dir == w.work {
			cmd, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline")) // it may be gone
			found = append(found, fmt.Sprintf("%q", cmd))
		}
	}
	return found
}

// endAndCheck ends the master: nothing of any run lives, and the files are whole.
func (w *world) endAndCheck(l *life) {
	w.t.Helper()
	w.end(l, syscall.SIGTERM)
	if left := append(w.survivors(), w.workers()...); len(left) > 0 {
		w.t.Errorf("processes are left: %v", left)
	}
	if err := statedir.Check(w.state); err != nil {
		w.t.Error(err)
	}
}
