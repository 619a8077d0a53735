package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

type (
	findingsOutput struct {
		Body struct {
			Findings []task.Finding `json:"findings" doc:"What is wrong, by file and line"`
		}
	}

	reconcileInput struct{ Body wire.ReconcileBody }

	reconcileOutput struct{ Body task.TakeOver }
)

func (s *Server) ledgerRoutes(api huma.API) {
	huma.Register(api, op(http.MethodGet, "/v1/ledger/findings", "ledger-findings", "List what is wrong in the ledger", "Each finding has a file and a line. A record that cannot be read is set aside; all others count."), s.findings)
	huma.Register(api, op(http.MethodPost, "/v1/ledger/reconcile", "ledger-reconcile", "Adopt what people changed in tasks.md now", "The master does so by itself soon after each save. With accept, edits that are held because a formatter may have made them are adopted too."), s.reconcile)
}

func (s *Server) findings(context.Context, *struct{}) (*findingsOutput, error) {
	out := &findingsOutput{}
	out.Body.Findings = append([]task.Finding{}, s.master.Findings()...)
	return out, nil
}

func (s *Server) reconcile(ctx context.Context, in *reconcileInput) (*reconcileOutput, error) {
	t, err := s.master.Reconcile(ctx, in.Body.Accept)
	if err != nil {
		return nil, wire.ProblemOf(err)
	}
	return &reconcileOutput{Body: t}, nil
}
