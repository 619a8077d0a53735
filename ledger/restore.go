package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"stint/ledger/durable"
)

// ControlRestored is the id of the control record that a restore writes: numbers below
// its own that the ledger does not have belong to what was taken back.
const ControlRestored = "restored"

// The files of a restore until they have their places. That the second one is there
// is the point of no return: it comes when the first one is durable.
const (
	restoredTasks   = TasksName + ".restored"
	restoredJournal = journalName + ".restored"
)

// journalOf gives the journal that the sections of a tasks.md make: those with a
// seq, in the order of the seqs, each seq once. Their order in the file is not always
// that one: a record may have landed behind an old buffer, and those before it were
// put back below. What a person copied is no record. known has the seqs.
func journalOf(doc *Document) (journal []byte, known map[uint64]bool, err error) {
	known = map[uint64]bool{}
	var records []*Section
	copies := copiesIn(doc)
	for i := range doc.Sections {
		s := &doc.Sections[i]
		if s.Seq == 0 || known[s.Seq] || len(copies) > 0 && copies[digestOf(s.Raw)] {
			continue
		}
		known[s.Seq] = true
		records = append(records, s)
	}
	slices.SortFunc(records, func(a, b *Section) int { return cmp.Compare(a.Seq, b.Seq) })
	journal = []byte(emptyJournal)
	for _, s := range records {
		r := s.Record()
		if journal, err = AppendRecord(journal, &r); err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", TasksName, s.Line, err)
		}
	}
	return journal, known, nil
}

// Restore makes tasks the ledger of dir: tasks.md is these bytes and the record
// note, and the journal is made from them. The note's seq is above all that were
// ever given, so that no number is given twice. Before, tasks.md and journal.md
// are copied to the new directory backup, in the directory archive. A crash leaves
// the ledger as it was or as it is to be. The caller holds the Lock, and no Log is
// open.
func Restore(fsys durable.FS, dir string, tasks []byte, note Record, backup string) error {
	if err := finishRestore(fsys, dir); err != nil {
		return err
	}
	before, err := copyLedger(fsys, dir, backup)
	if err != nil {
		return fmt.Errorf("the ledger could not be copied to %s, and is as it was: %w", backup, err)
	}
	journal, known, err := journalOf(Parse(tasks))
	if err != nil {
		return err
	}
	note.Seq = before.last + 1
	for seq := range known {
		note.Seq = max(note.Seq, seq+1)
	}
	if note.Seq > maxSeq {
		return fmt.Errorf("record %d is beyond the last number that there can be", note.Seq)
	}
	if journal, err = AppendRecord(journal, &note); err != nil {
		return err
	}
	tasks = withNewline(tasks)
	if tasks, err = AppendRecord(tasks[:len(tasks):len(tasks)], &note); err != nil {
		return err
	}
	if err := commitRestore(fsys, dir, tasks, journal, before.tasks); err != nil {
		return fmt.Errorf("%s was not restored: %w", TasksName, err)
	}
	return finishRestore(fsys, dir)
}

// withNewline ends a text with a newline, unless it is empty.
func withNewline(text []byte) []byte {
	if len(text) == 0 || text[len(text)-1] == '\n' {
		return text
	}
	return append(text[:len(text):len(text)], '\n')
}

// before is the ledger as it was when it was copied.
type before struct {
	last  uint64 // highest seq
	tasks fileID
}

// copyLedger copies both files of the ledger to a new directory.
func copyLedger(fsys durable.FS, dir, backup string) (b before, err error) {
	if err := durable.MkdirAll(fsys, backup); err != nil {
		return b, err
	}
	t := tasksFile{fs: fsys, path: filepath.Join(dir, TasksName)}
	snap, err := t.read(context.Background())
	if err != nil {
		return b, err
	}
	b.tasks = snap.id
	journal, err := durable.ReadFile(fsys, filepath.Join(dir, journalName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	for _, data := range [][]byte{snap.data, journal} {
		for _, s := range Parse(data).Sections {
			b.last = max(b.last, s.Seq)
		}
	}
	if err := durable.WriteFile(fsys, filepath.Join(backup, journalName), journal); err != nil {
		return b, err
	}
	return b, durable.WriteFile(fsys, filepath.Join(backup, TasksName), snap.data)
}

// commitRestore writes the two new files aside, if tasks.md is still as it was seen.
func commitRestore(fsys durable.FS, dir string, tasks, journal []byte, seen fileID) error {
	aside := filepath.Join(dir, restoredTasks)
	err := durable.WriteFile(fsys, aside, tasks)
	if err != nil {
		return err
	}
	now, err := fsys.Stat(filepath.Join(dir, TasksName))
	if err == nil && idOf(now) != seen {
		err = ErrChanged
	}
	if err != nil {
		return err
	}
	final := filepath.Join(dir, restoredJournal)
	if err := durable.WriteFile(fsys, final, journal); err != nil {
		_ = fsys.Remove(final) // it may have its name already; if it keeps that, the next start restores
		return err
	}
	return nil
}

// finishRestore puts the files of a restore in their places, if one has got that
// far. It is the first thing that is done to a ledger, because until then its
// files may belong to two different ones; and it can be done again at any point.
func finishRestore(fsys durable.FS, dir string) error {
	journal := filepath.Join(dir, restoredJournal)
	if _, err := fsys.Stat(journal); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := fsys.SyncDir(dir) // what decides that there is no way back must last longer than what follows
	if err == nil {
		err = fsys.Rename(filepath.Join(dir, restoredTasks), filepath.Join(dir, TasksName))
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) { // it has its place already
		err = fsys.SyncDir(dir)
	}
	if err == nil {
		err = fsys.Rename(journal, filepath.Join(dir, journalName))
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("the restore is not finished; the next start goes on with it: %w", err)
	}
	return nil
}
