package jobs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/ledger"
	"stint/state"
)

// A field is one that stands in the records of a job.
type field struct {
	key string
	get func(*Job) string // "": it has none
	set func(*Job, string) error
}

// fields has them in the order in which they are written.
var fields = []field{
	word("status", Statuses, func(j *Job) *string { return &j.Status }),
	word("objectType", ObjectTypes, func(j *Job) *string { return &j.ObjectType }),
	word("objectId", nil, func(j *Job) *string { return &j.ObjectID }),
	word("action", Actions, func(j *Job) *string { return &j.Action }),
	instant("runAt", func(j *Job) *time.Time { return &j.RunAt }),
	word("priority", Priorities, func(j *Job) *string { return &j.Priority }),
	number("attempt", func(j *Job) *int { return &j.Attempt }),
	number("maxAttempts", func(j *Job) *int { return &j.MaxAttempts }),
	number("retryDelaySec", func(j *Job) *int { return &j.RetryDelaySec }),
	word("idempotencyKey", nil, func(j *Job) *string { return &j.IdempotencyKey }),
	{"lastError", (*Job).Reason, func(j *Job, v string) error {
		if j.LastError = &v; v == "" {
			j.LastError = nil
		}
		return nil
	}},
	word("workerId", nil, func(j *Job) *string { return &j.WorkerID }),
	instant("leaseUntil", func(j *Job) *time.Time { return &j.LeaseUntil }),
	instant("nextActionAt", func(j *Job) *time.Time { return &j.NextActionAt }),
	word("auditEventId", nil, func(j *Job) *string { return &j.AuditEventID }),
	instant("createdAt", func(j *Job) *time.Time { return &j.CreatedAt }),
	instant("updatedAt", func(j *Job) *time.Time { return &j.UpdatedAt }),
}

// fieldOf has the fields by their keys.
var fieldOf = func() map[string]*field {
	m := map[string]*field{}
	for i := range fields {
		m[fields[i].key] = &fields[i]
	}
	return m
}()

// word is a text, or one of a closed set.
func word(key string, list []string, at func(*Job) *string) field {
	return field{key, func(j *Job) string { return *at(j) }, func(j *Job, v string) error {
		if *at(j) = v; list == nil || v == "" {
			return nil
		}
		return oneOf(key, v, list)
	}}
}

func number(key string, at func(*Job) *int) field {
	return field{key, func(j *Job) string { return strconv.Itoa(*at(j)) }, func(j *Job, v string) (err error) {
		if *at(j), err = strconv.Atoi(v); err != nil || *at(j) < 0 {
			return fmt.Errorf("%q is no whole number", state.Cut(v, 40))
		}
		return nil
	}}
}

func instant(key string, at func(*Job) *time.Time) field {
	return field{key, func(j *Job) string {
		if at(j).IsZero() {
			return ""
		}
		return state.ExactTime(*at(j))
	}, func(j *Job, v string) (err error) {
		*at(j), err = state.ParseTime(v)
		return err
	}}
}

// Record returns the record that makes now of was; was is nil for a job that is new.
func Record(was, now *Job) *ledger.Record {
	r := &ledger.Record{Kind: ledger.KindJob, ID: now.ID}
	for i := range fields {
		f := &fields[i]
		if v := f.get(now); was == nil && v != "" || was != nil && v != f.get(was) {
			r.Add(f.key, v)
		}
	}
	return r
}

// steps says who may take a job from the status of the row to that of the column, in the order of
// Statuses: + anyone, ! stint alone, * a person alone, - nobody. The last row is that of a new job.
var steps = [...]string{
	"+!+++", // queued
	"+++++", // running
	"*-+--", // succeeded
	"+--+-", // failed
	"+---+", // dead_letter
	"+!+++",
}

// checkStep returns an error if a record may not change the status so.
func checkStep(from, to string, byHand bool) error {
	switch steps[statusIndex(from)][statusIndex(to)] {
	case '+':
		return nil
	case '*':
		if byHand {
			return nil
		}
	case '!':
		if !byHand {
			return nil
		}
		return errors.New("running cannot be set by hand; set queued, and a worker pulls it when it is due")
	}
	return fmt.Errorf("a job that is %s cannot become %s", from, to)
}

// statusIndex returns the place of a status in Statuses; behind the last one is that of "".
func statusIndex(status string) int {
	for i, s := range Statuses {
		if s == status {
			return i
		}
	}
	return len(Statuses)
}

// ended reports whether a job of that status waits for nobody.
func ended(status string) bool { return statusIndex(status) >= statusIndex(Succeeded) }

// after returns a job as it is behind a record; was is nil if there was none. The error is a
// [*state.RecordError].
func after(was *Job, sec *ledger.Section) (Job, error) {
	byHand := sec.Seq == 0 || sec.Value(ledger.KeyBy) == ledger.ByHand
	j, from := Job{ID: string(sec.ID), Priority: DefaultPriority, MaxAttempts: DefaultMaxAttempts, RetryDelaySec: DefaultRetryDelay}, ""
	if was != nil {
		j, from = *was, was.Status
	}
	for i := range sec.Fields {
		f := &sec.Fields[i]
		known := fieldOf[string(f.Key)]
		if known == nil {
			if meant := meantKey(string(f.Key)); byHand && meant != "" {
				return j, state.NewRecordError(sec, f, fmt.Errorf("unknown key; did you mean %s? (one of your own needs a name that is less like it)", meant))
			}
			continue
		}
		if err := known.set(&j, f.String()); err != nil {
			return j, state.NewRecordError(sec, f, err)
		}
	}
	if j.Status == "" {
		return j, state.NewRecordError(sec, sec.Get("status"), errors.New("a job without a status has no effect; add - status: queued"))
	}
	if err := checkStep(from, j.Status, byHand); err != nil {
		return j, state.NewRecordError(sec, sec.Get("status"), err)
	}
	if j.Status != Running {
		j.LeaseUntil = time.Time{}
	}
	if was != nil && ended(from) && j.Status == Queued { // all begins anew
		for key, none := range map[string]string{"attempt": "0", "auditEventId": "", "nextActionAt": ""} {
			if sec.Get(key) == nil {
				_ = fieldOf[key].set(&j, none) // it can be read
			}
		}
	}
	if j.CreatedAt.IsZero() {
		j.CreatedAt = j.UpdatedAt
	}
	spec := Spec{j.ObjectType, j.ObjectID, j.Action, j.RunAt, j.Priority, j.MaxAttempts, j.RetryDelaySec, j.IdempotencyKey}
	if spec.IdempotencyKey == "" {
		spec.IdempotencyKey = KeyOf(j.ObjectID, j.Action, j.RunAt)
	}
	j.IdempotencyKey = spec.IdempotencyKey
	if name, err := spec.check(); err != nil {
		return j, state.NewRecordError(sec, sec.Get(meantKey(name)), err)
	}
	return j, nil
}

// meantKey returns the key that a person who wrote another one probably meant; "" if none is like it.
func meantKey(key string) string {
	plain := strings.ToLower(strings.ReplaceAll(key, "_", ""))
	known := make([]string, len(fields))
	for i := range fields {
		if known[i] = fields[i].key; strings.ToLower(known[i]) == plain {
			return known[i]
		}
	}
	if len(key) < 4 || ledger.IsEngineKey(key) {
		return ""
	}
	return state.Nearest(key, known)
}

// Copied reports whether a job that a person makes by copying the section of another keeps that field.
func Copied(key string) bool {
	return slices.Contains([]string{"status", "objectType", "objectId", "action", "runAt", "priority", "maxAttempts", "retryDelaySec"}, key)
}
