package api

import (
	"context"
	"io"
	"net/http"
	"path"
	"slices"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// forRuns are the paths at which a run may POST; beside that it may read.
var forRuns = []string{"/v1/tasks", "/tasks", "/v1/tasks/batch", "/v1/tasks/preview", "/v1/tasks/*/cancel", "/v1/memory/search", "/v1/agents"}

// admit lets a request pass that changes something, with the run that it comes from,
// unless that run may not make it. Where nobody can tell, the connection ends: who has it
// is looked up anew only for another one.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (*http.Request, *wire.Problem) {
	run, err := guard.RunOf(r)
	if err != nil {
		w.Header().Set("Connection", "close")
		code := task.CodeForbidden
		if task.ShortageOf(err) != 0 {
			code = task.CodeShortage
			_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, wire.MaxBody)) // else net/http holds the connection for a while
			s.noteShortage(err)
		}
		return r, wire.ProblemOf(&task.Error{Code: code, Message: "nobody can tell whether an agent asks: " + err.Error(), Hint: "try again"})
	}
	if run == "" {
		return r, nil
	}
	if r.Method != http.MethodPost || !slices.ContainsFunc(forRuns, func(pattern string) bool { ok, _ := path.Match(pattern, r.URL.Path); return ok }) {
		return r, wire.ProblemOf(task.ErrFromRun)
	}
	return r.WithContext(guard.WithRun(r.Context(), run)), nil
}

// environment returns the environment of the user's call that a request has. One that comes
// over TCP, or from a run, has none: programs are looked for in it.
func environment(ctx context.Context, env []string) []string {
	if guard.OverTCP(ctx) || guard.Run(ctx) != "" {
		return nil
	}
	return env
}

// beginWait notes that the run which asks, if one does, waits for a task until done is
// called, or returns why it may not.
func (s *Server) beginWait(ctx context.Context, ref string) (done func(), err error) {
	run := guard.Run(ctx)
	if run == "" {
		return func() {}, nil
	}
	return s.rooms.Tasks.BeginWait(run, ref)
}
