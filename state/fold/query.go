package fold

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"time"

	"stint/ledger"
	"stint/state"
	"stint/state/explain"
	"stint/state/lanes"
	"stint/state/table"
)

// Task returns a whole task, with prompt, result and unknown keys, read from its records. The error is that of the Reader.
func (s *State) Task(id string) (t state.Task, ok bool, err error) {
	t, _, ok, err = s.TaskAndRuns(id)
	return t, ok, err
}

// Offsets returns where the records of a task stand in the journal, in order; nil if there is no such task.
func (s *State) Offsets(id string) []int64 {
	n := s.Number(id)
	if n == 0 || s.Entries.At(n).Kept != table.InJournal {
		return nil
	}
	return s.offsets(n)
}

// List returns tasks without their texts but with titles, newest first by first appearance. What is not in
// memory of the tasks that it returns is read; the error is that of the Reader.
func (s *State) List(f state.Filter) ([]state.Task, error) { return s.rowsOf(s.matching(f)) }

func (s *State) rowsOf(numbers []uint32) (list []state.Task, err error) {
	for _, n := range numbers {
		t, err := s.row(n)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// Rows is List for who writes the tasks down: encode is called for those that have ended, and what it makes
// is kept for the next time, for each f.Text. It must depend on the task alone, and must not call the state.
func (s *State) Rows(f state.Filter, encode func(*state.Task) ([]byte, error)) ([]state.Row, error) {
	numbers, kept := s.matching(f), s.rows[f.Text]
	rows := make([]state.Row, len(numbers))
	for i, n := range numbers {
		last := s.Entries.At(n).Last
		rows[i].First = s.Entries.At(n).First
		if data, ok := kept.get(n, last); ok && !f.Prompts {
			rows[i].Encoded = data
			continue
		}
		t, err := s.row(n)
		if err != nil {
			return nil, err
		}
		if !t.Status.Terminal() || f.Prompts {
			rows[i].Task = &t
			continue
		}
		if rows[i].Encoded, err = encode(&t); err != nil {
			return nil, err
		}
		kept.put(n, last, rows[i].Encoded)
	}
	return rows, nil
}

// maxRows, maxLines and maxTitles bound the rows, those for people, and the titles that are kept, in bytes.
const (
	maxRows   = 12 << 20
	maxLines  = 4 << 20
	maxTitles = 512 << 10
)

// rowCache has rows of ended tasks, or titles, each as of the task's newest record.
type rowCache struct {
	most int // bytes
	rows map[uint32]cachedRow
	size int
}

type cachedRow struct {
	last uint32 // in State.refs
	data []byte
}

func (c *rowCache) get(n, last uint32) ([]byte, bool) {
	row, ok := c.rows[n]
	return row.data, ok && row.last == last
}

// put keeps a row. What is full lets go of any others: of a list that is longer than
// the cache a part is there the next time, whichever way it is read.
func (c *rowCache) put(n, last uint32, data []byte) {
	if old, known := c.rows[n]; known {
		c.size -= rowCost(old.data)
	}
	c.size += rowCost(data)
	c.rows[n] = cachedRow{last, data}
	for old, row := range c.rows {
		if c.size <= c.most {
			return
		}
		c.size -= rowCost(row.data)
		delete(c.rows, old)
	}
}

// rowCost is what keeping a row costs, its place in the map included.
func rowCost(data []byte) int { return len(data) + 64 }

// matching returns the tasks of a list.
func (s *State) matching(f state.Filter) (list []uint32) {
	match, n := s.Matcher(f), int(s.Entries.Len())-1
	if f.Before > 0 { // from the last one whose first record has a lower number
		n = sort.Search(n, func(i int) bool { return s.Entries.At(uint32(i+1)).First >= f.Before })
	}
	for n := uint32(n); n > 0; n-- {
		if f.Limit > 0 && len(list) >= f.Limit {
			break
		}
		if e := s.Entries.At(n); !e.Deleted && e.Kept == table.InJournal && match(n, e) {
			list = append(list, n)
		}
	}
	var running []uint32
	for _, id := range slices.Backward(s.Running()) {
		if n := s.Number(id); f.Text && match(n, s.Entries.At(n)) {
			running = append(running, n)
		}
	}
	return append(running, slices.DeleteFunc(list, func(n uint32) bool { return slices.Contains(running, n) })...)
}

// row returns a task for a list.
func (s *State) row(n uint32) (state.Task, error) {
	l := s.Live(n)
	if l == nil {
		var t state.Folded
		err := s.read(n, &t, state.KeepTitle, nil)
		return t.Task, err
	}
	t, last := s.View(l), s.Entries.At(n).Last
	if _, known := s.titles.get(n, last); known {
		return t, nil
	}
	if at := s.Whole(l).PromptAt; at != 0 {
		sec, err := s.reader.SectionAt(at - 1)
		if err != nil {
			return state.Task{}, fmt.Errorf("read task %s: %w", t.ID, err)
		}
		t.Title = state.TitleOf(sec.Value(state.KeyPrompt))
	}
	s.titles.put(n, last, []byte(t.Title))
	return t, nil
}

// IDs returns the ids of the next tasks, at most n, behind the first done ones of all that are known, in the order in which
// they came, those of the archive first. One that was brought back keeps its place among these. So a place stays the same as
// long as the state lives; with a compaction another one takes over, and other places count.
func (s *State) IDs(done, n int) []string {
	at := uint32(done) + 1
	for _, second := range s.revived {
		if second <= at {
			at++
		}
	}
	var list []string
	for ; at < s.Entries.Len() && len(list) < n; at++ {
		if _, second := slices.BinarySearch(s.revived, at); !second {
			list = append(list, s.ID(at))
		}
	}
	return list
}

// HoldsKey reports whether, of all tasks that name the idempotency key of t, t has it.
func (s *State) HoldsKey(t *state.Task) bool {
	id, ok := s.ByIdempotencyKey(string(t.IdempotencyKey))
	return ok && id == t.ID
}

// Queue returns the tasks that wait in the lane of that key, in the order in which they will run, without
// their texts but with titles. Running ones are not among them. The error is that of the Reader.
func (s *State) Queue(key string) ([]state.Task, error) { return s.rowsOf(s.QueueOf(key)) }

// NativeOwner returns the agent whose native session has that id, and the account, as far
// as the sessions that are known show. One that the agent did not know is not its own.
func (s *State) NativeOwner(native string) (agent, account string, ok bool) {
	return s.OwnerOf(native, func(n uint32) bool { // its last task failed because the agent did not know it
		var t state.Folded
		return s.Entries.At(n).Status() == state.Failed && s.read(n, &t, state.KeepNone, nil) == nil && t.Reason == state.ClassSessionLost
	})
}

// Waits returns what a task waits for in a few words, "" if for nothing, and in one sentence why it does not
// run now, or how it ended, and, of one that another task has queued, why that did.
func (s *State) Waits(id string, now time.Time, lim lanes.Limits) (short, why string) {
	n := s.Number(id)
	if n == 0 {
		return "", "there is no task " + id
	}
	t, err := s.nowOf(id)
	if err != nil {
		t.Task = s.PeekAt(n) // it is all that is known
	}
	if s.Live(n) != nil {
		short, why = explain.Live(&s.Queues, n, now, lim)
	} else {
		why = explain.Ended(&t.Task, now)
	}
	if parent := s.parentOf(id); parent != "" {
		why = state.Because(why+"; it was queued by "+state.ShortID(parent), string(t.Trigger))
	}
	return short, why
}

// Find returns the ids of the tasks that ref can mean: one if it is a whole id, or @last for the task created
// last; else those of which it is a piece, the newest first, at most 5.
func (s *State) Find(ref string) (found []string) {
	if n := s.Number(ref); n != 0 {
		return []string{ref}
	}
	if ref == state.LastRef {
		for _, n := range s.matching(state.Filter{Limit: 1}) {
			found = append(found, s.ID(n))
		}
		return found
	}
	if found = s.Containing(ref, table.InJournal); len(found) == 0 {
		found = s.Containing(ref, table.InArchive)
	}
	return found
}

// Dump writes all that the records made of the state as text, in an order that
// depends on nothing else. Two states of the same journal have the same bytes.
func (s *State) Dump(w io.Writer) error {
	d := json.NewEncoder(w)
	d.SetEscapeHTML(false)
	for n := uint32(1); n < s.Entries.Len(); n++ {
		e, t := s.Entries.At(n), s.PeekAt(n)
		t.Title = "" // a cache
		row := map[string]any{"task": t, "kept": e.Kept, "deleted": e.Deleted}
		switch l := s.Live(n); {
		case e.Kept == table.BroughtBack:
			continue
		case l != nil:
			row["natives"] = s.Whole(l).Natives
			fallthrough
		case e.Kept == table.InJournal:
			row["first"], row["records"] = e.First, s.offsets(n)
		}
		if err := d.Encode(row); err != nil {
			return err
		}
	}
	keys := map[string]string{}
	for key := range s.byKey.all() {
		if id, ok := s.ByIdempotencyKey(key); ok {
			keys[key] = id
		}
	}
	rest := s.Dumped()
	maps.Copy(rest, map[string]any{
		"keys": keys, "followUps": s.family.children, "counts": s.Counts(), "running": s.Running(), "idle": s.Idle(),
	})
	return d.Encode(rest)
}

// TaskOf returns the task that one record says, with its texts: the whole record of a task in the archive.
func TaskOf(sec *ledger.Section) (state.Task, error) {
	var t state.Folded
	if err := t.Apply(sec, nil, state.KeepAll); err != nil {
		return state.Task{}, err
	}
	t.ID, t.Title = string(sec.ID), state.TitleOf(t.Prompt)
	return t.Task, nil
}

// TaskAndRuns returns what Task returns, and the runs of the task, and reads the records once.
func (s *State) TaskAndRuns(id string) (t state.Task, runs []state.Run, ok bool, err error) {
	n := s.Number(id)
	if n == 0 {
		return state.Task{}, nil, false, nil
	}
	whole, runs, err := s.readRuns(n, state.KeepAll)
	return whole, runs, true, err
}

// EachTask returns the runs of each task in the journal, in the order of age, and the runs of a task in their order; of a task
// that never ran, none. It reads all records anew. The error is the Reader's, or f's, which ends it.
func (s *State) EachTask(f func(runs []state.Run) error) error {
	for n := uint32(1); n < s.Entries.Len(); n++ {
		if s.Entries.At(n).Kept != table.InJournal {
			continue
		}
		_, runs, err := s.readRuns(n, state.KeepNone)
		if err != nil {
			return err
		}
		if err := f(runs); err != nil {
			return err
		}
	}
	return nil
}

func (s *State) readRuns(n uint32, k state.Keep) (state.Task, []state.Run, error) {
	var t state.Folded
	var runs []state.Run
	err := s.read(n, &t, k, func(before *state.Task, sec *ledger.Section) {
		runs = state.RunsAfter(runs, before, &t.Task, sec)
	})
	if err != nil {
		return state.Task{}, nil, err
	}
	return t.Task, runs, nil
}
