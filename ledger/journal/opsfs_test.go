package journal_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"stint/ledger/durable"
)

// An opsFS calls a function before each call. Its error takes the place of the call; of a
// write half is made. Behind a whole write the function is called with "wrote".
type opsFS struct {
	durable.FS
	before func(op, name string) error
}

type opsFile struct {
	durable.File
	fs   *opsFS
	name string
}

func (o *opsFS) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	op := "open"
	if flag&os.O_CREATE != 0 {
		op = "create"
	}
	if err := o.before(op, name); err != nil {
		return nil, err
	}
	f, err := o.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &opsFile{f, o, name}, nil
}

// do is a call that is made, unless before has an error.
func (o *opsFS) do(op, name string, f func() error) error {
	if err := o.before(op, name); err != nil {
		return err
	}
	return f()
}

func (o *opsFS) Stat(a string) (fi fs.FileInfo, err error) {
	return fi, o.do("stat", a, func() error { fi, err = o.FS.Stat(a); return err })
}

func (o *opsFS) Rename(a, b string) error {
	return o.do("rename", b, func() error { return o.FS.Rename(a, b) })
}

func (o *opsFS) Exchange(a, b string) error {
	return o.do("exchange", b, func() error { return o.FS.Exchange(a, b) })
}

func (o *opsFS) Remove(a string) error {
	return o.do("remove", a, func() error { return o.FS.Remove(a) })
}

func (o *opsFS) Mkdir(a string, perm fs.FileMode) error {
	return o.do("mkdir", a, func() error { return o.FS.Mkdir(a, perm) })
}

func (o *opsFS) SyncDir(a string) error {
	return o.do("syncdir", a, func() error { return o.FS.SyncDir(a) })
}

func (f *opsFile) Stat() (fi fs.FileInfo, err error) {
	return fi, f.fs.do("stat", f.name, func() error { fi, err = f.File.Stat(); return err })
}

func (f *opsFile) Read(p []byte) (n int, err error) {
	return n, f.fs.do("read", f.name, func() error { n, err = f.File.Read(p); return err })
}

func (f *opsFile) ReadAt(p []byte, off int64) (n int, err error) {
	return n, f.fs.do("read", f.name, func() error { n, err = f.File.ReadAt(p, off); return err })
}

func (f *opsFile) Write(p []byte) (int, error) {
	if err := f.fs.before("write", f.name); err != nil {
		n, werr := f.File.Write(p[:len(p)/2])
		return n, errors.Join(err, werr)
	}
	n, err := f.File.Write(p)
	return n, errors.Join(err, f.fs.before("wrote", f.name))
}

func (f *opsFile) Truncate(n int64) error {
	return f.fs.do("truncate", f.name, func() error { return f.File.Truncate(n) })
}

func (f *opsFile) Sync() error     { return f.sync("sync", f.File.Sync) }
func (f *opsFile) Datasync() error { return f.sync("datasync", f.File.Datasync) }

func (f *opsFile) sync(op string, sync func() error) error {
	err := f.fs.before(op, f.name)
	if err == nil {
		return sync()
	}
	if m, ok := f.File.(*memFile); ok {
		m.failSync()
	}
	return err
}

func (f *opsFile) Close() error { return errors.Join(f.fs.before("close", f.name), f.File.Close()) }

// changes reports whether a call changes something that a power cut may take back.
func changes(op string) bool {
	return !strings.Contains(" open stat read wrote datasync close ", " "+op+" ")
}

// A onceFS makes a call just before the next one of one kind on one file.
type onceFS struct {
	opsFS
	do atomic.Pointer[func() error]
}

func newOnceFS(op, file string) *onceFS {
	o := &onceFS{}
	o.opsFS = opsFS{durable.OS, func(did, name string) error {
		if did == op && filepath.Base(name) == file {
			if do := o.do.Swap(nil); do != nil {
				return (*do)()
			}
		}
		return nil
	}}
	return o
}

func (o *onceFS) next(do func() error) { o.do.Store(&do) }

// A failingFS counts syncs and reads of the journal, and fails on demand.
type failingFS struct {
	opsFS
	syncs, reads   atomic.Int64
	failSync, full atomic.Bool
	slow           time.Duration // that a sync takes beside what the disk does
}

func newFailingFS() *failingFS {
	f := &failingFS{}
	f.opsFS = opsFS{durable.OS, f.check}
	return f
}

func (f *failingFS) check(op, name string) error {
	if !strings.HasPrefix(filepath.Base(name), "journal.md") {
		return nil
	}
	switch op {
	case "read":
		f.reads.Add(1)
	case "datasync":
		f.syncs.Add(1)
		time.Sleep(f.slow)
		if f.failSync.Swap(false) { // as a kernel: it says so once, and the next call succeeds
			return syscall.EIO
		}
	case "write":
		if f.full.Load() {
			return syscall.ENOSPC
		}
	}
	return nil
}
