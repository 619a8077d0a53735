package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator"
	"stint/ledger"
	"stint/state"
)

type (
	refInput struct {
		ID string `path:"id" doc:"A task: its id, any unique piece of it, or @last"`
	}

	// actInput names a task with which something is done that needs no more words.
	actInput struct {
		ID   string `path:"id" doc:"A task: its id, any unique piece of it, or @last"` // huma cannot set an embedded refInput
		Body *noBody
	}

	bareInput struct{ Body *noBody }

	// noBody is the body of what needs none: it may be {}, or be left out. A property in it
	// is refused: who sends one wants something else than would be done.
	noBody struct{}

	taskOutput struct {
		ETag string `header:"ETag" doc:"Changes with each record of the task"`
		Body TaskView
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
	s.submitRoutes(api)

	get := op(http.MethodGet, "/v1/tasks/{id}", "get-task", "Show a task")
	huma.Register(api, get, s.task)
	huma.Register(api, alias(get, "/tasks/{id}"), s.task)

	s.editRoute(api)
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

// taskPath gives the path of a task below the server's root.
func taskPath(ref string) string { return "/v1/tasks/" + url.PathEscape(ref) }

// answer shows what a call to the master gave.
func (s *Server) answer(t state.Task, err error) (*taskOutput, error) {
	if err != nil {
		return nil, asProblem(err)
	}
	return &taskOutput{ETag: etag(t.Seq), Body: s.detail(t)}, nil
}

func (s *Server) task(ctx context.Context, in *refInput) (*taskOutput, error) {
	return s.answer(s.master.Task(ctx, in.ID))
}

func (s *Server) cancel(ctx context.Context, in *actInput) (*taskOutput, error) {
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

func (s *Server) retry(ctx context.Context, in *actInput) (*taskOutput, error) {
	return s.answer(s.master.Retry(ctx, in.ID, ledger.ByClient))
}

func (s *Server) verify(ctx context.Context, in *actInput) (*checkOutput, error) {
	ctx, release := long(ctx)
	defer release()
	res, err := s.master.Verify(ctx, in.ID, ledger.ByClient)
	if err != nil {
		return nil, asProblem(ended(ctx, err))
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
	return s.answer(t, ended(ctx, err))
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
