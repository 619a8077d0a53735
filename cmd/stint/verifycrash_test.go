package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"stint/coordinator"
	"stint/state"
)

// onceHanging is a verify command that hangs the first time, and leaves a daemon
// behind; the second time it passes.
const onceHanging = "echo x >>marks; [ $(wc -l <marks) -ge 2 ] || { setsid sleep 1000 & sleep 1000; }"

// marks gives how often the command was run.
func (w *crashWorld) marks() int {
	data, _ := os.ReadFile(filepath.Join(w.work, "marks")) // not there: never
	return strings.Count(string(data), "x")
}

// killWhileVerifying kills the master as soon as the command is at work, with its gates
// or without them.
func (w *crashWorld) killWhileVerifying(gates bool) {
	w.t.Helper()
	if !poll(scriptDeadline, func() bool { return w.marks() == 1 && w.master() > 0 }) {
		w.t.Fatal("the verify command was not run")
	}
	kill := func(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }
	if gates {
		kill = w.killTree
	}
	if err := kill(w.master()); err != nil {
		w.t.Fatal(err)
	}
}

// TestPromise3KilledWhileVerifying: the next master runs the verify command again,
// and the agent not; nothing of the first run of the command lives.
func TestPromise3KilledWhileVerifying(t *testing.T) {
	for name, gates := range map[string]bool{"the master": false, "the master and the gate": true} {
		t.Run(name, func(t *testing.T) {
			w := newCrashWorld(t, 1)
			id := w.run("task", "-d", "--verify", onceHanging, "do it")
			w.killWhileVerifying(gates)
			w.run("wait", "--timeout", "60s", id)
			var task state.Task
			w.show(id, &task)
			if task.Attempt != 1 || task.Retries != 1 || task.Iteration != 1 || task.VerifyExitCode == nil || *task.VerifyExitCode != 0 || w.marks() != 2 {
				t.Errorf("the command was run %d times: %+v", w.marks(), task)
			}
			log, err := os.ReadFile(filepath.Join(w.state, "demo", "log.jsonl"))
			if n := strings.Count(string(log), `"event":"start"`); err != nil || n != 1 {
				t.Errorf("the agent was run %d times, %v:\n%s", n, err, log)
			}
			w.endAndCheck()
		})
	}
}

// TestKilledWhileVerifyingByItself: what stint verify runs is ended by the next master,
// and no task is left in a run that never ends.
func TestKilledWhileVerifyingByItself(t *testing.T) {
	w := newCrashWorld(t, 1)
	id := w.run("task", "do it", "-q", "--verify", "true")
	edit, err := os.OpenFile(filepath.Join(w.state, "tasks.md"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = edit.WriteString("\n## Task " + id + "\n- verifyCommand: " + onceHanging + "\n")
	}
	if err != nil || edit.Close() != nil {
		t.Fatal(err)
	}
	if !poll(scriptDeadline, func() bool { return strings.Contains(w.run("show", "--json", id), "marks") }) {
		t.Fatal("the edit was not taken over")
	}
	cmd := &exec.Cmd{Path: w.self, Args: []string{"stint", "verify", id}, Env: w.env, Dir: w.work}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.killWhileVerifying(true)
	_ = cmd.Wait() // another master runs it again, or the client says that it is gone
	w.run("ls")
	var task state.Task
	if w.show(id, &task); task.Status != state.Done || task.Retries != 0 {
		t.Errorf("%+v", task)
	}
	if left, err := filepath.Glob(filepath.Join(w.state, "checks", "*")); err != nil || len(left) > 0 {
		t.Errorf("still noted: %v, %v", left, err)
	}
	w.endAndCheck()
}

// workers gives the processes that work in the workspace.
func (w *crashWorld) workers() (found []string) {
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
func (w *crashWorld) endAndCheck() {
	w.t.Helper()
	w.stop()
	if left := append(w.survivors(), w.workers()...); len(left) > 0 {
		w.t.Errorf("processes are left: %v", left)
	}
	if err := coordinator.Check(w.state); err != nil {
		w.t.Error(err)
	}
}
