package durable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ReadFile returns the bytes of a file, if they are not more than any file of ours has.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return ReadBounded(f, name)
}

// MaxFile bounds what is read of one file. It is ten times what a million tasks take in a
// ledger before compaction, and with the journal as much as the memory of a small machine:
// both are held while they are compared.
const MaxFile = 2 << 30

// ReadBounded reads an open file that may have grown beyond what it can be, and closes it.
func ReadBounded(f interface {
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
	case fi.Size() > MaxFile:
		return nil, fmt.Errorf("%s has %d bytes, more than stint reads of a file; move it away", path, fi.Size())
	}
	return ReadPieces(context.Background(), f, path, fi.Size())
}

// MaxVoid is the longest run of zero bytes in what is read: longer than what a power cut
// leaves in the place of a batch. What is longer is a hole of a file that has no more.
const MaxVoid = 64 << 20

// A HoleError is where a file has more zero bytes in a row than anybody has written.
type HoleError int64

// Error returns what is wrong with the file.
func (e HoleError) Error() string {
	return fmt.Sprintf("has more than %d MiB of zero bytes from byte %d on, which nobody has written (to cut off all behind that: truncate -s %[2]d)", MaxVoid>>20, int64(e))
}

// ReadPieces reads size bytes, or as many as there are, until ctx ends. Memory grows with
// what is read, and a hole ends it.
func ReadPieces(ctx context.Context, f io.Reader, path string, size int64) (data []byte, err error) {
	void := 0
	for err == nil && int64(len(data)) < size {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if len(data) == cap(data) {
			data = append(make([]byte, 0, min(size, max(MaxVoid, 2*int64(len(data))))), data...)
		}
		at := len(data)
		n := 0
		n, err = io.ReadFull(f, data[at:min(at+4<<20, cap(data))])
		data = data[:at+n]
		zeros := n - len(bytes.TrimRight(data[at:], "\x00"))
		if zeros == n {
			zeros += void
		}
		if void = zeros; void > MaxVoid {
			return nil, fmt.Errorf("%s %w", path, HoleError(len(data)-void))
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return data, err
}

// Head returns the beginning of a file; nil if it is not there.
func Head(fsys FS, path string) (head []byte, err error) {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	head, err = io.ReadAll(io.NewSectionReader(f, 0, 4<<10))
	return head, errors.Join(err, f.Close())
}
