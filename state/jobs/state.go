package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"stint/ledger"
	"stint/state"
	"stint/state/heap"
)

// A State is the fold of jobs.md: all jobs that are not in the archive.
type State struct {
	jobs     map[string]*entry
	all      []*entry          // the oldest first
	queue    heap.Heap[*entry] // those that are queued
	byKey    map[string]string // ids by idempotency keys, also of archived jobs
	archived map[string]ledger.ArchiveEntry
}

// An entry is a job with the fields of a person's own, and its places in lists.
type entry struct {
	Job
	extra []ledger.Pair
	inAll int    // in State.all
	at    uint32 // in the queue
}

// New returns a state without jobs.
func New() *State {
	s := &State{jobs: map[string]*entry{}, byKey: map[string]string{}, archived: map[string]ledger.ArchiveEntry{}}
	s.queue.Before, s.queue.Place = func(a, b *entry) bool { return compare(a, b) < 0 }, func(e *entry) *uint32 { return &e.at }
	return s
}

// Apply folds one record, live and on replay. The error of one that has no effect is a
// [*state.RecordError], the same on every replay.
func (s *State) Apply(sec *ledger.Section) error {
	if sec.Kind != ledger.KindJob || sec.IsNote() {
		return nil
	}
	e := s.jobs[string(sec.ID)]
	j, err := after(e, sec, s.ByKey)
	if err != nil {
		return err
	}
	if e == nil {
		e = &entry{inAll: len(s.all)}
		s.jobs[j.ID], s.all = e, append(s.all, e)
		delete(s.archived, j.ID) // a whole record brings it back
	} else if e.Status == Queued {
		s.queue.Remove(e)
	}
	for i := range sec.Fields {
		if key := string(sec.Fields[i].Key); fieldOf(key) == nil && key != ledger.KeyBy && !ledger.IsEngineKey(key) {
			e.extra = append(slices.DeleteFunc(e.extra, func(p ledger.Pair) bool { return p.Key == key }), ledger.Pair{Key: key, Value: sec.Fields[i].String()})
		}
	}
	if e.IdempotencyKey != j.IdempotencyKey {
		delete(s.byKey, e.IdempotencyKey)
	}
	e.Job, s.byKey[j.IdempotencyKey] = j, j.ID
	if j.Status == Queued {
		s.queue.Push(e)
	}
	return nil
}

// Archive notes a job that compaction has moved out of the journal.
func (s *State) Archive(a ledger.ArchiveEntry) {
	s.archived[a.ID] = a
	if a.Key != "" {
		s.byKey[a.Key] = a.ID
	}
}

// Archived returns where a job stands that was moved out; ok is false of any other.
func (s *State) Archived(id string) (a ledger.ArchiveEntry, ok bool) {
	a, ok = s.archived[id]
	return a, ok
}

// ReadArchived reads the record of a job that was moved out.
func ReadArchived(sec *ledger.Section) (Job, error) { return after(nil, sec, New().ByKey) }

// Job returns the job of that id; ok is false if there is none, or it is archived.
func (s *State) Job(id string) (j Job, ok bool) {
	if e := s.jobs[id]; e != nil {
		return e.Job, true
	}
	return j, false
}

// ByKey returns the id of the job that has an idempotency key; "" if none has.
func (s *State) ByKey(key string) string { return s.byKey[key] }

// Find returns the ids that ref can stand for: one if it is a whole id, else those of which it is a piece.
func (s *State) Find(ref string) (ids []string) {
	if s.jobs[ref] != nil || s.archived[ref].ID != "" {
		return []string{ref}
	}
	for id := range s.jobs {
		if ref != "" && strings.Contains(id, ref) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// compare says which of two jobs is pulled first.
func compare(a, b *entry) int {
	return cmp.Or(a.RunAt.Compare(b.RunAt), cmp.Compare(slices.Index(Priorities, a.Priority), slices.Index(Priorities, b.Priority)), strings.Compare(a.ID, b.ID))
}

// Due returns the queued jobs that a pull hands out, in that order, or in that of its ids.
func (s *State) Due(p Pull) (list []Job) {
	add := func(e *entry) {
		if len(list) < p.Limit && !e.RunAt.After(p.Now) && (p.Is == nil || p.Is(&e.Job)) {
			list = append(list, e.Job)
		}
	}
	for _, id := range p.IDs {
		if e := s.jobs[id]; e != nil && e.Status == Queued {
			add(e)
		}
	}
	for e := range s.queue.InOrder {
		if p.IDs != nil || len(list) == p.Limit || e.RunAt.After(p.Now) {
			break
		}
		add(e)
	}
	return list
}

// List returns the jobs that a filter names, in the order in which they are pulled, with those that have succeeded
// or failed behind, or the newest first; without a limit all of them.
func (s *State) List(f Filter) []Job { return s.Where(f, func(*Job) bool { return true }) }

// Where is List of the jobs for which is holds too.
func (s *State) Where(f Filter, is func(*Job) bool) []Job {
	var list []*entry
	for _, e := range s.all {
		if (f.Status == "" || e.Status == f.Status) && (f.ObjectID == "" || e.ObjectID == f.ObjectID) && is(&e.Job) {
			list = append(list, e)
		}
	}
	rank := func(e *entry) int { return map[string]int{Succeeded: 1, Failed: 1}[e.Status] }
	slices.SortFunc(list, func(a, b *entry) int {
		if f.Newest {
			return b.inAll - a.inAll
		}
		return cmp.Or(rank(a)-rank(b), compare(a, b))
	})
	jobs := make([]Job, min(len(list), cmp.Or(f.Limit, len(list))))
	for i := range jobs {
		jobs[i] = list[i].Job
	}
	return jobs
}

// Metrics returns the figures of that instant.
func (s *State) Metrics(now time.Time) Metrics {
	m, count := Metrics{SuccessRate: 1}, map[string]int{}
	retried, tried := 0, len(s.all)-len(s.queue.List)
	for _, e := range s.all {
		count[e.Status]++
		if e.Status == Queued && e.WaitsFor == "" && !e.RunAt.After(now) {
			m.Due, m.LagSeconds = m.Due+1, max(m.LagSeconds, now.Sub(e.RunAt).Seconds())
		}
		if e.Attempt > 0 {
			retried++
			if e.Status == Queued {
				tried++
			}
		}
	}
	m.DeadLetters = count[DeadLetter]
	if n := count[Succeeded] + count[Failed] + m.DeadLetters; n > 0 {
		m.SuccessRate = float64(count[Succeeded]) / float64(n)
	}
	m.RetryRate = float64(retried) / float64(max(1, tried))
	return m
}

// Compact returns what a journal must hold for this state: one record of each job, the oldest first.
// Jobs that ended before that instant are moved out, but for dead letters: somebody has to see to them. The error is out's.
func (s *State) Compact(before time.Time, out func(ledger.Moved) error) (keep ledger.Keep, err error) {
	for _, e := range s.all {
		r := *Record(nil, &e.Job)
		r.Fields = append(r.Fields, e.extra...)
		if ended(e.Status) && e.Status != DeadLetter && e.UpdatedAt.Before(before) {
			if err := out(ledger.Moved{Record: r, Entry: ledger.ArchiveEntry{ID: e.ID, Status: e.Status, Key: e.IdempotencyKey, UpdatedAt: e.UpdatedAt}}); err != nil {
				return nil, err
			}
		} else {
			keep.Add(r)
		}
	}
	return keep, nil
}

// Deleted returns the records for jobs whose sections a person has deleted: those that had not ended
// have failed. gone has "Job id" of all that have none left.
func (s *State) Deleted(gone map[string]bool, now time.Time) (records []ledger.Record) {
	why := "its section was deleted by hand"
	for _, e := range s.all {
		if gone[string(ledger.KindJob)+" "+e.ID] && !ended(e.Status) {
			j := e.Job
			j.Status, j.LastError, j.UpdatedAt, j.LeaseUntil = Failed, &why, now, time.Time{}
			records = append(records, *Record(&e.Job, &j).Add(ledger.KeyBy, ledger.ByHand))
		}
	}
	return records
}

// A Save is what a person wrote in one save, looked at section by section: each one is a step behind
// those before it that have passed.
type Save struct{ state, passed *State }

// NewSave begins a save: no section has passed yet.
func (s *State) NewSave() *Save { return &Save{s, New()} }

// Check returns why the next section that a person wrote cannot be accepted. The error is a [*state.RecordError].
func (v *Save) Check(sec *ledger.Section) error {
	id := string(sec.ID)
	was := cmp.Or(v.passed.jobs[id], v.state.jobs[id])
	switch _, isArchived := v.state.Archived(id); {
	case sec.Kind != ledger.KindJob:
		return state.NewRecordError(sec, nil, fmt.Errorf("a %s has no meaning here; write ## Job ID", sec.Kind))
	case isArchived && was == nil:
		return state.NewRecordError(sec, nil, errors.New("that job was archived; give yours another name"))
	}
	j, err := after(was, sec, func(key string) string { return cmp.Or(v.passed.ByKey(key), v.state.ByKey(key)) })
	if err == nil {
		v.passed.jobs[id], v.passed.byKey[j.IdempotencyKey] = &entry{Job: j}, id
	}
	return err
}
