package api

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/metrics"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger"
)

type readyBody struct {
	Ready  bool `json:"ready" doc:"Tasks are accepted" example:"true"`
	Paused bool `json:"paused" doc:"Dispatch is paused: no task starts" example:"false"`
}

func (s *Server) monitorRoutes() {
	answers(s, op(http.MethodPost, "/v1/agents", "list-agents", "List the agents as the master would run them", "With the names of the variables that each gets, and never a value."), lasting(func(ctx context.Context, in *with[wire.AgentsQuery]) (out wire.AgentsBody, err error) {
		if s.opts.LookAtAgents != nil {
			out.Agents = s.opts.LookAtAgents(ctx, environment(ctx, in.Body.Environment), in.Body.Probe && guard.Run(ctx) == "")
		}
		h := s.rooms.Health()
		out.Agents, out.PID, out.Background = notNull(out.Agents), h.PID, h.Background
		return out, nil
	}))
	answers(s, op(http.MethodGet, "/v1/health", "health", "Show how the master is", "It answers whatever is wrong: status and lastError say what.").watching(), func(context.Context, *struct{}) (task.Health, error) { return s.rooms.Health(), nil })
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { // also without a token: that the master answers, and whether on a port
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, "{\"status\":\"ok\",\"api_enabled\":%t}\n", s.port.Load() != nil) // the client may be gone
	})
	answers(s, op(http.MethodGet, "/v1/ready", "ready", "Report whether the master accepts tasks", "200 if it does. If it does not, 503 with the reason. Dispatch may be paused all the same.", http.StatusServiceUnavailable).alias("/ready").watching(), func(context.Context, *struct{}) (readyBody, error) {
		if err := s.rooms.Unready(); err != nil {
			why := wire.ProblemOf(err)
			p := wire.NewProblem(http.StatusServiceUnavailable, why.Detail, why.Hint)
			p.Code = why.Code
			return readyBody{}, p
		}
		paused, _ := s.rooms.Paused()
		return readyBody{Ready: true, Paused: paused}, nil
	})
	register(s, op(http.MethodGet, "/v1/metrics", "metrics", "Show metrics for Prometheus", "Text of its format 0.0.4. Counters start at 0 with the master.").alias("/metrics").watching(), func(ctx context.Context, _ *struct{}) (*textOutput, error) {
		m, due := s.rooms.Metrics(), s.rooms.Jobs.Metrics()
		m.Shared = s.sharedNow(ctx)
		return &textOutput{ContentType: metrics.ContentType, Body: metrics.Text(&m, &due)}, nil
	})
}

func (s *Server) controlRoutes() {
	register(s, op(http.MethodPost, "/v1/pause", "pause", "Pause dispatch", "No task starts until dispatch is resumed, also after a restart. Present runs go on."), func(ctx context.Context, in *with[*wire.PauseBody]) (*struct{}, error) {
		return &struct{}{}, s.rooms.Pause(ctx, in.Body.Reason, ledger.ByClient)
	})
	register(s, op(http.MethodPost, "/v1/resume", "resume", "Resume dispatch", "Tasks start again."), func(ctx context.Context, _ *with[*noBody]) (*struct{}, error) {
		return &struct{}{}, s.rooms.Resume(ctx, ledger.ByClient)
	})
	register(s, op(http.MethodPost, "/v1/handover", "handover", "Start nothing more, and exit after the present runs", "The next master goes on with the queue. stint serve asks a master in the background for this, and stint serve --stop any."), func(ctx context.Context, _ *with[*noBody]) (*struct{}, error) {
		return &struct{}{}, s.rooms.Handover(ctx)
	})
	answers(s, op(http.MethodGet, "/v1/ledger/findings", "ledger-findings", "List what is wrong in the ledger", "Each finding has a file and a line. A record that cannot be read is set aside; all others count."), func(context.Context, *struct{}) (wire.FindingsBody, error) {
		return wire.FindingsBody{Findings: notNull(s.rooms.Findings())}, nil
	})
	answers(s, op(http.MethodPost, "/v1/ledger/reconcile", "ledger-reconcile", "Adopt what people changed in tasks.md now", "The master does so by itself soon after each save. With accept, edits that are quarantined because a formatter may have made them are adopted too."), func(ctx context.Context, in *with[wire.ReconcileBody]) (task.Reconciled, error) {
		return s.rooms.Reconcile(ctx, in.Body.Accept)
	})
	answers(s, op(http.MethodPost, "/v1/ledger/compact", "ledger-compact", "Merge records, and move tasks that ended long ago to the archive", "Afterwards each task that is left has one record. Ids, final statuses and idempotency keys of archived tasks still count.", http.StatusConflict), lasting(func(ctx context.Context, in *with[wire.CompactBody]) (wire.Compacted, error) {
		olderThan, err := time.ParseDuration(in.Body.OlderThan)
		if err != nil {
			return wire.Compacted{}, task.Invalid("write for example 720h", "olderThan is no duration")
		}
		return s.rooms.Compact(ctx, olderThan, in.Body)
	}))
	answers(s, op(http.MethodPost, "/v1/ledger/prune", "ledger-prune", "Remove the files of tasks that ended long ago", "Those of their runs, and the transcripts of sessions that cannot be resumed. The records stay. The master does so by itself every hour."), lasting(func(ctx context.Context, in *with[wire.PruneBody]) (task.Pruned, error) {
		olderThan, err := time.ParseDuration(in.Body.OlderThan)
		if err != nil || olderThan < 0 {
			return task.Pruned{}, task.Invalid("write for example 720h", "olderThan is no duration")
		}
		return s.rooms.Prune(ctx, olderThan, in.Body.DryRun)
	}))
	register(s, op(http.MethodGet, "/v1/state", "state", "Dump the state of the master as text", "To compare it with what a fold of the journal gives. The format may change."), func(context.Context, *struct{}) (*textOutput, error) {
		var text bytes.Buffer
		err := s.rooms.Dump(&text)
		return &textOutput{ContentType: "text/plain; charset=utf-8", Body: text.Bytes()}, err
	})
}

// Schedules are the schedules of the master.
type Schedules interface {
	// Schedules returns them in the order of the configuration. With a list, the error says what is wrong there.
	Schedules(ctx context.Context) ([]task.Schedule, error)
	// JobRuns returns how firings of a schedule went, the newest first.
	JobRuns(ctx context.Context, name string, most int) ([]task.JobRun, error)
	// ActOnSchedule fires a schedule, pauses or resumes it: run, pause or resume. at is now, and names a firing.
	ActOnSchedule(ctx context.Context, name, act string, at time.Time) (task.Schedule, error)
}

type (
	scheduleInput struct {
		Name string `path:"name" doc:"Name of the schedule" example:"nightly"`
		Body *wire.MomentBody
	}
	jobRunsInput struct {
		Name  string `path:"name" doc:"Name of the schedule" example:"nightly"`
		Limit int    `query:"limit" default:"100" minimum:"1" maximum:"10000" doc:"How many at most" example:"100"`
	}
)

func (s *Server) scheduleRoutes() {
	answers(s, op(http.MethodGet, "/v1/schedules", "list-schedules", "List schedules", "When each fires next, and how it went last."), func(ctx context.Context, _ *struct{}) (wire.SchedulesBody, error) {
		list, err := s.rooms.Schedules.Schedules(ctx)
		out := wire.SchedulesBody{Schedules: notNull(list)}
		if err != nil && list != nil {
			out.Finding, err = err.Error(), nil
		}
		return out, err
	})
	answers(s, op(http.MethodGet, "/v1/schedules/{name}/runs", "list-job-runs", "List the firings of a schedule", "Those that have ended or were skipped, the newest first."), func(ctx context.Context, in *jobRunsInput) (wire.JobRunsBody, error) {
		list, err := s.rooms.Schedules.JobRuns(ctx, in.Name, in.Limit)
		return wire.JobRunsBody{Runs: notNull(list)}, err
	})
	for _, act := range [][3]string{
		{"run", "Fire a schedule now", "Besides its other firings, and whatever its overlap says."},
		{"pause", "Pause a schedule", "It does not fire until it is resumed, also after a restart."},
		{"resume", "Resume a schedule", "It fires from now on; what was due while it was paused is dropped."},
	} {
		answers(s, op(http.MethodPost, "/v1/schedules/{name}/"+act[0], act[0]+"-schedule", act[1], act[2]), func(ctx context.Context, in *scheduleInput) (task.Schedule, error) {
			return s.rooms.Schedules.ActOnSchedule(ctx, in.Name, act[0], in.Body.At)
		})
	}
}
