package api

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"time"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/request"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

type (
	submitInput struct {
		request.Key
		Body request.Task
	}

	batchInput struct {
		request.Key
		Body request.Batch
	}

	submitOutput struct {
		Status   int
		Location string `header:"Location"`
		Body     any    // a TaskView, or what writes a ListBody
	}
)

func (s *Server) submitRoutes() {
	const spellings = "A property may also be spelled with underscores (session_key), agent as tool, sessionKey as session, tenantId as tenant, " +
		"outputSpec as output_files, notBefore as scheduled_at, verifyCommand as verify."
	submit := op(http.MethodPost, "/v1/tasks", "submit-task", "Submit a task", "201: the task is new, and durable. 200: it exists already, under that id or idempotency key. "+spellings+" A list of tasks is accepted here too, as at /v1/tasks/batch.",
		http.StatusConflict, http.StatusTooManyRequests)
	submit.most, submit.also = wire.MaxList, "/tasks"
	register(s, submit, func(ctx context.Context, in *submitInput) (*submitOutput, error) {
		return s.submit(ctx, in.Key.Key(), &in.Body)
	})
	batch := op(http.MethodPost, "/v1/tasks/batch", "submit-tasks", "Submit a list of tasks", "All of them are accepted, or none. 201: some are new, and durable. 200: all exist already. "+spellings,
		http.StatusConflict, http.StatusTooManyRequests)
	batch.most = wire.MaxList
	register(s, batch, func(ctx context.Context, in *batchInput) (*submitOutput, error) {
		return s.submit(ctx, in.Key.Key(), &in.Body.Task)
	})

	preview := op(http.MethodPost, "/v1/tasks/preview", "preview-tasks", "Show what would be run for tasks", "They are checked as at a submit, and their prompts are built. Nothing is kept, and no agent starts.", http.StatusConflict, http.StatusTooManyRequests)
	preview.most = wire.MaxList
	answers(s, preview, lasting(func(ctx context.Context, in *with[request.Tasks]) (out wire.PreviewBody, err error) {
		specs := in.Body.Specs
		for i := range specs {
			s.number(ctx, &specs[i])
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
	specs := body.Specs
	numbers := make([]number, len(specs))
	for i := range specs {
		numbers[i] = s.number(ctx, &specs[i])
	}
	if !body.IsList {
		spec := specs[0]
		if key != "" && spec.IdempotencyKey != "" && key != spec.IdempotencyKey {
			return nil, task.Wrong("idempotencyKey", "leave one of them out", "the header %s and idempotencyKey mean the same, and differ", request.KeyHeader)
		}
		spec.IdempotencyKey = cmp.Or(spec.IdempotencyKey, key)
		t, err := s.rooms.Submit(ctx, spec)
		return &submitOutput{Status: numbers[0].status(&t), Location: "/v1/tasks/" + url.PathEscape(t.ID), Body: s.submitted(t)}, err
	}
	tasks, err := s.rooms.SubmitOnce(ctx, key, specs)
	if err != nil {
		return nil, err
	}
	status := http.StatusOK
	for i := range tasks {
		status = max(status, numbers[i].status(&tasks[i])) // one of them is new
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

// A number is the id that a task would have if it were new.
type number struct {
	id     string
	chosen bool // by the client
	begun  time.Time
}

// number completes a spec: with an id if the client has chosen none, and with the run
// that asks, which has no environment of its own.
func (s *Server) number(ctx context.Context, spec *task.TaskSpec) number {
	n := number{chosen: spec.ID != "", begun: s.opts.Now().Truncate(time.Millisecond)} // as exact as createdAt in the ledger
	if !n.chosen {
		spec.ID = s.opts.NewID()
	}
	n.id, spec.FromRun, spec.Environment = spec.ID, guard.Run(ctx), environment(ctx, spec.Environment)
	return n
}

// status returns the HTTP status for the task that was made, or found.
func (n *number) status(t *state.Task) int {
	if t.ID != n.id || n.chosen && t.CreatedAt.Before(n.begun) {
		return http.StatusOK
	}
	return http.StatusCreated
}
