package api

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"

	"stint/coordinator/api/client"
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
			s.client.Run = c.says
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
			if _, err := client.Fetch[[]byte](ctx, s.client, "POST", "/v1/pause", nil); errors.Is(err, &task.Error{Code: task.CodeForbidden}) != (c.want != "" || c.forbidden) {
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
	if _, err := client.Fetch[[]byte](ctx, s.client, "POST", "/v1/pause", nil); !errors.Is(err, &task.Error{Code: task.CodeForbidden}) {
		t.Errorf("who is not known: %v", err)
	}
	if _, err := client.Fetch[[]byte](ctx, s.client, "POST", "/v1/pause", nil); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestNoRunOverTCP: the token decides there, whatever a request says, and no caller has an
// environment of its own.
func TestNoRunOverTCP(t *testing.T) {
	m := familyOf(t)
	s := serveTCP(t, m, Options{RunOf: func(int) func() (string, error) {
		return func() (string, error) { return "r-1", nil }
	}})
	if code, body, _ := s.do(t, "POST", "/v1/tasks", `{"prompt":"x","environment":["PATH=/bin"]}`, s.bearer(), wire.RunHeader+": r-1"); code != 201 || m.run != "" || m.env != nil {
		t.Errorf("run %q, environment %q, %d %s", m.run, m.env, code, body)
	}
}
