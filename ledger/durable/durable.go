// Package durable writes files and directories so that they are still there after a power cut.
//
// Three rules, measured on ext4 and xfs, are kept here so that nobody else needs to know them. Bytes are durable after
// fdatasync of their file. A name (a new file, a rename) is durable after fsync of its directory. A file is replaced by writing
// a new one beside it, fsync, rename, fsync of the directory: the reader sees the old one or the new one, never a mixture.
//
// [FS] is what the ledger needs of a file system. [OS] is the real one; tests
// put one in its place that fails or forgets on demand.
package durable

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Modes of everything below the state directory: for its owner alone.
const (
	FileMode fs.FileMode = 0o600
	DirMode  fs.FileMode = 0o700
)

// A File is an open file of an [FS].
type File interface {
	io.Reader
	io.ReaderAt
	io.Writer
	io.Closer
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	Sync() error     // fsync: bytes and metadata
	Datasync() error // fdatasync: bytes, and the size that is needed to read them
}

// An FS is the part of a file system that the ledger uses.
type FS interface {
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Stat(name string) (fs.FileInfo, error) // follows no link at name, as OpenFile
	Rename(oldname, newname string) error
	// Exchange lets two files change places. Nobody ever sees b missing, unless it is a
	// directory on a file system that cannot do this in one step.
	Exchange(a, b string) error
	Remove(name string) error
	Mkdir(name string, perm fs.FileMode) error
	SyncDir(name string) error // makes the names in it durable
}

// OS is the file system of the machine.
var OS FS = osFS{}

type osFS struct{}

type osFile struct{ *os.File }

func (f osFile) Datasync() error { return datasync(f.File) }

func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Stat(name string) (fs.FileInfo, error)     { return os.Lstat(name) }
func (osFS) Rename(oldname, newname string) error      { return os.Rename(oldname, newname) }
func (osFS) Remove(name string) error                  { return os.Remove(name) }
func (osFS) Mkdir(name string, perm fs.FileMode) error { return os.Mkdir(name, perm) }

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (osFS) Exchange(a, b string) error {
	err := exchangeAtOnce(a, b)
	if errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return exchangeByLink(a, b)
	}
	if err != nil {
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
	return nil
}

// exchangeByLink is for systems and file systems that cannot exchange names. What is saved
// as b between its steps is lost, and a crash there leaves what b was as a.swap.
func exchangeByLink(a, b string) error {
	between := a + ".swap"
	if os.Link(b, between) != nil { // a directory, say
		if err := os.Rename(b, between); err != nil {
			return err
		}
	}
	if err := os.Rename(a, b); err != nil {
		back := os.Rename(between, b)
		if back == nil { // nothing is done if both are names of one file
			_ = os.Remove(between)
		}
		return errors.Join(err, back)
	}
	return os.Rename(between, a)
}

// again calls a system call until no signal interrupts it.
func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// WriteFile replaces the file name by one with the given bytes. After it returns nil the new file survives a
// power cut. After an error the old one is there, but where only the last step failed: then the new one is
// there and a power cut may bring the old one back. There is never a mixture.
func WriteFile(fsys FS, name string, data []byte) error {
	if err := ReplaceFile(fsys, name, data); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// ReplaceFile is WriteFile for a file that a power cut may take back: what is found
// after one is the old one or the new one, never a mixture. Each call writes a temporary
// file of its own, so calls at the same time do not disturb each other: the last rename wins.
func ReplaceFile(fsys FS, name string, data []byte) error {
	return replace(fsys, name, func(w io.Writer) error { _, err := w.Write(data); return err }, File.Sync)
}

// RewriteFile is ReplaceFile of the machine's file by what write writes.
func RewriteFile(name string, write func(io.Writer) error) error {
	return replace(OS, name, write, File.Sync)
}

// PutFile is ReplaceFile for what a power cut may spoil: the ledger has the truth. What
// stands at the name, a FIFO or a link too, is replaced and never written to.
func PutFile(name string, data []byte) error { return PutFileOn(OS, name, data) }

// PutFileOn is PutFile on a file system.
func PutFileOn(fsys FS, name string, data []byte) error {
	return replace(fsys, name, func(w io.Writer) error { _, err := w.Write(data); return err }, func(File) error { return nil })
}

func replace(fsys FS, name string, write func(io.Writer) error, sync func(File) error) (err error) {
	tmp := TempName(name)
	f, err := fsys.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, FileMode)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = sync(f)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		if err = fsys.Rename(tmp, name); err != nil {
			if fi, serr := fsys.Stat(name); serr == nil && fi.IsDir() {
				err = explain(name, fi, err)
			}
		}
	}
	if err != nil {
		_ = fsys.Remove(tmp) // the error that matters is err
	}
	return err
}

// Names of temporary files are NAME.stint-RANDOM.tmp, so that [RemoveTemps] takes nobody else's files for ours.
const tempMark, tempEnd = ".stint-", ".tmp"

// TempName returns a name beside name that nothing else has.
func TempName(name string) string {
	return fmt.Sprintf("%s%s%016x%s", name, tempMark, rand.Uint64(), tempEnd)
}

// IsTemp reports whether a base name is one that TempName gives.
func IsTemp(name string) bool {
	return strings.Contains(name, tempMark) && strings.HasSuffix(name, tempEnd)
}

// RemoveTemps removes the temporary files in dir that were last written before a time:
// what is left of writers that were killed. A writer at work is younger.
func RemoveTemps(dir string, before time.Time) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !IsTemp(e.Name()) {
			continue
		}
		if fi, ierr := e.Info(); ierr == nil && fi.Mode().IsRegular() && fi.ModTime().Before(before) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// MkdirAll makes a directory and what is missing above it, each durable in its
// parent, for the owner alone. What exists is left as it is.
func MkdirAll(fsys FS, name string) error {
	if _, err := fsys.Stat(name + "/."); !errors.Is(err, fs.ErrNotExist) { // a link to a directory will do
		return err
	}
	parent := filepath.Dir(name)
	if parent != name {
		if err := MkdirAll(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.Mkdir(name, DirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(parent)
}

// WriteNew writes a file that nobody else has open by what write writes, durable but for its name, and returns it open for
// reading and appending. A file that has the name is removed. Nothing is left of one that has no room.
func WriteNew(fsys FS, name string, mode fs.FileMode, write func(io.Writer) error) (f File, err error) {
	if err := Drop(fsys, name); err != nil {
		return nil, err
	}
	if f, err = fsys.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, mode); err != nil {
		return nil, err
	}
	if m, ok := f.(interface{ Chmod(fs.FileMode) error }); ok { // whatever the umask is
		err = m.Chmod(mode)
	}
	if buf := Steady(f); err == nil {
		err = cmp.Or(write(buf), buf.Flush(), f.Sync())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", name, err), f.Close(), Drop(fsys, name))
	}
	return f, nil
}

// Steady returns a buffer before f that makes what is written durable in steps: who syncs another file
// meanwhile may have to wait until all of this one is on the disk. What is left in it has to be flushed and synced.
func Steady(f File) *bufio.Writer { return bufio.NewWriterSize(&steady{f: f}, 256<<10) }

type steady struct {
	f File
	n int
}

func (s *steady) Write(p []byte) (n int, err error) {
	n, err = s.f.Write(p)
	if s.n += n; err == nil && s.n >= 1<<20 {
		s.n, err = 0, s.f.Datasync()
	}
	return n, err
}

// FreeName returns name, with as many plus signs behind it as make it one that nothing has.
func FreeName(fsys FS, name string) string {
	for ; ; name += "+" {
		if _, err := fsys.Stat(name); err != nil {
			return name
		}
	}
}

// Drop removes a file that may not be there.
func Drop(fsys FS, name string) error {
	if err := fsys.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// An ID tells one state of a file from another without reading it.
type ID struct {
	Dev, Ino uint64
	Size     int64
	Mtime    int64 // Unix nanoseconds
}

// IDOf returns the state that fi describes.
func IDOf(fi fs.FileInfo) ID {
	id := ID{Size: fi.Size(), Mtime: fi.ModTime().UnixNano()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		id.Dev, id.Ino = uint64(st.Dev), st.Ino
	}
	return id
}

// Changed returns when a file, or what is known of it, was last changed, in Unix nanoseconds; 0: not known. Nobody can set it.
func Changed(fi fs.FileInfo) int64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return changed(st)
	}
	return 0
}

// IDAt returns the state of the file that has a name.
func IDAt(fsys FS, name string) (ID, error) {
	fi, err := fsys.Stat(name)
	if err != nil {
		return ID{}, err
	}
	return IDOf(fi), nil
}

// SameFile reports whether both are states of one file.
func (id ID) SameFile(other ID) bool { return id.Dev == other.Dev && id.Ino == other.Ino }
