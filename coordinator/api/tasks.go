package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

type (
	refInput struct {
		ID string `path:"id" doc:"A task: its id, any unique piece of it, or @last" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	}

	// actInput names a task with which something is done that needs no more words.
	actInput struct {
		ID   string `path:"id" doc:"A task: its id, any unique piece of it, or @last" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"` // huma cannot set an embedded refInput
		Body *noBody
	}

	bareInput struct{ Body *noBody }

	// noBody is the body of what needs none: it may be {}, or be left out. A property in it
	// is refused: who sends one wants something else than would be done.
	noBody struct{}

	// readInput names a task that the client may have as it is.
	readInput struct {
		ID          string   `path:"id" doc:"A task: its id, any unique piece of it, or @last" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
		IfNoneMatch []string `header:"If-None-Match" doc:"ETag of the task as you have it. If the task has no newer record, the answer is 304 without a body" example:"\"1043\""`
	}

	taskOutput struct {
		ETag string `header:"ETag" doc:"Changes with each record of the task"`
		Body wire.TaskView
	}

	// readOutput is a taskOutput that may be left out of the answer.
	readOutput struct {
		Status      int
		ETag        string `header:"ETag" doc:"Changes with each record of the task"`
		AcceptPatch string `header:"Accept-Patch" doc:"What a PATCH of the task may send"`
		Body        wire.TaskView
	}

	checkOutput struct{ Body task.CheckResult }

	whyOutput struct {
		Body struct {
			Why string `json:"why" doc:"One sentence" example:"behind 019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11 in session web"`
		}
	}

	textOutput struct {
		ContentType string `header:"Content-Type"`
		Body        []byte
	}
)

func (s *Server) taskRoutes(api huma.API) {
	s.submitRoutes(api)

	get := op(http.MethodGet, "/v1/tasks/{id}", "get-task", "Show a task", "With prompt, answer, files and findings. why says why it does not run.")
	huma.Register(api, get, s.task)
	huma.Register(api, alias(get, "/tasks/{id}"), s.task)

	s.editRoute(api)
	s.listRoute(api)
	huma.Register(api, op(http.MethodPost, "/v1/tasks/{id}/cancel", "cancel-task", "Cancel a task", "A waiting task ends at once. A running one ends when its agent and all descendants of that have ended."), s.cancel)
	huma.Register(api, op(http.MethodPost, "/v1/tasks/{id}/retry", "retry-task", "Queue an ended task again", "It starts with its first attempt. This also lifts the hold of its account."), s.retry)
	huma.Register(api, op(http.MethodPost, "/v1/tasks/{id}/verify", "verify-task", "Run the verify command of a task by itself", "Records how it ended; the status of the task stays. The answer comes when the command has ended.", http.StatusLocked), s.verify)
	huma.Register(api, op(http.MethodGet, "/v1/tasks/{id}/wait", "wait-task", "Wait until a task has ended", "The answer comes when the task has ended, which may take days."), s.wait)
	huma.Register(api, op(http.MethodGet, "/v1/tasks/{id}/why", "why-task", "Say why a task does not run", "One sentence: what it waits for, what it does, or how it ended."), s.why)
	raw := op(http.MethodGet, "/v1/tasks/{id}/raw", "raw-task", "Show the records of a task in the ledger", "Its sections, in Markdown.")
	raw.Responses = answers("The sections", "text/markdown", "## Task 019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11\n- seq: 1042\n- status: queued\n<!-- end 1042 -->\n")
	huma.Register(api, raw, s.raw)
}

// taskPath returns the path of a task below the server's root.
func taskPath(ref string) string { return "/v1/tasks/" + url.PathEscape(ref) }

// answer shows what a call to the master gave.
func (s *Server) answer(t state.Task, err error) (*taskOutput, error) {
	if err != nil {
		return nil, wire.ProblemOf(err)
	}
	return &taskOutput{ETag: etag(t.Seq), Body: s.detail(t)}, nil
}

func (s *Server) task(ctx context.Context, in *readInput) (*readOutput, error) {
	return in.answer(s.answer(s.master.Task(ctx, in.ID)))
}

// answer leaves the task out of the answer if the client has it.
func (in *readInput) answer(t *taskOutput, err error) (*readOutput, error) {
	if err != nil {
		return nil, err
	}
	out := &readOutput{Status: http.StatusOK, ETag: t.ETag, AcceptPatch: acceptPatch, Body: t.Body}
	if t.ETag != "" && slices.ContainsFunc(in.IfNoneMatch, func(tag string) bool {
		tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
		return tag == t.ETag || tag == "*"
	}) {
		out.Status = http.StatusNotModified
	}
	return out, nil
}

func (s *Server) cancel(ctx context.Context, in *actInput) (*taskOutput, error) {
	id, by := in.ID, ledger.ByClient
	if run := fromRun(ctx); run != "" {
		var err error
		if id, err = s.ownTask(ctx, run, in.ID); err != nil {
			return nil, wire.ProblemOf(err)
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
		return nil, wire.ProblemOf(ended(ctx, err))
	}
	return &checkOutput{Body: res}, nil
}

func (s *Server) wait(ctx context.Context, in *readInput) (*readOutput, error) {
	ctx, release := long(ctx)
	defer release()
	done, err := s.beginWait(ctx, in.ID)
	if err != nil {
		return nil, wire.ProblemOf(err)
	}
	defer done()
	t, err := s.master.Wait(ctx, in.ID)
	return in.answer(s.answer(t, ended(ctx, err)))
}

func (s *Server) why(_ context.Context, in *refInput) (*whyOutput, error) {
	why, err := s.master.Why(in.ID)
	if err != nil {
		return nil, wire.ProblemOf(err)
	}
	out := &whyOutput{}
	out.Body.Why = why
	return out, nil
}

func (s *Server) raw(ctx context.Context, in *refInput) (*textOutput, error) {
	text, err := s.master.Raw(ctx, in.ID)
	if err != nil {
		return nil, wire.ProblemOf(err)
	}
	return &textOutput{ContentType: "text/markdown; charset=utf-8", Body: text}, nil
}
