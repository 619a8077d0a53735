package durable

import (
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

// MaxFile bounds what is read of one file. It is ten times what a million tasks take in a ledger before compaction, and with
// the journal as much as the memory of a small machine: both are held while they are compared.
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
	return ReadPieces(context.Background(), f, fi.Size())
}

// ReadPieces reads size bytes, or as many as there are, until ctx ends.
func ReadPieces(ctx context.Context, f io.Reader, size int64) (data []byte, err error) {
	data = make([]byte, 0, size)
	for err == nil && len(data) < cap(data) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		n := 0
		n, err = io.ReadFull(f, data[len(data):min(len(data)+4<<20, cap(data))])
		data = data[:len(data)+n]
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return data, err
}

// Head returns the beginning of a file; nil if it is not there.
func Head(fsys FS, path string) (head []byte, err error) {
	err = With(fsys, path, os.O_RDONLY, func(f File, _ fs.FileInfo) (err error) {
		head, err = io.ReadAll(io.NewSectionReader(f, 0, 4<<10))
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return head, err
}
