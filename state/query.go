package state

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
)

// A Filter says which tasks to list. Its zero value lists all.
type Filter struct {
	Status   []Status `json:"status,omitempty"`  // one of these; none: any
	Session  string   `json:"session,omitempty"` // session key
	Label    string   `json:"label,omitempty"`
	TenantID string   `json:"tenantId,omitempty"`
	Queue    string   `json:"queue,omitempty"`
	Agent    string   `json:"agent,omitempty"`
	Before   uint64   `json:"before,omitempty"` // of a list, only what is older than the task with this Row.First; 0: from the newest on
	Limit    int      `json:"limit,omitempty"`  // at most so many; 0: no limit
}

// Match reports whether the filter lets a task through.
func (f *Filter) Match(t *Task) bool {
	return (len(f.Status) == 0 || slices.Contains(f.Status, t.Status)) && (f.Session == "" || f.Session == t.SessionKey) &&
		tagsOf(t).match(tags{f.Label, f.TenantID, f.Queue, f.Agent})
}

// view gives a task as it is in memory, without its texts.
func (s *State) view(l *live) Task {
	t := s.whole(l).Task
	title, _ := s.titles.get(l.n, s.entries.at(l.n).last)
	t.ID, t.Title = s.id(l.n), string(title)
	return t
}

// Peek gives what is in memory of a task, and reads nothing. Of one that has not
// ended that is all but its texts; of one that has ended only the id, status,
// session key, time of the last record, and what lists are filtered by.
func (s *State) Peek(id string) (Task, bool) {
	n, _ := s.ids.find([]byte(id))
	if n == 0 {
		return Task{}, false
	}
	return s.peek(n), true
}

func (s *State) peek(n uint32) Task {
	if l := s.live[n]; l != nil {
		return s.view(l)
	}
	e := s.entries.at(n)
	tag := s.tags.list[e.tags]
	return Task{
		ID: s.id(n), Status: statuses[e.status], SessionKey: s.keyOf(n, e), UpdatedAt: e.updatedAt(),
		Label: tag.label, TenantID: tag.tenant, Queue: tag.queue, Agent: tag.agent,
	}
}

// keyOf gives the session key of an entry.
func (s *State) keyOf(n uint32, e *entry) string {
	if e.key == ownLane {
		return LanePrefixTask + s.id(n)
	}
	return s.names.list[e.key]
}

// Task gives a whole task, with prompt, result and unknown keys, read from its
// records. The error is that of the Reader.
func (s *State) Task(id string) (t Task, ok bool, err error) {
	n, _ := s.ids.find([]byte(id))
	if n == 0 {
		return Task{}, false, nil
	}
	var whole folded
	if err := s.read(n, &whole, keepAll); err != nil {
		return Task{}, true, fmt.Errorf("read task %s: %w", id, err)
	}
	whole.ID = id
	return whole.Task, true, nil
}

// Offsets gives where the records of a task stand in the journal, in order; nil if
// there is no such task.
func (s *State) Offsets(id string) []int64 {
	n, _ := s.ids.find([]byte(id))
	if n == 0 || s.entries.at(n).kept != inJournal {
		return nil
	}
	return s.offsets(n)
}

// List gives tasks without their texts but with titles, newest first by first
// appearance. What is not in memory of the tasks that it gives is read; the error
// is that of the Reader.
func (s *State) List(f Filter) ([]Task, error) {
	var list []Task
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
	Task    *Task // nil if it has ended
	Encoded []byte
	First   uint64 // number of the task's first record, by which lists are ordered: it stays, whatever becomes of the task
}

// Rows is List for who writes the tasks down: encode is called for those that have
// ended, and what it makes is kept for the next time. It must depend on the task
// alone, and must not call the state.
func (s *State) Rows(f Filter, encode func(*Task) ([]byte, error)) ([]Row, error) {
	numbers := s.matching(f)
	rows := make([]Row, len(numbers))
	for i, n := range numbers {
		last := s.entries.at(n).last
		rows[i].First = s.entries.at(n).first
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

// matching gives the tasks of a list.
func (s *State) matching(f Filter) (list []uint32) {
	match, ok := s.matcher(f)
	if !ok {
		return nil
	}
	for n := s.newestBefore(f.Before); n > 0; n-- {
		if f.Limit > 0 && len(list) >= f.Limit {
			break
		}
		if e := s.entries.at(n); !e.deleted && e.kept == inJournal && match(n, e) {
			list = append(list, n)
		}
	}
	return list
}

// newestBefore gives the last entry whose first record has a lower number; with 0 the
// last of all.
func (s *State) newestBefore(first uint64) uint32 {
	last := int(s.entries.len()) - 1
	if first == 0 {
		return uint32(last)
	}
	return uint32(sort.Search(last, func(i int) bool { return s.entries.at(uint32(i+1)).first >= first }))
}

// matcher turns a filter into a test of entries; ok is false if no task can pass.
func (s *State) matcher(f Filter) (match func(uint32, *entry) bool, ok bool) {
	var want [len(statuses)]bool
	for i, st := range statuses {
		want[i] = len(f.Status) == 0 || slices.Contains(f.Status, st)
	}
	key, keyKnown := s.names.numbers[f.Session]
	tagged, any := s.tags.matching(f)
	if !any {
		return nil, false
	}
	return func(n uint32, e *entry) bool {
		if !want[e.status] || tagged != nil && !tagged[e.tags] {
			return false
		}
		if f.Session == "" || keyKnown && e.key == key {
			return true
		}
		return e.key == ownLane && s.isOwnLane(f.Session, n)
	}, true
}

// row gives a task for a list.
func (s *State) row(n uint32) (Task, error) {
	l := s.live[n]
	if l == nil {
		var t folded
		if err := s.read(n, &t, keepTitle); err != nil {
			return Task{}, fmt.Errorf("read task %s: %w", s.id(n), err)
		}
		t.ID = s.id(n)
		return t.Task, nil
	}
	t, last := s.view(l), s.entries.at(n).last
	if _, known := s.titles.get(n, last); !known {
		title, err := s.readTitle(s.whole(l))
		if err != nil {
			return Task{}, fmt.Errorf("read task %s: %w", t.ID, err)
		}
		s.titles.put(n, last, []byte(title))
		t.Title = title
	}
	return t, nil
}

// readTitle reads the first line of a live task's prompt.
func (s *State) readTitle(t *folded) (string, error) {
	if t.promptAt == 0 {
		return "", nil
	}
	sec, err := s.reader.SectionAt(t.promptAt - 1)
	if err != nil {
		return "", err
	}
	return TitleOf(sec.Value(KeyPrompt)), nil
}

// LastRef is the reference that [State.Find] takes for the task created last.
const LastRef = "@last"

// ErrNotFound says that no task has such an id.
var ErrNotFound = errors.New("no such task")

// An AmbiguousError says that a piece of an id belongs to several tasks.
type AmbiguousError struct {
	Ref string
	IDs []string // the newest of them, at most 5
}

// Error gives the sentence.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%q is a piece of several ids, such as %s and %s", e.Ref, e.IDs[0], e.IDs[1])
}

// Find gives the id of the task that ref means: a whole id, a piece that only one
// id has, or @last for the task created last. The error wraps ErrNotFound or is
// an [*AmbiguousError].
func (s *State) Find(ref string) (id string, err error) {
	if n, _ := s.ids.find([]byte(ref)); n != 0 {
		return ref, nil
	}
	if n := s.newest(); ref == LastRef && n > 0 {
		return s.id(n), nil
	}
	found := s.having(ref, inJournal)
	if len(found) == 0 {
		found = s.having(ref, inArchive)
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

// newest gives the task that was created last and is not hidden; 0 if there is none.
func (s *State) newest() uint32 {
	n := s.entries.len() - 1
	for n > 0 && (s.entries.at(n).deleted || s.entries.at(n).kept != inJournal) {
		n--
	}
	return n
}

// having gives up to 5 ids of tasks kept there that contain ref, newest first.
func (s *State) having(ref string, where keeping) (found []string) {
	if ref == "" {
		return nil
	}
	piece, buf := []byte(ref), make([]byte, 0, 128)
	first, second, digits := firstBytes(ref)
	for n := s.entries.len() - 1; n > 0 && len(found) < 5; n-- {
		e := s.entries.at(n)
		if e.deleted || e.kept != where || digits && !e.named && !e.hasByte(first) && !e.hasByte(second) {
			continue
		}
		buf = s.ids.appendTo(buf[:0], n, e)
		if bytes.Contains(buf, piece) {
			found = append(found, string(buf))
		}
	}
	return found
}

// firstBytes gives two bytes of which a UUID must have one to contain ref: what it
// begins with if its first digit is the first of a byte, and if it is the second. ok
// is false if that cannot be told. Almost no id has to be written down then to find
// the one that is meant.
func firstBytes(ref string) (first, second byte, ok bool) {
	var d []byte
	for _, c := range []byte(ref) {
		if v := nibble[c]; v < 16 {
			d = append(d, v)
		} else if c != '-' {
			return 0, 0, false
		}
	}
	if len(d) < 3 {
		return 0, 0, false
	}
	return d[0]<<4 | d[1], d[1]<<4 | d[2], true
}

// hasByte reports whether b is one of the bytes of the entry's UUID, eight at a time.
func (e *entry) hasByte(b byte) bool {
	const low, high = 0x0101010101010101, 0x8080808080808080
	x := binary.NativeEndian.Uint64(e.id[:8]) ^ low*uint64(b) // a byte that is b is 0 now
	y := binary.NativeEndian.Uint64(e.id[8:]) ^ low*uint64(b)
	return ((x-low)&^x|(y-low)&^y)&high != 0
}

// Dump writes all that the records made of the state as text, in an order that
// depends on nothing else. Two states of the same journal give the same bytes.
func (s *State) Dump(w io.Writer) error {
	d := json.NewEncoder(w)
	d.SetEscapeHTML(false)
	for n := uint32(1); n < s.entries.len(); n++ {
		e := s.entries.at(n)
		if e.kept != inJournal {
			if err := s.dumpArchived(d, n, e); err != nil {
				return err
			}
			continue
		}
		tag := s.tags.list[e.tags]
		row := map[string]any{
			"id": s.id(n), "status": statuses[e.status], "key": s.keyOf(n, e), "label": tag.label, "first": e.first,
			"tags": []string{tag.tenant, tag.queue, tag.agent}, "updated": e.updated, "records": s.offsets(n),
		}
		if e.deleted {
			row["deleted"] = true
		}
		if l := s.live[n]; l != nil {
			t := s.view(l)
			t.Title = "" // a cache
			row["task"], row["natives"] = t, s.whole(l).natives
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
	lanes := map[string][]string{}
	for key, ln := range s.lanes {
		lanes[key] = []string{}
		for _, l := range ln.queue {
			lanes[key] = append(lanes[key], s.id(l.n))
		}
	}
	known := map[string]Session{}
	current := map[string]string{}
	for x := range s.allSessions {
		known[x.ID], _ = s.sessionView(x)
		if p := x.at.place; x.seated() {
			current[fmt.Sprintf("%q %q %q", p.key, p.agent, p.account)] = x.ID
		}
	}
	accounts := map[string]any{}
	for name, a := range s.accounts {
		if a.control != (control{}) || a.running > 0 {
			accounts[name] = map[string]any{"control": s.Account(name), "running": a.running}
		}
	}
	return d.Encode(map[string]any{
		"keys": keys, "lanes": lanes, "sessions": known, "current": current, "accounts": accounts,
		"followUps": s.family.children, "paused": s.dispatch.paused, "pauseReason": s.dispatch.reason,
		"counts": s.Counts(), "running": s.Running(), "held": s.held, "idle": s.Idle(),
	})
}
