package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator"
	"stint/ledger"
	"stint/state"
)

type (
	refInput struct {
		ID string `path:"id" doc:"A task: its id, any unique piece of it, or @last"`
	}

	taskOutput struct{ Body TaskView }

	submitInput struct{ Body submitBody }

	// submitBody is a TaskSpec in which the agent may be called a tool.
	submitBody struct {
		coordinator.TaskSpec
		Tool string `json:"tool,omitempty" doc:"Another word for agent"`
	}

	// submitOutput has a field Status, which huma takes for the HTTP status. No
	// other output may have one.
	submitOutput struct {
		Status   int
		Location string `header:"Location"`
		Body     TaskView
	}

	checkOutput struct{ Body coordinator.CheckResult }

	whyOutput struct {
		Body struct {
			Why string `json:"why"`
		}
	}

	textOutput struct {
		ContentType string `header:"Content-Type"`
		Body        []byte
	}
)

func (s *Server) taskRoutes(api huma.API) {
	submit := op(http.MethodPost, "/v1/tasks", "submit-task", "Submit a task (201), or find the one with that id or key (200)")
	submit.DefaultStatus = http.StatusCreated
	huma.Register(api, submit, s.submit)
	huma.Register(api, alias(submit, "/tasks"), s.submit)

	get := op(http.MethodGet, "/v1/tasks/{id}", "get-task", "Show a task")
	huma.Register(api, get, s.task)
	huma.Register(api, alias(get, "/tasks/{id}"), s.task)

	s.listRoute(api)
	huma.Register(api, op(http.MethodPost, "/v1/tasks/{id}/cancel", "cancel-task", "Cancel a task"), s.cancel)
	huma.Register(api, op(http.MethodPost, "/v1/tasks/{id}/retry", "retry-task", "Queue an ended task again"), s.retry)
	huma.Register(api, op(http.MethodPost, "/v1/tasks/{id}/verify", "verify-task", "Run the verify command of a task by itself"), s.verify)
	huma.Register(api, op(http.MethodGet, "/v1/tasks/{id}/wait", "wait-task", "Answer when the task has ended"), s.wait)
	huma.Register(api, op(http.MethodGet, "/v1/tasks/{id}/why", "why-task", "Say why the task does not run"), s.why)
	raw := op(http.MethodGet, "/v1/tasks/{id}/raw", "raw-task", "The ledger's sections of the task")
	raw.Responses = answers("The sections", "text/markdown")
	huma.Register(api, raw, s.raw)
}

// spec gives the TaskSpec of a body.
func (b *submitBody) spec(ctx context.Context) (coordinator.TaskSpec, error) {
	spec := b.TaskSpec
	spec.FromRun = fromRun(ctx)
	switch {
	case b.Tool == "" || b.Tool == spec.Agent:
	case spec.Agent == "":
		spec.Agent = b.Tool
	default:
		return spec, invalid("agent and tool mean the same, and differ", "leave tool out")
	}
	return spec, nil
}

func (s *Server) submit(ctx context.Context, in *submitInput) (*submitOutput, error) {
	spec, err := in.Body.spec(ctx)
	if err != nil {
		return nil, asProblem(err)
	}
	chosen := spec.ID != ""
	if !chosen {
		spec.ID = s.opts.NewID()
	}
	begun := s.opts.Now().Truncate(time.Millisecond) // as exact as createdAt in the ledger
	t, err := s.master.Submit(ctx, spec)
	if err != nil {
		return nil, asProblem(err)
	}
	t.Prompt, t.InputFiles = "", nil // the client has them
	out := &submitOutput{Status: http.StatusCreated, Location: taskPath(t.ID), Body: s.view(t)}
	if t.ID != spec.ID || chosen && t.CreatedAt.Before(begun) {
		out.Status = http.StatusOK
	}
	return out, nil
}

// taskPath gives the path of a task below the server's root.
func taskPath(ref string) string { return "/v1/tasks/" + url.PathEscape(ref) }

// answer shows what a call to the master gave.
func (s *Server) answer(t state.Task, err error) (*taskOutput, error) {
	if err != nil {
		return nil, asProblem(err)
	}
	return &taskOutput{Body: s.detail(t)}, nil
}

func (s *Server) task(ctx context.Context, in *refInput) (*taskOutput, error) {
	return s.answer(s.master.Task(ctx, in.ID))
}

func (s *Server) cancel(ctx context.Context, in *refInput) (*taskOutput, error) {
	id, by := in.ID, ledger.ByClient
	if run := fromRun(ctx); run != "" {
		var err error
		if id, err = s.ownTask(ctx, run, in.ID); err != nil {
			return nil, asProblem(err)
		}
		by = ledger.ByAgent
	}
	return s.answer(s.master.Cancel(ctx, id, by))
}

func (s *Server) retry(ctx context.Context, in *refInput) (*taskOutput, error) {
	return s.answer(s.master.Retry(ctx, in.ID, ledger.ByClient))
}

func (s *Server) verify(ctx context.Context, in *refInput) (*checkOutput, error) {
	ctx, release := long(ctx)
	defer release()
	res, err := s.master.Verify(ctx, in.ID, ledger.ByClient)
	if err != nil && stopped(ctx) {
		err = errStopping
	}
	if err != nil {
		return nil, asProblem(err)
	}
	return &checkOutput{Body: res}, nil
}

func (s *Server) wait(ctx context.Context, in *refInput) (*taskOutput, error) {
	ctx, release := long(ctx)
	defer release()
	done, err := s.beginWait(ctx, in.ID)
	if err != nil {
		return nil, asProblem(err)
	}
	defer done()
	t, err := s.master.Wait(ctx, in.ID)
	if err != nil && stopped(ctx) {
		err = errStopping
	}
	return s.answer(t, err)
}

func (s *Server) why(_ context.Context, in *refInput) (*whyOutput, error) {
	why, err := s.master.Why(in.ID)
	if err != nil {
		return nil, asProblem(err)
	}
	out := &whyOutput{}
	out.Body.Why = why
	return out, nil
}

func (s *Server) raw(ctx context.Context, in *refInput) (*textOutput, error) {
	text, err := s.master.Raw(ctx, in.ID)
	if err != nil {
		return nil, asProblem(err)
	}
	return &textOutput{ContentType: "text/markdown; charset=utf-8", Body: text}, nil
}
