package jobs

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"stint/ledger"
	"stint/state"
)

// Record returns the record that makes now of was; was is nil for a job that is new.
func Record(was, now *Job) *ledger.Record {
	r := &ledger.Record{Kind: ledger.KindJob, ID: now.ID}
	for _, f := range jobFields() {
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
	case to == from:
		return nil
	case to == Running && byHand:
		return errors.New("running cannot be set by hand; set queued, and a worker pulls it when it is due")
	case ended(from) && to != Queued && !byHand, to == Running && from != Queued && from != "":
		return fmt.Errorf("a job that is %s cannot become %s", from, to)
	}
	return nil
}

// after returns a job as it is behind a record; was is nil if there was none, and owner returns the job
// that has an idempotency key. The error is a [*state.RecordError].
func after(was *entry, sec *ledger.Section, owner func(key string) string) (Job, error) {
	byHand := sec.Seq == 0 || sec.Value(ledger.KeyBy) == ledger.ByHand
	j := Job{ID: string(sec.ID), Spec: Spec{Priority: DefaultPriority, MaxAttempts: DefaultMaxAttempts, RetryDelaySec: DefaultRetryDelay}}
	if was != nil {
		j = was.Job
	}
	from := j.Status
	if ended(from) && sec.Value("status") == Queued { // all begins anew
		j.Attempt, j.AuditEventID, j.NextActionAt = 0, "", time.Time{}
	}
	for i := range sec.Fields {
		f := &sec.Fields[i]
		switch known := fieldOf(string(f.Key)); {
		case known == nil:
		case known.key == string(f.Key):
			if err := known.set(&j, f.String()); err != nil {
				return j, state.NewRecordError(sec, f, err)
			}
		case byHand:
			return j, state.NewRecordError(sec, f, fmt.Errorf("unknown key; did you mean %s?", known.key))
		}
	}
	if err := checkStep(from, j.Status, byHand); err != nil {
		return j, state.NewRecordError(sec, sec.Get("status"), err)
	}
	if j.Status != Running {
		j.LeaseUntil = time.Time{}
	}
	if j.Status != Queued {
		j.WaitsFor = ""
	}
	if j.CreatedAt.IsZero() {
		j.CreatedAt = j.UpdatedAt
	}
	j.fillKey()
	for _, f := range jobFields() {
		if err := f.check(&j); err != nil { // it is not there, or is empty
			return j, state.NewRecordError(sec, sec.Get(f.key), fmt.Errorf("%s: %w", f.name, err))
		}
	}
	if id := owner(j.IdempotencyKey); id != "" && id != j.ID {
		return j, state.NewRecordError(sec, sec.Get("idempotencyKey"), fmt.Errorf("job %s has the idempotency key %s already", id, j.IdempotencyKey))
	}
	return j, nil
}

// Copied reports whether a job that a person makes by copying the section of another keeps that field.
func Copied(key string) bool {
	return slices.Contains([]string{"status", "objectType", "objectId", "action", "runAt", "priority", "maxAttempts", "retryDelaySec"}, key)
}
