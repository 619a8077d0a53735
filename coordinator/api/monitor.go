package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/api/metrics"
	"stint/coordinator/api/wire"
)

type readyOutput struct {
	Body struct {
		Ready  bool `json:"ready" doc:"Tasks are accepted" example:"true"`
		Paused bool `json:"paused" doc:"Dispatch is paused: no task starts" example:"false"`
	}
}

func (s *Server) monitorRoutes(api huma.API) {
	health := op(http.MethodGet, "/v1/health", "health", "Show how the master is", "It answers whatever is wrong: status and lastError say what.")
	huma.Register(api, health, s.health)
	huma.Register(api, alias(health, "/health"), s.health)

	ready := op(http.MethodGet, "/v1/ready", "ready", "Report whether the master accepts tasks", "200 if it does. If it does not, 503 with the reason. Dispatch may be paused all the same.", http.StatusServiceUnavailable)
	huma.Register(api, ready, s.ready)
	huma.Register(api, alias(ready, "/ready"), s.ready)

	scrape := op(http.MethodGet, "/v1/metrics", "metrics", "Show metrics for Prometheus", "Text of its format 0.0.4. Counters start at 0 with the master.")
	scrape.Responses = answers("The metrics", "text/plain", "stint_runs 1\n")
	huma.Register(api, scrape, s.metrics)
	huma.Register(api, alias(scrape, "/metrics"), s.metrics)
}

// health answers whatever is wrong: that is in the answer.
func (s *Server) health(context.Context, *struct{}) (*healthOutput, error) {
	return &healthOutput{Body: s.master.Health()}, nil
}

func (s *Server) ready(context.Context, *struct{}) (*readyOutput, error) {
	if err := s.master.Unready(); err != nil {
		p := wire.ProblemOf(err)
		return nil, wire.NewProblem(http.StatusServiceUnavailable, p.Code, p.Detail, p.Hint)
	}
	out := &readyOutput{}
	out.Body.Ready = true
	out.Body.Paused, _ = s.master.Paused()
	return out, nil
}

func (s *Server) metrics(context.Context, *struct{}) (*textOutput, error) {
	m := s.master.Metrics()
	return &textOutput{ContentType: metrics.ContentType, Body: metrics.Text(&m)}, nil
}
