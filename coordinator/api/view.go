package api

import (
	"encoding/json"
	"time"

	"stint/coordinator"
	"stint/session"
	"stint/state"
)

// A TaskView is a task as the API shows it: its fields, and what is around it.
type TaskView struct {
	state.Task
	Why        string            `json:"why,omitempty" doc:"Why the task is not running, or what it does, if it has not ended" example:"waits until 03:20:00, in 4m51s (attempt 2 of 3): exit"`
	Env        []string          `json:"env,omitempty" doc:"Names of the variables that the last run was given. Only in answers about one task" example:"HOME,PATH"`
	RunDir     string            `json:"runDir,omitempty" doc:"Absolute path of the files of the last run" example:"/home/ana/.local/state/stint/runs/019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee"`
	Iterations []state.Iteration `json:"iterations,omitempty" doc:"Iterations of the verify loop whose command has ended. Only in answers about one task"`
	BeganAt    time.Time         `json:"beganAt,omitzero" doc:"The same as startedAt. Only in answers about one task" example:"2026-11-21T03:12:45.131Z"`
	TaskID     string            `json:"task_id,omitempty" doc:"The id once more, as the first of these interfaces called it. Only in the answer to a submit" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	LastOutput time.Time         `json:"lastOutput,omitzero" doc:"Of a running task: when its agent last wrote anything, or its run began" example:"2026-11-21T03:15:09.482Z"`
	Settling   bool              `json:"settling,omitempty" doc:"Of a running task: its run has ended, and the result waits until a save of tasks.md is settled" example:"true"`
}

// A SessionView is a session with its tasks, newest first, those of its lane that
// wait, in the order in which they will run, and its transcript.
type SessionView struct {
	state.Session
	Queue      []TaskView        `json:"queue" doc:"Tasks of its lane that wait, in the order in which they will run"`
	Tasks      []TaskView        `json:"tasks" doc:"Tasks of the session, newest first"`
	Transcript []session.Message `json:"transcript" doc:"Messages, oldest first"`
	Older      string            `json:"older,omitempty" doc:"Cursor for the messages before these; left out: there are none" example:"2s"`
}

// listed shows one task of a list, and why it is not running.
func (s *Server) listed(t state.Task) TaskView {
	v := s.view(t)
	if !t.Status.Terminal() {
		v.Why = s.whyNow(t.ID)
	}
	return v
}

// view shows a task as its fields and its last run are.
func (s *Server) view(t state.Task) TaskView {
	v := TaskView{Task: t}
	if coordinator.IsRunID(t.RunID) {
		v.RunDir = s.master.RunDir(t.RunID)
	}
	if t.Status == state.Running {
		v.LastOutput, v.Settling = s.master.LastOutput(t.ID), s.master.Settling(t.ID)
	}
	return v
}

// detail shows one task with everything there is to say.
func (s *Server) detail(t state.Task) TaskView {
	v := s.listed(t)
	v.Iterations, v.BeganAt = state.Iterations(t.Steps), t.StartedAt
	if v.RunDir != "" {
		v.Env = readEnv(v.RunDir)
	}
	return v
}

// whyNow says why a task is where it is; "" if that cannot be told.
func (s *Server) whyNow(id string) string {
	why, err := s.master.Why(id)
	if err != nil {
		return ""
	}
	return why
}

// readEnv gives the names of the variables in a run's run.json. Where the
// files of the run were removed, there is nothing to tell.
func readEnv(runDir string) []string {
	data, err := coordinator.ReadOutput(runDir, "run.json")
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
