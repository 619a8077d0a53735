package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"stint/ledger/archive"
	"stint/ledger/durable"
	"stint/ledger/plain"
	"stint/ledger/reconcile"
	"stint/ledger/salvage"
)

// This file keeps a cache, the file index: what a log knows when it ends in order. The next one goes on from there as if this
// one had never ended, and reads neither journal.md nor tasks.md. It counts only if its checksum is right, if this is the
// program that has written it, if both files and the archive's directory and index have the inode, size and times that they had,
// and the journal the same end. At any doubt the text is read, as without a cache, and the next orderly end writes it anew.
//
// So a start finds all that it would find in the text, but for what an open log does not see either: bytes within a file that
// are others now although nobody has written, as on a disk that rots. They are found when their record is read, and by stint fsck.

// minIndexed is how large a journal is that has a cache: a smaller one is read in a few milliseconds.
var minIndexed int64 = 4 << 20

// An indexed is what the cache has beside the fold.
type indexed struct {
	Seq    uint64
	Lacks  salvage.Gaps
	Known  reconcile.Known
	ByHand time.Time
	Old    int
}

// program is the file of this program: another one may fold otherwise. Open looks first, before another one may have its name.
var program = sync.OnceValues(func() (fs.FileInfo, error) {
	if fi, err := os.Stat("/proc/self/exe"); err == nil {
		return fi, nil
	}
	path, _ := os.Executable() // "" if it is not known
	return os.Stat(path)
})

// stamps tells this program and the files, as they are now, from others; "" if that is not possible.
func (l *Log) stamps() string {
	exe, err := program()
	if err != nil || l.readEnd() != nil || !l.journal.holdsPlace() {
		return ""
	}
	text := fmt.Sprint(durable.IDOf(exe), checksum(l.recent))
	for _, name := range []string{l.opts.Files.Journal(), l.opts.Files.Ledger(), archive.Dir, filepath.Join(archive.Dir, l.opts.Files.Index())} {
		if fi, err := l.opts.FS.Stat(filepath.Join(l.opts.Dir, name)); err == nil { // else it is not there
			text += fmt.Sprint(durable.IDOf(fi), durable.Changed(fi))
		}
	}
	return text
}

func checksum(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

// writeIndex writes the cache, where the log has ended in order and nothing is left to be told of tasks.md.
func (l *Log) writeIndex() {
	if l.opts.Code == nil || l.journal.size < minIndexed || l.stale || len(l.damage)+len(l.refused)+len(l.findings) > 0 || l.unread != nil {
		return
	}
	stamps := l.stamps()
	if stamps == "" || stamps == l.resumed || l.tasks.Changed() || !l.journal.holdsPlace() {
		return
	}
	known, _ := json.Marshal(indexed{l.seq, l.lacks, l.known, l.byHand, l.old}) // without it resume goes no further
	text, c := string(known), plain.Coder{Bytes: make([]byte, 0, l.journal.size/8)}
	c.Texts(&stamps, &text)
	l.tasks.Code(&c)
	l.opts.Locker.Lock()
	l.opts.Code(&c)
	l.opts.Locker.Unlock()
	_ = durable.PutFileOn(l.opts.FS, filepath.Join(l.opts.Dir, l.opts.Files.Index()), binary.LittleEndian.AppendUint32(c.Bytes, checksum(c.Bytes))) // without it the next start takes longer
}

// resume goes on where the last log has ended, if all is as that has left it; the journal has that size. A cache that does not count now never will, and goes.
func (l *Log) resume(size int64) (ok bool) {
	_, _ = program()
	path := filepath.Join(l.opts.Dir, l.opts.Files.Index())
	data, err := durable.ReadFile(l.opts.FS, path)
	if err != nil || l.opts.Code == nil {
		return false
	}
	defer func() {
		if !ok {
			_ = l.opts.FS.Remove(path) // it does no harm
		}
	}()
	end := len(data) - crc32.Size
	if end < 0 || binary.LittleEndian.Uint32(data[end:]) != checksum(data[:end]) {
		return false
	}
	l.journal.setSize(size)
	stamps, text, want := l.stamps(), "", plain.Coder{}
	want.Texts(&stamps)
	if stamps == "" || !bytes.HasPrefix(data[:end], want.Bytes) { // what another program has written may mean anything
		return false
	}
	var x indexed
	c := plain.Coder{Bytes: data[len(want.Bytes):end], Reads: true}
	if c.Texts(&text); json.Unmarshal([]byte(text), &x) != nil {
		return false
	}
	l.tasks.Code(&c)
	l.opts.Locker.Lock()
	defer l.opts.Locker.Unlock()
	l.opts.Code(&c)
	l.resumed, l.seq, l.lacks, l.known, l.byHand, l.old = stamps, x.Seq, x.Lacks, x.Known, x.ByHand, x.Old
	return true
}
