package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
)

// ErrChanged is the error for a tasks.md that is not as it was read any more, and was left
// as it is.
var ErrChanged = errors.New(ledger.TasksName + " was changed meanwhile")

// replaceFile puts data in the place of the file path, with its mode, if that is still
// the file old, which is named fresh afterwards. A power cut leaves the old text or the new
// one. It returns the new file. The error is ErrChanged if another hand has saved there.
func replaceFile(fsys durable.FS, path, fresh string, old fileID, data []byte) (ours fileID, err error) {
	fi, err := fsys.Stat(path)
	if err != nil {
		return ours, err
	}
	f, err := writeNew(fsys, fresh, data, fi.Mode().Perm())
	if err != nil {
		return ours, err
	}
	if err := f.Close(); err != nil {
		return ours, errors.Join(err, dropFile(fsys, fresh))
	}
	if ours, err = idAt(fsys, fresh); err != nil {
		return ours, err
	}
	if err := swapIn(fsys, fresh, path, old, ours); err != nil {
		return ours, err
	}
	return ours, fsys.SyncDir(filepath.Dir(path))
}

// swapIn lets the files fresh and path change places in one step, and only then looks at
// what came out, so that it misses no save. If that is not the file old, a person has saved
// in that moment, and the newest save goes back. Nothing but our own file is ever removed.
func swapIn(fsys durable.FS, fresh, path string, old, ours fileID) error {
	for want, put := old, ours; ; {
		err := fsys.Exchange(fresh, path)
		if err != nil && put != ours {
			return fmt.Errorf("%s was changed meanwhile, and what was saved is now %s: %w", path, fresh, err)
		}
		if err != nil {
			return errors.Join(err, dropFile(fsys, fresh))
		}
		out, err := idAt(fsys, fresh)
		switch {
		case err != nil:
			return err
		case out == want && put == ours:
			return nil
		case out == want:
			if out == ours {
				err = dropFile(fsys, fresh)
			}
			return cmp.Or(err, ErrChanged)
		}
		want, put = put, out
	}
}

// writeNew writes a file that nobody else has open, durable but for its name, and
// returns it open for reading and appending. Nothing is left of one that has no room.
func writeNew(fsys durable.FS, name string, data []byte, mode fs.FileMode) (f durable.File, err error) {
	if err := dropFile(fsys, name); err != nil {
		return nil, err
	}
	if f, err = fsys.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, mode); err != nil {
		return nil, err
	}
	if m, ok := f.(interface{ Chmod(fs.FileMode) error }); ok { // whatever the umask is
		err = m.Chmod(mode)
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", name, err), f.Close(), dropFile(fsys, name))
	}
	return f, nil
}

// dropFile removes a file that may not be there.
func dropFile(fsys durable.FS, name string) error {
	if err := fsys.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// idAt returns the state of the file that has a name.
func idAt(fsys durable.FS, name string) (fileID, error) {
	fi, err := fsys.Stat(name)
	if err != nil {
		return fileID{}, err
	}
	return idOf(fi), nil
}

func sameFile(a, b fileID) bool { return a.dev == b.dev && a.ino == b.ino }

// A Copy is tasks.md as it was at one moment, for a program that puts another
// text in its place as an editor does: beside a master, or without one, and
// without the lock. It has one user at a time.
type Copy struct {
	Data []byte // as it was read

	fs   durable.FS
	path string
	id   fileID
}

// patience is how many times settle passes before a file that does not come to
// rest is taken as it is: a busy master appends all the time.
const patience = 10

// ReadCopy reads tasks.md in dir when it has rested for a moment, because some
// editors write a file in pieces. A nil fsys is the machine's. The error wraps
// fs.ErrNotExist if there is no such file.
func ReadCopy(ctx context.Context, fsys durable.FS, dir string) (*Copy, error) {
	if fsys == nil {
		fsys = durable.OS
	}
	c := &Copy{fs: fsys, path: filepath.Join(dir, ledger.TasksName)}
	last, err := idAt(fsys, c.path)
	for n := 0; err == nil && n < patience && time.Since(time.Unix(0, last.mtime)) < settle; n++ {
		if !wait(ctx, settle) {
			return nil, context.Cause(ctx)
		}
		before := last
		if last, err = idAt(fsys, c.path); last == before {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	snap, err := snapshotOf(fsys, c.path)
	c.Data, c.id = snap.data, snap.id
	return c, err
}

// Replace puts data in the place of tasks.md, with its mode, so that a power cut leaves
// the old text or the new one. The error is ErrChanged if tasks.md is not as it was read.
func (c *Copy) Replace(data []byte) error {
	tmp := fmt.Sprintf("%s.%d.tmp", c.path, os.Getpid())
	if _, err := replaceFile(c.fs, c.path, tmp, c.id, data); err != nil {
		return err
	}
	return c.fs.Remove(tmp)
}
