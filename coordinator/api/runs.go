package api

import (
	"context"
	"mime"
	"net/http"
	"path"
	"time"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

type (
	promptInput struct {
		Ref
		Run string `query:"run" doc:"A run of its agent: its id, a unique piece of it, or its number from 1; the last one if left out" example:"1"`
	}

	filesInput struct {
		Ref
		Run string `query:"run" doc:"What lies in the directory of that run, of the files that the task names: its id, a unique piece of it, or the number from 1 of one of its agent. If left out: what was collected after the last one" example:"1"`
	}

	fileInput struct {
		Ref
		Name  string `path:"name" doc:"As the list of files has it; its slashes may be escaped" example:"report.md"`
		Run   string `query:"run" doc:"As with the list of files" example:"1"`
		Range string `header:"Range" doc:"Of bytes, such as bytes=0-999, or bytes=-1000 for the last ones" example:"bytes=-1000"`
	}
)

func (s *Server) runRoutes() {
	answers(s, op(http.MethodGet, "/v1/tasks/{id}/prompt", "task-prompt", "Show the prompt of a run", "What the agent read on its standard input, and what was found for it in the notes."), func(ctx context.Context, in *promptInput) (task.SentPrompt, error) {
		return s.rooms.SentPrompt(ctx, in.ID, in.Run)
	})
	answers(s, op(http.MethodGet, "/v1/tasks/{id}/runs", "task-runs", "List the runs of a task, the oldest first", "Turns of the agent, runs of the verify command and of the evaluator, with what each has used."), func(ctx context.Context, in *Ref) (wire.RunsBody, error) {
		runs, err := s.rooms.Runs(ctx, in.ID)
		return wire.RunsBody{Runs: notNull(runs)}, err
	})
	answers(s, op(http.MethodGet, "/v1/tasks/{id}/files", "task-files", "List the files of a task", "Those that came with it, and those that were collected after its last run or, with run, what lies in the directory of that one."), func(ctx context.Context, in *filesInput) (task.TaskFiles, error) {
		return s.rooms.Files(ctx, in.ID, in.Run)
	})
	register(s, op(http.MethodGet, "/v1/tasks/{id}/files/{name}", "task-file", "Read a file of a task", "The content, in whole or the part that Range names.", http.StatusRequestedRangeNotSatisfiable).alias("/v1/tasks/{id}/files/{name...}"), s.file) // the other path has a name with slashes
	register(s, op(http.MethodGet, "/v1/tasks/{id}/logs", "task-logs", "Read what the runs of a task wrote", "The runs of the last attempt, in their order, or with run one of them. Of stream=events each line is a LogEvent, and stint logs shows it. With follow the answer goes on until the task has ended.", http.StatusRequestedRangeNotSatisfiable), s.logs)
}

func (s *Server) file(ctx context.Context, in *fileInput) (*streamOutput, error) {
	content, err := s.rooms.OpenFile(ctx, in.ID, in.Run, in.Name)
	if err != nil {
		return nil, err
	}
	return &streamOutput{Body: func(w http.ResponseWriter, r *http.Request) {
		defer func() { _ = content.Close() }() // it was only read
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(in.Name)}))
		w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'") // no browser shows it as a page of ours, or at all
		http.ServeContent(&rangeWriter{ResponseWriter: w}, r, "", content.Modified, content)
	}}, nil
}

// A rangeWriter is for [http.ServeContent]. It makes a problem of a range that cannot be had, which net/http tells as plain text.
// Of a content that changes while it is read, the answer ends before its length is reached, which the client sees.
type rangeWriter struct {
	http.ResponseWriter
	refused bool
}

// WriteHeader implements [http.ResponseWriter].
func (w *rangeWriter) WriteHeader(status int) {
	if w.refused = status == http.StatusRequestedRangeNotSatisfiable; !w.refused {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.Header().Set("Cache-Control", "no-store") // net/http takes it away
	p := wire.NewProblem(status, "the header Range names nothing that is there; Content-Range says how many bytes there are", "for the last 1000 of them: Range: bytes=-1000")
	p.Field = "Range"
	p.Write(w.ResponseWriter)
}

// Write implements [io.Writer].
func (w *rangeWriter) Write(b []byte) (int, error) {
	if w.refused {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// patience is how long a request waits for others that cost as much.
const patience = 10 * time.Second

// A turnstile lets some requests pass at once; the others wait.
type turnstile chan struct{}

// enter waits for its turn, which lasts until leave is called. It gives up when the client does, or when it takes too long.
func (t turnstile) enter(ctx context.Context) (leave func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(patience):
		return nil, &task.Error{Code: task.CodeTooMany, Message: "others ask for the same, which takes long, and only a few can at once", Hint: "try again"}
	}
}
