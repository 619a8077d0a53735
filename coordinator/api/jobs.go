package api

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state/jobs"
)

// Jobs are the due jobs of the master. An id may be a unique piece of it, and isNew is false where a job
// has the key already; see [jobs.Spec] and its neighbours for what the others mean.
type Jobs interface {
	Enqueue(ctx context.Context, spec jobs.Spec) (job jobs.Job, isNew bool, err error)
	Pull(ctx context.Context, p jobs.Pull) ([]jobs.Job, error)
	Ack(ctx context.Context, id string, a jobs.Ack) (jobs.Job, error)
	Fail(ctx context.Context, id string, f jobs.Fail) (jobs.Job, error)
	Retry(ctx context.Context, id string) (jobs.Job, error)
	Job(id string) (jobs.Job, error)
	List(f jobs.Filter) []jobs.Job
	Metrics() jobs.Metrics
	View(f func(*jobs.State)) // f must not keep the state
}

type enqueueOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     jobs.Job
}

// maxJob is the largest body of a request about jobs, in bytes.
const maxJob = 1 << 20

// jobRoutes registers the interface of document 003, at its own paths and below /v1.
func (s *Server) jobRoutes() {
	const path = "/v1/scheduler/jobs"
	register(s, op(http.MethodPost, path, "enqueue-job", "Enqueue a due job", "201: it is new, and durable. 200: a job with its key exists already. Where no key is given, it is object_id:action:run_at. run_at must not be past.", http.StatusConflict).upTo(maxJob).alias(strings.TrimPrefix(path, "/v1")), func(ctx context.Context, in *with[jobs.Spec]) (*enqueueOutput, error) {
		job, isNew, err := s.rooms.Jobs.Enqueue(ctx, in.Body)
		out := &enqueueOutput{Status: http.StatusOK, Location: path + "/" + url.PathEscape(job.ID), Body: job}
		if isNew {
			out.Status = http.StatusCreated
		}
		return out, err
	})
	twice(s, op(http.MethodGet, path, "list-jobs", "List due jobs", "Those that are due first come first, and those that have ended last."), func(_ context.Context, in *jobs.Filter) (wire.JobsBody, error) {
		if in.Limit = cmp.Or(in.Limit, jobs.DefaultLimit); in.Limit < 1 || in.Limit > jobs.MaxLimit {
			return wire.JobsBody{}, task.Wrong("limit", "stint job ls --help", "limit is %d; it has to be from 1 to %d", in.Limit, jobs.MaxLimit)
		}
		return wire.JobsBody{Jobs: notNull(s.rooms.Jobs.List(*in))}, nil
	})
	twice(s, op(http.MethodGet, path+"/{id}", "get-job", "Show a due job", "Also one that has ended, while it is in jobs.md."), func(_ context.Context, in *Ref) (jobs.Job, error) {
		return s.rooms.Jobs.Job(in.ID)
	})
	twice(s, op(http.MethodPost, path+"/pull", "pull-jobs", "Pull jobs that are due", "They are the worker's until their leases end, by run_at and then priority. A job that is neither acknowledged nor failed by then has lost an attempt, and is due again."), func(ctx context.Context, in *with[jobs.Pull]) (wire.JobsBody, error) {
		list, err := s.rooms.Jobs.Pull(ctx, in.Body)
		return wire.JobsBody{Jobs: notNull(list)}, err
	})
	twice(s, op(http.MethodPost, path+"/{id}/ack", "ack-job", "Acknowledge a job that was done", "With next_action_at, the next job of the same object and action is queued in the same change."), func(ctx context.Context, in *about[jobs.Ack]) (jobs.Job, error) {
		return s.rooms.Jobs.Ack(ctx, in.ID, in.Body)
	})
	twice(s, op(http.MethodPost, path+"/{id}/fail", "fail-job", "Report that an attempt has failed", "The job is due again after its delay, or, once its attempts are used up, a dead letter. The same request again changes nothing."), func(ctx context.Context, in *about[jobs.Fail]) (jobs.Job, error) {
		return s.rooms.Jobs.Fail(ctx, in.ID, in.Body)
	})
	twice(s, op(http.MethodPost, path+"/{id}/retry", "retry-job", "Queue a dead letter again", "It is due now, and has all its attempts again."), func(ctx context.Context, in *about[*noBody]) (jobs.Job, error) {
		return s.rooms.Jobs.Retry(ctx, in.ID)
	})
}

// twice adds an operation about jobs, also without /v1 in its path.
func twice[I, T any](s *Server, o operation, handler func(context.Context, *I) (T, error)) {
	answers(s, o.upTo(maxJob).alias(strings.TrimPrefix(o.path, "/v1")), handler)
}

// DueJobs returns the jobs that are at work, those that are due, and the newest dead letters, of each at most that many.
func DueJobs(st *jobs.State, now time.Time, most int) []jobs.Job {
	newest := func(status string) []jobs.Job {
		return st.List(jobs.Filter{Status: status, Newest: true, Limit: most})
	}
	return slices.Concat(newest(jobs.Running), st.Due(jobs.Pull{Now: now, Limit: most}), newest(jobs.DeadLetter))
}
