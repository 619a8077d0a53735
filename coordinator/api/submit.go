package api

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/request"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

type (
	submitInput[T any] struct {
		request.Key
		Body T
	}

	submitOutput struct {
		Status   int
		Location string `header:"Location"`
		Body     any    // a TaskView, or what writes a list of them
	}
)

func (s *Server) submitRoutes() {
	const spellings = "A property may also be spelled with underscores (session_key), agent as tool, sessionKey as session, tenantId as tenant, " +
		"outputSpec as output_files, notBefore as scheduled_at, verifyCommand as verify."
	register(s, op(http.MethodPost, "/v1/tasks", "submit-task", "Submit a task", "201: the task is new, and durable. 200: it exists already, under that id or idempotency key. "+spellings+" A list of tasks is accepted here too, as at /v1/tasks/batch.",
		http.StatusConflict, http.StatusTooManyRequests).upTo(wire.MaxList).alias("/tasks"), func(ctx context.Context, in *submitInput[request.Task]) (*submitOutput, error) {
		return s.submit(ctx, string(in.Key), &in.Body)
	})
	register(s, op(http.MethodPost, "/v1/tasks/batch", "submit-tasks", "Submit a list of tasks", "All of them are accepted, or none. 201: some are new, and durable. 200: all exist already. "+spellings,
		http.StatusConflict, http.StatusTooManyRequests).upTo(wire.MaxList), func(ctx context.Context, in *submitInput[request.Batch]) (*submitOutput, error) {
		return s.submit(ctx, string(in.Key), &in.Body.Task)
	})

	answers(s, op(http.MethodPost, "/v1/tasks/preview", "preview-tasks", "Show what would be run for tasks", "They are checked as at a submit, and their prompts are built. Nothing is kept, and no agent starts.", http.StatusConflict, http.StatusTooManyRequests).upTo(wire.MaxList), lasting(func(ctx context.Context, in *with[request.Tasks]) (out wire.PreviewBody, err error) {
		specs := in.Body.List
		for i := range specs {
			s.complete(ctx, &specs[i])
		}
		leave, err := s.searches.enter(ctx) // each of them has a search
		if err != nil {
			return out, err
		}
		defer leave()
		out.Previews, err = s.rooms.Preview(ctx, specs, in.Body.IsList)
		return out, err
	}))
}

// submit accepts tasks under the key of their request, which may be "".
func (s *Server) submit(ctx context.Context, key string, body *request.Task) (*submitOutput, error) {
	specs := body.List
	begun, status := s.opts.Now().Truncate(time.Millisecond), http.StatusOK // as exact as createdAt in the ledger
	for i := range specs {
		s.complete(ctx, &specs[i])
	}
	shared, err := s.shared(ctx, slices.ContainsFunc(specs, func(spec task.TaskSpec) bool { return spec.Shared }), true)
	if err != nil {
		return nil, err
	}
	room := submitter(s.rooms.Master)
	if shared != nil {
		room = shared
	}
	note := func(t *state.Task, id string) {
		if t.ID == id && (shared != nil || !t.CreatedAt.Before(begun)) {
			status = http.StatusCreated // one of them is new
		}
	}
	if !body.IsList {
		spec := specs[0]
		if key != "" && spec.IdempotencyKey != "" && key != spec.IdempotencyKey {
			return nil, task.Wrong("idempotencyKey", "leave one of them out", "the header %s and idempotencyKey mean the same, and differ", request.KeyHeader)
		}
		spec.IdempotencyKey = cmp.Or(spec.IdempotencyKey, key)
		t, err := room.Submit(ctx, spec)
		note(&t, spec.ID)
		location := "/v1/tasks/" + url.PathEscape(t.ID)
		if shared != nil {
			location += "?shared=true"
		}
		return &submitOutput{Status: status, Location: location, Body: s.submitted(t)}, err
	}
	tasks, err := room.SubmitOnce(ctx, key, specs)
	if err != nil {
		return nil, err
	}
	for i := range tasks {
		note(&tasks[i], specs[i].ID)
	}
	return &submitOutput{Body: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		row := func(i int) []byte { return wire.MustJSON(s.submitted(tasks[i])) } // a client reads the first of them meanwhile
		writeRows(w, status, len(tasks), row, `{"tasks":[`, ",", "]}\n")
	}}, nil
}

// submitted shows a task to who has sent it.
func (s *Server) submitted(t state.Task) wire.TaskView {
	t.Prompt, t.InputFiles = "", nil // the client has them
	v := s.view(t)
	v.TaskID = t.ID
	return v
}

// complete completes a spec: with an id if the client has chosen none, and with the run
// that asks, which has no environment of its own.
func (s *Server) complete(ctx context.Context, spec *task.TaskSpec) {
	if spec.ID == "" {
		spec.ID = s.opts.NewID()
	}
	spec.FromRun, spec.Environment = guard.Run(ctx), environment(ctx, spec.Environment)
}
