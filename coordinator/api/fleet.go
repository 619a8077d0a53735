package api

import (
	"context"
	"net/http"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state/jobs"
)

// Fleet looks after instances on other machines.
type Fleet interface {
	Instances() []task.Instance
	Instance(id string) (task.Instance, error)
	// Claim makes an instance a user's, and has it set up.
	Claim(ctx context.Context, id, user, tgUser string) (task.Instance, error)
	// SetBot names the token of an instance's bot by a reference, and has it written to the instance.
	SetBot(ctx context.Context, id, ref string) (task.Instance, error)
	// Act does one thing now, and says what came of it: act is check, sync (with repair, if wanted) or recover.
	Act(ctx context.Context, id, act string, repair bool) (detail string, err error)
	Servers() ([]task.Server, error)
	// Metrics returns the newest samples of a server, the oldest of them first.
	Metrics(server string, most int) ([]task.ServerMetric, error)
	// Usage returns the days of an instance ("": of all) from a date on.
	Usage(instance, from string) ([]task.UsageDay, error)
}

type (
	instanceInput struct {
		ID string `path:"id" doc:"Id of the instance" example:"shop"`
	}
	botInput struct {
		instanceInput
		Body struct {
			Ref string `json:"token_ref" doc:"Where the master finds the token: the path of a file of mode 600, or env:NAME" example:"/home/ana/keys/shop-bot"`
		}
	}
	actInput struct {
		instanceInput
		Repair bool `query:"repair" doc:"Of sync: correct what differs, and restart the service then" example:"true"`
		Body   *noBody
	}
	limitInput struct {
		Limit int `query:"limit" default:"100" minimum:"1" maximum:"10000" doc:"How many at most" example:"100"`
	}
	adminRunsInput struct {
		Name string `query:"job_name" doc:"Those of this schedule" example:"health_check"`
		limitInput
	}
	taskQueueInput struct {
		Status string `query:"status" enum:"pending,running,done,failed" doc:"Those of this status" example:"failed"`
		limitInput
	}
	metricsInput struct {
		ID string `path:"id" doc:"Id of the server" example:"s1"`
		limitInput
	}
	usageDailyInput struct {
		ID string `query:"instance_id" doc:"Those of this instance" example:"shop"`
	}
)

// adminPath is where document 004's interface for administrators is; no run may ask there.
const adminPath = "/api/v1/admin/"

// fleetRoutes registers what concerns instances and servers.
func (s *Server) fleetRoutes() {
	answers(s, op(http.MethodGet, "/v1/instances", "list-instances", "List instances", "Those of the configuration, with who has claimed them and how they are."), func(context.Context, *struct{}) (wire.InstancesBody, error) {
		return wire.InstancesBody{Instances: s.rooms.Fleet.Instances()}, nil
	})
	answers(s, op(http.MethodGet, "/v1/instances/{id}", "get-instance", "Show an instance", "It is asked for nothing: see check."), func(_ context.Context, in *instanceInput) (task.Instance, error) {
		return s.rooms.Fleet.Instance(in.ID)
	})
	answers(s, op(http.MethodPost, "/me/instances/claim", "claim-instance", "Claim an instance for a user", "It is set up within ten seconds. The same again changes nothing; what another user has claimed is a 409.", http.StatusConflict, http.StatusNotFound), func(ctx context.Context, in *with[wire.ClaimBody]) (task.Instance, error) {
		return s.rooms.Fleet.Claim(ctx, in.Body.Instance, in.Body.User, in.Body.TgUser)
	})
	answers(s, op(http.MethodPost, "/v1/instances/{id}/bot", "set-bot", "Name the token of an instance's bot", "By a reference: the token itself is in no request and no answer. It is written to the instance if that is claimed."), func(ctx context.Context, in *botInput) (task.Instance, error) {
		return s.rooms.Fleet.SetBot(ctx, in.ID, in.Body.Ref)
	})
	for _, act := range [][3]string{
		{"check", "Ask an instance how it is", "As the job health_check does. One that does not answer is a 409 that says why."},
		{"sync", "Compare the configuration of an instance", "As the job config_sync does. Values that may be secret are not shown."},
		{"recover", "Restart an instance", "As the job auto_recovery does: it returns when the instance answers again, or a 409 after 30 seconds."},
	} {
		answers(s, op(http.MethodPost, "/v1/instances/{id}/"+act[0], act[0]+"-instance", act[1], act[2], http.StatusConflict), lasting(func(ctx context.Context, in *actInput) (wire.DetailBody, error) {
			detail, err := s.rooms.Fleet.Act(ctx, in.ID, act[0], in.Repair)
			return wire.DetailBody{Detail: detail}, err
		}))
	}
	answers(s, op(http.MethodGet, "/v1/servers", "list-servers", "List servers", "Those of the configuration, with their newest samples."), func(context.Context, *struct{}) (wire.ServersBody, error) {
		list, err := s.rooms.Fleet.Servers()
		return wire.ServersBody{Servers: list}, err
	})
	answers(s, op(http.MethodGet, adminPath+"job-runs", "admin-job-runs", "List how jobs and schedules went", "The newest first.", http.StatusNotFound), func(ctx context.Context, in *adminRunsInput) (out wire.AdminRunsBody, err error) {
		list, err := s.rooms.Schedules.JobRuns(ctx, in.Name, in.Limit)
		out.Runs = []wire.AdminRun{}
		for i := range list {
			out.Runs = append(out.Runs, wire.AdminRunOf(&list[i]))
		}
		return out, err
	})
	answers(s, op(http.MethodGet, adminPath+"task-queue", "admin-task-queue", "List the queue of jobs", "The newest first: due jobs as document 004 has them. pending is queued, and failed also a dead letter."), func(_ context.Context, in *taskQueueInput) (out wire.QueueBody, err error) {
		out.Tasks = []wire.QueueRow{}
		for _, j := range s.rooms.Jobs.List(jobs.Filter{Newest: true, Limit: 1 << 30}) {
			if row := wire.QueueRowOf(&j, s.rooms.Fleet.Instance); (in.Status == "" || row.Status == in.Status) && len(out.Tasks) < in.Limit {
				out.Tasks = append(out.Tasks, row)
			}
		}
		return out, nil
	})
	answers(s, op(http.MethodPost, adminPath+"task-queue/{id}/retry", "admin-retry", "Queue a failed job again", "With all its attempts.", http.StatusConflict), func(ctx context.Context, in *about[*noBody]) (row wire.QueueRow, err error) {
		j, err := s.rooms.Jobs.Retry(ctx, in.ID)
		if err == nil {
			row = wire.QueueRowOf(&j, s.rooms.Fleet.Instance)
		}
		return row, err
	})
	answers(s, op(http.MethodGet, adminPath+"server-metrics/{id}", "admin-server-metrics", "List samples of a server", "The newest ones, the oldest of them first."), func(_ context.Context, in *metricsInput) (wire.MetricsBody, error) {
		list, err := s.rooms.Fleet.Metrics(in.ID, in.Limit)
		return wire.MetricsBody{Metrics: notNull(list)}, err
	})
	answers(s, op(http.MethodGet, adminPath+"usage-daily", "admin-usage-daily", "List what instances have used, day by day", "The oldest day first."), func(_ context.Context, in *usageDailyInput) (wire.UsageDailyBody, error) {
		list, err := s.rooms.Fleet.Usage(in.ID, "")
		return wire.UsageDailyBody{Days: notNull(list)}, err
	})
}
