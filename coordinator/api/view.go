package api

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"stint/coordinator"
	"stint/session"
	"stint/state"
)

// A TaskView is a task as the API shows it: its fields, and what is around it.
type TaskView struct {
	state.Task
	Why        string            `json:"why,omitempty"`        // why it is not running or what it does; of one task that has not ended
	Env        []string          `json:"env,omitempty"`        // names of the variables that the last run was given; of one task
	RunDir     string            `json:"runDir,omitempty"`     // absolute path of the last run's files
	Iterations []state.Iteration `json:"iterations,omitempty"` // rounds of the verify loop whose command has ended; of one task
	BeganAt    time.Time         `json:"beganAt,omitzero"`     // when the first run of the last attempt began; of one task
	LastOutput time.Time         `json:"lastOutput,omitzero"`  // of a running task: when its agent last wrote anything, or its run began
}

// A SessionView is a session with its tasks, newest first, those of its lane that
// wait, in the order in which they will run, and its transcript.
type SessionView struct {
	state.Session
	Queue      []TaskView        `json:"queue"`
	Tasks      []state.Task      `json:"tasks"`
	Transcript []session.Message `json:"transcript"`
	Older      string            `json:"older,omitempty"` // cursor for the messages before these; "": there are none
}

// view shows one task of a list.
func (s *Server) view(t state.Task) TaskView {
	v := TaskView{Task: t}
	if coordinator.IsRunID(t.RunID) {
		v.RunDir = s.master.RunDir(t.RunID)
	}
	if t.Status == state.Running {
		v.LastOutput = s.master.LastOutput(t.ID)
	}
	return v
}

// detail shows one task with everything there is to say.
func (s *Server) detail(t state.Task) TaskView {
	v := s.view(t)
	if !t.Status.Terminal() {
		v.Why = s.whyNow(t.ID)
	}
	v.Iterations, v.BeganAt = state.Iterations(t.Steps), t.StartedAt
	if last := state.LastAttempt(t.Steps); len(last) > 0 {
		v.BeganAt = last[0].Started
	}
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
	data, err := os.ReadFile(filepath.Join(runDir, "run.json"))
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
