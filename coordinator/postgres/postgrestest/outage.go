package postgrestest

import (
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Kill kills all processes of the server with SIGKILL, as when memory runs out, and
// returns when they are gone. One that does not run stays as it is.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if s.Ended() {
		return
	}
	children := s.freeze(t)
	signal(t, syscall.SIGKILL, append(children, s.process.Pid))
	if _, err := s.process.Wait(); err != nil {
		t.Fatal(err)
	}
	s.gone()
	until(t, "the processes of PostgreSQL are gone", func() bool { return allDead(children) })
}

// Stop stops the server in order: open connections are ended.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if s.Ended() {
		return
	}
	s.Resume(t)
	if err := s.process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	until(t, "PostgreSQL has stopped", s.Ended)
}

// Restart starts the server on the files that it has, whether it runs or not.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop(t)
	if err := s.run(); err != nil {
		t.Fatalf("%v\n%s", err, s.logTail())
	}
}

// Pause stops all processes of the server in the middle of what they do: connections stay open, and nothing answers.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	signal(t, syscall.SIGSTOP, s.freeze(t))
}

// Resume lets all processes go on.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	if s.process == nil {
		return
	}
	signal(t, syscall.SIGCONT, append(s.children(t), s.process.Pid))
}

// signal sends a signal to processes; some may have ended.
func signal(t testing.TB, sig syscall.Signal, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatalf("%v to process %d: %v", sig, pid, err)
		}
	}
}

// freeze stops the postmaster, so that it starts no more children, and returns those that there are.
func (s *Server) freeze(t testing.TB) []int {
	t.Helper()
	if s.process == nil {
		t.Fatal("PostgreSQL does not run")
	}
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return s.children(t)
}

// children returns the pids of the server's processes but the postmaster.
func (s *Server) children(t testing.TB) []int {
	t.Helper()
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(s.process.Pid)).Output()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) { // 1: there are none
		t.Fatalf("pgrep: %v", err)
	}
	var pids []int
	for _, word := range strings.Fields(string(out)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// allDead reports whether no process of those runs; who should reap them may be slow.
func allDead(pids []int) bool {
	list := make([]string, len(pids))
	for i, pid := range pids {
		list[i] = strconv.Itoa(pid)
	}
	out, _ := exec.Command("ps", "-o", "stat=", "-p", strings.Join(list, ",")).Output() // it fails if there are none
	for _, state := range strings.Fields(string(out)) {
		if !strings.HasPrefix(state, "Z") {
			return false
		}
	}
	return true
}

// until polls for something that must become true.
func until(t testing.TB, what string, true func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !true(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s it is not so that %s", patience, what)
		}
	}
}
