package jobs

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"stint/ledger"
	"stint/ledger/lazy"
	"stint/state"
)

// A field is one of a struct's. By it, records are written and read, and requests checked.
type field struct {
	name     string   // in JSON: run_at
	key      string   // in records: runAt
	index    []int    // of reflect
	enum     []string // the words that it can be; nil: any
	min, max int      // of a number, or of the bytes of a text; a time with a min must be there
}

// jobFields are those of a job but for its id, in the order in which they are written.
var jobFields = lazy.Value(func() []*field { return fieldsOf(reflect.TypeFor[Job]())[1:] })

func fieldsOf(t reflect.Type) (list []*field) {
	for _, sf := range reflect.VisibleFields(t) {
		if sf.Anonymous {
			continue
		}
		f := &field{index: sf.Index}
		f.name, _, _ = strings.Cut(sf.Tag.Get("json"), ",")
		for i, word := range strings.Split(f.name, "_") {
			if i > 0 {
				word = strings.ToUpper(word[:1]) + word[1:]
			}
			f.key += word
		}
		if words := sf.Tag.Get("enum"); words != "" {
			f.enum = strings.Split(words, ",")
		}
		f.min, _ = strconv.Atoi(sf.Tag.Get("min")) // 0 without one
		f.max, _ = strconv.Atoi(sf.Tag.Get("max"))
		list = append(list, f)
	}
	return list
}

// fieldOf returns the field of a job with that key, or one that is the same but for underscores and
// upper case; nil if there is none.
func fieldOf(key string) (near *field) {
	for _, f := range jobFields() {
		if f.key == key {
			return f
		}
		if strings.EqualFold(f.name, key) || strings.EqualFold(f.key, key) {
			near = f
		}
	}
	return near
}

// at returns a pointer to the field of the struct to which v points.
func (f *field) at(v any) any {
	return reflect.ValueOf(v).Elem().FieldByIndex(f.index).Addr().Interface()
}

// get returns the field as it stands in a record; "" if the job has none.
func (f *field) get(j *Job) string {
	switch p := f.at(j).(type) {
	case *string:
		return *p
	case **string:
		if *p != nil {
			return **p
		}
	case *int:
		return strconv.Itoa(*p)
	case *time.Time:
		if !p.IsZero() {
			return state.ExactTime(*p)
		}
	}
	return ""
}

// set reads the field from a record.
func (f *field) set(j *Job, v string) (err error) {
	switch p := f.at(j).(type) {
	case *string:
		*p = v
	case **string:
		if *p = &v; v == "" {
			*p = nil
		}
	case *int:
		if *p, err = strconv.Atoi(v); err != nil {
			err = fmt.Errorf("%q is no whole number", state.Cut(v, 40))
		}
	case *time.Time:
		*p, err = state.ParseTime(v)
	}
	if err != nil || v == "" {
		return err
	}
	return f.check(j)
}

// check returns what is wrong with the field of the struct to which v points.
func (f *field) check(v any) error {
	switch p := f.at(v).(type) {
	case *string:
		if f.enum != nil {
			return oneOf(*p, f.enum)
		}
		return checkText(*p, f.min, f.max)
	case **int:
		if *p != nil {
			return within(**p, f.min, f.max)
		}
	case *int:
		return within(*p, f.min, f.max)
	case *time.Time:
		if (f.min > 0 || !p.IsZero()) && (p.Year() < 1970 || p.Year() > 9999) {
			return errors.New("write a time such as 2026-12-01T00:00:00Z")
		}
	}
	return nil
}

// check returns the first field of the struct to which v points that is wrong, and how.
func check(v any) (name string, err error) {
	for _, f := range fieldsOf(reflect.TypeOf(v).Elem()) {
		if err := f.check(v); err != nil {
			return f.name, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return "", nil
}

// oneOf returns an error unless a word is one of a closed set.
func oneOf(word string, list []string) error {
	if slices.Contains(list, word) {
		return nil
	}
	return fmt.Errorf("unknown word %q; it is one of %s", state.Cut(word, 40), strings.Join(list, ", "))
}

func within(n, least, most int) error {
	if n < least || n > most {
		return fmt.Errorf("%d is not from %d to %d", n, least, most)
	}
	return nil
}

// checkText returns an error unless a text has so many bytes. Names are one line without blanks around it.
func checkText(text string, least, most int) error {
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

// Record returns the record that makes now of was; was is nil for a job that is new.
func Record(was, now *Job) *ledger.Record {
	r := &ledger.Record{Kind: ledger.KindJob, ID: now.ID}
	for _, f := range jobFields() {
		v := f.get(now)
		r.AddWhen(was == nil && v != "" || was != nil && v != f.get(was), f.key, v)
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
	if byHand && ended(from) && sec.Value("status") == Queued { // all begins anew, as after a retry
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
