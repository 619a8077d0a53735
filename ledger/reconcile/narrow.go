package reconcile

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/mark"
)

// Texts are the two files as a plan reads them: whole, or without records that stand in both just as stint
// wrote them and have nothing to do with what differs. The plan is the same.
type Texts struct {
	Doc     *ledger.Document
	Journal []byte
	End     int64 // size of the whole journal
}

// Known is what the log knows of its journal, which is undamaged.
type Known struct {
	last   uint64
	edited []uint64 // records that a person has edited: as stint wrote them, they are edits taken back
	jumble bool     // the records are not in the order of their seqs
}

// Read notes a record of the journal. They come in order.
func (k *Known) Read(s *ledger.Section) {
	k.jumble, k.last = k.jumble || s.Seq <= k.last, max(k.last, s.Seq)
	if f := s.Get(ledger.KeyEdits); f != nil {
		if seq, ok := ledger.ParseUint(f.Bytes()); ok {
			k.edited = append(k.edited, seq)
		}
	}
}

// Limits of what is read in pieces. Of files that differ in more than maxKept, or in very many places, all is read.
var (
	maxKept = int64(4 << 20)
	near    = int64(4 << 10) // a record is in its place if so much is the same from there on
)

const block = 256 << 10

// A cutter finds what can be left out of two files.
type cutter struct {
	ctx            context.Context
	tasks, journal *io.SectionReader
	same           []stretch // what is left out, in order
	x, y           [block]byte
}

// A stretch is n bytes of records that stand in both files, at those offsets.
type stretch struct{ tasks, journal, n int64 }

// ReadTexts reads size bytes of tasks.md and end bytes of the journal. All is read if known is nil.
func ReadTexts(ctx context.Context, tasks, journal io.ReaderAt, size, end int64, known *Known) (*Texts, error) {
	c := &cutter{ctx: ctx, tasks: io.NewSectionReader(tasks, 0, size), journal: io.NewSectionReader(journal, 0, end)}
	if known != nil && !known.jumble && c.walk() {
		x, err := c.texts(false)
		if err != nil {
			return nil, err
		}
		c.keepRelated(x, known)
	}
	if c.kept() > maxKept {
		c.same = nil
	}
	return c.texts(true)
}

// kept returns how much is not left out of the larger file.
func (c *cutter) kept() int64 {
	n := max(c.tasks.Size(), c.journal.Size())
	for _, s := range c.same {
		n -= s.n
	}
	return n
}

// read reads what there is at off, as much as buf takes.
func read(r io.ReaderAt, buf []byte, off int64) []byte {
	n, _ := r.ReadAt(buf, off) // whoever reads what is kept sees the error
	return buf[:n]
}

var heading = []byte("\n## ")

// next returns where the first heading behind off is, or the end.
func (c *cutter) next(r *io.SectionReader, off int64) int64 {
	for n := 4 << 10; ; n = block {
		data := read(r, c.x[:n], off)
		if i := bytes.Index(data, heading); i >= 0 {
			return off + int64(i) + 1
		}
		if len(data) < n {
			return r.Size()
		}
		off += int64(n - len(heading) + 1)
	}
}

// last returns where the last heading before off is in the journal; 0 if none is.
func (c *cutter) last(off int64) int64 {
	for off > 0 {
		from := max(0, off-block)
		if i := bytes.LastIndex(read(c.journal, c.x[:off-from], from), heading); i >= 0 {
			return from + int64(i) + 1
		}
		if off = from + int64(len(heading)) - 1; from == 0 {
			break
		}
	}
	return 0
}

// head returns the name and seq of the record at off; seq is 0 if it has none.
func head(r io.ReaderAt, off int64) (name string, seq uint64) {
	var buf [256]byte
	data := read(r, buf[:], off)
	line, next, _ := ledger.CutLine(data, 0)
	below, _, _ := ledger.CutLine(data, next)
	seq, _ = ledger.ParseUint(bytes.TrimPrefix(below, []byte("- seq: ")))
	return string(bytes.TrimPrefix(line, heading[1:])), seq
}

// find returns where in the journal record seq is.
func (c *cutter) find(seq uint64) (off int64, ok bool) {
	off = c.next(c.journal, 0)
	for end := c.journal.Size(); end-off > 16; {
		mid := off + (end-off)/2
		at := c.next(c.journal, mid)
		if _, n := head(c.journal, at); at >= end || n > seq {
			end = mid + 1
		} else {
			off = at
		}
	}
	_, n := head(c.journal, off)
	return off, n == seq
}

// equal returns how many bytes are the same from there on.
func (c *cutter) equal(tasks, journal int64) (n int64) {
	for size := int64(1 << 10); c.ctx.Err() == nil; size = min(4*size, block) {
		x, y := read(c.tasks, c.x[:size], tasks+n), read(c.journal, c.y[:size], journal+n)
		k := min(len(x), len(y))
		if k == 0 || !bytes.Equal(x[:k], y[:k]) {
			for i := range k {
				if x[i] != y[i] {
					return n + int64(i)
				}
			}
			return n
		}
		n += int64(k)
	}
	return n
}

// walk finds what is the same. Of each stretch the first record and the last two stay, for what stands around it,
// those of the journal's last task not counted; see restOf.
func (c *cutter) walk() bool {
	newest, _ := head(c.journal, c.last(c.journal.Size()))
	isNewest := func(off int64) bool {
		name, _ := head(c.journal, off)
		return name == newest
	}
	tasks, journal := int64(0), int64(0) // where something differs
	for at := tasks; c.ctx.Err() == nil && at-tasks <= maxKept; {
		at = c.next(c.tasks, max(0, at-1))
		if at == c.tasks.Size() {
			return true
		}
		off, n, last := int64(0), int64(0), int64(0)
		if _, seq := head(c.tasks, at); seq > 0 {
			ok := false
			if off, ok = c.find(seq); ok && off >= journal {
				n = c.equal(at, off)
				last = c.last(off + n)
			}
		}
		if last <= off || n < near && at+n < c.tasks.Size() && off+n < c.journal.Size() {
			at++
			continue
		}
		from, to := c.next(c.journal, off), c.last(last)
		for first := off; from < to && isNewest(first); {
			first, from = from, c.next(c.journal, from)
		}
		for to > from && isNewest(to) {
			to = c.last(to)
		}
		if from < to {
			c.same = append(c.same, stretch{at + from - off, from, to - from})
		}
		at += last - off
		tasks, journal = at, last
	}
	return false
}

// keep keeps the record at off in the journal.
func (c *cutter) keep(off int64) {
	i, _ := slices.BinarySearchFunc(c.same, off, func(s stretch, off int64) int { return cmp.Compare(s.journal+s.n, off+1) })
	if i == len(c.same) || c.same[i].journal > off {
		return
	}
	s, next := c.same[i], c.next(c.journal, off)
	behind := stretch{s.tasks + next - s.journal, next, s.journal + s.n - next}
	c.same = slices.Replace(c.same, i, i+1, stretch{s.tasks, s.journal, off - s.journal}, behind)
}

// keepRelated keeps the records that a plan may look at because of what differs, which is x: those whose seqs
// stand there, edited ones, and all of the same tasks.
func (c *cutter) keepRelated(x *Texts, known *Known) {
	names, has := map[string]bool{string(ledger.KindControl) + " " + mark.Restore: true}, map[uint64]bool{}
	ledger.EachRecord(x.Journal, func(s *ledger.Section) { names[s.Name()], has[s.Seq] = true, true })
	keepSeq := func(seq uint64) {
		if has[seq] || seq == 0 {
			return
		}
		if off, ok := c.find(seq); ok {
			c.keep(off)
			name, _ := head(c.journal, off)
			names[name], has[seq] = true, true
		}
	}
	for _, seq := range known.edited {
		keepSeq(seq)
	}
	for i := range x.Doc.Sections {
		s := &x.Doc.Sections[i]
		names[s.Name()], names[copyName(s)] = true, true
		keepSeq(s.Seq)
	}
	for _, s := range slices.Clone(c.same) {
		c.keepNamed(s, names)
	}
}

// keepNamed keeps the records of those names in a stretch.
func (c *cutter) keepNamed(s stretch, names map[string]bool) {
	for off, end := s.journal-1, s.journal+s.n; off < end && c.ctx.Err() == nil; {
		data := read(c.journal, c.y[:min(block, end-off)], off)
		next := len(data) - 1
		for i := 1; ; {
			k := bytes.IndexByte(data[min(i, len(data)):], '#')
			if k < 0 {
				break
			}
			i += k
			line, _, ok := ledger.CutLine(data, i)
			if !ok && len(data)-i < len("## ")+2*ledger.MaxID { // it goes on behind the block
				next = i - 1
				break
			}
			if data[i-1] == '\n' && bytes.HasPrefix(line, heading[1:]) && names[string(line[len("## "):])] {
				c.keep(off + int64(i))
			}
			i += max(1, len(line))
		}
		if next < 1 || int64(len(data))+off == end {
			return
		}
		off += int64(next)
	}
}

// texts reads what is kept. The lines of the document are those of tasks.md if the others are to be counted.
func (c *cutter) texts(count bool) (*Texts, error) {
	x, tasks, gaps := &Texts{End: c.journal.Size()}, []byte(nil), []ledger.Gap(nil)
	var from stretch
	for _, s := range append(slices.Clone(c.same), stretch{c.tasks.Size(), c.journal.Size(), 0}) {
		if err := c.add(&tasks, c.tasks, from.tasks, s.tasks); err != nil {
			return nil, err
		}
		n := int64(len(x.Journal)) + s.journal - from.journal
		if err := c.add(&x.Journal, c.journal, from.journal, s.journal); err != nil || int64(len(x.Journal)) < n {
			return nil, cmp.Or(err, io.ErrUnexpectedEOF)
		}
		lines := 0
		for off, end := s.journal, s.journal+s.n; count && off < end; off += block {
			lines += bytes.Count(read(c.journal, c.x[:min(block, end-off)], off), heading[:1])
		}
		gaps = append(gaps, ledger.Gap{Off: len(tasks), Lines: lines})
		from = stretch{tasks: s.tasks + s.n, journal: s.journal + s.n}
	}
	var err error
	x.Doc, err = ledger.ParseContext(c.ctx, tasks, gaps...)
	return x, err
}

// add reads a part of a file.
func (c *cutter) add(dst *[]byte, r *io.SectionReader, from, to int64) error {
	data, err := durable.ReadPieces(c.ctx, io.NewSectionReader(r, from, to-from), to-from)
	if len(*dst) > 0 {
		data = append(*dst, data...)
	}
	*dst = data
	return err
}
