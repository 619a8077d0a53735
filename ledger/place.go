package ledger

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"stint/ledger/durable"
)

// JournalName is the name of the journal, which no person writes.
const JournalName = journalName

// ReadTasks reads the tasks.md of a state directory, as a log would: the error is a
// [*FileError] if something else is in its place.
func ReadTasks(dir string) (data []byte, err error) {
	path := filepath.Join(dir, TasksName)
	f, err := durable.OS.OpenFile(path, os.O_RDONLY|tasksFlags, 0)
	if err != nil {
		return nil, badTasks(path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	s, err := readSnapshot(f, path)
	return s.data, err
}

// ReadLedger reads any other ledger file: a journal, a part of the archive, a copy
// of tasks.md. It does not wait for a pipe, and reads no more than a ledger can be.
// The error wraps fs.ErrNotExist if there is no such file.
func ReadLedger(path string) (data []byte, err error) {
	f, err := durable.OS.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !fi.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case fi.Size() > maxTasks:
		return nil, fmt.Errorf("%s has %d bytes, more than a ledger may have", path, fi.Size())
	}
	return io.ReadAll(io.LimitReader(f, maxTasks))
}

// conflictForms are the names that sync programs give to the other version of
// tasks.md when two machines have changed it. What editors leave behind, such as
// tasks.md~, is none of them.
var conflictForms = lazily(`^tasks(` +
	`.*[ (-][Cc]onflict.*|` + // Dropbox, Nextcloud, Seafile: tasks (ana's conflicted copy 2026-11-21).md
	`\.sync-conflict-.*|` + // Syncthing
	` \([0-9]+\)|` + // Google Drive, and browsers
	` [0-9]+` + // iCloud
	`)\.md$`)

// ConflictCopies gives the names of the files beside tasks.md that a sync program
// made of a conflict: somebody else's version, which stint does not read.
func ConflictCopies(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // that the directory cannot be read is said elsewhere
	}
	for _, e := range entries {
		if e.Type() == fs.FileMode(0) && conflictForms().MatchString(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}
