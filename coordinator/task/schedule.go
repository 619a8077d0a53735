package task

import "time"

// A Schedule is what clients see of one.
type Schedule struct {
	Name    string      `json:"name" example:"nightly" doc:"Its name"`
	Cron    string      `json:"cron" example:"0 3 * * *" doc:"When it fires: a cron expression, @daily and the like, or @every and a duration"`
	Zone    string      `json:"zone,omitempty" example:"Europe/Berlin" doc:"Time zone of the expression; left out: the master's"`
	Job     string      `json:"job,omitempty" example:"compact-tasks" doc:"The job of the master's own that it runs"`
	Title   string      `json:"title,omitempty" example:"Update the dependencies" doc:"First line of the prompt of the task that it queues"`
	Overlap string      `json:"overlap" enum:"skip,queue,parallel" example:"skip" doc:"What becomes of a firing while the one before goes on"`
	Missed  string      `json:"missed" enum:"once,skip,all" example:"once" doc:"Which firings are made up for that nobody was there for"`
	Most    int         `json:"missedMax" example:"10" doc:"How many at most"`
	Jitter  string      `json:"jitter,omitempty" example:"10m" doc:"Each firing is late by a part of it"`
	Paused  bool        `json:"paused" example:"false" doc:"It does not fire until it is resumed"`
	Origin  string      `json:"origin" example:"schedules.toml:3" doc:"Where it is configured"`
	Next    []time.Time `json:"next" example:"2026-12-01T03:00:00Z" doc:"Instants of the next firings"`
	Open    []time.Time `json:"open" example:"2026-11-30T03:00:00Z" doc:"Instants of the firings that have not ended"`
	Last    *JobRun     `json:"last,omitempty" doc:"The firing that has ended, or was skipped, last"`
}

// Outcomes of a [JobRun].
const (
	RunOK      = "ok"
	RunError   = "error"
	RunSkipped = "skipped"
)

// A JobRun is how a firing of a schedule went: a line of job_runs.jsonl.
type JobRun struct {
	Schedule  string    `json:"schedule" example:"nightly" doc:"Name of the schedule"`
	Scheduled time.Time `json:"scheduled" example:"2026-11-30T03:00:00Z" doc:"The instant for which it was scheduled; of several that were skipped, the last one"`
	Outcome   string    `json:"outcome" enum:"ok,error,skipped" example:"ok" doc:"How it went"`
	Reason    string    `json:"reason,omitempty" example:"missed" doc:"Why it was skipped, or the class of the task's failure"`
	Count     int       `json:"count,omitempty" example:"12" doc:"How many firings this line is about, if not one"`
	Started   time.Time `json:"started,omitzero" example:"2026-11-30T03:00:00.012Z" doc:"When it began"`
	Ended     time.Time `json:"ended" example:"2026-11-30T03:00:12.512Z" doc:"When it had ended"`
	Duration  float64   `json:"duration,omitempty" example:"12.5" doc:"Seconds between the two"`
	Task      string    `json:"task,omitempty" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11" doc:"Id of its task"`
	Detail    string    `json:"detail,omitempty" example:"no findings" doc:"What a job has done, or what went wrong, in one sentence"`
}
