package api

import (
	"context"
	"encoding/json"

	"stint/coordinator/api/wire"
	"stint/coordinator/rundir"
	"stint/state"
)

// listed shows one task of a list, and why it is not running.
func (s *Server) listed(t state.Task) wire.TaskView {
	v := s.view(t)
	if !t.Status.Terminal() {
		v.Why = s.whyNow(t.ID)
	}
	return v
}

// view shows a task as its fields and its last run are.
func (s *Server) view(t state.Task) wire.TaskView {
	v := wire.TaskView{Task: t}
	if rundir.IsRunID(t.RunID) {
		v.RunDir = s.master.RunDir(t.RunID)
	}
	if t.Status == state.Running {
		v.LastOutput, v.Settling = s.master.LastOutput(t.ID), s.master.Settling(t.ID)
	}
	return v
}

// detail shows one task with everything there is to say.
func (s *Server) detail(t state.Task) wire.TaskView {
	v := s.listed(t)
	v.Iterations, v.BeganAt = state.Iterations(t.Steps), t.StartedAt
	if v.RunDir != "" {
		v.Env = readEnv(v.RunDir)
	}
	return v
}

// shown returns a task with everything there is to say.
func (s *Server) shown(ctx context.Context, ref string) (wire.TaskView, error) {
	t, err := s.master.Task(ctx, ref)
	if err != nil {
		return wire.TaskView{}, err
	}
	return s.detail(t), nil
}

// whyNow returns why a task is where it is; "" if that cannot be told.
func (s *Server) whyNow(id string) string {
	why, err := s.master.Why(id)
	if err != nil {
		return ""
	}
	return why
}

// readEnv returns the names of the variables in a run's run.json. Where the
// files of the run were removed, there is nothing to tell.
func readEnv(runDir string) []string {
	data, err := rundir.ReadOutput(runDir, "run.json")
	if err != nil {
		return nil
	}
	var run struct {
		Env []string `json:"env"`
	}
	if json.Unmarshal(data, &run) != nil {
		return nil
	}
	return run.Env
}
