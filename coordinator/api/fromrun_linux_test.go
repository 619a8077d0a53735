package api

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// TestPeerIsARun: what a process was started by counts, and not what it says; where
// nobody can tell, it may only read.
func TestPeerIsARun(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name, found string
		err         error
		says, want  string // the run that a task is submitted from
		forbidden   bool
	}{
		{"nobody's", "", nil, "", "", false},
		{"it says so", "", nil, "r-1", "r-1", false},
		{"it says nothing", "r-1", nil, "", "r-1", false},
		{"it says another", "r-1", nil, "r-2", "r-1", false},
		{"it has gone", "", errors.New("no such process"), "", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := familyOf(t)
			var noted, looks atomic.Int64 // a connection that is made anew may be noted at any time
			s := serve(t, m, Options{RunOf: func(pid int) func() (string, error) {
				noted.Store(int64(pid))
				return func() (string, error) { looks.Add(1); return c.found, c.err }
			}})
			s.client.FromRun(c.says)
			if _, err := s.client.List(ctx, state.Filter{}); err != nil {
				t.Error(err)
			}
			if noted.Load() != int64(os.Getpid()) || looks.Load() != 0 { // its pid may be another's later
				t.Errorf("of process %d, a request that only reads has noted %d and looked %d times", os.Getpid(), noted.Load(), looks.Load())
			}
			_, err := s.client.Submit(ctx, task.TaskSpec{Prompt: "x"})
			forbidden := errors.Is(err, &task.Error{Code: task.CodeForbidden})
			if m.run != c.want || forbidden != c.forbidden || looks.Load() == 0 {
				t.Errorf("run %q, %v", m.run, err)
			}
			if err := s.client.Pause(ctx, ""); errors.Is(err, &task.Error{Code: task.CodeForbidden}) != (c.want != "" || c.forbidden) {
				t.Errorf("a pause: %v", err)
			}
			if looks.Load() != 1 && c.err == nil {
				t.Errorf("it was looked for %d times over one connection", looks.Load())
			}
		})
	}
}

// TestTryAgainHelps: who could not be noted as it connected may ask over another connection,
// and need not know that: the first one is closed.
func TestTryAgainHelps(t *testing.T) {
	ctx, noted := context.Background(), 0
	s := serve(t, familyOf(t), Options{RunOf: func(int) func() (string, error) {
		if noted++; noted == 1 {
			return func() (string, error) { return "", errors.New("too many open files") }
		}
		return func() (string, error) { return "", nil }
	}})
	if err := s.client.Pause(ctx, ""); !errors.Is(err, &task.Error{Code: task.CodeForbidden}) {
		t.Errorf("who is not known: %v", err)
	}
	if err := s.client.Pause(ctx, ""); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestPeerIsARunOverTCP: what counts on the socket counts here.
func TestPeerIsARunOverTCP(t *testing.T) {
	for _, c := range []struct {
		name, found string
		err         error
		says, want  string // the run that a task is submitted from
		status      int
	}{
		{"nobody's", "", nil, "", "", 201},
		{"it says so", "", nil, "r-1", "r-1", 201},
		{"it says another", "r-1", nil, "r-2", "r-1", 201},
		{"it has gone", "", errors.New("no such process"), "", "", 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, looks := familyOf(t), map[int]int{}
			s := serveTCP(t, m, Options{RunOf: func(pid int) func() (string, error) {
				looks[pid]++
				return func() (string, error) { return c.found, c.err }
			}})
			says := wire.RunHeader + ": " + c.says
			if code, body, _ := s.do(t, "GET", "/v1/tasks", "", s.bearer()); code != 200 || len(looks) != 0 {
				t.Errorf("it was asked for a request that only reads: %v, %d %s", looks, code, body)
			}
			if code, body, _ := s.do(t, "POST", "/v1/tasks", `{"prompt":"x"}`, s.bearer(), says); code != c.status || m.run != c.want || looks[os.Getpid()] != 1 {
				t.Errorf("run %q, %d %s; looked for %v", m.run, code, body, looks)
			}
			want := map[bool]int{true: 204, false: 403}[c.want == "" && c.err == nil]
			if code, body, _ := s.do(t, "POST", "/v1/pause", "", s.bearer(), says); code != want {
				t.Errorf("a pause: %d %s", code, body)
			}
		})
	}
}

// TestWhoHasClosedIsNotTakenForAPerson: an agent does not hide by sending its request and
// closing the connection before it is looked for; sshd, which may not be looked into, has
// it open all the while.
func TestWhoHasClosedIsNotTakenForAPerson(t *testing.T) {
	lns, err := ListenLoopback("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, ln := range lns {
		defer func() { _ = ln.Close() }()
	}
	client, err := net.Dial("tcp", lns[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := lns[0].Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = accepted.Close() }()
	c := &tcpConn{Conn: accepted}
	if c.once.Do(c.look); !c.let {
		t.Fatal("it is not let in")
	}
	if pids, err := c.processes(); err != nil || !slices.Contains(pids, os.Getpid()) {
		t.Errorf("%v %v", pids, err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if pids, err := c.processes(); err == nil {
		t.Errorf("who has gone is nobody: %v", pids)
	}
}
