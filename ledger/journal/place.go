package journal

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"

	"stint/ledger"
	"stint/ledger/durable"
)

// ReadTasks reads the tasks.md of a state directory, as a log would: the error is a
// [*FileError] if something else is in its place.
func ReadTasks(dir string) ([]byte, error) {
	s, err := snapshotOf(durable.OS, filepath.Join(dir, ledger.TasksName))
	return s.data, err
}

// snapshotOf reads a tasks.md.
func snapshotOf(fsys durable.FS, path string) (snapshot, error) {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return snapshot{}, badTasks(path, err)
	}
	s, err := readSnapshot(context.Background(), f, path)
	return s, errors.Join(err, f.Close())
}

// ReadJournal reads the journal of a state directory. The error wraps fs.ErrNotExist if
// there is none.
func ReadJournal(dir string) ([]byte, error) {
	return durable.ReadFile(durable.OS, filepath.Join(dir, ledger.JournalName))
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

// conflictForms are the names that sync programs use for the other version of
// tasks.md when two machines have changed it. What editors leave behind, such as
// tasks.md~, is none of them.
var conflictForms = regexp.MustCompile(`^tasks(` +
	`.*[ (-][Cc]onflict.*|` + // Dropbox, Nextcloud, Seafile: tasks (ana's conflicted copy 2026-11-21).md
	`\.sync-conflict-.*|` + // Syncthing
	` \([0-9]+\)|` + // Google Drive, and browsers
	` [0-9]+` + // iCloud
	`)\.md$`)

// ConflictCopies returns the names of the files beside tasks.md that a sync program
// made of a conflict: somebody else's version, which stint does not read.
func ConflictCopies(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // that the directory cannot be read is said elsewhere
	}
	for _, e := range entries {
		if e.Type() == fs.FileMode(0) && conflictForms.MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}
