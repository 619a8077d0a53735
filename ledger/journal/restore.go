package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/salvage"
	"stint/ledger/tasksfile"
)

// restoredName is the tasks.md of a restore until it has its place. That it is there is
// the point of no return.
const restoredName = ledger.TasksName + ".restored"

// Restore makes tasks the ledger of dir: tasks.md is these bytes and the record
// note, and the journal is made from them. The note's seq is above all that were
// ever given, so that no number is given twice. Before, tasks.md and journal.md
// are copied to the new directory backup, in the directory archive. A crash leaves
// the ledger as it was or as it is to be. The caller holds the Lock, and no Log is
// open.
func Restore(fsys durable.FS, dir string, tasks []byte, note ledger.Record, backup string) error {
	if err := finishRestore(fsys, dir); err != nil {
		return err
	}
	last, seen, err := copyLedger(fsys, dir, backup)
	if err != nil {
		return fmt.Errorf("the ledger could not be copied to %s, and is as it was: %w", backup, err)
	}
	doc := ledger.Parse(tasks)
	for i := range doc.Sections {
		last = max(last, doc.Sections[i].Seq)
	}
	if note.Seq = last + 1; note.Seq > ledger.MaxSeq {
		return fmt.Errorf("record %d is beyond the last number that there can be", note.Seq)
	}
	tasks = tasks[:len(tasks):len(tasks)]
	if len(tasks) > 0 && tasks[len(tasks)-1] != '\n' {
		tasks = append(tasks, '\n')
	}
	if tasks, err = ledger.AppendRecord(tasks, &note); err != nil {
		return err
	}
	if _, _, err := salvage.Journal(ledger.Parse(tasks)); err != nil { // the last moment to find that out
		return err
	}
	if err := commitRestore(fsys, dir, tasks, seen); err != nil {
		return fmt.Errorf("%s was not restored: %w", ledger.TasksName, err)
	}
	return finishRestore(fsys, dir)
}

// copyLedger copies both files of the ledger to a new directory. It returns the highest seq
// in them, and tasks.md as it was.
func copyLedger(fsys durable.FS, dir, backup string) (last uint64, seen durable.ID, err error) {
	if err := durable.MkdirAll(fsys, backup); err != nil {
		return 0, seen, err
	}
	snap, err := tasksfile.New(fsys, dir).Read(context.Background())
	if err != nil {
		return 0, seen, err
	}
	journal, err := durable.ReadFile(fsys, filepath.Join(dir, ledger.JournalName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, seen, err
	}
	for name, data := range map[string][]byte{ledger.TasksName: snap.Data, ledger.JournalName: journal} {
		for _, s := range ledger.Parse(data).Sections {
			last = max(last, s.Seq)
		}
		if err := durable.WriteFile(fsys, filepath.Join(backup, name), data); err != nil {
			return 0, seen, err
		}
	}
	return last, snap.ID, nil
}

// commitRestore writes the new tasks.md aside, if the old one is still as it was seen.
func commitRestore(fsys durable.FS, dir string, tasks []byte, seen durable.ID) error {
	path := filepath.Join(dir, restoredName)
	f, err := durable.WriteNew(fsys, path+".tmp", tasks, durable.FileMode)
	if err != nil {
		return err
	}
	now, err := durable.IDAt(fsys, filepath.Join(dir, ledger.TasksName))
	if err = errors.Join(err, f.Close()); err == nil && now != seen {
		err = tasksfile.ErrChanged
	}
	if err == nil {
		err = fsys.Rename(path+".tmp", path)
	}
	if err != nil {
		return errors.Join(err, durable.Drop(fsys, path+".tmp"))
	}
	return nil
}

// finishRestore makes the journal of what a restore has written aside, and puts that in its
// place, if one has got that far. It is the first thing that is done to a ledger, because
// until then its files may belong to two different ones; and it can be done again at any
// point.
func finishRestore(fsys durable.FS, dir string) error {
	path := filepath.Join(dir, restoredName)
	tasks, err := durable.ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var journal []byte
	if err == nil {
		journal, _, err = salvage.Journal(ledger.Parse(tasks))
	}
	if err == nil {
		err = fsys.SyncDir(dir) // what decides that there is no way back must last longer than what follows
	}
	if err == nil {
		err = durable.WriteFile(fsys, filepath.Join(dir, ledger.JournalName), journal)
	}
	if err == nil {
		err = fsys.Rename(path, filepath.Join(dir, ledger.TasksName))
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("the restore is not finished; the next start goes on with it: %w", err)
	}
	return nil
}
