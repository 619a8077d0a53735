package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/metrics"
	"stint/coordinator/api/openapi"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger"
)

// Monitor is what is asked how the master is. GET /v1/health is about the process: it answers with 200, and
// says in one word how the master is ([task.HealthStatus]). GET /v1/ready is about tasks: 200
// while they are accepted, else 503 with the reason.
type Monitor interface {
	Health() task.Health
	// Unready returns why no task is accepted just now; nil if tasks are.
	Unready() error
	Metrics() task.Metrics
}

type readyBody struct {
	Ready  bool `json:"ready" doc:"Tasks are accepted" example:"true"`
	Paused bool `json:"paused" doc:"Dispatch is paused: no task starts" example:"false"`
}

type agentsInput struct{ Body wire.AgentsQuery }

func (s *Server) monitorRoutes(api huma.API) {
	health := op(http.MethodGet, "/v1/health", "health", "Show how the master is", "It answers whatever is wrong: status and lastError say what.")
	ready := op(http.MethodGet, "/v1/ready", "ready", "Report whether the master accepts tasks", "200 if it does. If it does not, 503 with the reason. Dispatch may be paused all the same.", http.StatusServiceUnavailable)
	scrape := op(http.MethodGet, "/v1/metrics", "metrics", "Show metrics for Prometheus", "Text of its format 0.0.4. Counters start at 0 with the master.")
	scrape.Responses = openapi.Content("The metrics", "text/plain", "stint_runs 1\n", false)
	agents := op(http.MethodPost, "/v1/agents", "list-agents", "List the agents as the master would run them", "With the names of the variables that each gets, and never a value.")
	answers(api, agents, lasting(func(ctx context.Context, in *agentsInput) (out wire.AgentsBody, err error) {
		if s.opts.LookAtAgents != nil {
			out.Agents = s.opts.LookAtAgents(ctx, environment(ctx, in.Body.Environment), in.Body.Probe && guard.Run(ctx) == "")
		}
		h := s.rooms.Monitor.Health()
		out.Agents, out.PID, out.Background = notNull(out.Agents), h.PID, h.Background
		return out, nil
	}))
	answers(api, health, func(context.Context, *struct{}) (task.Health, error) { return s.rooms.Monitor.Health(), nil })
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { // also without a token: that the master answers, and whether on a port
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, "{\"status\":\"ok\",\"api_enabled\":%t}\n", s.port.Load() != nil) // the client may be gone
	})
	for _, o := range [][]huma.Operation{{ready, scrape}, {alias(ready, "/ready"), alias(scrape, "/metrics")}} {
		answers(api, o[0], func(context.Context, *struct{}) (readyBody, error) {
			if err := s.rooms.Monitor.Unready(); err != nil {
				p := wire.ProblemOf(err)
				return readyBody{}, wire.NewProblem(http.StatusServiceUnavailable, p.Code, p.Detail, p.Hint)
			}
			paused, _ := s.rooms.Notices.Paused()
			return readyBody{Ready: true, Paused: paused}, nil
		})
		register(api, o[1], func(context.Context, *struct{}) (*textOutput, error) {
			m := s.rooms.Monitor.Metrics()
			return &textOutput{ContentType: metrics.ContentType, Body: metrics.Text(&m)}, nil
		})
	}
}

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
