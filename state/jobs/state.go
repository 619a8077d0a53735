package jobs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"stint/ledger"
	"stint/state"
)

// A State is the fold of jobs.md: all jobs that are not in the archive.
type State struct {
	jobs     map[string]*entry
	byKey    map[string]string // ids by idempotency keys, also of archived jobs
	archived map[string]ledger.ArchiveEntry
	queue    queue
}

// An entry is a job with what else its records say.
type entry struct {
	Job
	extra []ledger.Pair // fields of a person's own
	first uint64        // number of its first record
}

// New returns a state without jobs.
func New() *State {
	return &State{jobs: map[string]*entry{}, byKey: map[string]string{}, archived: map[string]ledger.ArchiveEntry{}}
}

// Apply folds one record, live and on replay. The error of one that has no effect is a
// [*state.RecordError], the same on every replay.
func (s *State) Apply(sec *ledger.Section) error {
	if sec.Kind != ledger.KindJob || sec.IsNote() {
		return nil
	}
	e := s.jobs[string(sec.ID)]
	j, err := after(e, sec)
	if err == nil {
		err = keyTaken(sec, &j, s.byKey[j.IdempotencyKey])
	}
	if err != nil {
		return err
	}
	if e == nil {
		e = &entry{first: sec.Seq}
		s.jobs[j.ID] = e
		delete(s.archived, j.ID) // a whole record brings it back
	}
	for i := range sec.Fields {
		if key := string(sec.Fields[i].Key); fieldOf[key] == nil && key != ledger.KeyBy && !ledger.IsEngineKey(key) {
			e.extra = append(slices.DeleteFunc(e.extra, func(p ledger.Pair) bool { return p.Key == key }), ledger.Pair{Key: key, Value: sec.Fields[i].String()})
		}
	}
	if e.Status == Queued {
		s.queue.remove(placeOf(e))
	}
	if e.IdempotencyKey != j.IdempotencyKey {
		delete(s.byKey, e.IdempotencyKey)
	}
	s.byKey[j.IdempotencyKey] = j.ID
	if e.Job = j; j.Status == Queued {
		s.queue.add(placeOf(e))
	}
	return nil
}

// keyTaken returns an error if the key of a job belongs to another one, owner.
func keyTaken(sec *ledger.Section, j *Job, owner string) error {
	if owner == "" || owner == j.ID {
		return nil
	}
	return state.NewRecordError(sec, sec.Get("idempotencyKey"), fmt.Errorf("job %s has the idempotency key %s already", owner, j.IdempotencyKey))
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
func ReadArchived(sec *ledger.Section) (Job, error) { return after(nil, sec) }

// Job returns the job of that id; ok is false if there is none, or it is archived.
func (s *State) Job(id string) (j Job, ok bool) {
	if e := s.jobs[id]; e != nil {
		return e.Job, true
	}
	return j, false
}

// ByKey returns the id of the job that has an idempotency key; "" if none has.
func (s *State) ByKey(key string) string { return s.byKey[key] }

// Find returns the ids that ref can stand for: one if it is a whole id.
func (s *State) Find(ref string) []string {
	if s.jobs[ref] != nil || s.archived[ref].ID != "" {
		return []string{ref}
	}
	return slices.Sorted(func(yield func(string) bool) {
		for id := range s.jobs {
			if ref != "" && strings.Contains(id, ref) && !yield(id) {
				return
			}
		}
	})
}

// A place is where a queued job stands in the order in which they are pulled.
type place struct {
	*entry
	at   int64 // Unix time in microseconds
	rank int   // of its priority; 0: the highest
}

func placeOf(e *entry) place {
	return place{e, e.RunAt.UnixMicro(), slices.Index(Priorities, e.Priority)}
}

func compare(a, b place) int {
	if a.at != b.at {
		return cmp.Compare(a.at, b.at)
	}
	return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.ID, b.ID))
}

// A queue has the queued jobs in that order, in pieces: to add or to remove one moves no more than a piece.
type queue [][]place

const pieceSize = 128 // of half a piece at most

// find returns the piece where p is or belongs, and the index in it.
func (q queue) find(p place) (piece, i int, found bool) {
	piece, _ = slices.BinarySearchFunc(q, p, func(piece []place, p place) int { return compare(piece[len(piece)-1], p) })
	if piece < len(q) {
		i, found = slices.BinarySearchFunc(q[piece], p, compare)
	}
	return piece, i, found
}

func (q *queue) add(p place) {
	n, i, _ := q.find(p)
	switch {
	case len(*q) == 0:
		*q = queue{nil}
	case n == len(*q): // behind all others
		n--
		i = len((*q)[n])
	}
	piece := slices.Insert((*q)[n], i, p)
	if half := len(piece) / 2; half >= pieceSize {
		*q = slices.Insert(*q, n+1, slices.Clone(piece[half:]))
		piece = slices.Delete(piece, half, len(piece))
	}
	(*q)[n] = piece
}

func (q *queue) remove(p place) {
	n, i, _ := q.find(p)
	if (*q)[n] = slices.Delete((*q)[n], i, i+1); len((*q)[n]) == 0 {
		*q = slices.Delete(*q, n, n+1)
	}
}

// Due returns the first n queued jobs whose time has come, in the order in which they are pulled.
func (s *State) Due(now time.Time, n int) []Job {
	return s.DueWhere(now, n, func(*Job) bool { return true })
}

// DueWhere is Due of the jobs for which is holds.
func (s *State) DueWhere(now time.Time, n int, is func(*Job) bool) (list []Job) {
	for _, piece := range s.queue {
		for _, p := range piece {
			if len(list) == n || p.RunAt.After(now) {
				return list
			}
			if is(&p.Job) {
				list = append(list, p.Job)
			}
		}
	}
	return list
}

// Where returns the jobs for which is holds, in the order in which they are pulled, or with newest
// those first that were queued last.
func (s *State) Where(is func(*Job) bool, newest bool) []Job {
	var all []*entry
	for _, e := range s.jobs {
		if is(&e.Job) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int {
		if newest {
			return cmp.Compare(b.first, a.first)
		}
		return compare(placeOf(a), placeOf(b))
	})
	list := make([]Job, len(all))
	for i, e := range all {
		list[i] = e.Job
	}
	return list
}

// Metrics returns the figures of that instant.
func (s *State) Metrics(now time.Time) Metrics {
	m := Metrics{SuccessRate: 1, Counts: map[string]int{}}
	tried, retried := 0, 0
	for _, e := range s.jobs {
		m.Counts[e.Status]++
		if e.Status == Queued && !e.RunAt.After(now) {
			m.Due++
			m.LagSeconds = max(m.LagSeconds, now.Sub(e.RunAt).Seconds())
		}
		if e.Attempt > 0 {
			retried++
		}
		if e.Attempt > 0 || e.Status != Queued {
			tried++
		}
	}
	m.DeadLetters = m.Counts[DeadLetter]
	if n := m.Counts[Succeeded] + m.Counts[Failed] + m.DeadLetters; n > 0 {
		m.SuccessRate = float64(m.Counts[Succeeded]) / float64(n)
	}
	m.RetryRate = float64(retried) / float64(max(1, tried))
	return m
}

// Compact returns what a journal must hold for this state: one record of each job, the oldest first.
// Jobs that ended before that instant are to be moved out.
func (s *State) Compact(before time.Time) (keep ledger.Keep) {
	for _, e := range slices.SortedFunc(maps.Values(s.jobs), func(a, b *entry) int { return cmp.Compare(a.first, b.first) }) {
		r := *Record(nil, &e.Job)
		r.Fields = append(r.Fields, e.extra...)
		if ended(e.Status) && e.UpdatedAt.Before(before) {
			keep.Out = append(keep.Out, ledger.Moved{Record: r, Entry: ledger.ArchiveEntry{ID: e.ID, Status: e.Status, Key: e.IdempotencyKey, UpdatedAt: e.UpdatedAt}})
		} else {
			keep.Records = append(keep.Records, r)
		}
	}
	return keep
}

// Deleted returns the records for jobs whose sections a person has deleted: those that had not ended
// have failed. gone has "Job id" of all that have none left.
func (s *State) Deleted(gone map[string]bool, now time.Time) (records []ledger.Record) {
	why := "its section was deleted by hand"
	for _, was := range s.Where(func(j *Job) bool { return gone[string(ledger.KindJob)+" "+j.ID] && !ended(j.Status) }, false) {
		j := was
		j.Status, j.LastError, j.UpdatedAt, j.LeaseUntil = Failed, &why, now, time.Time{}
		records = append(records, *Record(&was, &j).Add(ledger.KeyBy, ledger.ByHand))
	}
	return records
}

// A Save is what a person wrote in one save, looked at section by section: each one is a step behind
// those before it that have passed.
type Save struct{ state, passed *State }

// NewSave begins a save: no section has passed yet.
func (s *State) NewSave() *Save { return &Save{s, New()} }

// Check returns why the next section that a person wrote cannot be accepted. The error is a
// [*state.RecordError].
func (v *Save) Check(sec *ledger.Section) error {
	id := string(sec.ID)
	was := cmp.Or(v.passed.jobs[id], v.state.jobs[id])
	switch _, isArchived := v.state.Archived(id); {
	case sec.Kind != ledger.KindJob:
		return state.NewRecordError(sec, nil, fmt.Errorf("a %s has no meaning here; write ## Job ID", sec.Kind))
	case isArchived && was == nil:
		return state.NewRecordError(sec, nil, errors.New("that job was archived; give yours another name"))
	}
	j, err := after(was, sec)
	if err == nil {
		err = keyTaken(sec, &j, cmp.Or(v.passed.byKey[j.IdempotencyKey], v.state.byKey[j.IdempotencyKey]))
	}
	if err == nil {
		v.passed.jobs[id], v.passed.byKey[j.IdempotencyKey] = &entry{Job: j}, id
	}
	return err
}
