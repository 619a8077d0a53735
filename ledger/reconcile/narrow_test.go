package reconcile

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"stint/ledger"
	"stint/ledger/mark"
)

// TestNarrowPlan: whatever is done to tasks.md, a plan that is made of what differs is the plan that is
// made of both files.
func TestNarrowPlan(t *testing.T) {
	defer func(was int64) { near = was }(near)
	near = 1
	plans, narrow := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		l := newLedger(t)
		for range rapid.IntRange(1, 5).Draw(t, "saves") {
			for range rapid.IntRange(0, 3).Draw(t, "edits") {
				l.edit(t)
			}
			in := l.in
			in.Accept = rapid.Bool().Draw(t, "accept")
			whole, all := l.plan(t, in, nil)
			part, texts := l.plan(t, in, &l.known)
			if diff := cmp.Diff(whole, part, cmp.AllowUnexported(Plan{})); diff != "" {
				t.Fatalf("-whole +narrow:\n%s\ntasks.md:\n%s\nread of it:\n%s\njournal:\n%s\nread of it:\n%s", diff, l.tasks, texts.Doc.Data, l.journal, texts.Journal)
			}
			if marks(texts) != marks(all) {
				t.Fatalf("%d marks more than the journal, and not %d", marks(texts), marks(all))
			}
			if plans++; len(texts.Doc.Data) < len(l.tasks) {
				narrow++
			}
			l.apply(whole)
			for range rapid.IntRange(0, 3).Draw(t, "records") {
				l.add(t)
			}
		}
	})
	if t.Logf("%d of %d plans are narrow", narrow, plans); narrow < plans/2 {
		t.Error("most ledgers were read whole")
	}
}

// TestReadTextsWhole: what the log does not know all of, or not in order, is read whole.
func TestReadTextsWhole(t *testing.T) {
	journal := []byte(ledger.EmptyJournal)
	for seq := range 100 {
		journal, _ = ledger.AppendRecord(journal, kilobyte(uint64(seq+1)))
	}
	all := journal
	read := func(journal []byte, told func(i int) bool) int {
		var known Known
		i := 0
		ledger.EachRecord(journal, func(s *ledger.Section) {
			if i++; told(i) {
				known.Read(s)
			}
		})
		x, err := ReadTexts(t.Context(), bytes.NewReader(journal), bytes.NewReader(journal), int64(len(journal)), int64(len(journal)), &known)
		if err != nil {
			t.Fatal(err)
		}
		return len(x.Journal)
	}
	if n := read(all, func(int) bool { return true }); n > len(all)/4 {
		t.Errorf("%d of %d bytes were read", n, len(all))
	}
	jumbled := slices.Clone(all)
	jumbled, _ = ledger.AppendRecord(jumbled, kilobyte(50))
	jumbled, _ = ledger.AppendRecord(jumbled, kilobyte(101))
	for name, n := range map[string]int{
		"not told of the first":    read(all, func(i int) bool { return i > 1 }),
		"not told of the last":     read(all, func(i int) bool { return i < 100 }),
		"not in the order of seqs": read(jumbled, func(int) bool { return true }) - len(jumbled) + len(all),
		"not told of any":          read(all, func(int) bool { return false }),
	} {
		if n != len(all) {
			t.Errorf("%s: %d of %d bytes were read", name, n, len(all))
		}
	}
}

func kilobyte(seq uint64) *ledger.Record {
	return &ledger.Record{Kind: ledger.KindTask, ID: fmt.Sprint("t", seq), Seq: seq, Fields: []ledger.Pair{{Key: "prompt", Value: strings.Repeat("word ", 200) + "end"}}}
}

func marks(x *Texts) int {
	count := func(data []byte) int { return len(bytes.Join(bytes.Fields(data), nil)) }
	_, records, _ := ledger.CutLine(x.Journal, 0)
	return count(x.Doc.Data) - count(x.Journal[records:])
}

// A testLedger is both files, and what the log remembers of them.
type testLedger struct {
	journal, tasks []byte
	seq            uint64
	known          Known
	in             Input
}

func newLedger(t *rapid.T) *testLedger {
	l := &testLedger{journal: []byte(ledger.EmptyJournal), tasks: []byte(ledger.Preamble)}
	l.in = Input{Rules: Rules{Guarded: []string{"prompt"}}, Now: time.Unix(1e9, 0), Deletes: true, Seen: math.MaxUint64}
	if rapid.Bool().Draw(t, "compacted") {
		l.seq = 100
		r := mark.Record(l.seq, 2, "tasks-2026-11.md", 0, l.in.Now)
		l.write(&r, true)
	}
	for range rapid.IntRange(4, 40).Draw(t, "records") {
		l.add(t)
	}
	return l
}

// add lets the master write a record.
func (l *testLedger) add(t *rapid.T) {
	r := &ledger.Record{Kind: ledger.KindTask, ID: fmt.Sprint("t", rapid.IntRange(1, 12).Draw(t, "task"))}
	r.Add("status", rapid.SampledFrom([]string{"queued", "running", "done"}).Draw(t, "status"))
	if rapid.Bool().Draw(t, "long") {
		r.Add("prompt", rapid.SampledFrom([]string{"words", "more\n\n## Task x\n```", "<!--\n# a"}).Draw(t, "prompt"))
	}
	if rapid.IntRange(0, 30).Draw(t, "restored") == 0 {
		r = &ledger.Record{Kind: ledger.KindControl, ID: mark.Restore}
		mark.Restored(r, l.seq)
		l.seq += 3 // were taken back
	}
	l.write(r, true)
}

// write appends a record to the journal, and perhaps to tasks.md.
func (l *testLedger) write(r *ledger.Record, both bool) {
	l.seq++
	r.Seq = l.seq
	from := len(l.journal)
	l.journal, _ = ledger.AppendRecord(l.journal, r)
	s, err := ledger.SectionIn(l.journal, int64(from))
	if err != nil {
		panic(err)
	}
	l.known.Read(s)
	if both {
		l.append(l.journal[from:])
		l.in.Seen = l.seq
	}
}

// append is what the log does to tasks.md.
func (l *testLedger) append(data []byte) {
	data = bytes.TrimSuffix(data, []byte("\n"))
	if !bytes.HasSuffix(l.tasks, []byte("\n\n")) {
		l.tasks = append(l.tasks, '\n')
	}
	l.tasks = append(l.tasks, data...)
}

func (l *testLedger) plan(t *rapid.T, in Input, known *Known) (*Plan, *Texts) {
	x, err := ReadTexts(t.Context(), bytes.NewReader(l.tasks), bytes.NewReader(l.journal), int64(len(l.tasks)), int64(len(l.journal)), known)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compare(t.Context(), x, in)
	if err != nil {
		t.Fatal(err)
	}
	p.Sort()
	return p, x
}

// apply does what a plan says, as the log does.
func (l *testLedger) apply(p *Plan) {
	l.seq = max(l.seq, p.MaxSeq)
	from := int(p.End)
	if p.Missing >= 0 {
		from = int(p.Missing) + p.InFile
	}
	for i := range p.Records {
		l.write(&p.Records[i], false)
	}
	data := append(bytes.Clone(l.journal[from:]), p.Again...)
	l.in.SavedAll, l.in.SavedRest = 0, ""
	if len(data) == 0 {
		l.in.SavedAll, l.in.SavedRest = l.seq, p.Rest
	} else if p.InFile > 0 {
		l.tasks = append(l.tasks, bytes.TrimSuffix(data, []byte("\n"))...)
	} else {
		l.append(data)
	}
	l.in.Seen = l.seq
}

// edit is what a person or an editor does to tasks.md.
func (l *testLedger) edit(t *rapid.T) {
	doc := ledger.Parse(l.tasks)
	line := rapid.IntRange(0, bytes.Count(l.tasks, []byte("\n"))).Draw(t, "line")
	at := 0
	for range line {
		at += bytes.IndexByte(l.tasks[at:], '\n') + 1
	}
	put := func(from, to int, text string) {
		l.tasks = append(append(bytes.Clone(l.tasks[:from]), text...), l.tasks[to:]...)
	}
	hand := fmt.Sprintf("\n## Task %s\n- %s\n", rapid.SampledFrom([]string{"t1", "t2", "m", "m"}).Draw(t, "hand"), rapid.SampledFrom([]string{"status: queued", "label: q", "prompt: p"}).Draw(t, "field"))
	what := rapid.IntRange(0, 16).Draw(t, "what")
	if len(doc.Sections) == 0 {
		what = 3
	}
	var s *ledger.Section
	from, to := 0, 0
	if what > 3 {
		s = &doc.Sections[rapid.IntRange(0, len(doc.Sections)-1).Draw(t, "section")]
		from, to = int(s.Off), int(s.Off)+len(s.Raw)
	}
	text := string(l.tasks[from:to])
	switch what {
	case 0:
		ops := rapid.SliceOfN(rapid.Byte(), 3, 9).Draw(t, "ops")
		l.tasks = edit3(l.tasks, ops)
	case 1:
		put(at, len(l.tasks), "")
	case 2:
		at = rapid.IntRange(0, len(l.tasks)).Draw(t, "cut")
		put(at, len(l.tasks), "")
	case 3:
		put(len(l.tasks), len(l.tasks), hand)
	case 4:
		put(from, from, hand+"\n")
	case 5, 6:
		put(from, to, strings.Replace(text, "- status: ", "- label: l\n- status: "+rapid.SampledFrom([]string{"", "x"}).Draw(t, "value"), 1))
	case 7:
		put(from, to, strings.Replace(text, "words", "other words", 1))
	case 8:
		put(from, to, "")
	case 9: // all of a task
		for i := len(doc.Sections) - 1; i >= 0; i-- {
			if o := &doc.Sections[i]; o.Name() == s.Name() {
				put(int(o.Off), int(o.Off)+len(o.Raw), "")
			}
		}
	case 10:
		put(at, at, rapid.SampledFrom([]string{text, strings.Replace(text, "- status: ", "- label: copied\n- status: ", 1)}).Draw(t, "copy")+"\n")
	case 11:
		put(len(l.tasks), len(l.tasks), "\n"+strings.Replace(text, "## Task t", "## Task c", 1))
	case 12: // moved
		put(from, to, "")
		put(min(at, from), min(at, from), text+"\n")
	case 13:
		put(from, to, strings.ReplaceAll(text, "\n", rapid.SampledFrom([]string{"\r\n", " \n", "\n\n"}).Draw(t, "end")))
	case 14: // the record as it was written, in the place of what stands there
		if len(l.known.Edited) > 0 {
			seq := rapid.SampledFrom(l.known.Edited).Draw(t, "edited")
			for i := range doc.Sections {
				if o := &doc.Sections[i]; o.Seq == seq {
					s, from, to = o, int(o.Off), int(o.Off)+len(o.Raw)
				}
			}
		}
		if j := bytes.Index(l.journal, fmt.Appendf(nil, "\n- seq: %d\n", s.Seq)); j >= 0 {
			begin := bytes.LastIndex(l.journal[:j], []byte("## "))
			if own, err := ledger.SectionIn(l.journal, int64(begin)); err == nil {
				put(from, to, string(own.Raw))
			}
		}
	case 16: // from a copy of the ledger, or made up
		seq := rapid.Uint64Range(1, l.seq+2).Draw(t, "seq")
		put(from, from, fmt.Sprintf("## Task t1\n- seq: %d\n- status: queued\n<!-- end %d -->\n\n", seq, seq))
	case 15:
		put(at, at, rapid.SampledFrom([]string{"A note.\n", "```\n", "<div>\n", "<!--\n", "-->\n", "Title\n=====\n", "## Task t3\n", "## Notes\n"}).Draw(t, "text"))
	}
}

// inserted is data with a line more.
type inserted struct {
	data []byte
	at   int64
	line string
}

func (r inserted) ReadAt(p []byte, off int64) (n int, err error) {
	parts := []io.ReaderAt{bytes.NewReader(r.data[:r.at]), strings.NewReader(r.line), bytes.NewReader(r.data[r.at:])}
	for _, part := range parts {
		size := part.(interface{ Size() int64 }).Size()
		if off < size && n < len(p) {
			k, _ := part.ReadAt(p[n:], off)
			n, off = n+k, off+int64(k)
		}
		off = max(0, off-size)
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

// BenchmarkReadTexts is what a hand edit of one task among that many costs, with four records each; the time is
// that of the processor, which no other load changes.
func BenchmarkReadTexts(b *testing.B) {
	for _, tasks := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			data, known := []byte(ledger.EmptyJournal), Known{Last: uint64(4 * tasks)}
			for i := range 4 * tasks {
				r := &ledger.Record{Kind: ledger.KindTask, ID: fmt.Sprintf("019ab3f0-6f1e-7c3a-9a51-%012d", i/4), Seq: uint64(i + 1)}
				r.Add("status", []string{"queued", "running", "running", "done"}[i%4]).Add("updatedAt", "2026-11-21T03:12:45.131Z")
				if i%4 == 0 {
					r.Add("prompt", strings.Repeat("Fix the flaky login test and keep the diff small.\n\n", 8)+"end")
				}
				data, _ = ledger.AppendRecord(data, r)
			}
			at := int64(len(data)/2 + bytes.Index(data[len(data)/2:], []byte("- status: queued")))
			file := inserted{data, at, "- label: x\n"}
			before := cpu(b)
			b.ResetTimer()
			for range b.N {
				x, err := ReadTexts(b.Context(), file, bytes.NewReader(data), int64(len(data)+len(file.line)), int64(len(data)), &known)
				if err != nil || len(x.Journal) > len(data)/10 {
					b.Fatal(err, len(x.Journal))
				}
			}
			b.ReportMetric(float64((cpu(b)-before).Microseconds())/1e3/float64(b.N), "cpu-ms/op")
			b.SetBytes(int64(len(data)))
		})
	}
}

// cpu returns the time that the processor has spent on this process.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
