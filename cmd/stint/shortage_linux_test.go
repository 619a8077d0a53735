package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"stint/coordinator"
	"stint/state"
)

// TestShortOfDescriptors: while a master has no descriptor left, who submits waits and is
// not refused, and its queue waits. That costs next to nothing, is logged once, and what
// was submitted is there once.
func TestShortOfDescriptors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	l := w.serve()
	if err := w.client.Pause(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for n := range 20 {
		v, err := w.client.Submit(t.Context(), coordinator.TaskSpec{Prompt: fmt.Sprint("before ", n), Workspace: w.work, Parallel: true})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, v.ID)
	}
	pid := l.cmd.Process.Pid
	var was unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	few := was
	used, free := descriptors(t, pid)
	few.Cur = uint64(used + free)
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	quiet := 0 // looks at a master that has none to close, as that of tasks.md
	if !poll(scriptDeadline, func() bool {
		if _, free = descriptors(t, pid); free > 0 {
			quiet = 0
			w.follow()
		}
		quiet++
		return quiet > 50
	}) {
		t.Fatalf("%d descriptors are free", free)
	}
	before := l.cpu(t)
	if err := w.client.Resume(t.Context()); err != nil { // over the connection that it has
		t.Fatal(err)
	}
	var said [4]strings.Builder
	var submits []*exec.Cmd
	for n := range said {
		cmd := w.command("task", "-d", "--parallel", fmt.Sprint("meanwhile ", n))
		cmd.Stdout, cmd.Stderr = &said[n], &said[n]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		submits = append(submits, cmd)
	}
	const lasts = 3 * time.Second
	time.Sleep(lasts)
	if cpu := l.cpu(t) - before; cpu > lasts/4 {
		t.Errorf("in %s the master has used %s", lasts, cpu)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil); err != nil {
		t.Fatal(err)
	}
	for n, cmd := range submits {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, said[n].String())
		}
		ids = append(ids, strings.TrimSpace(said[n].String()))
	}
	for _, id := range ids {
		v, err := w.client.Wait(t.Context(), id)
		if err != nil || v.Status != state.Done || v.Attempt != 1 || v.Retries != 0 {
			t.Errorf("%s is %s, attempt %d, %d retries, %v", id, v.Status, v.Attempt, v.Retries, err)
		}
	}
	if list := strings.Fields(w.run("ls", "-q", "-n", "0")); len(list) != len(ids) {
		t.Errorf("%d tasks of %d", len(list), len(ids))
	}
	w.end(l, syscall.SIGTERM)
	log := l.said()
	for text, most := range map[string]int{"stint has as many files open as it may": 2, "clients may have to wait": 1, "level=ERROR": 3, "class=interrupted": 12} {
		if n := strings.Count(log, text); n == 0 || n > most {
			t.Errorf("%q stands in the log %d times", text, n)
		}
	}
	if t.Failed() {
		t.Log(log)
	}
}

// follow reads events over a connection that stays.
func (w *world) follow() {
	w.t.Helper()
	conn, err := net.Dial("unix", w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() }) // its master has ended
	_ = conn.SetDeadline(time.Now().Add(scriptDeadline))
	if _, err := fmt.Fprint(conn, "GET /v1/events HTTP/1.1\r\nHost: stint\r\n\r\n"); err != nil {
		w.t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		w.t.Fatal(err)
	}
}

// descriptors counts those that a process has, and the gaps between them.
func descriptors(t *testing.T, pid int) (used, gaps int) {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for _, e := range list {
		if fd, err := strconv.Atoi(e.Name()); err == nil {
			most = max(most, fd)
		}
	}
	return len(list), most + 1 - len(list)
}

// cpu gives the processor time that a master has used.
func (l *life) cpu(t *testing.T) time.Duration {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	user, _ := strconv.Atoi(f[11]) // of the kernel, which writes numbers
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
