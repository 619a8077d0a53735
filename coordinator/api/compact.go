package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"stint/ledger"
)

type (
	compactInput struct{ Body compactBody }

	compactBody struct {
		OlderThan string `json:"olderThan" doc:"Tasks that ended longer ago go to the archive: a Go duration such as 720h; 0s: all that have ended" example:"720h"`
		DryRun    bool   `json:"dryRun,omitempty" doc:"Only say what would be done" example:"true"`
	}

	compactOutput struct{ Body ledger.CompactReport }
)

func (s *Server) compactRoutes(api huma.API) {
	huma.Register(api, op(http.MethodPost, "/v1/ledger/compact", "ledger-compact", "Merge records, and move tasks that ended long ago to the archive", "Afterwards each task that is left has one record. Ids, final statuses and idempotency keys of archived tasks still count.", http.StatusConflict), s.compact)
}

func (s *Server) compact(ctx context.Context, in *compactInput) (*compactOutput, error) {
	olderThan, err := time.ParseDuration(in.Body.OlderThan)
	if err != nil {
		return nil, asProblem(invalid("olderThan is no duration", "write for example 720h"))
	}
	ctx, release := long(ctx)
	defer release()
	r, err := s.master.Compact(ctx, olderThan, in.Body.DryRun)
	if err != nil {
		return nil, asProblem(err)
	}
	return &compactOutput{Body: r}, nil
}

// Compact makes the master merge records and move tasks that ended more than
// olderThan ago to the archive; with dryRun it only says what it would do.
func (c *Client) Compact(ctx context.Context, olderThan time.Duration, dryRun bool) (ledger.CompactReport, error) {
	var r ledger.CompactReport
	err := c.call(ctx, http.MethodPost, "/v1/ledger/compact", compactBody{OlderThan: olderThan.String(), DryRun: dryRun}, &r)
	return r, err
}
