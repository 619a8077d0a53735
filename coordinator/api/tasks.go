package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/request"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

type (
	// A Ref names a task or a due job. It is exported because only exported fields of an input are set.
	Ref struct {
		ID string `path:"id" doc:"Its id, or any unique piece of that; of a task also @last" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	}

	// about names one with which something is done.
	about[T any] struct {
		Ref
		Body T
	}

	// with is an input that is a body alone.
	with[T any] struct{ Body T }

	// noBody is the body of what needs none: it may be {}, or be left out. A property in it
	// is refused: who sends one wants something else than would be done.
	noBody struct{}

	// getInput names a task that the client may have as it is.
	getInput struct {
		Ref
		IfNoneMatch []string `header:"If-None-Match" doc:"ETag of the task as you have it. If the task has no newer record, the answer is 304 without a body" example:"\"1043\""`
		sharedInput
	}

	editInput struct {
		Ref
		request.Match
		Body request.Patch
	}

	taskOutput struct {
		Status int    // 304: the client has the task
		ETag   string `header:"ETag" doc:"Changes with each record of the task"`
		Body   wire.TaskView
	}

	textOutput struct {
		ContentType string `header:"Content-Type"`
		Body        []byte
	}
)

func (s *Server) taskRoutes() {
	register(s, op(http.MethodGet, "/v1/tasks", "list-tasks", "List tasks, newest first, page by page", "100 tasks unless limit says otherwise; next and the header Link lead to the next page. With Accept: application/jsonl each line is a task. Results are left out, and prompts unless they are asked for. With shared there is one page, and note says on which machine a task is.", http.StatusConflict), s.list)
	register(s, op(http.MethodGet, "/v1/table", "list-tasks-as-text", "List tasks as a table for people", "What stint ls prints: a page of tasks, and before them all that run."), s.table)
	register(s, op(http.MethodGet, "/v1/events", "events", "Follow each change of a task", "An event `task` has a task as it is now and, as its id, the number of the task's newest record. "+
		"Of a task that has ended only the fields are there by which lists are filtered. "+
		"An event `resync` says that it cannot be told what has changed: list anew. "+
		"Whoever lists first gives the `Stint-Seq` of that answer as `after`, and misses nothing. "+
		"A reader that is too slow is cut off, and comes back with Last-Event-ID. With Accept: application/jsonl each line is a change. "+
		"With shared, all shared tasks that have not ended come first, and then those that a look each second finds changed; their seq is 0.", http.StatusConflict).watching(), s.events)
	register(s, op(http.MethodGet, "/v1/tasks/{id}", "get-task", "Show a task", "With prompt, answer, files and findings. why says why it does not run.").alias("/tasks/{id}"), s.task)

	register(s, op(http.MethodPatch, "/v1/tasks/{id}", "edit-task", "Change fields of a task that waits", "A JSON merge patch (RFC 7396): what it names is changed, null unsets, all of it or nothing. "+
		"With another session or agent the task leaves its session. What does not wait any more is a conflict.", http.StatusPreconditionFailed), func(ctx context.Context, in *editInput) (*taskOutput, error) {
		return s.answer(s.rooms.Edit(ctx, in.ID, task.Patch{Fields: in.Body, Seqs: in.Seqs}, ledger.ByClient))
	})

	for _, act := range []struct {
		name, summary, about string
		do                   func(c Master, ctx context.Context, ref, by string) (state.Task, error)
	}{
		{"cancel", "Cancel a task", "A waiting task ends at once. A running one ends when its agent and all descendants of that have ended.", s.cancel},
		{"retry", "Queue an ended task again", "It starts with its first attempt. This also lifts the hold of its account.", Master.Retry},
		{"remove", "Remove a task from the lists", "A waiting task is canceled. A running one is a conflict: cancel it before. So is one that others come after and would fail: remove these before. Id, final status and idempotency key still count.", Master.Remove},
		{"hold", "Hold a queued task", "It does not start until it is released. Tasks behind it in its lane pass it.", Master.Hold},
		{"release", "Release a held task", "It runs when its turn comes. This also ends a hold because an old agent may still be alive.", Master.Release},
	} {
		more := map[string][]int{"cancel": {http.StatusLocked}} // where the run does not end in time
		register(s, op(http.MethodPost, "/v1/tasks/{id}/"+act.name, act.name+"-task", act.summary, act.about, more[act.name]...), func(ctx context.Context, in *about[*noBody]) (*taskOutput, error) {
			return s.answer(act.do(s.rooms.Master, ctx, in.ID, ledger.ByClient))
		})
	}
	register(s, op(http.MethodPost, "/v1/tasks/{id}/move", "move-task", "Move a queued task in its lane", "To the front, or before another task of the lane. One of first and before is needed."), func(ctx context.Context, in *about[task.Place]) (*taskOutput, error) {
		return s.answer(s.rooms.Move(ctx, in.ID, in.Body, ledger.ByClient))
	})
	register(s, op(http.MethodGet, "/v1/tasks/{id}/wait", "wait-task", "Wait until a task has ended", "The answer comes when the task has ended, which may take days."), lasting(s.wait))
	answers(s, op(http.MethodGet, "/v1/tasks/{id}/why", "why-task", "Say why a task does not run", "One sentence: what it waits for, what it does, or how it ended."), func(_ context.Context, in *Ref) (wire.WhyBody, error) {
		why, err := s.rooms.Why(in.ID)
		return wire.WhyBody{Why: why}, err
	})
	register(s, op(http.MethodGet, "/v1/tasks/{id}/raw", "raw-task", "Show the records of a task in the ledger", "Its sections, in Markdown."), func(ctx context.Context, in *Ref) (*textOutput, error) {
		text, err := s.rooms.Raw(ctx, in.ID)
		return &textOutput{ContentType: "text/markdown; charset=utf-8", Body: text}, err
	})
}

// answer shows the task that a call to the master returned.
func (s *Server) answer(t state.Task, err error) (*taskOutput, error) {
	if err != nil {
		return nil, err
	}
	return &taskOutput{ETag: request.ETag(t.Seq), Body: s.detail(t)}, nil
}

func (s *Server) task(ctx context.Context, in *getInput) (*taskOutput, error) {
	shared, err := s.shared(ctx, in.Shared, false)
	task := s.rooms.Task
	if shared != nil {
		task = shared.Task
	}
	if err != nil {
		return nil, err
	}
	out, err := s.answer(task(ctx, in.ID))
	if err != nil {
		return nil, err
	}
	if shared != nil { // the ledger does not know it
		out.Body.Waits, out.Body.Why = "", ""
	}
	if out.ETag != "" && slices.ContainsFunc(in.IfNoneMatch, func(tag string) bool {
		tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
		return tag == out.ETag || tag == "*"
	}) {
		out.Status = http.StatusNotModified
	}
	return out, nil
}

func (s *Server) wait(ctx context.Context, in *Ref) (*taskOutput, error) {
	done, err := s.beginWait(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	defer done()
	return s.answer(s.rooms.Wait(ctx, in.ID))
}

// cancel ends a task. A run may cancel only what its own task's agent has asked for.
func (s *Server) cancel(c Master, ctx context.Context, ref, by string) (state.Task, error) {
	run := guard.Run(ctx)
	if run == "" {
		return c.Cancel(ctx, ref, by)
	}
	t, err := s.rooms.Task(ctx, ref)
	if err != nil {
		return t, err
	}
	parent, err := s.rooms.Task(ctx, t.TriggeredBy)
	if t.Trigger != state.ByAgent || err != nil || parent.RunID != run || parent.Status != state.Running {
		return t, task.ErrFromRun
	}
	return c.Cancel(ctx, t.ID, ledger.ByAgent) // what ref means may be another task a moment later
}
