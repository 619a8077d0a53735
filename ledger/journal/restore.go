package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/mark"
	"stint/ledger/salvage"
	"stint/ledger/tasksfile"
)

// restored ends the name of the tasks.md of a restore until it has its place. That it is there is the point of no return.
const restored = ".restored"

// Restore makes tasks the ledger of dir: tasks.md is these bytes and the record note, and the journal is made from them. The
// note's seq is above all that were ever given, so that no number is given twice, and it says which are taken back. Before,
// tasks.md and journal.md are copied to the new directory backup, in the directory archive. A crash leaves the ledger as it was
// or as it is to be. The caller holds the Lock, and no Log is open.
func Restore(fsys durable.FS, dir string, files ledger.Files, tasks []byte, note ledger.Record, backup string) error {
	if err := finishRestore(fsys, dir, files); err != nil {
		return err
	}
	var old tasksfile.Snapshot
	var records []byte
	err := durable.MkdirAll(fsys, backup)
	if err == nil {
		if old, err = tasksfile.New(fsys, dir, files).Read(context.Background()); ledger.IsJournal(old.Data) {
			err = nil // it is kept as it is
		}
	}
	if err == nil {
		if records, err = durable.ReadFile(fsys, filepath.Join(dir, files.Journal())); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	for i, data := range [][]byte{old.Data, records} {
		if err == nil {
			err = durable.WriteFile(fsys, filepath.Join(backup, []string{files.Ledger(), files.Journal()}[i]), data)
		}
	}
	if err != nil {
		return fmt.Errorf("the ledger could not be copied to %s, and is as it was: %w", backup, err)
	}
	last, through := uint64(0), uint64(0)
	for _, data := range [][]byte{old.Data, records, tasks} {
		through = 0
		for _, s := range ledger.Parse(data).Sections {
			through = max(through, s.Seq)
		}
		last = max(last, through)
	}
	mark.Restored(&note, through) // of the copy
	note.Seq = last + 1
	tasks = tasks[:len(tasks):len(tasks)]
	if len(tasks) > 0 && tasks[len(tasks)-1] != '\n' {
		tasks = append(tasks, '\n')
	}
	if tasks, err = ledger.AppendRecord(tasks, &note); err != nil {
		return err
	}
	path := filepath.Join(dir, files.Ledger()+restored)
	f, err := durable.WriteNew(fsys, path+".tmp", durable.FileMode, func(w io.Writer) error { _, err := w.Write(bytes.TrimSuffix(tasks, []byte("\n"))); return err })
	if err == nil {
		now, ierr := durable.IDAt(fsys, filepath.Join(dir, files.Ledger()))
		if err = errors.Join(ierr, f.Close()); err == nil && now != old.ID {
			err = tasksfile.ErrChanged
		}
		if err == nil {
			err = fsys.Rename(path+".tmp", path)
		}
		if err != nil {
			err = errors.Join(err, durable.Drop(fsys, path+".tmp"))
		}
	}
	if err != nil {
		return fmt.Errorf("%s was not restored: %w", files.Ledger(), err)
	}
	return finishRestore(fsys, dir, files)
}

// finishRestore makes the journal of what a restore has written aside, and puts that in its place, if one has
// got that far. It is the first thing that is done to a ledger, because until then its files may belong to
// two different ones; and it can be done again at any point.
func finishRestore(fsys durable.FS, dir string, files ledger.Files) error {
	path := filepath.Join(dir, files.Ledger()+restored)
	tasks, err := durable.ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var journal []byte
	if err == nil {
		journal, _ = salvage.Journal(ledger.Parse(tasks))
	}
	for _, step := range []func() error{
		func() error { return fsys.SyncDir(dir) }, // what decides that there is no way back must last longer than what follows
		func() error { return durable.WriteFile(fsys, filepath.Join(dir, files.Journal()), journal) },
		func() error { return fsys.Rename(path, filepath.Join(dir, files.Ledger())) },
		func() error { return fsys.SyncDir(dir) },
	} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		return fmt.Errorf("the restore is not finished; the next start goes on with it: %w", err)
	}
	return nil
}

// ReadLedger reads any other ledger file that a person may name, also by a link. It does
// not wait for a pipe. The error wraps fs.ErrNotExist if there is no such file.
func ReadLedger(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return durable.ReadBounded(f, path)
}
