package statedir

import (
	"bytes"
	"context"
	"encoding/json"

	"stint/coordinator/queue"
	"stint/coordinator/schedule/due"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/journal"
	"stint/state"
	"stint/state/fold"
	"stint/state/jobs"
)

// A book is one of the ledgers, folded: as its journal has it, or alone, as a new state directory with its
// file and nothing else would.
type book struct {
	files    ledger.Files
	tasks    *fold.State       // of tasks.md
	jobs     *jobs.State       // of jobs.md
	sections []*ledger.Section // of one that is alone, by the offset that they are folded under

	fold interface { // that of the two which is used
		Archive(e ledger.ArchiveEntry)
		Archived(id string) (ledger.ArchiveEntry, bool)
		Apply(s *ledger.Section) error
	}
}

// newBook returns a book without records. from has those that are folded; nil: it is alone.
func newBook(files ledger.Files, from fold.Reader, archive []ledger.ArchiveEntry) *book {
	b := &book{files: files, jobs: jobs.New()}
	if from == nil {
		from = b
	}
	b.tasks = fold.New(from)
	if b.fold = b.tasks; files == ledger.JobFiles {
		b.fold = b.jobs
	}
	for _, e := range archive {
		b.fold.Archive(e)
	}
	return b
}

// readBook folds a journal with the index of its archive. data is nil if there is none. What the fold refuses has no effect.
func readBook(dir string, files ledger.Files) (b *book, data []byte, err error) {
	data, entries, err := queue.ReadJournal(context.Background(), dir, files)
	b = newBook(files, queue.BytesReader(data), entries)
	ledger.CheckJournal(data, func(s *ledger.Section) bool { _ = b.fold.Apply(s); return true })
	return b, data, err
}

// filesOf returns which ledger the text of one is: its records say so, or its title.
func filesOf(data []byte) ledger.Files {
	doc := ledger.Parse(data)
	for i := range doc.Sections {
		if k := doc.Sections[i].Kind; k != ledger.KindControl {
			return map[ledger.Kind]ledger.Files{ledger.KindJob: ledger.JobFiles}[k]
		}
	}
	if bytes.Contains(data, []byte("\n# Jobs\n")) {
		return ledger.JobFiles
	}
	return ledger.TaskFiles
}

// SectionAt implements [fold.Reader].
func (b *book) SectionAt(off int64) (*ledger.Section, error) { return b.sections[off], nil }

// check returns what is wrong with a record of a file alone, and folds it if nothing is. What a
// person wrote is folded as the record that it would become.
func (b *book) check(s *ledger.Section) error {
	own := *s
	switch {
	case s.Seq > 0:
	case b.files == ledger.JobFiles:
		if err := b.jobs.NewSave().Check(s); err != nil {
			return err
		}
	default:
		r := s.Record()
		r.Set(b.tasks.ImpliedChanges(r.Add(ledger.KeyBy, ledger.ByHand))...)
		enc, err := ledger.Encode(&r)
		if err == nil {
			err = b.tasks.CheckNext(enc)
		}
		if err != nil {
			return err
		}
		own = *enc
	}
	own.Off = int64(len(b.sections))
	b.sections = append(b.sections, &own)
	return b.fold.Apply(&own)
}

// preview returns what a master would do if the file were that text, beside a journal that is nil if there is none.
func (b *book) preview(dir string, records, text []byte) (task.Reconciled, []ledger.Record, error) {
	rules := queue.EditRules(func(f func(*fold.State)) { f(b.tasks) })
	if b.files == ledger.JobFiles {
		rules = due.EditRules(func(f func(*jobs.State)) { f(b.jobs) })
	}
	r, err := journal.Preview(journal.Options{Dir: dir, Files: b.files, Rules: rules}, records, text)
	if err != nil {
		return task.Reconciled{}, nil, err
	}
	return queue.ReconciledOf(r), r.Records, nil
}

// all returns the tasks by id, with their texts; or the jobs, as tasks whose prompt has all that is known of them.
func (b *book) all() (map[string]state.Task, error) {
	all := map[string]state.Task{}
	for _, j := range b.jobs.List(jobs.Filter{}) {
		text, _ := json.Marshal(j) // it has nothing that JSON cannot hold
		all[j.ID] = state.Task{ID: j.ID, Status: state.Status(j.Status), Title: j.Action + " " + j.ObjectID, Prompt: string(text), CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt}
	}
	rows, err := b.tasks.List(state.Filter{})
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if all[row.ID], _, err = b.tasks.Task(row.ID); err != nil {
			return nil, err
		}
	}
	return all, nil
}
