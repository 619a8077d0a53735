// Package jobs says what due jobs are: what stands in the records of jobs.md, which of them are
// due, and what may become of each.
//
// A [Job] asks for one action on one object of memory, once its time has come. [State] is the fold
// of the records. The package does no I/O and reads no clock.
package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"stint/state"
)

// The statuses of a job.
const (
	Queued     = "queued"      // waits for its time, or to be pulled
	Running    = "running"     // a worker has it, until its lease ends
	Succeeded  = "succeeded"   // acknowledged
	Failed     = "failed"      // ended by a person, who wrote so
	DeadLetter = "dead_letter" // attempts used up
)

// The closed sets of a job's words; of priorities the highest is first.
var (
	Statuses    = []string{Queued, Running, Succeeded, Failed, DeadLetter}
	ObjectTypes = []string{"memory", "experience", "cognition"}
	Actions     = []string{"verify", "revalidate", "decay", "archive", "reinstate-check"}
	Priorities  = []string{"high", "medium", "low"}
)

// What a job has that names nothing else, and the bounds of what can be asked for.
const (
	DefaultPriority    = "medium"
	DefaultMaxAttempts = 3
	DefaultRetryDelay  = 300 // seconds
	DefaultLimit       = 100
	MaxLimit           = 1000

	mostAttempts = 1000
	mostDelay    = 365 * 24 * 3600 // seconds
	mostID       = 512             // bytes of an id
	mostKey      = 1024            // and of a key, which has one
	mostText     = 64 << 10        // and of any other text
	lateMost     = 10 * time.Second
	aheadMost    = time.Minute
)

// A Job is a due job as clients see it.
type Job struct {
	ID             string    `json:"job_id" doc:"Its id" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	ObjectType     string    `json:"object_type" enum:"memory,experience,cognition" doc:"What kind of object it is about" example:"cognition"`
	ObjectID       string    `json:"object_id" doc:"Id of that object" example:"cg_123"`
	Action         string    `json:"action" enum:"verify,revalidate,decay,archive,reinstate-check" doc:"What is to be done with it" example:"revalidate"`
	RunAt          time.Time `json:"run_at" doc:"From when on it can be pulled" example:"2026-12-01T00:00:00Z"`
	Priority       string    `json:"priority" enum:"low,medium,high" doc:"Of jobs with the same run_at, high is pulled first" example:"medium"`
	Attempt        int       `json:"attempt" doc:"Attempts that failed or were lost" example:"0"`
	MaxAttempts    int       `json:"max_attempts" doc:"With so many of them it is a dead letter" example:"3"`
	RetryDelaySec  int       `json:"retry_delay_sec" doc:"Seconds from a failure until it can be pulled again" example:"300"`
	IdempotencyKey string    `json:"idempotency_key" doc:"No second job has it. It keeps the first run_at" example:"cg_123:revalidate:2026-12-01T00:00:00Z"`
	Status         string    `json:"status" enum:"queued,running,succeeded,failed,dead_letter" doc:"What has become of it" example:"queued"`
	LastError      *string   `json:"last_error" doc:"Why its last attempt failed; null: none has" example:"timeout while verifying evidence"`
	WorkerID       string    `json:"worker_id,omitempty" doc:"Who has it, or had it last" example:"worker-1"`
	LeaseUntil     time.Time `json:"lease_until,omitzero" doc:"Of a running job: when it is taken from its worker" example:"2026-12-01T00:05:10Z"`
	NextActionAt   time.Time `json:"next_action_at,omitzero" doc:"When the worker wanted the next such job; it is queued" example:"2026-12-08T00:00:00Z"`
	AuditEventID   string    `json:"audit_event_id,omitempty" doc:"Audit event that the worker has named" example:"aud_789"`
	CreatedAt      time.Time `json:"created_at" doc:"When it was queued first" example:"2026-11-28T09:00:00Z"`
	UpdatedAt      time.Time `json:"updated_at" doc:"When it changed last" example:"2026-11-28T09:00:00Z"`
}

// Reason returns why the last attempt failed; "" if none has.
func (j *Job) Reason() string {
	if j.LastError == nil {
		return ""
	}
	return *j.LastError
}

// Spec returns what was asked for, but with the time of the next attempt.
func (j *Job) Spec() Spec {
	return Spec{j.ObjectType, j.ObjectID, j.Action, j.RunAt, j.Priority, j.MaxAttempts, j.RetryDelaySec, j.IdempotencyKey}
}

// A Spec asks for a job.
type Spec struct {
	ObjectType     string    `json:"object_type" enum:"memory,experience,cognition" doc:"What kind of object it is about" example:"cognition"`
	ObjectID       string    `json:"object_id" doc:"Id of that object" example:"cg_123"`
	Action         string    `json:"action" enum:"verify,revalidate,decay,archive,reinstate-check" doc:"What is to be done with it" example:"revalidate"`
	RunAt          time.Time `json:"run_at" doc:"From when on it can be pulled; not in the past" example:"2026-12-01T00:00:00Z"`
	Priority       string    `json:"priority,omitempty" enum:"low,medium,high" doc:"Left out: medium" example:"medium"`
	MaxAttempts    int       `json:"max_attempts,omitempty" doc:"Left out: 3" example:"3"`
	RetryDelaySec  int       `json:"retry_delay_sec,omitempty" doc:"Seconds from a failure until it can be pulled again; left out: 300" example:"300"`
	IdempotencyKey string    `json:"idempotency_key,omitempty" doc:"If a job has this key already, that job is the answer; left out: object_id:action:run_at" example:"cg_123:revalidate:2026-12-01T00:00:00Z"`
}

// A Pull asks for jobs that are due.
type Pull struct {
	Now      time.Time `json:"now,omitzero" doc:"Jobs that are due then; at most a minute ahead of the master's clock. Left out: now" example:"2026-12-01T00:00:10Z"`
	Limit    int       `json:"limit,omitempty" doc:"How many at most, 1 to 1000; left out: 100" example:"100"`
	WorkerID string    `json:"worker_id" doc:"Who takes them" example:"worker-1"`
}

// An Ack says that a job was carried out.
type Ack struct {
	Result       string    `json:"result,omitempty" enum:"succeeded" doc:"Left out: succeeded" example:"succeeded"`
	AuditEventID string    `json:"audit_event_id,omitempty" doc:"Audit event of the worker's" example:"aud_789"`
	NextActionAt time.Time `json:"next_action_at,omitzero" doc:"When the same is to be done again: such a job is queued" example:"2026-12-08T00:00:00Z"`
	WorkerID     string    `json:"worker_id,omitempty" doc:"Who has carried it out; left out: whoever has it" example:"worker-1"`
	Before       string    `json:"before,omitempty" doc:"The object as it was, for audit.jsonl" example:"status=active confidence=0.8"`
	After        string    `json:"after,omitempty" doc:"The object as it is now" example:"status=active confidence=0.9"`
	Evidence     string    `json:"evidence,omitempty" doc:"Why" example:"go.mod still names that version"`
	NoNext       bool      `json:"-"` // NextActionAt is kept, and no job is queued for it
}

// A Fail says that an attempt has failed.
type Fail struct {
	Error         string `json:"error" doc:"What went wrong" example:"timeout while verifying evidence"`
	RetryDelaySec *int   `json:"retry_delay_sec,omitempty" doc:"Seconds until it can be pulled again; left out: those of the job" example:"300"`
	WorkerID      string `json:"worker_id,omitempty" doc:"Who has tried; left out: whoever has it" example:"worker-1"`
}

// A Filter says which jobs are listed.
type Filter struct {
	Status   string `query:"status" enum:"queued,running,succeeded,failed,dead_letter" doc:"Jobs of this status" example:"queued"`
	ObjectID string `query:"object_id" doc:"Jobs about this object" example:"cg_123"`
	Newest   bool   `query:"newest" doc:"The ones that were queued last come first, not those that are due first" example:"true"`
	Limit    int    `query:"limit" doc:"How many at most, 1 to 1000; left out: 100" example:"100"`
}

// Metrics are figures about the jobs that the ledger has: those that ended long ago are no part of them.
type Metrics struct {
	Due         int            `json:"jobs_due_count" doc:"Queued jobs whose time has come" example:"2"`
	LagSeconds  float64        `json:"jobs_lag_seconds" doc:"For how long the first of them has been due" example:"1.5"`
	SuccessRate float64        `json:"job_success_rate" doc:"Part of the jobs that have ended which succeeded; 1 if none has ended" example:"0.98"`
	RetryRate   float64        `json:"job_retry_rate" doc:"Part of the jobs that were tried of which an attempt failed or was lost" example:"0.1"`
	DeadLetters int            `json:"dead_letter_count" doc:"Jobs whose attempts are used up" example:"0"`
	Counts      map[string]int `json:"counts" doc:"Jobs by status" example:"{\"queued\":12}"`
}

// Check returns what is wrong with a spec, and with which field, and sets what was left out. Whether
// its time is past [Spec.CheckTime] says.
func (s *Spec) Check() (field string, err error) {
	s.RunAt = s.RunAt.UTC().Truncate(time.Millisecond) // as it stands in the ledger
	s.Priority = cmp.Or(s.Priority, DefaultPriority)
	s.MaxAttempts = cmp.Or(s.MaxAttempts, DefaultMaxAttempts)
	s.RetryDelaySec = cmp.Or(s.RetryDelaySec, DefaultRetryDelay)
	return s.check()
}

// check is Check without defaults but for the key.
func (s *Spec) check() (field string, err error) {
	if s.IdempotencyKey == "" {
		s.IdempotencyKey = s.ObjectID + ":" + s.Action + ":" + s.RunAt.UTC().Format(time.RFC3339Nano)
	}
	var when error
	if s.RunAt.Year() < 1970 || s.RunAt.Year() > 9999 {
		when = errors.New("write a time such as 2026-12-01T00:00:00Z")
	}
	return first(
		check{"object_type", oneOf(s.ObjectType, ObjectTypes)},
		check{"object_id", length(s.ObjectID, 1, mostID)},
		check{"action", oneOf(s.Action, Actions)},
		check{"run_at", when},
		check{"priority", oneOf(s.Priority, Priorities)},
		check{"max_attempts", within(s.MaxAttempts, 1, mostAttempts)},
		check{"retry_delay_sec", within(s.RetryDelaySec, 0, mostDelay)},
		check{"idempotency_key", length(s.IdempotencyKey, 1, mostKey)},
	)
}

// CheckTime returns an error if the time of a spec is past.
func (s *Spec) CheckTime(now time.Time) error {
	if now.Sub(s.RunAt) > lateMost {
		return fmt.Errorf("%s is past, it is %s now", state.ExactTime(s.RunAt), state.FormatTime(now))
	}
	return nil
}

// Check returns what is wrong with a request to pull, and with which field, and sets what was left
// out. now is the present time.
func (p *Pull) Check(now time.Time) (field string, err error) {
	if p.Limit = cmp.Or(p.Limit, DefaultLimit); p.Now.IsZero() {
		p.Now = now
	}
	var ahead error
	if p.Now.Sub(now) > aheadMost {
		ahead = fmt.Errorf("%s is ahead of %s, which it is here: a clock is wrong", state.FormatTime(p.Now), state.FormatTime(now))
	}
	return first(check{"worker_id", length(p.WorkerID, 1, mostID)}, check{"limit", within(p.Limit, 1, MaxLimit)}, check{"now", ahead})
}

// Check returns what is wrong with an ack, and with which field.
func (a *Ack) Check() (field string, err error) {
	a.NextActionAt = a.NextActionAt.UTC().Truncate(time.Millisecond)
	return first(
		check{"result", oneOf(cmp.Or(a.Result, Succeeded), []string{Succeeded})},
		check{"worker_id", length(a.WorkerID, 0, mostID)}, check{"audit_event_id", length(a.AuditEventID, 0, mostID)},
		check{"before", length(a.Before, 0, mostText)}, check{"after", length(a.After, 0, mostText)}, check{"evidence", length(a.Evidence, 0, mostText)},
	)
}

// Check returns what is wrong with a failure, and with which field.
func (f *Fail) Check() (field string, err error) {
	delay := 0
	if f.RetryDelaySec != nil {
		delay = *f.RetryDelaySec
	}
	return first(check{"error", length(f.Error, 1, mostText)}, check{"retry_delay_sec", within(delay, 0, mostDelay)}, check{"worker_id", length(f.WorkerID, 0, mostID)})
}

// A check is what is wrong with a field.
type check struct {
	field string
	err   error
}

// first returns the first that is not nil.
func first(list ...check) (field string, err error) {
	for _, c := range list {
		if c.err != nil {
			return c.field, fmt.Errorf("%s: %w", c.field, c.err)
		}
	}
	return "", nil
}

// oneOf returns an error unless a word is one of a closed set; it names the nearest.
func oneOf(word string, list []string) error {
	hint := "it is one of " + strings.Join(list, ", ")
	if near := state.Nearest(strings.ToLower(word), list); near != "" {
		hint = "did you mean " + near + "?"
	}
	switch {
	case slices.Contains(list, word):
		return nil
	case word == "":
		return errors.New("it is missing; " + hint)
	}
	return fmt.Errorf("unknown word %q; %s", state.Cut(word, 40), hint)
}

func within(n, least, most int) error {
	if n < least || n > most {
		return fmt.Errorf("%d is not from %d to %d", n, least, most)
	}
	return nil
}

// length returns an error unless a text has so many bytes. Ids are one line without blanks around it.
func length(text string, least, most int) error {
	switch {
	case len(text) < least:
		return errors.New("it is missing")
	case len(text) > most:
		return fmt.Errorf("it has %d bytes; it can have %d", len(text), most)
	case !utf8.ValidString(text), most < mostText && (strings.ContainsFunc(text, unicode.IsControl) || strings.TrimSpace(text) != text):
		return fmt.Errorf("%q has characters that cannot be seen", state.Cut(text, 40))
	}
	return nil
}
