package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"stint/coordinator"
	"stint/ledger"
)

// maxBatch is the largest body of a batch of tasks.
const maxBatch = 64 << 20

type (
	batchInput struct{ Body []submitBody }

	batchOutput struct {
		Body struct {
			Tasks []TaskView `json:"tasks"`
		}
	}

	moveInput struct {
		ID   string `path:"id" doc:"A task: its id, any unique piece of it, or @last"` // huma cannot set an embedded refInput
		Body placeBody
	}

	placeBody struct {
		First  bool   `json:"first,omitempty" doc:"Before all others that wait in its lane"`
		Before string `json:"before,omitempty" doc:"Before this task of its lane"`
	}

	pauseInput struct{ Body *pauseBody }

	pauseBody struct {
		Reason string `json:"reason,omitempty" doc:"Free text that is shown with what waits"`
	}
)

func (s *Server) queueRoutes(api huma.API) {
	batch := op(http.MethodPost, "/v1/tasks/batch", "submit-batch", "Submit tasks: all of them, or none if one is wrong")
	batch.DefaultStatus, batch.MaxBodyBytes = http.StatusCreated, maxBatch+1
	huma.Register(api, batch, s.submitAll)

	huma.Register(api, op(http.MethodPost, "/v1/tasks/{id}/hold", "hold-task", "Let a queued task wait until it is released"), s.hold)
	huma.Register(api, op(http.MethodPost, "/v1/tasks/{id}/release", "release-task", "Let a held task run"), s.release)
	huma.Register(api, op(http.MethodPost, "/v1/tasks/{id}/move", "move-task", "Change a queued task's place in its lane"), s.move)

	pause := op(http.MethodPost, "/v1/pause", "pause", "Start no more tasks; those at work go on")
	pause.DefaultStatus = http.StatusNoContent
	huma.Register(api, pause, s.pause)
	resume := op(http.MethodPost, "/v1/resume", "resume", "Start tasks again")
	resume.DefaultStatus = http.StatusNoContent
	huma.Register(api, resume, s.resume)
}

// batch gives the specs of a body.
func (s *Server) batch(ctx context.Context, in *batchInput) ([]coordinator.TaskSpec, error) {
	specs := make([]coordinator.TaskSpec, len(in.Body))
	for i := range in.Body {
		spec, err := in.Body[i].spec(ctx)
		if err != nil {
			return nil, nameInBatch(err, i, len(specs))
		}
		if spec.ID == "" {
			spec.ID = s.opts.NewID()
		}
		specs[i] = spec
	}
	return specs, nil
}

func (s *Server) submitAll(ctx context.Context, in *batchInput) (*batchOutput, error) {
	specs, err := s.batch(ctx, in)
	if err != nil {
		return nil, asProblem(err)
	}
	tasks, err := s.master.SubmitAll(ctx, specs)
	if err != nil {
		return nil, asProblem(err)
	}
	out := &batchOutput{}
	out.Body.Tasks = make([]TaskView, len(tasks))
	for i, t := range tasks {
		t.Prompt, t.InputFiles = "", nil // the client has them
		out.Body.Tasks[i] = s.view(t)
	}
	return out, nil
}

// nameInBatch says which task of a batch an error is about.
func nameInBatch(err error, i, n int) error {
	if n == 1 {
		return err
	}
	var e *coordinator.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("task %d of %d: %w", i+1, n, err)
	}
	return &coordinator.Error{Code: e.Code, Message: fmt.Sprintf("task %d of %d: %s", i+1, n, e.Message), Hint: e.Hint}
}

func (s *Server) hold(ctx context.Context, in *refInput) (*taskOutput, error) {
	return s.answer(s.master.Hold(ctx, in.ID, ledger.ByClient))
}

func (s *Server) release(ctx context.Context, in *refInput) (*taskOutput, error) {
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

func (s *Server) resume(ctx context.Context, _ *struct{}) (*struct{}, error) {
	return done(s.master.Resume(ctx, ledger.ByClient))
}

// done answers a call that gives nothing but perhaps an error.
func done(err error) (*struct{}, error) {
	if err != nil {
		return nil, asProblem(err)
	}
	return &struct{}{}, nil
}

// queue shows the tasks that wait in a lane, in the order in which they will run.
func (s *Server) queue(key string) []TaskView {
	tasks := s.master.Queue(key)
	views := make([]TaskView, len(tasks))
	for i, t := range tasks {
		views[i] = s.view(t)
		views[i].Why = s.whyNow(t.ID)
	}
	return views
}

// SubmitAll makes tasks durable in one batch: all of them, or none if one is wrong.
// Specs without an id get one from the client. The answers are in the order of
// specs and without the prompts.
func (c *Client) SubmitAll(ctx context.Context, specs []coordinator.TaskSpec) ([]TaskView, error) {
	sent, err := checkBatch(specs)
	if err != nil {
		return nil, err
	}
	var out struct {
		Tasks []TaskView `json:"tasks"`
	}
	err = c.call(ctx, http.MethodPost, "/v1/tasks/batch", sent, &out)
	return out.Tasks, err
}

// checkBatch gives specs as they can be sent, each with an id.
func checkBatch(specs []coordinator.TaskSpec) ([]coordinator.TaskSpec, error) {
	sent := make([]coordinator.TaskSpec, len(specs))
	for i, spec := range specs {
		if err := checkText(&spec); err != nil {
			return nil, nameInBatch(err, i, len(specs))
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
