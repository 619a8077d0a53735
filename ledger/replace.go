package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"stint/ledger/durable"
)

// ErrChanged says that tasks.md is not as it was read any more, so that it was
// left as it is.
var ErrChanged = errors.New(TasksName + " was changed meanwhile")

// A Copy is tasks.md as it was at one moment, for a program that puts another
// text in its place as an editor does: beside a master, or without one, and
// without the lock. It has one user at a time.
type Copy struct {
	Data []byte // as it was read

	fs       durable.FS
	path     string
	id       fileID
	mode     fs.FileMode
	uid, gid int
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
	c := &Copy{fs: fsys, path: filepath.Join(dir, TasksName)}
	for range patience {
		fi, err := fsys.Stat(c.path)
		if err != nil {
			return nil, err
		}
		if time.Since(fi.ModTime()) >= settle {
			break
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(settle):
		}
		if now, err := fsys.Stat(c.path); err == nil && idOf(now) == idOf(fi) {
			break
		}
	}
	return c, c.read()
}

func (c *Copy) read() error {
	f, err := c.fs.OpenFile(c.path, os.O_RDONLY, 0)
	if err != nil {
		return badTasks(c.path, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	snap, err := readSnapshot(context.Background(), f, c.path)
	c.Data, c.id, c.mode = snap.data, snap.id, fi.Mode().Perm()
	c.uid, c.gid = -1, -1
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		c.uid, c.gid = int(st.Uid), int(st.Gid)
	}
	return err
}

// Replace puts data in the place of tasks.md, with its mode and owner, so that a
// power cut leaves the old text or the new one. The two files change places in
// one step, and then the old one is looked at: if it is not what was read, they
// change places again, and the error is ErrChanged.
func (c *Copy) Replace(data []byte) error {
	tmp := fmt.Sprintf("%s.%d.tmp", c.path, os.Getpid())
	ours, err := c.write(tmp, data)
	if err != nil {
		return errors.Join(err, c.drop(tmp))
	}
	err = c.fs.Exchange(tmp, c.path)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.ENOTSUP) {
		return c.rename(tmp)
	}
	if err != nil {
		return errors.Join(err, c.drop(tmp))
	}
	if err := c.swappedOut(tmp, ours); err != nil {
		return err
	}
	return errors.Join(c.fs.SyncDir(filepath.Dir(c.path)), c.drop(tmp))
}

// write makes the new file, durable but for its name.
func (c *Copy) write(name string, data []byte) (id fileID, err error) {
	f, err := c.fs.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, c.mode)
	if err != nil {
		return id, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := c.dress(f); err != nil {
		return id, err
	}
	if _, err := f.Write(data); err != nil {
		return id, err
	}
	if err := f.Sync(); err != nil {
		return id, err
	}
	fi, err := f.Stat()
	if err != nil {
		return id, err
	}
	return idOf(fi), nil
}

// dress gives a new file the mode and the owner of the old one, as far as the
// system has them.
func (c *Copy) dress(f durable.File) error {
	if m, ok := f.(interface{ Chmod(fs.FileMode) error }); ok {
		if err := m.Chmod(c.mode); err != nil {
			return err
		}
	}
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	st, known := fi.Sys().(*syscall.Stat_t)
	o, ok := f.(interface{ Chown(uid, gid int) error })
	if !ok || !known || c.uid < 0 || int(st.Uid) == c.uid && int(st.Gid) == c.gid {
		return nil
	}
	if err := o.Chown(c.uid, c.gid); err != nil {
		return fmt.Errorf("%s belongs to user %d, group %d, and would not any more: %w", c.path, c.uid, c.gid, err)
	}
	return nil
}

// swappedOut looks at what came out of the place of tasks.md. If that is not what
// was read, it goes back. What comes out then must be our file; if it is not,
// somebody saved once more, and that newest text goes back in turn.
func (c *Copy) swappedOut(tmp string, ours fileID) error {
	out, err := c.idOfName(tmp)
	if err != nil || out == c.id {
		return err
	}
	for put := ours; ; {
		if err := c.fs.Exchange(tmp, c.path); err != nil {
			return fmt.Errorf("%w, and what was saved is in %s: %w", ErrChanged, tmp, err)
		}
		next, err := c.idOfName(tmp)
		if err != nil {
			return err
		}
		if next == put {
			return errors.Join(ErrChanged, c.drop(tmp))
		}
		put, out = out, next
	}
}

func (c *Copy) idOfName(name string) (fileID, error) {
	fi, err := c.fs.Stat(name)
	if err != nil {
		return fileID{}, err
	}
	return idOf(fi), nil
}

// rename is Replace where the file system cannot exchange two names: a save that
// comes between the look and the rename is lost.
func (c *Copy) rename(tmp string) error {
	now, err := c.idOfName(c.path)
	if err == nil && now != c.id {
		err = ErrChanged
	}
	if err == nil {
		err = c.fs.Rename(tmp, c.path)
	}
	if err != nil {
		return errors.Join(err, c.drop(tmp))
	}
	return c.fs.SyncDir(filepath.Dir(c.path))
}

// drop removes a file that may not be there.
func (c *Copy) drop(name string) error {
	if err := c.fs.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// AppendSection appends r as a person writes a section, without seq and end line.
// The error says what of r cannot be written; dst is then returned as it was.
func AppendSection(dst []byte, r *Record) ([]byte, error) {
	numbered := *r
	numbered.Seq = 1
	raw, err := AppendRecord(nil, &numbered)
	if err != nil {
		return dst, err
	}
	lines := bytes.SplitAfterN(raw, []byte("\n"), 3) // heading, seq, and the rest
	heading, fields := lines[0], lines[2]
	const end = "<!-- end 1 -->\n\n"
	return append(append(dst, heading...), fields[:len(fields)-len(end)]...), nil
}
