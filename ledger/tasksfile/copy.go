package tasksfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
)

// ErrChanged is the error for a tasks.md that is not as it was read any more, and was left as it is.
var ErrChanged = errors.New(ledger.TasksName + " was changed meanwhile")

// draft writes the file fresh of what rewrite makes of the file path, with its mode, durable but for its name.
func draft(fsys durable.FS, path, fresh string, rewrite func(old io.ReaderAt, w io.Writer) error) (f durable.File, err error) {
	old, fi, err := Open(fsys, path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, old.Close()) }()
	return durable.WriteNew(fsys, fresh, fi.Mode().Perm(), func(w io.Writer) error { return rewrite(old, w) })
}

// exchange closes a draft, the file fresh, and puts it in the place of the file path if that is still the file old, which is
// named fresh afterwards. A power cut leaves the old text or the new one. The error is ErrChanged if another hand has saved there.
//
// The two files change places in one step, and only then what came out is looked at, so that no save is missed. If that is not
// the file old, a person has saved in that moment, and the newest save goes back. Nothing but our own file is ever removed.
func exchange(fsys durable.FS, path, fresh string, draft durable.File, old durable.ID) (ours durable.ID, err error) {
	if err := draft.Close(); err != nil {
		return ours, errors.Join(err, durable.Drop(fsys, fresh))
	}
	if ours, err = durable.IDAt(fsys, fresh); err != nil {
		return ours, err
	}
	for want, put := old, ours; ; {
		err := fsys.Exchange(fresh, path)
		if err != nil && put != ours {
			return ours, fmt.Errorf("%s was changed meanwhile, and what was saved is now %s: %w", path, fresh, err)
		}
		if err != nil {
			return ours, errors.Join(err, durable.Drop(fsys, fresh))
		}
		out, err := durable.IDAt(fsys, fresh)
		switch {
		case err != nil:
			return ours, err
		case out == want && put == ours:
			return ours, fsys.SyncDir(filepath.Dir(path))
		case out == want:
			if out == ours {
				err = durable.Drop(fsys, fresh)
			}
			return ours, cmp.Or(err, ErrChanged)
		}
		want, put = put, out
	}
}

// DraftPath returns the name of a draft, and for a moment that of the old file whose place it has taken.
func (t *File) DraftPath() string { return t.path + ".compacted" } // no name that a person would give

// Draft writes what rewrite makes of the file aside, durable but for its name.
func (t *File) Draft(rewrite func(old io.ReaderAt, w io.Writer) error) (durable.File, error) {
	return draft(t.fs, t.path, t.DraftPath(), rewrite)
}

// Swap closes a draft and puts it in the place of the file if that is in the state old; newest is the newest record in it, marks
// those of it. The old file remains as tasks.md.before with keep, or if another hand writes there. The error is ErrChanged if one
// has saved before.
func (t *File) Swap(old durable.ID, draft durable.File, newest uint64, marks int, keep bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.foreign = true
	fi, err := draft.Stat()
	if err != nil {
		return errors.Join(err, draft.Close())
	}
	blank := endsBlank(draft, fi.Size())
	ours, err := exchange(t.fs, t.path, t.DraftPath(), draft, old)
	if err != nil {
		return err
	}
	if now := t.now(); now.SameFile(ours) {
		t.seen, t.blank, t.foreign = now, blank, now != ours
		t.state, t.marks = State{Newest: newest}, marks
	}
	if out, err := durable.IDAt(t.fs, t.DraftPath()); err != nil {
		return nil // it is gone, or stays
	} else if keep || out != old {
		return t.fs.Rename(t.DraftPath(), durable.FreeName(t.fs, t.path+".before"))
	}
	return durable.Drop(t.fs, t.DraftPath())
}

// A Copy is tasks.md as it was at one moment, for a program that puts another text in its place as an editor
// does: beside a master, or without one, and without the lock. It has one user at a time.
type Copy struct {
	Data []byte // as it was read

	fs   durable.FS
	path string
	id   durable.ID
}

// ReadCopy reads tasks.md in dir when it has rested for a moment, because some editors write a file in pieces, or after a second:
// a busy master appends all the time. A nil fsys is the machine's. The error wraps fs.ErrNotExist if there is no such file.
func ReadCopy(ctx context.Context, fsys durable.FS, dir string, files ledger.Files) (*Copy, error) {
	fsys = cmp.Or(fsys, durable.OS)
	t := New(fsys, dir, files)
	rest, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	if !t.Rest(rest) && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	snap, err := ReadSnapshot(ctx, fsys, dir, files)
	return &Copy{Data: snap.Data, fs: fsys, path: t.path, id: snap.ID}, err
}

// Replace puts data in the place of tasks.md, with its mode, so that a power cut leaves
// the old text or the new one. The error is ErrChanged if tasks.md is not as it was read.
func (c *Copy) Replace(data []byte) error {
	tmp := fmt.Sprintf("%s.%016x.tmp", c.path, rand.Uint64()) // nobody removes it if it is a save that came in between
	f, err := draft(c.fs, c.path, tmp, func(_ io.ReaderAt, w io.Writer) error { _, err := w.Write(data); return err })
	if err == nil {
		_, err = exchange(c.fs, c.path, tmp, f, c.id)
	}
	if err != nil {
		return err
	}
	return c.fs.Remove(tmp)
}
