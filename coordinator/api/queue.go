package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

type (
	moveInput struct {
		ID   string `path:"id" doc:"A task: its id, any unique piece of it, or @last" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"` // huma cannot set an embedded refInput
		Body task.Place
	}

	pauseInput struct{ Body *wire.PauseBody }
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
	to := in.Body
	if to.First == (to.Before != "") {
		return nil, wire.ProblemOf(task.Invalid(`send {"first":true} or {"before":"ID"}`, "first and before exclude each other, and one of them is needed"))
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
		return nil, wire.ProblemOf(err)
	}
	return &struct{}{}, nil
}

// listAll shows tasks of a list, in their order.
func (s *Server) listAll(tasks []state.Task) []wire.TaskView {
	views := make([]wire.TaskView, len(tasks))
	for i, t := range tasks {
		views[i] = s.listed(t)
	}
	return views
}
