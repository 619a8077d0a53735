package api

import (
	"context"
	"errors"
	"os"
	"testing"

	"stint/coordinator"
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
			m, asked, looks := familyOf(t), 0, 0
			s := serve(t, m, Options{RunOf: func(pid int) (string, error) {
				looks++
				if asked = pid; pid != os.Getpid() {
					t.Errorf("asked for process %d, which is not %d", pid, os.Getpid())
				}
				return c.found, c.err
			}})
			s.client.FromRun(c.says)
			if _, err := s.client.List(ctx, state.Filter{}); err != nil {
				t.Error(err)
			}
			if asked != 0 {
				t.Error("it was asked for a request that only reads")
			}
			_, err := s.client.Submit(ctx, coordinator.TaskSpec{Prompt: "x"})
			forbidden := errors.Is(err, &coordinator.Error{Code: coordinator.CodeForbidden})
			if m.run != c.want || forbidden != c.forbidden || asked == 0 {
				t.Errorf("run %q, %v", m.run, err)
			}
			if err := s.client.Pause(ctx, ""); errors.Is(err, &coordinator.Error{Code: coordinator.CodeForbidden}) != (c.want != "" || c.forbidden) {
				t.Errorf("a pause: %v", err)
			}
			if looks != 1 && c.err == nil {
				t.Errorf("it was looked for %d times over one connection", looks)
			}
		})
	}
}
