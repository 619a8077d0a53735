// Package table keeps a few words of every task, also of those that have ended, well below 200 bytes each, so
// that a million of them fit in memory: id, status, the time of the newest record, session key and what lists
// are filtered by. Strings that many tasks share are kept once; ids are 16 bytes where they are UUIDs. A
// [Body] has the rest of one that has not ended, in a few bytes more.
package table

import (
	"bytes"
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"time"

	"stint/ledger/plain"
	"stint/state"
)

// A Rows is a list that grows by pieces: nothing moves when it grows, and little is left over.
type Rows[T any] struct {
	chunks []*[tableChunk]T
	n      uint32
}

const tableChunk = 1024

// Len returns the number of rows.
func (t *Rows[T]) Len() uint32 { return t.n }

// At returns row i.
func (t *Rows[T]) At(i uint32) *T { return &t.chunks[i/tableChunk][i%tableChunk] }

// Add appends v and returns its place.
func (t *Rows[T]) Add(v T) uint32 {
	if int(t.n/tableChunk) == len(t.chunks) {
		t.chunks = append(t.chunks, new([tableChunk]T))
	}
	i := t.n
	t.n++
	*t.At(i) = v
	return i
}

// A Numbering numbers values that many tasks share, for good. The zero value is 0; 1 is left free.
type Numbering[T comparable] struct {
	Numbers map[T]uint32
	List    []T
}

// NewNumbering returns the numbers of the zero value alone.
func NewNumbering[T comparable]() Numbering[T] {
	var zero T
	return Numbering[T]{Numbers: map[T]uint32{zero: 0}, List: []T{zero, zero}}
}

// Number returns the number of v, a new one if it has none.
func (x *Numbering[T]) Number(v T) uint32 {
	n, ok := x.Numbers[v]
	if !ok {
		n = uint32(len(x.List))
		x.Numbers[v], x.List = n, append(x.List, v)
	}
	return n
}

// Tasks holds a few words of every task, numbered from 1 in the order in which they came.
type Tasks struct {
	ids     ids
	Entries Rows[Entry]
	Keys    Numbering[string]
	Tags    Numbering[state.Tags]

	// For speed alone.
	packer packer
	wholes Spares[state.Folded]
	fresh  [16]*Body // that were put last and are not packed yet, in turn
	turn   uint32
}

// New returns the table of no tasks.
func New() Tasks {
	s := Tasks{
		packer: packer{common: NewNumbering[string]()},

		ids:  ids{slots: make([]uint32, minSlots), others: map[string]uint32{}, names: map[uint32]string{}},
		Keys: NewNumbering[string](),
		Tags: NewNumbering[state.Tags](),
	}
	s.Entries.Add(Entry{}) // so that 0 is no task
	return s
}

// An Entry is what is kept of every task, also when it has ended. It has no
// pointers, so that a million of them cost the collector nothing.
type Entry struct {
	id          [16]byte // if it is a UUID as uuid writes it; else see ids.names
	Updated     int64    // Unix time in milliseconds
	First       uint64   // number of the task's first record: grows from entry to entry; 0 in the archive
	Last        uint32   // newest record, in fold.State.refs
	Key         uint32   // session key, in Tasks.Keys, or ownLane
	Tags        uint32   // in Tasks.Tags
	StatusIndex uint8    // in state.Statuses
	named       bool     // the id is in ids.names
	Deleted     bool     // a person has deleted its sections: it is in no list
	Kept        Keeping
}

// Keeping is where a task is kept.
type Keeping uint8

const (
	InJournal   Keeping = iota
	InArchive           // moved out; refs has offset and, as prev, the number of the file's name
	BroughtBack         // it was in the archive, and another entry has its id now
)

// ids finds the entry of an id. Almost all ids are UUIDs, which the entries have, and whose last bits are
// random: a table of numbers is enough, and less than a map needs.
type ids struct {
	slots  []uint32 // of entries, each where the bits of its id say or behind, 0: free; a power of two, of which entries take three quarters at most
	others map[string]uint32
	names  map[uint32]string // the other way round
}

const minSlots = 64

var hashSeed = maphash.MakeSeed()

// slot returns the place of the entry with that id, or the free one where it belongs. The bits that no number of an entry
// needs there are the id's too, tag, so that other entries are seldom looked at.
func (s *Tasks) slot(u *[16]byte) (at *uint32, n, tag uint32) {
	i, mask := maphash.Bytes(hashSeed, u[:]), uint32(len(s.ids.slots)-1) // ids may be anything: clients choose some
	for tag = uint32(i>>32) &^ mask; ; i++ {
		at = &s.ids.slots[uint32(i)&mask]
		if n = *at & mask; n == 0 || *at == n|tag && s.Entries.At(n).id == *u {
			return at, n, tag
		}
	}
}

// addID notes that entry n has that id.
func (s *Tasks) addID(id []byte, n uint32) {
	x, e, isUUID := &s.ids, s.Entries.At(n), false
	if e.id, isUUID = state.ParseUUID(id); isUUID {
		s.place(n)
		return
	}
	e.named, x.names[n], x.others[string(id)] = true, string(id), n
}

// place makes the slot of an id that of entry n, which has it.
func (s *Tasks) place(n uint32) {
	x, put := &s.ids, func(n uint32) {
		at, _, tag := s.slot(&s.Entries.At(n).id)
		*at = n | tag
	}
	if most, old := s.Entries.Len(), x.slots; int(most) > len(old)/4*3 {
		x.slots = make([]uint32, 1<<bits.Len32(most/3*4))
		for _, at := range old {
			if n := at & uint32(len(old)-1); n != 0 {
				put(n)
			}
		}
	}
	put(n)
}

// appendTo appends the id of entry n to b.
func (x *ids) appendTo(b []byte, n uint32, e *Entry) []byte {
	if e.named {
		return append(b, x.names[n]...)
	}
	return state.AppendUUID(b, e.id)
}

// ownLane is the number of the session key "task:<id>", which is not kept.
const ownLane = 1

// Number returns the number of the task with that id; 0 if there is none.
func (s *Tasks) Number(id string) uint32 { return s.NumberOf([]byte(id)) }

// NumberOf is Number of an id in bytes, which a replay has for each record.
func (s *Tasks) NumberOf(id []byte) uint32 {
	if u, isUUID := state.ParseUUID(id); isUUID {
		_, n, _ := s.slot(&u)
		return n
	}
	return s.ids.others[string(id)]
}

// Status returns the status of the task.
func (e *Entry) Status() state.Status { return state.Statuses[e.StatusIndex] }

// Matcher turns a filter into a test of entries.
func (s *Tasks) Matcher(f state.Filter) func(uint32, *Entry) bool {
	var want [len(state.Statuses)]bool
	for i, st := range state.Statuses {
		want[i] = len(f.Status) == 0 || slices.Contains(f.Status, st)
	}
	key, keyKnown := s.Keys.Numbers[f.Session]
	tags := state.Tags{Label: f.Label, Tenant: f.TenantID, Queue: f.Queue, Agent: f.Agent}
	isTagged := tags != state.Tags{}
	return func(n uint32, e *Entry) bool {
		if !want[e.StatusIndex] || isTagged && !s.Tags.List[e.Tags].Match(tags) {
			return false
		}
		if f.Session == "" || keyKnown && e.Key == key {
			return true
		}
		return e.Key == ownLane && s.isOwnLane(f.Session, n)
	}
}

// Containing returns up to 5 ids of tasks kept there that contain ref, newest first.
func (s *Tasks) Containing(ref string, where Keeping) (found []string) {
	if ref == "" {
		return nil
	}
	piece, buf := []byte(ref), make([]byte, 0, 128)
	for n := s.Entries.Len() - 1; n > 0 && len(found) < 5; n-- {
		e := s.Entries.At(n)
		if e.Deleted || e.Kept != where {
			continue
		}
		buf = s.ids.appendTo(buf[:0], n, e)
		if bytes.Contains(buf, piece) {
			found = append(found, string(buf))
		}
	}
	return found
}

// KeyOf returns the session key of an entry.
func (s *Tasks) KeyOf(n uint32, e *Entry) string {
	if e.Key == ownLane {
		return state.LanePrefixTask + s.ID(n)
	}
	return s.Keys.List[e.Key]
}

// Add makes the entry of a new task.
func (s *Tasks) Add(id []byte, first uint64) uint32 {
	n := s.Entries.Add(Entry{First: first})
	s.addID(id, n)
	return n
}

// isOwnLane reports whether key is the one of the lane that task n has for itself.
func (s *Tasks) isOwnLane(key string, n uint32) bool {
	id, ok := strings.CutPrefix(key, state.LanePrefixTask)
	return ok && s.ID(n) == id
}

// ID returns the id of task n.
func (s *Tasks) ID(n uint32) string {
	var buf [128]byte
	return string(s.ids.appendTo(buf[:0], n, s.Entries.At(n)))
}

// UnixMilli returns t as an entry has it: 0 for the zero time.
func UnixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// UpdatedAt returns the time of the last record of an entry.
func (e *Entry) UpdatedAt() time.Time {
	if e.Updated == 0 {
		return time.Time{}
	}
	return time.UnixMilli(e.Updated).UTC()
}

// Note writes down in its entry what is kept of a task for ever.
func (s *Tasks) Note(n uint32, t *state.Folded) {
	e := s.Entries.At(n)
	e.StatusIndex = t.Status.Index()
	e.Updated = UnixMilli(t.UpdatedAt)
	if tags := state.TagsOf(&t.Task); tags != s.Tags.List[e.Tags] { // most often they are as before
		e.Tags = s.Tags.Number(tags)
	}
	switch {
	case s.isOwnLane(t.SessionKey, n):
		e.Key = ownLane
	case s.Keys.List[e.Key] != t.SessionKey || e.Key == ownLane:
		e.Key = s.Keys.Number(t.SessionKey)
	}
}

// Code writes or reads the rows.
func (t *Rows[T]) Code(c *plain.Coder, row func(*T)) {
	n := t.n
	plain.Numbers(c, &n)
	for i := range n {
		if i == t.n {
			t.Add(*new(T))
		}
		row(t.At(i))
	}
}

// Code writes or reads the values.
func (x *Numbering[T]) Code(c *plain.Coder, item func(*T)) {
	list := x.List
	plain.List(c, &list, item)
	for _, v := range list[len(x.List):] {
		x.Number(v)
	}
}

// Code writes the table as plain bytes, or reads it into one of no tasks.
func (s *Tasks) Code(c *plain.Coder) {
	text := func(s *string) { c.Texts(s) }
	s.Keys.Code(c, text)
	s.packer.common.Code(c, text)
	s.Tags.Code(c, func(t *state.Tags) { c.Texts(&t.Label, &t.Tenant, &t.Queue, &t.Agent) })
	s.Entries.Code(c, func(e *Entry) {
		c.Raw(e.id[:])
		plain.Numbers(c, &e.Updated)
		plain.Numbers(c, &e.First)
		plain.Numbers(c, &e.Last, &e.Key, &e.Tags)
		plain.Numbers(c, &e.StatusIndex, (*uint8)(&e.Kept))
		c.Flags(&e.named, &e.Deleted)
	})
	plain.Map(c, s.ids.names, func(n *uint32, name *string) { plain.Numbers(c, n); text(name) })
	if !c.Reads {
		return
	}
	for n := uint32(1); n < s.Entries.Len(); n++ {
		if name, named := s.ids.names[n]; named {
			s.ids.others[name] = n
		} else {
			s.place(n) // by the seed of this process: who writes a ledger cannot choose ids that meet there
		}
	}
}
