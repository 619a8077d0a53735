package api

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/task"
)

var aFinding = task.Finding{File: "tasks.md", Line: 812, Message: `unknown status "qeued"; did you mean queued?`}

func (f *fakeMaster) Findings() []task.Finding { return slices.Clone(f.findings) }

func (f *fakeMaster) Reconcile(_ context.Context, accept bool) (task.TakeOver, error) {
	t := task.TakeOver{Notices: []string{}, Findings: f.Findings(), Missing: 2}
	if accept {
		t.Adopted = 1
	}
	return t, f.err
}

func TestLedgerRoutes(t *testing.T) {
	m := newFake(t)
	s := serve(t, m, Options{})
	if got, err := s.client.Findings(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("of a sound ledger: %v %v", got, err)
	}
	m.findings = []task.Finding{aFinding}
	if got, err := s.client.Findings(t.Context()); err != nil || !cmp.Equal(got, m.findings) {
		t.Errorf("%v %v", got, err)
	}
	for accept, want := range map[bool]int{false: 0, true: 1} {
		got, err := s.client.Reconcile(t.Context(), accept)
		if err != nil || got.Adopted != want || got.Missing != 2 || !cmp.Equal(got.Findings, m.findings) {
			t.Errorf("accept %v: %+v %v", accept, got, err)
		}
	}
	m.err = &task.Error{Code: task.CodeStopped, Message: "gone"}
	if _, err := s.client.Reconcile(t.Context(), false); err == nil {
		t.Error("the master's error is lost")
	}
}
