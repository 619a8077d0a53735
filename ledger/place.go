package ledger

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

	"stint/ledger/durable"
)

// JournalName is the name of the journal, which no person writes.
const JournalName = journalName

// ReadTasks reads the tasks.md of a state directory, as a log would: the error is a
// [*FileError] if something else is in its place.
func ReadTasks(dir string) (data []byte, err error) {
	path := filepath.Join(dir, TasksName)
	f, err := durable.OS.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, badTasks(path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	s, err := readSnapshot(context.Background(), f, path)
	return s.data, err
}

// ReadJournal reads the journal of a state directory. The error wraps fs.ErrNotExist if
// there is none.
func ReadJournal(dir string) ([]byte, error) {
	return readLedger(durable.OS, filepath.Join(dir, journalName))
}

// readLedger reads a file of the state directory.
func readLedger(fsys durable.FS, path string) ([]byte, error) {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return readBounded(f, path)
}

// ReadLedger reads any other ledger file that a person may name, also by a link. It does
// not wait for a pipe. The error wraps fs.ErrNotExist if there is no such file.
func ReadLedger(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return readBounded(f, path)
}

// readBounded reads no more than a ledger can be, and closes the file.
func readBounded(f interface {
	io.ReadCloser
	Stat() (fs.FileInfo, error)
}, path string,
) (data []byte, err error) {
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
	data, err = readPieces(context.Background(), f, fi.Size())
	if hole := holeError(0); errors.As(err, &hole) {
		return nil, fmt.Errorf("%s %w", path, hole)
	}
	return data, err
}

// maxVoid is the longest run of zero bytes in what is read: longer than what a power cut
// leaves in the place of a batch. What is longer is a hole of a file that has no more.
const maxVoid = 64 << 20

// A holeError is where a file has more zero bytes in a row than anybody has written.
type holeError int64

// Error gives what is wrong with the file.
func (e holeError) Error() string {
	return fmt.Sprintf("has more than %d MiB of zero bytes from byte %d on, which nobody has written (to cut off all behind that: truncate -s %[2]d)", maxVoid>>20, int64(e))
}

// readPieces reads size bytes, or as many as there are, until ctx ends. Memory grows with
// what is read, and a hole ends it.
func readPieces(ctx context.Context, f io.Reader, size int64) (data []byte, err error) {
	void := 0
	for err == nil && int64(len(data)) < size {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if len(data) == cap(data) {
			data = append(make([]byte, 0, min(size, max(maxVoid, 2*int64(len(data))))), data...)
		}
		at := len(data)
		n := 0
		n, err = io.ReadFull(f, data[at:min(at+4*chunk, cap(data))])
		data = data[:at+n]
		zeros := n - len(bytes.TrimRight(data[at:], "\x00"))
		if zeros == n {
			zeros += void
		}
		if void = zeros; void > maxVoid {
			return nil, holeError(len(data) - void)
		}
	}
	if ended(err) {
		err = nil
	}
	return data, err
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
