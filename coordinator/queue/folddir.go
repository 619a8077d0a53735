package queue

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"stint/ledger"
	"stint/ledger/archive"
	"stint/ledger/durable"
	"stint/state/fold"
)

// FoldDir folds the journal and the archive's index of a state directory, to the end. It needs
// no lock: a master may be at work. It ends with ctx, whose cause the error is then.
func FoldDir(ctx context.Context, dir string) (*fold.State, error) {
	data, entries, err := ReadJournal(ctx, dir)
	if err != nil {
		return nil, err
	}
	return FoldJournal(ctx, data, entries, nil)
}

// FoldJournal folds the index of an archive, and the records of a journal for which take returns
// true; nil: all. It ends with ctx, whose cause the error is then.
func FoldJournal(ctx context.Context, data []byte, entries []ledger.ArchiveEntry, take func(*ledger.Section) bool) (*fold.State, error) {
	st := fold.New(BytesReader(data))
	for _, e := range entries {
		st.Archive(e)
	}
	ledger.CheckJournal(data, func(s *ledger.Section) bool {
		if take == nil || take(s) {
			_ = st.Apply(s) // what the fold refuses has no effect, here as there
		}
		return ctx.Err() == nil
	})
	return st, context.Cause(ctx)
}

// ReadJournal reads a journal, nil if there is none, and the index of the archive that belongs to
// it: when a compaction has replaced the journal meanwhile, both are read again. It ends with ctx,
// whose cause the error is then.
func ReadJournal(ctx context.Context, dir string) (data []byte, entries []ledger.ArchiveEntry, err error) {
	path := filepath.Join(dir, ledger.JournalName)
	for {
		f, err := durable.Open(path, os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) { // nothing was ever written
			entries, err = archive.Read(nil, dir)
			return nil, entries, err
		}
		if err != nil {
			return nil, nil, err
		}
		fi, err := f.Stat()
		if err == nil {
			data, err = readUntil(ctx, f, fi.Size()) // what comes later is of later changes
		}
		if err == nil {
			entries, err = archive.Read(nil, dir)
		}
		now, statErr := os.Stat(path) // while f is open: no other file has its number
		if err = errors.Join(err, statErr, f.Close()); err != nil || os.SameFile(fi, now) {
			return data, entries, err
		}
	}
}

// readUntil reads size bytes, or as many as there are, until ctx ends: a journal may be large,
// and whoever asked may be gone.
func readUntil(ctx context.Context, r io.Reader, size int64) ([]byte, error) {
	const block = 4 << 20
	data := make([]byte, size)
	for n := 0; n < len(data); {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		more, err := io.ReadFull(r, data[n:min(n+block, len(data))])
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

// SectionAt implements [fold.Reader].
func (b BytesReader) SectionAt(off int64) (*ledger.Section, error) { return ledger.SectionIn(b, off) }
