package postgrestest

import (
	"os/exec"
	"strconv"
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
	s.signal(t, "KILL")
	until(t, "PostgreSQL was killed", s.Ended)
}

// Restart starts the server on the files that it has. One that runs is killed before.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill(t)
	if err := s.run(); err != nil {
		t.Fatalf("%v\n%s", err, s.logTail())
	}
}

// Pause stops all processes of the server in the middle of what they do: connections stay open, and nothing answers.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	s.signal(t, "STOP")
}

// Resume lets all processes go on.
func (s *Server) Resume(t testing.TB) {
	t.Helper()
	if s.process != nil {
		s.signal(t, "CONT")
	}
}

// signal stops the postmaster, so that it starts no more children, sends a signal to it and to those that there are,
// and waits for those that it kills; who should reap them may be slow.
const signal = `
kill -STOP "$0"
children=$(pgrep -d, -P "$0")
kill "-$1" $(echo "$children" | tr , ' ') "$0"
while [ "$1" = KILL ] && ps -o stat= -p "$children" | grep -qv '^Z'; do sleep 0.01; done
`

func (s *Server) signal(t testing.TB, name string) {
	t.Helper()
	if s.process == nil {
		t.Fatal("PostgreSQL does not run")
	}
	if out, err := exec.Command("sh", "-c", signal, strconv.Itoa(s.process.Pid), name).CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("SIG%s to PostgreSQL: %v\n%s", name, err, out)
	}
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
