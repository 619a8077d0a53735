package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/journal"
	"stint/state/fold"
)

// feedArchive tells a fold that is made beside the master what is in the archive.
func feedArchive(st *fold.State, dir string) error {
	entries, err := journal.ReadArchive(nil, dir)
	if err != nil {
		return fmt.Errorf("read the archive: %w", err)
	}
	for _, e := range entries {
		st.Archive(e)
	}
	return nil
}

// FoldDir reads the journal and the archive's index of a state directory, to the end.
func FoldDir(dir string) (*fold.State, error) { return FoldWhile(context.Background(), dir) }

// FoldWhile is FoldDir until ctx ends; the error is its cause then.
func FoldWhile(ctx context.Context, dir string) (*fold.State, error) {
	data, err := readWhile(ctx, filepath.Join(dir, ledger.JournalName))
	if err != nil {
		return nil, err
	}
	st := fold.New(BytesReader(data))
	if err := feedArchive(st, dir); err != nil {
		return nil, err
	}
	if err := foldInto(ctx, st, data); err != nil {
		return nil, err
	}
	return st, nil
}

// FoldJournal folds the bytes of a journal.
func FoldJournal(data []byte) *fold.State {
	st := fold.New(BytesReader(data))
	_ = foldInto(context.Background(), st, data) // which never ends
	return st
}

// foldInto folds the bytes of a journal into st until ctx ends.
func foldInto(ctx context.Context, st *fold.State, data []byte) error {
	ledger.CheckJournalWhile(data, func(s *ledger.Section) bool {
		_ = st.Apply(s) // what the fold refuses has no effect, here as there
		return ctx.Err() == nil
	})
	return context.Cause(ctx)
}

// readBlock is how much of a file is read before it is asked whether to go on.
const readBlock = 4 << 20

// readWhile reads a file until ctx ends.
func readWhile(ctx context.Context, path string) (data []byte, err error) {
	f, err := durable.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return ReadUntil(ctx, f, fi.Size()) // what comes later is of later changes
}

// ReadUntil reads size bytes, or as many as there are, until ctx ends.
func ReadUntil(ctx context.Context, r io.Reader, size int64) ([]byte, error) {
	data := make([]byte, size)
	for n := 0; n < len(data); {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		more, err := io.ReadFull(r, data[n:min(n+readBlock, len(data))])
		if n += more; errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return data[:n], nil // it was cut meanwhile
		}
		if err != nil {
			return nil, err
		}
	}
	return data, nil
}

// BytesReader reads records from a journal in memory.
type BytesReader []byte

func (b BytesReader) SectionAt(off int64) (*ledger.Section, error) { return ledger.SectionIn(b, off) }
