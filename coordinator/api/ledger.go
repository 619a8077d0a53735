package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/task"
)

type (
	findingsOutput struct {
		Body struct {
			Findings []task.Finding `json:"findings" doc:"What is wrong, by file and line"`
		}
	}

	reconcileInput struct{ Body reconcileBody }

	reconcileBody struct {
		Accept bool `json:"accept,omitempty" doc:"Also adopt what is held because a formatter may have made it" example:"false"`
	}

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
		return nil, asProblem(err)
	}
	return &reconcileOutput{Body: t}, nil
}

// Findings gives what is wrong in the ledger.
func (c *Client) Findings(ctx context.Context) ([]task.Finding, error) {
	var out struct {
		Findings []task.Finding `json:"findings"`
	}
	err := c.call(ctx, http.MethodGet, "/v1/ledger/findings", nil, &out)
	return out.Findings, err
}

// Reconcile makes the master take over tasks.md now, and with accept also what is
// held as the work of a formatter.
func (c *Client) Reconcile(ctx context.Context, accept bool) (task.TakeOver, error) {
	var t task.TakeOver
	err := c.call(ctx, http.MethodPost, "/v1/ledger/reconcile", reconcileBody{Accept: accept}, &t)
	return t, err
}
