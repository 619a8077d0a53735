package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/api/openapi"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger"
)

// Ledger looks after the files that hold all tasks.
type Ledger interface {
	// Dump writes the whole state as text, the same for the same state.
	Dump(w io.Writer) error
	// Reconcile takes over tasks.md now; with accept also what is quarantined as the work
	// of a formatter.
	Reconcile(ctx context.Context, accept bool) (task.Reconciled, error)
	// Compact merges records and moves tasks that ended more than olderThan ago to
	// the archive; with dryRun it only says what it would do, with keepFailed failed and
	// dead tasks stay.
	Compact(ctx context.Context, olderThan time.Duration, dryRun, keepFailed bool) (ledger.CompactReport, error)
	// Prune removes files of tasks that ended more than olderThan ago, and those beyond retention_size;
	// with dryRun it only says which.
	Prune(ctx context.Context, olderThan time.Duration, dryRun bool) (task.Pruned, error)
}

type (
	reconcileInput struct{ Body wire.ReconcileBody }

	compactInput struct{ Body wire.CompactBody }

	pruneInput struct{ Body wire.PruneBody }
)

func (s *Server) ledgerRoutes(api huma.API) {
	answers(api, op(http.MethodGet, "/v1/ledger/findings", "ledger-findings", "List what is wrong in the ledger", "Each finding has a file and a line. A record that cannot be read is set aside; all others count."), func(context.Context, *struct{}) (wire.FindingsBody, error) {
		return wire.FindingsBody{Findings: notNull(s.rooms.Notices.Findings())}, nil
	})
	answers(api, op(http.MethodPost, "/v1/ledger/reconcile", "ledger-reconcile", "Adopt what people changed in tasks.md now", "The master does so by itself soon after each save. With accept, edits that are quarantined because a formatter may have made them are adopted too."), func(ctx context.Context, in *reconcileInput) (task.Reconciled, error) {
		return s.rooms.Ledger.Reconcile(ctx, in.Body.Accept)
	})
	answers(api, op(http.MethodPost, "/v1/ledger/compact", "ledger-compact", "Merge records, and move tasks that ended long ago to the archive", "Afterwards each task that is left has one record. Ids, final statuses and idempotency keys of archived tasks still count.", http.StatusConflict), lasting(func(ctx context.Context, in *compactInput) (ledger.CompactReport, error) {
		olderThan, err := time.ParseDuration(in.Body.OlderThan)
		if err != nil {
			return ledger.CompactReport{}, task.Invalid("write for example 720h", "olderThan is no duration")
		}
		return s.rooms.Ledger.Compact(ctx, olderThan, in.Body.DryRun, in.Body.KeepFailed)
	}))
	answers(api, op(http.MethodPost, "/v1/ledger/prune", "ledger-prune", "Remove the files of tasks that ended long ago", "Those of their runs, and the transcripts of sessions that cannot be resumed. The records stay. The master does so by itself every hour."), lasting(func(ctx context.Context, in *pruneInput) (task.Pruned, error) {
		olderThan, err := time.ParseDuration(in.Body.OlderThan)
		if err != nil || olderThan < 0 {
			return task.Pruned{}, task.Invalid("write for example 720h", "olderThan is no duration")
		}
		return s.rooms.Ledger.Prune(ctx, olderThan, in.Body.DryRun)
	}))
	whole := op(http.MethodGet, "/v1/state", "state", "Dump the state of the master as text", "To compare it with what a fold of the journal gives. The format may change.")
	whole.Responses = openapi.Content("The state", "text/plain", "task 019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11 done\n", false)
	register(api, whole, func(context.Context, *struct{}) (*textOutput, error) {
		var text bytes.Buffer
		err := s.rooms.Ledger.Dump(&text)
		return &textOutput{ContentType: "text/plain; charset=utf-8", Body: text.Bytes()}, err
	})
}
