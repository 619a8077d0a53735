package api

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

type (
	runsOutput struct {
		Body struct {
			Runs []task.TaskRun `json:"runs" doc:"The runs, oldest first"`
		}
	}

	filesInput struct {
		ID  string `path:"id" doc:"A task: its id, any unique piece of it, or @last" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"` // huma cannot set an embedded refInput
		Run string `query:"run" doc:"What lies in the directory of that run, of the files that the task names: its id, a unique piece of it, or the number from 1 of one of its agent. If left out: what was collected after the last one" example:"1"`
	}

	filesOutput struct{ Body task.TaskFiles }

	fileInput struct {
		ID    string `path:"id" doc:"A task: its id, any unique piece of it, or @last" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
		Name  string `path:"name" doc:"As the list of files has it: its slashes are written as they are, whatever else is escaped" example:"report.md"`
		Run   string `query:"run" doc:"As with the list of files" example:"1"`
		Range string `header:"Range" doc:"Of bytes, such as bytes=0-999, or bytes=-1000 for the last ones" example:"bytes=-1000"`

		slashes bool // some are escaped
	}
)

func (s *Server) fileRoutes(api huma.API) {
	huma.Register(api, op(http.MethodGet, "/v1/tasks/{id}/runs", "task-runs", "List the runs of a task, the oldest first", "Turns of the agent, runs of the verify command and of the evaluator, with what each has used."), s.runs)
	huma.Register(api, op(http.MethodGet, "/v1/tasks/{id}/files", "task-files", "List the files of a task", "Those that came with it, and those that were collected after its last run or, with run, what lies in the directory of that one."), s.files)
	file := op(http.MethodGet, "/v1/tasks/{id}/files/{name}", "task-file", "Read a file of a task", "The content, in whole or the part that Range names.", http.StatusRequestedRangeNotSatisfiable)
	file.Responses = contentResponses("application/octet-stream", "The content, to be saved and not shown", "# Report\n")
	huma.Register(api, file, s.file)
	huma.Register(api, alias(file, "/v1/tasks/{id}/files/{name...}"), s.file) // a name with slashes
}

func (s *Server) runs(ctx context.Context, in *refInput) (*runsOutput, error) {
	list, err := s.master.Runs(ctx, in.ID)
	if err != nil {
		return nil, wire.ProblemOf(err)
	}
	out := &runsOutput{}
	out.Body.Runs = append([]task.TaskRun{}, list...)
	return out, nil
}

func (s *Server) files(ctx context.Context, in *filesInput) (*filesOutput, error) {
	list, err := s.master.Files(ctx, in.ID, in.Run)
	if err != nil {
		return nil, wire.ProblemOf(err)
	}
	return &filesOutput{Body: list}, nil
}

// Resolve notes how the name was written: one that needs another reading than ours to
// be understood is refused.
func (in *fileInput) Resolve(ctx huma.Context) []error {
	u := ctx.URL()
	in.slashes = strings.Contains(strings.ToLower(u.EscapedPath()), "%2f")
	return nil
}

// filePolicy keeps a browser from showing a file as a page of ours, or at all.
const filePolicy = "sandbox; default-src 'none'"

func (s *Server) file(ctx context.Context, in *fileInput) (*huma.StreamResponse, error) {
	if in.slashes {
		err := task.Error{Code: task.CodeInvalid, Message: "a slash of the path is escaped", Hint: "write it as it is", Field: "name"}
		return nil, wire.ProblemOf(&err)
	}
	content, err := s.master.OpenFile(ctx, in.ID, in.Run, in.Name)
	if err != nil {
		return nil, wire.ProblemOf(err)
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		defer func() { _ = content.Close() }() // it was only read
		hctx.SetHeader("Content-Type", "application/octet-stream")
		hctx.SetHeader("Content-Disposition", "attachment; filename*=UTF-8''"+extValue(path.Base(in.Name)))
		hctx.SetHeader("Content-Security-Policy", filePolicy)
		serveContent(hctx, content, content.Modified)
	}}, nil
}

// extValue writes a text as a value of RFC 8187: all but letters, digits and what cannot
// end anything is escaped.
func extValue(text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
