package fold

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"stint/ledger"
	"stint/state"
	"stint/state/lanes"
	"stint/state/table"
)

// journal is a Reader in memory, and applies what is appended to it.
type journal struct {
	t        testing.TB
	state    *State
	sections [][]byte // raw, by offset
	seq      uint64   // of the last record
	archive  []ledger.ArchiveEntry
	reads    int
	broken   bool // reads fail
}

func newJournal(t testing.TB) *journal {
	j := &journal{t: t}
	j.state = New(j)
	return j
}

func (j *journal) SectionAt(off int64) (*ledger.Section, error) {
	j.reads++
	if j.broken || off%10 != 0 || off/10 >= int64(len(j.sections)) {
		return nil, fmt.Errorf("no record at offset %d", off)
	}
	return parse(j.t, j.sections[off/10], off), nil
}

func parse(t testing.TB, raw []byte, off int64) *ledger.Section {
	t.Helper()
	doc := ledger.Parse(slices.Clone(raw))
	if len(doc.Sections) != 1 {
		t.Fatalf("not one record: %v\n%s", doc.Findings, raw)
	}
	s := &doc.Sections[0]
	s.Off = off
	return s
}

// encode makes a section of "key: value" pairs; \n in a value are line ends.
func encode(t testing.TB, kind ledger.Kind, id string, seq uint64, fields ...string) *ledger.Section {
	t.Helper()
	r := &ledger.Record{Kind: kind, ID: id, Seq: seq}
	for _, f := range fields {
		key, value, _ := strings.Cut(f, ": ")
		r.Add(strings.TrimSuffix(key, ":"), value)
	}
	sec, err := ledger.Encode(r)
	must(t, err)
	return sec
}

// append adds a record and applies it; afterwards its bytes are overwritten, as a scanner's buffer is.
func (j *journal) append(kind ledger.Kind, id string, fields ...string) error {
	j.t.Helper()
	j.seq++
	sec := encode(j.t, kind, id, j.seq, fields...)
	j.sections = append(j.sections, slices.Clone(sec.Raw))
	return j.apply(j.state, sec, len(j.sections)-1)
}

func (j *journal) apply(s *State, sec *ledger.Section, i int) error {
	sec.Off = int64(i) * 10
	err := s.Apply(sec)
	for k := range sec.Raw {
		sec.Raw[k] = '?'
	}
	return err
}

// task appends a task record that must be taken.
func (j *journal) task(id string, fields ...string) {
	j.t.Helper()
	must(j.t, j.append(ledger.KindTask, id, fields...))
}

func (j *journal) control(id string, fields ...string) {
	j.t.Helper()
	must(j.t, j.append(ledger.KindControl, id, fields...))
}

// refuse appends a task record that must have no effect, and returns the error.
func (j *journal) refuse(id string, fields ...string) error {
	j.t.Helper()
	before := dump(j.t, j.state)
	err := j.append(ledger.KindTask, id, fields...)
	if err == nil {
		j.t.Fatalf("%q was taken", fields)
	}
	if after := dump(j.t, j.state); after != before {
		j.t.Fatalf("a refused record had an effect:\n%s\n%s", before, after)
	}
	return err
}

// refold returns a new state of all records so far.
func (j *journal) refold() *State {
	j.t.Helper()
	s := New(j)
	for _, a := range j.archive {
		s.Archive(a)
	}
	for i, raw := range j.sections {
		_ = j.apply(s, parse(j.t, raw, 0), i) // refused live, refused again
	}
	return s
}

func (j *journal) checkRefold() {
	j.t.Helper()
	if live, again := dump(j.t, j.state), dump(j.t, j.refold()); live != again {
		j.t.Fatalf("live state and refold differ:\n--- live\n%s--- refold\n%s", live, again)
	}
}

func dump(t testing.TB, s *State) string {
	t.Helper()
	var b strings.Builder
	must(t, s.Dump(&b))
	return b.String()
}

func (j *journal) peek(id string) state.Task {
	j.t.Helper()
	t, ok := j.state.Peek(id)
	if !ok {
		j.t.Fatalf("no task %s", id)
	}
	return t
}

func (j *journal) why(id string, now time.Time, lim lanes.Limits) string {
	_, why := j.state.Waits(id, now, lim)
	return why
}

func (j *journal) whole(id string) state.Task {
	j.t.Helper()
	t, ok, err := j.state.Task(id)
	if err != nil || !ok {
		j.t.Fatalf("task %s: %v, %v", id, ok, err)
	}
	return t
}

// length counts the tasks that are not in the archive.
func length(s *State) (n int) {
	for i := uint32(1); i < s.Entries.Len(); i++ {
		if s.Entries.At(i).Kept == table.InJournal {
			n++
		}
	}
	return n
}

// noon is the time of the tests.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) string { return state.FormatTime(noon.Add(d)) }

// uuid returns the i-th id of a task as stint makes them.
func uuid(i int) string { return fmt.Sprintf("019ab3f0-6f1e-7c3a-9a51-%012x", i) }

func taskIDs(tasks []state.Task) []string {
	ids := []string{}
	for _, t := range tasks {
		ids = append(ids, t.ID)
	}
	return ids
}

func ready(j *journal, workers int) string {
	return strings.Join(taskIDs(j.state.Ready(noon, lanes.Limits{WorkspaceRoot: "/w", MaxWorkers: workers})), " ")
}

// must ends a test that cannot go on.
func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
