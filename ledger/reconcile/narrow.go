package reconcile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"slices"

	"stint/ledger"
	"stint/ledger/mark"
)

// Texts are the two files as a plan reads them: whole, or without records that stand in both just as stint
// wrote them and have nothing to do with what differs. The plan is the same.
type Texts struct {
	Doc     *ledger.Document
	Journal []byte
	End     int64 // size of the whole journal
	Out     []Out // what was left out, in order
}

// An Out is bytes of the journal that were left out, and where in Doc.
type Out struct {
	At        int
	Off, Size int64
}

// Known is what the log knows of its journal, which is undamaged. It must be told of each record.
type Known struct {
	Last    uint64
	Records uint64   // how many there are
	Merged  uint64   // how many of them the last compaction has made
	Edited  []uint64 // records that a person has edited: as stint wrote them, they are edits taken back
	Jumble  bool     // the records are not in the order of their seqs, or the first ones were not told
}

// Read notes a record of the journal.
func (k *Known) Read(s *ledger.Section) {
	k.Records++
	if m, ok := mark.In(s); ok {
		k.Merged = uint64(m.Merged)
	}
	k.Jumble = k.Jumble || s.Seq <= k.Last || k.Last == 0 && s.Off > 2*int64(len(ledger.EmptyJournal))
	k.Last = max(k.Last, s.Seq)
	if f := s.Get(ledger.KeyEdits); f != nil {
		if seq, ok := ledger.ParseUint(f.Bytes()); ok {
			k.Edited = append(k.Edited, seq)
		}
	}
}

// Of files that differ in more than maxKept all is read. A record is in its place if near bytes are the same from there on.
var maxKept, near = int64(4 << 20), int64(4 << 10)

const block = 256 << 10

// A cutter finds what can be left out of two files.
type cutter struct {
	ctx            context.Context
	tasks, journal *io.SectionReader
	same           []stretch // what is left out, in order
	x, y           [block]byte
}

// A stretch is n bytes of records that stand in both files, at those offsets.
type stretch struct {
	tasks, journal, n int64
	lines             int
}

// ReadTexts reads size bytes of tasks.md and end bytes of the journal. All is read if known is nil.
func ReadTexts(ctx context.Context, tasks, journal io.ReaderAt, size, end int64, known *Known) (*Texts, error) {
	c := &cutter{ctx: ctx, tasks: io.NewSectionReader(tasks, 0, size), journal: io.NewSectionReader(journal, 0, end)}
	if known == nil || known.Jumble {
		return c.texts()
	}
	_, newest := head(c.journal, c.lastHeading(end))
	if newest != known.Last || !c.walk() {
		c.same = nil
		return c.texts()
	}
	x, err := c.texts()
	if err != nil {
		return nil, err
	}
	c.keep(c.related(x, known))
	kept := max(size, end)
	for _, s := range c.same {
		kept -= s.n
	}
	if kept > maxKept {
		c.same = nil
	}
	return c.texts()
}

// read reads what there is at off, as much as buf takes. Whoever reads what is kept sees an error.
func read(r io.ReaderAt, buf []byte, off int64) []byte {
	n, _ := r.ReadAt(buf, off)
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

// lastHeading returns where the last heading before off is in the journal; 0 if none is.
func (c *cutter) lastHeading(off int64) int64 {
	for off >= int64(len(heading)) {
		from := max(0, off-block)
		if i := bytes.LastIndex(read(c.journal, c.x[:off-from], from), heading); i >= 0 {
			return from + int64(i) + 1
		}
		if off = from; from > 0 {
			off += int64(len(heading)) - 1
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
		if k > 0 && bytes.Equal(x[:k], y[:k]) {
			n += int64(k)
			continue
		}
		for i := 0; i < k && x[i] == y[i]; i++ {
			n++
		}
		break
	}
	return n
}

// walk finds what is the same. Of each stretch the first record and the last two stay, for what stands around it.
func (c *cutter) walk() bool {
	tasks, journal := int64(0), int64(0) // where something differs
	for at := tasks; c.ctx.Err() == nil && at-tasks <= maxKept; {
		at = c.next(c.tasks, max(0, at-1))
		if at == c.tasks.Size() {
			return true
		}
		_, seq := head(c.tasks, at)
		off, ok := int64(0), false
		if seq > 0 {
			off, ok = c.find(seq)
		}
		n, last := int64(0), int64(0)
		if ok && off >= journal {
			n = c.equal(at, off)
			last = c.lastHeading(off + n)
		}
		if last <= off || n < near && at+n < c.tasks.Size() && off+n < c.journal.Size() {
			at++
			continue
		}
		if from, to := c.next(c.journal, off), c.lastHeading(last); from < to {
			c.same = append(c.same, stretch{tasks: at + from - off, journal: from, n: to - from})
		}
		at += last - off
		tasks, journal = at, last
	}
	return false
}

// related returns the names of all records that a plan may look at because of what differs, which is x: those that
// stand there, those whose seqs do, and edited ones.
func (c *cutter) related(x *Texts, known *Known) map[string]bool {
	names, has := map[string]bool{string(ledger.KindControl) + " " + mark.Restore: true}, map[uint64]bool{0: true}
	ledger.EachRecord(x.Journal, func(s *ledger.Section) { names[s.Name()], has[s.Seq] = true, true })
	seqs := slices.Clone(known.Edited)
	for i := range x.Doc.Sections {
		s := &x.Doc.Sections[i]
		names[s.Name()], names[copyName(s)] = true, true
		seqs = append(seqs, s.Seq)
	}
	for _, seq := range seqs {
		if off, ok := int64(0), false; !has[seq] {
			if off, ok = c.find(seq); ok {
				name, _ := head(c.journal, off)
				names[name] = true
			}
			has[seq] = true
		}
	}
	return names
}

// keep takes the records of those names out of what is left out, and counts the lines of the rest.
func (c *cutter) keep(names map[string]bool) {
	var same []stretch
	for _, s := range c.same {
		r, isStart := bufio.NewReaderSize(io.NewSectionReader(c.journal, s.journal, s.n), block), true
		var cut *stretch // what is left out here; nil: it is kept
		for end := s.journal + s.n; s.journal < end; {
			line, err := r.ReadSlice('\n')
			if err != nil && len(line) == 0 {
				break // texts finds it too short
			}
			if isStart && bytes.HasPrefix(line, heading[1:]) {
				if names[string(bytes.TrimSpace(line[len("## "):]))] {
					cut = nil
				} else if cut == nil {
					same = append(same, stretch{tasks: s.tasks, journal: s.journal})
					cut = &same[len(same)-1]
				}
			}
			n := int64(len(line))
			if isStart = err == nil; cut != nil {
				cut.n += n
				cut.lines += bytes.Count(line[len(line)-1:], heading[:1])
			}
			s.tasks, s.journal = s.tasks+n, s.journal+n
		}
	}
	c.same = same
}

// texts reads what is kept.
func (c *cutter) texts() (x *Texts, err error) {
	x = &Texts{End: c.journal.Size()}
	tasks, gaps, from := []byte(nil), []ledger.Gap(nil), stretch{}
	for _, s := range append(c.same[:len(c.same):len(c.same)], stretch{tasks: c.tasks.Size(), journal: x.End}) {
		want := int64(len(x.Journal)) + s.journal - from.journal
		if tasks, err = add(tasks, c.tasks, from.tasks, s.tasks); err == nil {
			x.Journal, err = add(x.Journal, c.journal, from.journal, s.journal)
		}
		if err != nil {
			return nil, err
		}
		if int64(len(x.Journal)) < want {
			return nil, errors.New("the journal has become shorter")
		}
		gaps, x.Out = append(gaps, ledger.Gap{Off: len(tasks), Lines: s.lines}), append(x.Out, Out{len(tasks), s.journal, s.n})
		from = stretch{tasks: s.tasks + s.n, journal: s.journal + s.n}
	}
	x.Doc, err = ledger.ParseContext(c.ctx, tasks, gaps...)
	return x, err
}

// add reads a part of a file, or what is left of it: the next look sees that it was cut.
func add(dst []byte, r io.ReaderAt, from, to int64) ([]byte, error) {
	n := len(dst)
	dst = append(dst, make([]byte, to-from)...)
	k, err := r.ReadAt(dst[n:], from)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return dst[:n+k], err
}
