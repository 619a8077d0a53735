package journal_test

import (
	"math"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"stint/ledger"
	"stint/ledger/journal"
)

// A generation is what a log has applied between two compactions.
type generation struct {
	from, until int // operations; while a compaction is at work there are two
	all         []applied
	archived    []string
}

// generations returns those of a scene, oldest first.
func (s *scene) generations() []generation {
	return append(slices.Clone(s.past), generation{s.since, math.MaxInt, s.all, s.archived})
}

// compactSome compacts twice, with tasks that have ended, hand-written sections,
// and changes before, between and after.
func (s *scene) compactSome() {
	s.change(s.task())
	s.change(s.task())
	s.change(s.step("status", "running", "runId", "r1"))
	s.change(s.step("status", "done", "result", s.prompt()))
	s.stop()
	save := s.saveByRename
	if s.rng.IntN(2) == 0 {
		save = s.saveInPlace
	}
	s.edit(save, s.buffer()+"\n## Task mine\n- status: queued\n", "mine", "status", "queued")
	s.start()
	s.change(s.task())
	if s.rng.IntN(2) == 0 {
		s.rest()
	}
	s.compact()
	s.change(s.task())
	s.change(s.step("status", "canceled"))
	s.stop()
	s.start()
	s.change(record("t1", "status", "running", "runId", "r2"))
	s.compact()
	s.change(s.task())
}

// compact lets the log compact its files. What was acknowledged before is there in one form or the other.
func (s *scene) compact() {
	s.t.Helper()
	if s.log == nil {
		return
	}
	before := generation{from: s.since}
	begun, were := s.fs.ops(), len(s.all)
	report, err := s.log.Compact(s.t.Context(), journal.Compaction{
		New:  func(journal.Reader) journal.Fold { return &folding{fs: s.fs} },
		Plan: s.keep,
		Take: func(f journal.Fold) {
			before.all, before.archived = s.all, s.archived
			s.all, s.archived = f.(*folding).all, f.(*folding).archived
		},
	})
	synctest.Wait()
	if s.faulty != nil {
		s.told.compacted = true
		return
	}
	if err != nil || report.Merged == 0 {
		s.t.Fatalf("compaction: %+v, %v", report, err)
	}
	s.quiet()
	before.until, s.since = s.fs.ops(), begun
	s.past = append(s.past, before)
	for i, from := 0, len(s.all)-(len(before.all)-were); i < len(s.all); i++ { // what came while the compaction was planned is as it was
		s.all[i].at = begun
		if i >= from {
			s.all[i].at = before.all[were+i-from].at
		}
	}
}

// onlyArchived returns the tasks of the archive of which the journal has no record:
// those of a compaction that did not come to its end are in both.
func (f *folding) onlyArchived() []string {
	var only []string
	for _, e := range f.archived {
		id, _, _ := strings.Cut(e, " ")
		if !slices.ContainsFunc(f.all, func(a applied) bool { return strings.HasPrefix(a.text, "## Task "+id+"\n") }) {
			only = append(only, e)
		}
	}
	return only
}

// Archive implements [journal.Fold].
func (f *folding) Archive(e ledger.ArchiveEntry) { f.archived = append(f.archived, e.ID+" "+e.Status) }

// Apply implements [journal.Fold].
func (f *folding) Apply(s *ledger.Section) error { return f.apply(s) }

// keep merges the records of each task into one, and moves out those that have ended.
func (s *scene) keep(_ journal.Fold, out func(ledger.Moved) error) (ledger.Keep, error) {
	text, _ := s.fs.content("journal.md")
	doc := ledger.Parse([]byte(text))
	for range s.rng.IntN(3) { // nobody waits for a compaction
		s.send([]*ledger.Record{s.task()})
	}
	var all []ledger.Record
	for i := range doc.Sections {
		all = append(all, doc.Sections[i].Record())
	}
	var kept ledger.Keep
	for _, t := range merge(all) {
		switch status, _ := t.Get("status"); status {
		case "done", "canceled":
			if err := out(ledger.Moved{Record: t, Entry: ledger.ArchiveEntry{ID: t.ID, Status: status}}); err != nil {
				return nil, err
			}
		default:
			kept.Add(t)
		}
	}
	return kept, nil
}

// isEngines reports whether a key says where a record comes from, not what it means.
func isEngines(key string) bool {
	return key == ledger.KeyBy || key == ledger.KeyUpdated || ledger.IsEngineKey(key)
}

// november is the time of the scenes' compactions.
func november() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }
