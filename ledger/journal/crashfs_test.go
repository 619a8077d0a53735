package journal_test

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"stint/ledger/durable"
)

// memDir is the state directory of a memFS.
const memDir = "/s"

// An opKind is what an operation on a memFS does.
type opKind uint8

const (
	opCreate opKind = iota // a file gets the name a
	opMkdir
	opRemove
	opRename
	opExchange
	opSyncDir
	opWrite
	opTruncate // to size off
	opSync
	opSyncFailed // what was to be synced is neither on the disk nor tried again
)

// A memOp is one operation that changes something on a disk.
type memOp struct {
	kind opKind
	a, b string // names
	ino  uint64
	off  int64
	data []byte
	at   int64 // when
}

// A memFS is a file system in memory. A clone shares the bytes of its files, so it costs next to nothing. It
// records what is done to it, for a disk to say what a crash leaves of that.
type memFS struct {
	mu    sync.Mutex // guards what follows
	names []memName
	ino   uint64 // last one given
	clock int64  // time of the last change
	trace []memOp
	quiet bool // nothing is recorded
}

// A memName is an entry of a directory.
type memName struct {
	path string
	node *memNode
}

// A memNode is a file or directory. Bytes that others share have no room behind
// them, so that an append never changes them.
type memNode struct {
	ino   uint64
	dir   bool
	data  []byte
	mtime int64
}

func newMemFS() *memFS { return &memFS{} }

// ops returns how many operations were recorded.
func (m *memFS) ops() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.trace)
}

// tick returns the time of a change, later than all before. The lock is held.
func (m *memFS) tick() int64 {
	m.clock++
	return m.clock
}

// note records an operation. The lock is held.
func (m *memFS) note(o memOp) {
	if !m.quiet {
		o.at = m.clock
		m.trace = append(m.trace, o)
	}
}

// find returns the index of a name, or -1. The lock is held.
func (m *memFS) find(path string) int {
	for i := range m.names {
		if m.names[i].path == path {
			return i
		}
	}
	return -1
}

func (m *memFS) OpenFile(path string, flag int, _ fs.FileMode) (durable.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.find(path)
	if i < 0 {
		if flag&os.O_CREATE == 0 {
			return nil, notThere("open", path)
		}
		m.ino++
		i = len(m.names)
		m.names = append(m.names, memName{path, &memNode{ino: m.ino, mtime: m.tick()}})
		m.note(memOp{kind: opCreate, a: path, ino: m.ino})
	}
	n := m.names[i].node
	if flag&os.O_TRUNC != 0 && len(n.data) > 0 {
		m.truncate(n, 0)
	}
	return &memFile{fs: m, node: n, path: path, flag: flag}, nil
}

func notThere(op, path string) error { return &fs.PathError{Op: op, Path: path, Err: syscall.ENOENT} }

func (m *memFS) truncate(n *memNode, size int64) {
	if size > int64(len(n.data)) {
		n.data = append(slices.Clone(n.data), make([]byte, size-int64(len(n.data)))...)
	}
	n.data = n.data[:size:size]
	n.mtime = m.tick()
	m.note(memOp{kind: opTruncate, ino: n.ino, off: size})
}

func (m *memFS) Stat(path string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if path = filepath.Clean(path); path == memDir {
		return &memInfo{name: path, dir: true}, nil
	}
	i := m.find(path)
	if i < 0 {
		return nil, notThere("stat", path)
	}
	return infoOf(m.names[i].path, m.names[i].node), nil
}

func (m *memFS) Rename(a, b string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.find(a)
	if i < 0 {
		return notThere("rename", a)
	}
	n := m.names[i].node
	m.names = slices.DeleteFunc(m.names, func(n memName) bool { return n.path == a || n.path == b })
	m.names = append(m.names, memName{b, n})
	m.note(memOp{kind: opRename, a: a, b: b, ino: n.ino})
	return nil
}

// Exchange swaps two names in one step, as renameat2 does.
func (m *memFS) Exchange(a, b string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, j := m.find(a), m.find(b)
	if i < 0 || j < 0 {
		return notThere("exchange", a)
	}
	m.names[i].node, m.names[j].node = m.names[j].node, m.names[i].node
	m.note(memOp{kind: opExchange, a: a, b: b})
	return nil
}

func (m *memFS) Remove(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.find(path)
	if i < 0 {
		return notThere("remove", path)
	}
	m.names = slices.Delete(m.names, i, i+1)
	m.note(memOp{kind: opRemove, a: path})
	return nil
}

func (m *memFS) Mkdir(path string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.find(path) >= 0 {
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.EEXIST}
	}
	m.ino++
	m.names = append(m.names, memName{path, &memNode{ino: m.ino, dir: true, mtime: m.tick()}})
	m.note(memOp{kind: opMkdir, a: path, ino: m.ino})
	return nil
}

func (m *memFS) SyncDir(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(memOp{kind: opSyncDir, a: path})
	return nil
}

// content returns the bytes of a file and whether there is one.
func (m *memFS) content(name string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.find(filepath.Join(memDir, name))
	if i < 0 {
		return "", false
	}
	return string(m.names[i].node.data), true
}

// put makes a file of that content that nobody has recorded.
func (m *memFS) put(name, data string) {
	m.ino++
	m.names = append(m.names, memName{filepath.Join(memDir, name), &memNode{ino: m.ino, data: []byte(data)}})
}

// same reports whether two file systems have the same names with the same bytes.
func (m *memFS) same(o []memName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range o {
		i := m.find(n.path)
		if i < 0 || string(m.names[i].node.data) != string(n.node.data) {
			return false
		}
	}
	return len(o) == len(m.names)
}

// frozen returns the names with their bytes as they are now.
func (m *memFS) frozen() []memName {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(m.names)
	for i, n := range all {
		c := *n.node
		c.data = c.data[:len(c.data):len(c.data)]
		n.node.data = c.data // an append must not reach what is shared now
		all[i].node = &c
	}
	return all
}

// A memFile is an open file of a memFS.
type memFile struct {
	fs   *memFS
	node *memNode
	path string
	flag int
	pos  int64
}

func (f *memFile) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.pos)
	f.pos += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.node.dir {
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: syscall.EISDIR}
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) Write(p []byte) (int, error) {
	m := f.fs
	m.mu.Lock()
	defer m.mu.Unlock()
	if f.flag&os.O_APPEND != 0 {
		f.pos = int64(len(f.node.data))
	}
	if f.pos == int64(len(f.node.data)) {
		f.node.data = append(f.node.data, p...)
	} else {
		f.node.data = overwrite(slices.Clone(f.node.data), f.pos, p)
	}
	f.node.mtime = m.tick()
	o := memOp{kind: opWrite, ino: f.node.ino, off: f.pos}
	if !m.quiet {
		o.data = slices.Clone(p)
	}
	m.note(o)
	f.pos += int64(len(p))
	return len(p), nil
}

// overwrite puts p at off and fills a hole before it with zeros.
func overwrite(data []byte, off int64, p []byte) []byte {
	if more := off + int64(len(p)) - int64(len(data)); more > 0 {
		data = append(data, make([]byte, more)...)
	}
	copy(data[off:], p)
	return data
}

func (f *memFile) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.truncate(f.node, size)
	return nil
}

func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.note(memOp{kind: opSync, ino: f.node.ino})
	return nil
}

func (f *memFile) Datasync() error { return f.Sync() }

// failSync is a sync that fails as Linux has it: the pages count as written.
func (f *memFile) failSync() {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.note(memOp{kind: opSyncFailed, ino: f.node.ino})
}

func (f *memFile) Close() error { return nil }

func (f *memFile) Stat() (fs.FileInfo, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return infoOf(f.path, f.node), nil
}

// A memInfo is what Stat gives.
type memInfo struct {
	name  string
	dir   bool
	size  int64
	mtime int64
	sys   syscall.Stat_t
}

func infoOf(name string, n *memNode) *memInfo {
	return &memInfo{name: name, dir: n.dir, size: int64(len(n.data)), mtime: n.mtime, sys: syscall.Stat_t{Ino: n.ino, Uid: uint32(os.Geteuid())}}
}

func (i *memInfo) Name() string { return filepath.Base(i.name) }
func (i *memInfo) Size() int64  { return i.size }
func (i *memInfo) IsDir() bool  { return i.dir }
func (i *memInfo) Sys() any     { return &i.sys }

func (i *memInfo) ModTime() time.Time { return time.Unix(0, i.mtime) }

func (i *memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | durable.DirMode
	}
	return durable.FileMode
}

// touches reports whether an operation on names concerns the directory.
func (o *memOp) touches(dir string) bool {
	return filepath.Dir(o.a) == dir || o.b != "" && filepath.Dir(o.b) == dir
}

// isBelowDir reports whether path lies deeper than in the state directory itself.
func isBelowDir(path string) bool { return strings.Count(path, "/") > strings.Count(memDir, "/")+1 }
