package journal_test

import (
	"io/fs"
	"os"

	"stint/ledger/durable"
)

// An opsFS calls a function before each operation that changes something. Its error takes
// the place of the operation; of a write half is made.
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
	if flag&os.O_CREATE != 0 {
		if err := o.before("create", name); err != nil {
			return nil, err
		}
	}
	f, err := o.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &opsFile{f, o, name}, nil
}

// do is an operation that is made, unless before has an error.
func (o *opsFS) do(op, name string, f func() error) error {
	if err := o.before(op, name); err != nil {
		return err
	}
	return f()
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

func (f *opsFile) Sync() error     { return f.fs.do("sync", f.name, f.File.Sync) }
func (f *opsFile) Datasync() error { return f.fs.do("datasync", f.name, f.File.Datasync) }

func (f *opsFile) Truncate(n int64) error {
	return f.fs.do("truncate", f.name, func() error { return f.File.Truncate(n) })
}

func (f *opsFile) Write(p []byte) (int, error) {
	if err := f.fs.before("write", f.name); err != nil {
		n, _ := f.File.Write(p[:len(p)/2])
		return n, err
	}
	return f.File.Write(p)
}
