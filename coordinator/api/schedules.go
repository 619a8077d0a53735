package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// Schedules are the schedules of the master.
type Schedules interface {
	// Schedules returns them in the order of the configuration.
	Schedules(ctx context.Context) ([]task.Schedule, error)
	// JobRuns returns how firings of a schedule went, the newest first.
	JobRuns(ctx context.Context, name string, most int) ([]task.JobRun, error)
	// ActOnSchedule fires a schedule now, pauses or resumes it: run, pause or resume.
	ActOnSchedule(ctx context.Context, name, act string) (task.Schedule, error)
}

type (
	scheduleInput struct {
		Name string `path:"name" doc:"Name of the schedule" example:"nightly"`
		Body *noBody
	}
	jobRunsInput struct {
		Name  string `path:"name" doc:"Name of the schedule" example:"nightly"`
		Limit int    `query:"limit" default:"100" minimum:"1" maximum:"10000" doc:"How many at most" example:"100"`
	}
)

func (s *Server) scheduleRoutes(api huma.API) {
	answers(api, op(http.MethodGet, "/v1/schedules", "list-schedules", "List schedules", "When each fires next, and how it went last."), func(ctx context.Context, _ *struct{}) (wire.SchedulesBody, error) {
		list, err := s.rooms.Schedules.Schedules(ctx)
		return wire.SchedulesBody{Schedules: notNull(list)}, err
	})
	answers(api, op(http.MethodGet, "/v1/schedules/{name}/runs", "list-job-runs", "List the firings of a schedule", "Those that have ended or were skipped, the newest first."), func(ctx context.Context, in *jobRunsInput) (wire.JobRunsBody, error) {
		list, err := s.rooms.Schedules.JobRuns(ctx, in.Name, in.Limit)
		return wire.JobRunsBody{Runs: notNull(list)}, err
	})
	for _, act := range [][3]string{
		{"run", "Fire a schedule now", "Besides its other firings, and whatever its overlap says."},
		{"pause", "Pause a schedule", "It does not fire until it is resumed, also after a restart."},
		{"resume", "Resume a schedule", "It fires from now on; what was due while it was paused is not made up for."},
	} {
		answers(api, op(http.MethodPost, "/v1/schedules/{name}/"+act[0], act[0]+"-schedule", act[1], act[2]), func(ctx context.Context, in *scheduleInput) (task.Schedule, error) {
			return s.rooms.Schedules.ActOnSchedule(ctx, in.Name, act[0])
		})
	}
}
