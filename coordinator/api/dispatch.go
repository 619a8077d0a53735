package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/api/wire"
	"stint/ledger"
)

// Dispatch stops and starts the start of tasks.
type Dispatch interface {
	// Pause makes the master start no more tasks, durably; those at work go on.
	Pause(ctx context.Context, reason, by string) error
	// Resume makes the master start tasks again.
	Resume(ctx context.Context, by string) error
	// Handover makes the master start nothing more, and end after its runs.
	Handover(ctx context.Context) error
}

type pauseInput struct{ Body *wire.PauseBody }

func (s *Server) dispatchRoutes(api huma.API) {
	bare := func(path, id, summary, about string) huma.Operation {
		o := op(http.MethodPost, path, id, summary, about)
		o.DefaultStatus = http.StatusNoContent
		return o
	}
	register(api, bare("/v1/pause", "pause", "Pause dispatch", "No task starts until dispatch is resumed, also after a restart. Present runs go on."), func(ctx context.Context, in *pauseInput) (*struct{}, error) {
		reason := ""
		if in.Body != nil {
			reason = in.Body.Reason
		}
		return &struct{}{}, s.rooms.Dispatch.Pause(ctx, reason, ledger.ByClient)
	})
	register(api, bare("/v1/resume", "resume", "Resume dispatch", "Tasks start again."), func(ctx context.Context, _ *bareInput) (*struct{}, error) {
		return &struct{}{}, s.rooms.Dispatch.Resume(ctx, ledger.ByClient)
	})
	register(api, bare("/v1/handover", "handover", "Start nothing more, and exit after the present runs", "The next master goes on with the queue. stint serve asks a master in the background for this, and stint serve --stop any."), func(ctx context.Context, _ *bareInput) (*struct{}, error) {
		return &struct{}{}, s.rooms.Dispatch.Handover(ctx)
	})
}
