package api

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// loopTask is a task that was verified in two iterations.
func loopTask(m *fakeMaster, t *testing.T) state.Task {
	t.Helper()
	code := 1
	began := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	task := state.Task{ID: "t", Status: state.Done, RunID: "r4", StartedAt: began.Add(time.Minute), Steps: []state.Step{
		{RunID: "r0", Iteration: 1, Started: began.Add(-time.Hour)}, // of an attempt before
		{RunID: "r1", Iteration: 1, Started: began},
		{RunID: "r2", Iteration: 1, Phase: state.PhaseVerify, ExitCode: &code, Took: "2s"},
		{RunID: "r3", Iteration: 2},
		{RunID: "r4", Iteration: 2, Phase: state.PhaseVerify, ExitCode: new(int), Took: "1s"},
	}}
	for run, text := range map[string]string{"r0": "old\n", "r1": "agent 1\n", "r2": "bad\xff\n", "r3": "agent 2\n", "r4": "good\n"} {
		m.write(t, run, "stdout", text)
	}
	m.add(task)
	return task
}

// TestLogsOfALoop: those of agent and verify command in their order, or of one run.
func TestLogsOfALoop(t *testing.T) {
	m := newFake(t)
	s := serve(t, m, Options{})
	loopTask(m, t)
	for _, tc := range []struct{ run, stream, want string }{
		{"", "stdout", "agent 1\nbad\xff\nagent 2\ngood\n"},
		{"r2", "stdout", "bad\xff\n"},
		{"r0", "stdout", "old\n"},
		{"3", "stdout", "agent 2\n"}, // of the agent's
	} {
		var out bytes.Buffer
		if err := s.client.Logs(t.Context(), "t", tc.run, tc.stream, false, &out); err != nil || out.String() != tc.want {
			t.Errorf("%s of %q: %q, %v", tc.stream, tc.run, out.String(), err)
		}
	}
	var out bytes.Buffer
	if err := s.client.Logs(t.Context(), "t", "", "stdout", true, &out); err != nil || out.String() != "agent 1\nbad\xff\nagent 2\ngood\n" {
		t.Errorf("followed: %q, %v", out.String(), err)
	}
	for run, want := range map[string]task.Code{"nothing": task.CodeNotFound, "4": task.CodeNotFound, "r": task.CodeAmbiguous} {
		if err := s.client.Logs(t.Context(), "t", run, "stdout", false, &out); !errors.Is(err, &task.Error{Code: want}) {
			t.Errorf("run %q: %v", run, err)
		}
	}
	v, err := s.client.Task(t.Context(), "t")
	if err != nil || len(v.Iterations) != 2 || v.Iterations[0].ExitCode != 1 || v.Iterations[1].RunID != "r4" || !v.BeganAt.Equal(v.StartedAt) {
		t.Errorf("%+v, %v", v, err)
	}
}
