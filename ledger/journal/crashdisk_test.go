package journal_test

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
)

// A disk is what a power cut finds: what was synced, and what was not yet.
type disk struct {
	files []diskFile // by inode number
	names []diskName // durable entries of directories
	late  []memOp    // operations on names that are not durable yet, in order
}

type diskFile struct {
	base []byte // never changed in place
	dir  bool
	time int64   // of the last change, which outlives any crash, so that no file seems to be an old one by that alone
	late []memOp // writes and truncates that are not durable yet, in order
}

type diskName struct {
	path string
	ino  uint64
}

// diskOf returns the disk on which all that the file system has is durable.
func diskOf(m *memFS) *disk {
	d := &disk{}
	for _, n := range m.frozen() {
		f := d.file(n.node.ino)
		f.base, f.dir, f.time = n.node.data, n.node.dir, n.node.mtime
		d.names = append(d.names, diskName{n.path, n.node.ino})
	}
	return d
}

// clone returns a disk that goes its own way from here.
func (d *disk) clone() *disk {
	c := &disk{files: slices.Clone(d.files), names: slices.Clone(d.names), late: slices.Clone(d.late)}
	for i := range c.files {
		c.files[i].late = slices.Clone(c.files[i].late)
	}
	return c
}

func (d *disk) file(ino uint64) *diskFile {
	for uint64(len(d.files)) <= ino {
		d.files = append(d.files, diskFile{})
	}
	return &d.files[ino]
}

// apply lets an operation happen in memory; syncs reach the disk.
func (d *disk) apply(o *memOp) {
	switch o.kind {
	case opWrite, opTruncate:
		f := d.file(o.ino)
		f.late, f.time = append(f.late, *o), o.at
	case opSync:
		f := d.file(o.ino)
		f.base = carried(f.base, f.late, nil)
		f.late = nil
	case opSyncFailed:
		d.file(o.ino).forget()
	case opSyncDir:
		d.syncDir(o.a)
	default:
		if o.ino > 0 {
			f := d.file(o.ino)
			f.dir, f.time = o.kind == opMkdir, o.at
		}
		d.late = append(d.late, *o)
	}
}

// forget makes holes of all writes: they are not tried again.
func (f *diskFile) forget() {
	size := int64(len(f.base))
	for i := range f.late {
		o := &f.late[i]
		if o.kind == opWrite {
			size = max(size, o.off+int64(len(o.data)))
			*o = memOp{kind: opTruncate, ino: o.ino, off: size}
		} else {
			size = o.off
		}
	}
}

func (d *disk) syncDir(dir string) {
	var rest []memOp
	for i := range d.late {
		if d.late[i].touches(dir) {
			d.names = d.late[i].onNames(d.names)
		} else {
			rest = append(rest, d.late[i])
		}
	}
	d.late = rest
}

// onNames returns the entries after an operation. What it expects may be missing,
// because an earlier one was lost.
func (o *memOp) onNames(names []diskName) []diskName {
	find := func(path string) int {
		return slices.IndexFunc(names, func(n diskName) bool { return n.path == path })
	}
	set := func(path string, ino uint64) {
		if i := find(path); i >= 0 {
			names[i].ino = ino
			return
		}
		names = append(names, diskName{path, ino})
	}
	switch o.kind {
	case opCreate, opMkdir:
		set(o.a, o.ino)
	case opRemove:
		if i := find(o.a); i >= 0 {
			names = slices.Delete(names, i, i+1)
		}
	case opRename:
		if i := find(o.a); i >= 0 {
			names = slices.Delete(names, i, i+1)
		}
		set(o.b, o.ino)
	case opExchange:
		if i, j := find(o.a), find(o.b); i >= 0 && j >= 0 {
			names[i].ino, names[j].ino = names[j].ino, names[i].ino
		}
	}
	return names
}

// A mode says what a crash leaves of what was not synced.
type mode struct {
	name  string
	data  fate
	names fate
	kill  bool // only the process dies: what was not synced may still get lost later
}

// A fate is what becomes of the late operations of a file or of all directories.
type fate uint8

const (
	fateNone   fate = iota
	fateAll         // as after kill -9
	fatePrefix      // the first ones, the last of them cut at any byte
	fateZero        // the size is kept; blocks are, or read as zeros
	fateBlocks      // likewise, and the file ends anywhere
	fateSome        // of names: any of them; of data: each file has its own fate
)

var modes = []mode{
	{"kill", fateAll, fateAll, true},
	{"drop", fateNone, fateNone, false},
	{"prefix", fatePrefix, fatePrefix, false},
	{"zero", fateZero, fateAll, false},
	{"blocks", fateBlocks, fatePrefix, false},
	{"names", fateNone, fateAll, false}, // names before data: a rename without a sync
	{"data", fateAll, fateNone, false},
	{"mixed", fateSome, fateSome, false},
}

// image returns the file system that is found after a crash now.
func (d *disk) image(m mode, rng *rand.Rand) *memFS {
	fsys := &memFS{ino: uint64(len(d.files)), quiet: true}
	names := slices.Clone(d.names)
	until := len(d.late)
	switch m.names {
	case fateNone:
		until = 0
	case fatePrefix:
		until = rng.IntN(until + 1)
	}
	for i := range until {
		if m.names != fateSome || rng.IntN(2) == 0 {
			names = d.late[i].onNames(names)
		}
	}
	for _, n := range names {
		if !hasParent(names, n.path) {
			continue
		}
		f := d.file(n.ino)
		data := f.after(m.data, rng)
		fsys.names = append(fsys.names, memName{n.path, &memNode{ino: n.ino, dir: f.dir, mtime: f.time, data: data[:len(data):len(data)]}})
		fsys.clock = max(fsys.clock, f.time)
	}
	return fsys
}

func hasParent(names []diskName, path string) bool {
	return !isBelowDir(path) || slices.ContainsFunc(names, func(n diskName) bool { return n.path == filepath.Dir(path) })
}

// after returns the bytes that a crash leaves of a file.
func (f *diskFile) after(t fate, rng *rand.Rand) []byte {
	if len(f.late) == 0 {
		return f.base
	}
	if t == fateSome {
		t = fate(rng.IntN(int(fateSome)))
	}
	switch t {
	case fateNone:
		return f.base
	case fateAll:
		return carried(f.base, f.late, nil)
	case fatePrefix:
		return f.prefix(rng)
	}
	data := carried(f.base, f.late, &blockFate{int64(512) << rng.IntN(4), map[int64]bool{}, rng})
	if t == fateBlocks && len(data) > len(f.base) {
		data = data[:len(f.base)+rng.IntN(len(data)-len(f.base)+1)]
	}
	return data
}

func (f *diskFile) prefix(rng *rand.Rand) []byte {
	n := rng.IntN(len(f.late) + 1)
	late := slices.Clone(f.late[:n])
	if n < len(f.late) && f.late[n].kind == opWrite && len(f.late[n].data) > 0 {
		o := f.late[n]
		o.data = o.data[:rng.IntN(len(o.data))]
		late = append(late, o)
	}
	return carried(f.base, late, nil)
}

// A blockFate says how long the blocks of a file are, and which of those written are kept.
type blockFate struct {
	size int64
	kept map[int64]bool
	rng  *rand.Rand
}

func (b *blockFate) keep(block int64) bool {
	kept, known := b.kept[block]
	if !known {
		kept = b.rng.IntN(2) == 0
		b.kept[block] = kept
	}
	return kept
}

// carried carries operations out on a copy of base. With blocks, those that are
// not kept read as zeros where the file grew, and as before elsewhere.
func carried(base []byte, late []memOp, blocks *blockFate) []byte {
	size := len(base)
	for i := range late {
		size += len(late[i].data)
	}
	data := append(make([]byte, 0, size), base...)
	for i := range late {
		switch o := &late[i]; {
		case o.kind == opTruncate && o.off <= int64(len(data)):
			data = data[:o.off]
		case o.kind == opTruncate:
			data = overwrite(data, o.off, nil)
		case blocks == nil:
			data = overwrite(data, o.off, o.data)
		default:
			data = o.inBlocks(data, blocks)
		}
	}
	return data
}

func (o *memOp) inBlocks(data []byte, blocks *blockFate) []byte {
	end := o.off + int64(len(o.data))
	if end > int64(len(data)) {
		from := len(data)
		data = overwrite(data, end, nil)
		clear(data[from:])
	}
	for at := o.off; at < end; {
		next := min(end, (at/blocks.size+1)*blocks.size)
		if blocks.keep(at / blocks.size) {
			copy(data[at:next], o.data[at-o.off:next-o.off])
		}
		at = next
	}
	return data
}
