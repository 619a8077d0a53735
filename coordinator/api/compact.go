package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger/journal"
)

type (
	compactInput struct{ Body wire.CompactBody }

	compactOutput struct{ Body journal.CompactReport }
)

func (s *Server) compactRoutes(api huma.API) {
	huma.Register(api, op(http.MethodPost, "/v1/ledger/compact", "ledger-compact", "Merge records, and move tasks that ended long ago to the archive", "Afterwards each task that is left has one record. Ids, final statuses and idempotency keys of archived tasks still count.", http.StatusConflict), s.compact)
}

func (s *Server) compact(ctx context.Context, in *compactInput) (*compactOutput, error) {
	olderThan, err := time.ParseDuration(in.Body.OlderThan)
	if err != nil {
		return nil, wire.ProblemOf(task.Invalid("write for example 720h", "olderThan is no duration"))
	}
	ctx, release := long(ctx)
	defer release()
	r, err := s.master.Compact(ctx, olderThan, in.Body.DryRun)
	if err != nil {
		return nil, wire.ProblemOf(err)
	}
	return &compactOutput{Body: r}, nil
}
