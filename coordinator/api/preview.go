package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

type previewOutput struct {
	Body struct {
		Previews []task.TaskPreview `json:"previews" doc:"A preview of each task, in the order in which they were sent"`
	}
}

type (
	promptInput struct {
		ID  string `path:"id" doc:"A task: its id, any unique piece of it, or @last" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"` // huma cannot set an embedded refInput
		Run string `query:"run" doc:"A run of its agent: its id, a unique piece of it, or its number from 1; the last one if left out" example:"1"`
	}

	promptOutput struct{ Body task.SentPrompt }
)

func (s *Server) promptRoutes(api huma.API) {
	huma.Register(api, op(http.MethodGet, "/v1/tasks/{id}/prompt", "task-prompt", "Show the prompt of a run", "What the agent read on its standard input, and what was found for it in the notes."), s.prompt)
}

func (s *Server) prompt(ctx context.Context, in *promptInput) (*promptOutput, error) {
	p, err := s.master.SentPrompt(ctx, in.ID, in.Run)
	if err != nil {
		return nil, wire.ProblemOf(err)
	}
	return &promptOutput{Body: p}, nil
}
