// Package jobs says what due jobs are: what stands in the records of jobs.md, which of them are due, and what may become of each.
//
// A [Job] asks for one action on one object of memory, once its time has come. [State] is the fold
// of the records. The package does no I/O and reads no clock.
package jobs

import (
	"cmp"
	"fmt"
	"time"

	"stint/state"
)

// The statuses of a job.
const (
	Queued     = "queued"      // waits for its time, or to be pulled
	Running    = "running"     // a worker has it, until its lease ends
	Succeeded  = "succeeded"   // acknowledged
	Failed     = "failed"      // ended by a person, who wrote so; or of an instance, until pending_task_retry queues it again
	DeadLetter = "dead_letter" // attempts used up
)

// The closed sets of a job's words, as the tags have them too; of priorities the highest is first.
var (
	Statuses    = []string{Queued, Running, Succeeded, Failed, DeadLetter}
	ObjectTypes = []string{"memory", "experience", "cognition", Instance}
	Actions     = []string{"verify", "revalidate", "decay", "archive", "reinstate-check", InitInstance}
	Priorities  = []string{"high", "medium", "low"}
)

// What is done with an instance, by the master itself; see package fleet.
const (
	Instance     = "instance"
	InitInstance = "init_instance"
)

// What a job has that names nothing else, and the bounds of what can be asked for.
const (
	DefaultPriority    = "medium"
	DefaultMaxAttempts = 3
	DefaultRetryDelay  = 300 // seconds
	DefaultLimit       = 100
	MaxLimit           = 1000

	mostText  = 64 << 10 // bytes of a text that is no name, and can have lines
	lateMost  = 10 * time.Second
	aheadMost = time.Minute
)

// The tags enum, min and max say what a field can have: see [field].

// A Spec asks for a job.
type Spec struct {
	ObjectType     string    `json:"object_type" enum:"memory,experience,cognition,instance" doc:"What kind of object it is about" example:"cognition"`
	ObjectID       string    `json:"object_id" min:"1" max:"512" doc:"Id of that object" example:"cg_123"`
	Action         string    `json:"action" enum:"verify,revalidate,decay,archive,reinstate-check,init_instance" doc:"What is to be done with it" example:"revalidate"`
	RunAt          time.Time `json:"run_at" min:"1" doc:"From when on it can be pulled; not in the past when it is asked for" example:"2026-12-01T00:00:00Z"`
	Priority       string    `json:"priority,omitempty" enum:"low,medium,high" doc:"Of jobs with the same run_at, high is pulled first; left out: medium" example:"medium"`
	MaxAttempts    int       `json:"max_attempts" required:"false" min:"1" max:"1000" doc:"With so many that failed or were lost it is a dead letter; left out or 0: 3" example:"3"`
	RetryDelaySec  int       `json:"retry_delay_sec" required:"false" min:"0" max:"31536000" doc:"Seconds from a failure until it can be pulled again; left out or 0: 300" example:"300"`
	IdempotencyKey string    `json:"idempotency_key,omitempty" min:"1" max:"1024" doc:"If a job has this key already, that job is the answer; left out: object_id:action:run_at. It keeps the first run_at" example:"cg_123:revalidate:2026-12-01T00:00:00Z"`
}

// A Job is a due job as clients see it. Its fields, but for the id, are those of its records.
type Job struct {
	ID      string `json:"job_id" doc:"Its id" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	Attempt int    `json:"attempt" min:"0" max:"1000000000" doc:"Attempts that failed or were lost" example:"0"`
	Spec
	Status       string    `json:"status" enum:"queued,running,succeeded,failed,dead_letter" doc:"What has become of it" example:"queued"`
	LastError    *string   `json:"last_error" doc:"Why its last attempt failed; null: none has" example:"timeout while verifying evidence"`
	WaitsFor     string    `json:"waits_for,omitempty" max:"4096" doc:"What a queued job about governed notes waits for" example:"the gate is closed for entries of high risk"`
	WorkerID     string    `json:"worker_id,omitempty" max:"512" doc:"Who has it, or had it last" example:"worker-1"`
	LeaseUntil   time.Time `json:"lease_until,omitzero" doc:"Of a running job: when it is taken from its worker" example:"2026-12-01T00:05:10Z"`
	NextActionAt time.Time `json:"next_action_at,omitzero" doc:"When the worker wanted the next such job; it is queued" example:"2026-12-08T00:00:00Z"`
	AuditEventID string    `json:"audit_event_id,omitempty" max:"1024" doc:"Audit event that the worker has named" example:"aud_789"`
	CreatedAt    time.Time `json:"created_at" doc:"When it was queued first" example:"2026-11-28T09:00:00Z"`
	UpdatedAt    time.Time `json:"updated_at" doc:"When it changed last" example:"2026-11-28T09:00:00Z"`
}

// Reason returns why the last attempt failed; "" if none has.
func (j *Job) Reason() string {
	if j.LastError == nil {
		return ""
	}
	return *j.LastError
}

// A Pull asks for jobs that are due.
type Pull struct {
	Now      time.Time `json:"now,omitzero" doc:"Jobs that are due then; at most a minute ahead of the master's clock. Left out: now" example:"2026-12-01T00:00:10Z"`
	Limit    int       `json:"limit,omitempty" min:"1" max:"1000" doc:"How many at most, 1 to 1000; left out: 100" example:"100"`
	WorkerID string    `json:"worker_id" min:"1" max:"512" doc:"Who takes them" example:"worker-1"`

	IDs []string        `json:"-"` // these jobs alone, whatever else is due; nil: any
	Is  func(*Job) bool `json:"-"` // those for which it holds; nil: any
}

// An Ack says that a job was done.
type Ack struct {
	Result       string    `json:"result,omitempty" enum:"succeeded" doc:"Left out: succeeded" example:"succeeded"`
	AuditEventID string    `json:"audit_event_id,omitempty" max:"512" doc:"Audit event of the worker's" example:"aud_789"`
	NextActionAt time.Time `json:"next_action_at,omitzero" doc:"When the same is to be done again: such a job is queued" example:"2026-12-08T00:00:00Z"`
	WorkerID     string    `json:"worker_id,omitempty" max:"512" doc:"Who has done it; left out: whoever has it" example:"worker-1"`
	Before       string    `json:"before,omitempty" max:"65536" doc:"The object as it was, for audit.jsonl" example:"status=active confidence=0.8"`
	After        string    `json:"after,omitempty" max:"65536" doc:"The object as it is now" example:"status=active confidence=0.9"`
	Evidence     string    `json:"evidence,omitempty" max:"65536" doc:"Why" example:"go.mod still names that version"`
	NoNext       bool      `json:"-"` // NextActionAt is kept, and no job is queued for it
}

// A Fail says that an attempt has failed.
type Fail struct {
	Error         string `json:"error" min:"1" max:"65536" doc:"What went wrong" example:"timeout while verifying evidence"`
	RetryDelaySec *int   `json:"retry_delay_sec,omitempty" min:"0" max:"31536000" doc:"Seconds until it can be pulled again; left out: those of the job" example:"300"`
	WorkerID      string `json:"worker_id,omitempty" max:"512" doc:"Who has tried; left out: whoever has it" example:"worker-1"`
}

// A Filter says which jobs are listed, and in which order.
type Filter struct {
	Status   string `query:"status" enum:"queued,running,succeeded,failed,dead_letter" doc:"Jobs of this status" example:"queued"`
	ObjectID string `query:"object_id" doc:"Jobs about this object" example:"cg_123"`
	Newest   bool   `query:"newest" doc:"The ones that were queued last come first, not those that are due first" example:"true"`
	Limit    int    `query:"limit" doc:"How many at most, 1 to 1000; left out: 100" example:"100"`
}

// Metrics are figures about the jobs that the ledger has: those that ended long ago are no part of them.
type Metrics struct {
	Due         int     // queued jobs whose time has come, and that wait for nothing else
	LagSeconds  float64 // for how long the first of them has been due
	SuccessRate float64 // part of the jobs that have ended which succeeded; 1 if none has ended
	RetryRate   float64 // part of the jobs that were tried of which an attempt failed or was lost
	DeadLetters int     // jobs whose attempts are used up
}

// Check returns what is wrong with a spec, and with which field, and sets what was left out. Whether
// its time is past [CheckTime] says.
func (s *Spec) Check() (field string, err error) {
	s.RunAt = s.RunAt.UTC().Truncate(time.Millisecond) // as it stands in the ledger
	s.Priority = cmp.Or(s.Priority, DefaultPriority)
	s.MaxAttempts = cmp.Or(s.MaxAttempts, DefaultMaxAttempts)
	s.RetryDelaySec = cmp.Or(s.RetryDelaySec, DefaultRetryDelay)
	s.fillKey()
	return check(s)
}

func (s *Spec) fillKey() {
	s.IdempotencyKey = cmp.Or(s.IdempotencyKey, s.ObjectID+":"+s.Action+":"+s.RunAt.UTC().Format(time.RFC3339Nano))
}

// CheckTime returns an error if the time at which a job is to run is past.
func CheckTime(runAt, now time.Time) error {
	if now.Sub(runAt) > lateMost {
		return fmt.Errorf("%s is past, it is %s now", state.ExactTime(runAt), state.FormatTime(now))
	}
	return nil
}

// Check returns what is wrong with a request to pull, and with which field, and sets what was left out. now is the present time.
func (p *Pull) Check(now time.Time) (field string, err error) {
	if p.Limit = cmp.Or(p.Limit, DefaultLimit); p.Now.IsZero() {
		p.Now = now
	}
	if p.Now.Sub(now) > aheadMost {
		return "now", fmt.Errorf("now: %s is ahead of the clock here, which says %s: one of them is wrong", state.FormatTime(p.Now), state.FormatTime(now))
	}
	return check(p)
}

// Check returns what is wrong with an ack, and with which field, and sets what was left out.
func (a *Ack) Check() (field string, err error) {
	a.Result, a.NextActionAt = cmp.Or(a.Result, Succeeded), a.NextActionAt.UTC().Truncate(time.Millisecond)
	return check(a)
}

// Check returns what is wrong with a failure, and with which field.
func (f *Fail) Check() (field string, err error) { return check(f) }
