// Package schedule starts tasks and jobs of the master's own at set times.
//
// A [Schedule] is configured: when, and what. A [Runner] looks every half minute, and when the next one is due, which have
// fired. Each firing is known by its schedule and the instant for which it was scheduled. What is settled stands in the ledger,
// in the schedule's control record: up to which instant everything was fired or skipped, and which firings have not ended. The
// task of a firing is made durable in the same change, so a crash can neither lose nor double it; a job that a crash interrupts
// is run again. Each firing that has ended, and each one that was skipped, is a line of job_runs.jsonl.
package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"
	"time"

	"stint/coordinator/task"
	"stint/ledger/lazy"
)

// A Schedule is what is configured under one name. Its texts are as a person wrote them; see Check.
type Schedule struct {
	Name    string `toml:"name"`
	Cron    string `toml:"cron"`    // see [ParseExpr]
	Zone    string `toml:"zone"`    // IANA name; "": that of the machine
	Job     string `toml:"job"`     // name of a job of the master's own; "": Spec is a task
	Overlap string `toml:"overlap"` // what becomes of a firing while the one before goes on: skip, queue or parallel
	Missed  string `toml:"missed"`  // which missed firings run later: skip, once or all
	Most    int    `toml:"missed_max"`
	Jitter  string `toml:"jitter"` // a duration: each firing is late by a part of it

	Spec   task.TaskSpec `toml:"-"` // of a job only Timeout and MaxAttempts
	Origin string        `toml:"-"` // file and line

	expr   *Expr
	jitter time.Duration
}

// What Overlap and Missed can be; the first one is the default.
var (
	overlaps = []string{"skip", "queue", "parallel"}
	misses   = []string{"once", "skip", "all"}
)

// nameRule is what a schedule may be called: the name is part of the control record's.
var nameRule = lazy.Regexp(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// Check returns what is wrong with a schedule, and with which key ("": it as a whole), and makes it ready for
// use. jobs are the names of jobs that there are. The task itself is checked by whoever submits it.
func (s *Schedule) Check(jobs []string) (key string, err error) {
	const defaultMost = 10 // with missed = "all"
	oneOf := func(key string, value *string, list []string) error {
		*value = cmp.Or(*value, list[0])
		if !slices.Contains(list, *value) {
			return fmt.Errorf("%s is %q; it has to be one of %s", key, *value, strings.Join(list, ", "))
		}
		return nil
	}
	if s.Name == "" {
		return "", errors.New("name is missing")
	}
	if !nameRule().MatchString(s.Name) {
		return "name", fmt.Errorf("%q cannot be the name of a schedule: use letters, digits, dashes and underscores", s.Name)
	}
	if s.expr, err = ParseExpr(s.Cron, s.Zone); err != nil {
		return "cron", err
	}
	if err := oneOf("overlap", &s.Overlap, overlaps); err != nil {
		return "overlap", err
	}
	if err := oneOf("missed", &s.Missed, misses); err != nil {
		return "missed", err
	}
	if s.Most < 0 || s.Most > 1000 {
		return "missed_max", fmt.Errorf("missed_max is %d; it has to be from 1 to 1000", s.Most)
	}
	s.Most = cmp.Or(s.Most, defaultMost)
	if s.jitter, err = time.ParseDuration(cmp.Or(s.Jitter, "0")); err != nil || s.jitter < 0 || s.jitter > 24*time.Hour {
		return "jitter", fmt.Errorf("jitter is %q; it has to be a duration such as 10m, of a day at most", s.Jitter)
	}
	own := s.Spec
	own.Timeout, own.MaxAttempts = "", 0
	switch {
	case s.Job == "" && s.Spec.Prompt == "":
		return "", fmt.Errorf("schedule %s has neither a prompt nor a job", s.Name)
	case s.Job == "":
		return "", nil
	case !slices.Contains(jobs, s.Job):
		return "job", fmt.Errorf("there is no job %q; there are %s", s.Job, strings.Join(jobs, ", "))
	case !reflect.ValueOf(own).IsZero():
		return "job", fmt.Errorf("the job %s takes timeout and max_attempts, and nothing else of a task", s.Job)
	}
	return "", nil
}

// Next returns the instants of the next n firings after t, without their jitter.
func (s *Schedule) Next(t time.Time, n int) (list []time.Time) {
	for ; len(list) < n; list = append(list, t) {
		if t = s.expr.Next(t); t.IsZero() {
			break
		}
	}
	return list
}

// due returns when the firing for an instant is made: later by a part of the jitter, always the same.
func (s *Schedule) due(at time.Time) time.Time {
	if s.jitter == 0 {
		return at
	}
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, s.Name, at.Unix()) // a hash takes all
	return at.Add(time.Duration(h.Sum64() % uint64(s.jitter)))
}

// key is the idempotency key of the task of a firing.
func (s *Schedule) key(at string) string { return "cron:" + s.Name + "@" + at }
