package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/salvage"
	"stint/ledger/tasksfile"
)

// mend puts back from tasks.md what is damaged in the journal behind the last
// change that was applied. It writes a new journal and keeps the damaged one
// beside it. It gives false if there was nothing to mend with.
func (r *replayer) mend() (bool, error) {
	r.mended = true
	data, err := durable.ReadFile(r.fs, r.path)
	if err != nil {
		return false, err
	}
	doc, err := r.readTasks()
	if err != nil || doc == nil {
		return false, err
	}
	whole, what := salvage.Mend(data, int(min(int64(len(data)), r.good)), r.last, doc)
	if what == "" {
		return false, nil
	}
	aside, err := r.keepAside(data, ".damaged")
	if err != nil {
		return false, err
	}
	if err := durable.WriteFile(r.fs, r.path, whole); err != nil {
		return false, err
	}
	f, err := r.fs.OpenFile(r.path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return false, err
	}
	if err := r.swap(f).Close(); err != nil {
		return false, err
	}
	r.note(ledger.Notice{Damage: true, Text: fmt.Sprintf("%s was damaged: %s; the damaged file is now %s", ledger.JournalName, what, aside)})
	return true, nil
}

// readTasks returns tasks.md; nil if there is none that can be read.
func (j *journal) readTasks() (doc *ledger.Document, err error) {
	snap, err := tasksfile.ReadSnapshot(context.Background(), j.fs, filepath.Dir(j.path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil && !ledger.IsJournal(snap.Data) { // one of those has the same records
		return nil, err
	}
	return ledger.Parse(snap.Data), nil
}

// keepAside writes data to a name that is free: the journal's with that ending, and a
// number if there must be one.
func (j *journal) keepAside(data []byte, ending string) (string, error) {
	for n := 1; ; n++ {
		name := ledger.JournalName + ending
		if n > 1 {
			name += fmt.Sprint("-", n)
		}
		path := filepath.Join(filepath.Dir(j.path), name)
		if _, err := j.fs.Stat(path); err == nil {
			continue
		}
		return name, durable.WriteFile(j.fs, path, data)
	}
}
