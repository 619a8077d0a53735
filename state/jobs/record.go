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
		return oneOf(v, list)
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

// ended reports whether a job of that status waits for nobody.
func ended(status string) bool {
	return status == Succeeded || status == Failed || status == DeadLetter
}

// checkStep returns an error if a record may not change the status of a job so; from is "" for a new one.
func checkStep(from, to string, byHand bool) error {
	switch {
	case to == "":
		return errors.New("a job without a status has no effect; add - status: queued")
	case to == Running && from != Running && byHand:
		return errors.New("running cannot be set by hand; set queued, and a worker pulls it when it is due")
	case ended(from) && to != from && to != Queued && !byHand, from != Queued && from != "" && to == Running && from != to:
		return fmt.Errorf("a job that is %s cannot become %s", from, to)
	}
	return nil
}

// after returns a job as it is behind a record; was is nil if there was none. The error is a
// [*state.RecordError].
func after(was *entry, sec *ledger.Section) (Job, error) {
	byHand := sec.Seq == 0 || sec.Value(ledger.KeyBy) == ledger.ByHand
	j, from := Job{ID: string(sec.ID), Priority: DefaultPriority, MaxAttempts: DefaultMaxAttempts, RetryDelaySec: DefaultRetryDelay}, ""
	if was != nil {
		j, from = was.Job, was.Status
	}
	status, again := sec.Get("status"), ended(from) && sec.Value("status") == Queued
	if again { // all begins anew
		j.Attempt, j.AuditEventID, j.NextActionAt = 0, "", time.Time{}
	}
	for i := range sec.Fields {
		f := &sec.Fields[i]
		key := string(f.Key)
		if known := fieldOf[key]; known != nil {
			if err := known.set(&j, f.String()); err != nil {
				return j, state.NewRecordError(sec, f, err)
			}
		} else if meant := meantKey(key); byHand && meant != "" {
			return j, state.NewRecordError(sec, f, fmt.Errorf("unknown key; did you mean %s?", meant))
		}
	}
	if err := checkStep(from, j.Status, byHand); err != nil {
		return j, state.NewRecordError(sec, status, err)
	}
	if j.Status != Running {
		j.LeaseUntil = time.Time{}
	}
	if j.CreatedAt.IsZero() {
		j.CreatedAt = j.UpdatedAt
	}
	spec := j.Spec()
	name, err := spec.check()
	if err != nil {
		return j, state.NewRecordError(sec, sec.Get(meantKey(name)), err)
	}
	j.IdempotencyKey = spec.IdempotencyKey
	return j, nil
}

// meantKey returns the key that is the same but for underscores and upper case; "" if none is.
func meantKey(key string) string {
	for i := range fields {
		if strings.EqualFold(fields[i].key, strings.ReplaceAll(key, "_", "")) {
			return fields[i].key
		}
	}
	return ""
}

// Copied reports whether a job that a person makes by copying the section of another keeps that field.
func Copied(key string) bool {
	return slices.Contains([]string{"status", "objectType", "objectId", "action", "runAt", "priority", "maxAttempts", "retryDelaySec"}, key)
}
