package api

import (
	"context"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"stint/coordinator"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

type (
	moveInput struct {
		ID   string `path:"id" doc:"A task: its id, any unique piece of it, or @last" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"` // huma cannot set an embedded refInput
		Body placeBody
	}

	placeBody struct {
		First  bool   `json:"first,omitempty" doc:"Before all others that wait in its lane" example:"true"`
		Before string `json:"before,omitempty" doc:"Before this task of its lane" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	}

	pauseInput struct{ Body *pauseBody }

	pauseBody struct {
		Reason string `json:"reason,omitempty" doc:"Free text that is shown with what waits" example:"release day"`
	}
)

func (s *Server) queueRoutes(api huma.API) {
	huma.Register(api, op(http.MethodPost, "/v1/tasks/{id}/hold", "hold-task", "Hold a queued task", "It does not start until it is released. Tasks behind it in its lane pass it."), s.hold)
	huma.Register(api, op(http.MethodPost, "/v1/tasks/{id}/release", "release-task", "Release a held task", "It runs when its turn comes. This also ends a hold because an old agent may still be alive."), s.release)
	huma.Register(api, op(http.MethodPost, "/v1/tasks/{id}/move", "move-task", "Move a queued task in its lane", "To the front, or before another task of the lane. One of first and before is needed."), s.move)

	pause := op(http.MethodPost, "/v1/pause", "pause", "Pause dispatch", "No task starts until dispatch is resumed, also after a restart. Present runs go on.")
	pause.DefaultStatus = http.StatusNoContent
	huma.Register(api, pause, s.pause)
	resume := op(http.MethodPost, "/v1/resume", "resume", "Resume dispatch", "Tasks start again.")
	resume.DefaultStatus = http.StatusNoContent
	huma.Register(api, resume, s.resume)
}

func (s *Server) hold(ctx context.Context, in *actInput) (*taskOutput, error) {
	return s.answer(s.master.Hold(ctx, in.ID, ledger.ByClient))
}

func (s *Server) release(ctx context.Context, in *actInput) (*taskOutput, error) {
	return s.answer(s.master.Release(ctx, in.ID, ledger.ByClient))
}

func (s *Server) move(ctx context.Context, in *moveInput) (*taskOutput, error) {
	to := coordinator.Place{First: in.Body.First, Before: in.Body.Before}
	if to.First == (to.Before != "") {
		return nil, asProblem(invalid("first and before exclude each other, and one of them is needed", `send {"first":true} or {"before":"ID"}`))
	}
	return s.answer(s.master.Move(ctx, in.ID, to, ledger.ByClient))
}

func (s *Server) pause(ctx context.Context, in *pauseInput) (*struct{}, error) {
	reason := ""
	if in.Body != nil {
		reason = in.Body.Reason
	}
	return done(s.master.Pause(ctx, reason, ledger.ByClient))
}

func (s *Server) resume(ctx context.Context, _ *bareInput) (*struct{}, error) {
	return done(s.master.Resume(ctx, ledger.ByClient))
}

// done answers a call that gives nothing but perhaps an error.
func done(err error) (*struct{}, error) {
	if err != nil {
		return nil, asProblem(err)
	}
	return &struct{}{}, nil
}

// listAll shows tasks of a list, in their order.
func (s *Server) listAll(tasks []state.Task) []TaskView {
	views := make([]TaskView, len(tasks))
	for i, t := range tasks {
		views[i] = s.listed(t)
	}
	return views
}

// SubmitAll makes tasks durable in one batch: all of them, or none if one is wrong.
// Specs without an id get one from the client. The answers are in the order of
// specs and without the prompts.
func (c *Client) SubmitAll(ctx context.Context, specs []task.TaskSpec) ([]TaskView, error) {
	sent, err := checkBatch(specs)
	if err != nil {
		return nil, err
	}
	var out struct {
		Tasks []TaskView `json:"tasks"`
	}
	err = c.call(ctx, http.MethodPost, "/v1/tasks", sent, &out)
	return out.Tasks, err
}

// checkBatch gives specs as they can be sent, each with an id.
func checkBatch(specs []task.TaskSpec) ([]task.TaskSpec, error) {
	sent := make([]task.TaskSpec, len(specs))
	for i, spec := range specs {
		if err := checkText(&spec); err != nil {
			return nil, task.AtTask(err, i, len(specs))
		}
		if spec.ID == "" {
			id, err := uuid.NewV7()
			if err != nil {
				return nil, fmt.Errorf("id of a task: %w", err)
			}
			spec.ID = id.String()
		}
		sent[i] = spec
	}
	return sent, nil
}

// Hold lets a queued task wait until it is released.
func (c *Client) Hold(ctx context.Context, ref string) (TaskView, error) {
	return c.taskView(ctx, http.MethodPost, ref, "/hold")
}

// Release lets a held task run.
func (c *Client) Release(ctx context.Context, ref string) (TaskView, error) {
	return c.taskView(ctx, http.MethodPost, ref, "/release")
}

// Move changes a queued task's place in its lane.
func (c *Client) Move(ctx context.Context, ref string, to coordinator.Place) (TaskView, error) {
	path, err := refPath("/v1/tasks/", ref, "/move")
	if err != nil {
		return TaskView{}, err
	}
	return c.view(ctx, http.MethodPost, path, placeBody{First: to.First, Before: to.Before})
}

// Pause makes the master start no more tasks, now and after a restart; those at
// work go on. The reason is shown with what waits, and may be "".
func (c *Client) Pause(ctx context.Context, reason string) error {
	if !utf8.ValidString(reason) {
		return notUTF8("reason")
	}
	return c.call(ctx, http.MethodPost, "/v1/pause", pauseBody{Reason: reason}, nil)
}

// Resume makes the master start tasks again.
func (c *Client) Resume(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, "/v1/resume", nil, nil)
}
