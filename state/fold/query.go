package fold

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"sort"

	"stint/state"
	"stint/state/table"
)

// Task returns a whole task, with prompt, result and unknown keys, read from its
// records. The error is that of the Reader.
func (s *State) Task(id string) (t state.Task, ok bool, err error) {
	n := s.Number(id)
	if n == 0 {
		return state.Task{}, false, nil
	}
	var whole state.Folded
	if err := s.read(n, &whole, state.KeepAll); err != nil {
		return state.Task{}, true, fmt.Errorf("read task %s: %w", id, err)
	}
	whole.ID = id
	return whole.Task, true, nil
}

// Offsets returns where the records of a task stand in the journal, in order; nil if
// there is no such task.
func (s *State) Offsets(id string) []int64 {
	n := s.Number(id)
	if n == 0 || s.Entries.At(n).Kept != table.InJournal {
		return nil
	}
	return s.offsets(n)
}

// List returns tasks without their texts but with titles, newest first by first
// appearance. What is not in memory of the tasks that it gives is read; the error
// is that of the Reader.
func (s *State) List(f state.Filter) ([]state.Task, error) {
	var list []state.Task
	for _, n := range s.matching(f) {
		t, err := s.row(n)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// A Row is one task of a list. Of a task that has ended it is what was made of it.
type Row struct {
	Task    *state.Task // nil if it has ended
	Encoded []byte
	First   uint64 // number of the task's first record, by which lists are ordered: it stays, whatever becomes of the task
}

// Rows is List for who writes the tasks down: encode is called for those that have
// ended, and what it makes is kept for the next time. It must depend on the task
// alone, and must not call the state.
func (s *State) Rows(f state.Filter, encode func(*state.Task) ([]byte, error)) ([]Row, error) {
	numbers := s.matching(f)
	rows := make([]Row, len(numbers))
	for i, n := range numbers {
		last := s.Entries.At(n).Last
		rows[i].First = s.Entries.At(n).First
		if data, ok := s.rows.get(n, last); ok {
			rows[i].Encoded = data
			continue
		}
		t, err := s.row(n)
		if err != nil {
			return nil, err
		}
		if !t.Status.Terminal() {
			rows[i].Task = &t
			continue
		}
		if rows[i].Encoded, err = encode(&t); err != nil {
			return nil, err
		}
		s.rows.put(n, last, rows[i].Encoded)
	}
	return rows, nil
}

// maxRows and maxTitles bound the rows and the titles that are kept, in bytes.
const (
	maxRows   = 16 << 20
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
	if c.rows == nil {
		c.rows = map[uint32]cachedRow{}
	}
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
	match, ok := s.Matcher(f)
	if !ok {
		return nil
	}
	for n := s.newestBefore(f.Before); n > 0; n-- {
		if f.Limit > 0 && len(list) >= f.Limit {
			break
		}
		if e := s.Entries.At(n); !e.Deleted && e.Kept == table.InJournal && match(n, e) {
			list = append(list, n)
		}
	}
	return list
}

// newestBefore returns the last entry whose first record has a lower number; with 0 the
// last of all.
func (s *State) newestBefore(first uint64) uint32 {
	last := int(s.Entries.Len()) - 1
	if first == 0 {
		return uint32(last)
	}
	return uint32(sort.Search(last, func(i int) bool { return s.Entries.At(uint32(i+1)).First >= first }))
}

// row returns a task for a list.
func (s *State) row(n uint32) (state.Task, error) {
	l := s.Live(n)
	if l == nil {
		var t state.Folded
		if err := s.read(n, &t, state.KeepTitle); err != nil {
			return state.Task{}, fmt.Errorf("read task %s: %w", s.ID(n), err)
		}
		t.ID = s.ID(n)
		return t.Task, nil
	}
	t, last := s.View(l), s.Entries.At(n).Last
	if _, known := s.titles.get(n, last); !known {
		title, err := s.readTitle(s.Whole(l))
		if err != nil {
			return state.Task{}, fmt.Errorf("read task %s: %w", t.ID, err)
		}
		s.titles.put(n, last, []byte(title))
		t.Title = title
	}
	return t, nil
}

// readTitle reads the first line of a live task's prompt.
func (s *State) readTitle(t *state.Folded) (string, error) {
	if t.PromptAt == 0 {
		return "", nil
	}
	sec, err := s.reader.SectionAt(t.PromptAt - 1)
	if err != nil {
		return "", err
	}
	return state.TitleOf(sec.Value(state.KeyPrompt)), nil
}

// ErrNotFound says that no task has such an id.
var ErrNotFound = errors.New("no such task")

// An AmbiguousError says that a piece of an id belongs to several tasks.
type AmbiguousError struct {
	Ref string
	IDs []string // the newest of them, at most 5
}

// Error returns the sentence.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q is a piece of several ids, such as %s and %s", e.Ref, e.IDs[0], e.IDs[1])
}

// Find returns the id of the task that ref means: a whole id, a piece that only one
// id has, or @last for the task created last. The error wraps ErrNotFound or is
// an [*AmbiguousError].
func (s *State) Find(ref string) (id string, err error) {
	if n := s.Number(ref); n != 0 {
		return ref, nil
	}
	if n := s.newest(); ref == state.LastRef && n > 0 {
		return s.ID(n), nil
	}
	found := s.Containing(ref, table.InJournal)
	if len(found) == 0 {
		found = s.Containing(ref, table.InArchive)
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("%w: %q", ErrNotFound, ref)
	case 1:
		return found[0], nil
	default:
		return "", &AmbiguousError{Ref: ref, IDs: found}
	}
}

// newest returns the task that was created last and is not hidden; 0 if there is none.
func (s *State) newest() uint32 {
	n := s.Entries.Len() - 1
	for n > 0 && (s.Entries.At(n).Deleted || s.Entries.At(n).Kept != table.InJournal) {
		n--
	}
	return n
}

// Dump writes all that the records made of the state as text, in an order that
// depends on nothing else. Two states of the same journal give the same bytes.
func (s *State) Dump(w io.Writer) error {
	d := json.NewEncoder(w)
	d.SetEscapeHTML(false)
	for n := uint32(1); n < s.Entries.Len(); n++ {
		e := s.Entries.At(n)
		if e.Kept != table.InJournal {
			if err := s.dumpArchived(d, n, e); err != nil {
				return err
			}
			continue
		}
		t := s.PeekAt(n)
		row := map[string]any{
			"id": t.ID, "status": t.Status, "key": t.SessionKey, "label": t.Label, "first": e.First,
			"tags": []string{t.TenantID, t.Queue, t.Agent}, "updated": e.Updated, "records": s.offsets(n),
		}
		if e.Deleted {
			row["deleted"] = true
		}
		if l := s.Live(n); l != nil {
			t.Title = "" // a cache
			row["task"], row["natives"] = t, s.Whole(l).Natives
		}
		if err := d.Encode(row); err != nil {
			return err
		}
	}
	return s.dumpRest(d)
}

// dumpRest writes what is not of one task.
func (s *State) dumpRest(d *json.Encoder) error {
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
