package admission

import (
	"context"
	"testing"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

type nobody struct{}

func (nobody) TaskOf(string) *state.Task { return nil }
func (nobody) Cancel(string, error)      {}

type anAgent struct{ task.Agent }

// TestSubmitAnswersWithTheTaskAsItIs: also where it has an answer before its client has.
func TestSubmitAnswersWithTheTaskAsItIs(t *testing.T) {
	s, err := queue.Open(queue.Config{StateDir: t.TempDir(), Unwatched: true, Agents: map[string]task.Agent{"demo": anAgent{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	a := New(s, nobody{})
	in, err := a.newIntake(t.Context(), request{specs: []task.TaskSpec{{Prompt: "Fix it.", Agent: "demo", Workspace: t.TempDir()}}})
	if err == nil {
		err = s.Update(t.Context(), in.record)
	}
	for _, fields := range [][]string{{"running", "r", ""}, {"done", "r", "the answer"}} {
		if err != nil {
			t.Fatal(err)
		}
		r := &ledger.Record{Kind: ledger.KindTask, ID: in.list[0].ID}
		r.Add(state.KeyStatus, fields[0]).Add(state.KeyRunID, fields[1]).AddIf(state.KeyResult, fields[2])
		err = s.Update(context.Background(), func(_ *fold.State, tx *ledger.Tx) error {
			tx.Append(r)
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := in.tasks()
	if err != nil || len(got) != 1 || got[0].Prompt != "Fix it." || got[0].Result != "the answer" || got[0].Status != state.Done {
		t.Errorf("%+v, %v", got, err)
	}
}
