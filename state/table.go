package state

import "hash/maphash"

// A table is a list that grows by pieces: nothing moves when it grows, and
// little is left over.
type table[T any] struct {
	chunks []*[tableChunk]T
	n      uint32
}

const tableChunk = 1024

func (t *table[T]) len() uint32 { return t.n }

func (t *table[T]) at(i uint32) *T { return &t.chunks[i/tableChunk][i%tableChunk] }

// clear makes the table empty. Its memory serves what comes next.
func (t *table[T]) clear() { t.n = 0 }

// add appends v and gives its place.
func (t *table[T]) add(v T) uint32 {
	if int(t.n/tableChunk) == len(t.chunks) {
		t.chunks = append(t.chunks, new([tableChunk]T))
	}
	i := t.n
	t.n++
	*t.at(i) = v
	return i
}

// An entry is what is kept of every task, also when it has ended. It has no
// pointers, so that a million of them cost the collector nothing.
type entry struct {
	id      [16]byte // if it is a UUID as uuid writes it; else see ids.names
	updated int64    // Unix time in milliseconds
	first   uint64   // number of the task's first record: grows from entry to entry; 0 in the archive
	last    uint32   // newest record, in State.refs
	key     uint32   // session key, in State.names, or ownLane
	tags    uint32   // in State.tags
	status  uint8    // in statuses
	named   bool     // the id is in ids.names
	deleted bool     // a person has deleted its sections: it is in no list
	kept    keeping
}

// keeping says where a task is kept.
type keeping uint8

const (
	inJournal   keeping = iota
	inArchive           // moved out; refs has offset and, as prev, the number of the file's name
	broughtBack         // it was in the archive, and another entry has its id now
)

// A ref is one record of a task: where it stands, and the one before it, plus 1.
type ref struct {
	off  int64
	prev uint32
}

// ids finds the entry of an id. Almost all ids are UUIDs, which need 16 bytes
// each and no string.
type ids struct {
	uuids  map[[16]byte]uint32
	others map[string]uint32
	names  map[uint32]string // the other way round
}

func (x *ids) find(id []byte) (n uint32, ok bool) {
	if u, isUUID := parseUUID(id); isUUID {
		n, ok = x.uuids[u]
	} else {
		n, ok = x.others[string(id)]
	}
	return n, ok
}

// add notes that entry n, which is e, has that id.
func (x *ids) add(id []byte, n uint32, e *entry) {
	u, ok := parseUUID(id)
	if ok {
		e.id, x.uuids[u] = u, n
		return
	}
	e.named = true
	x.names[n] = string(id)
	x.others[x.names[n]] = n
}

// appendTo appends the id of entry n to b.
func (x *ids) appendTo(b []byte, n uint32, e *entry) []byte {
	if e.named {
		return append(b, x.names[n]...)
	}
	return appendUUID(b, e.id)
}

// nibble gives the value of a lower-case hex digit, or 255.
var nibble = func() (t [256]byte) {
	for i := range t {
		t[i] = 255
	}
	for i, c := range []byte("0123456789abcdef") {
		t[c] = byte(i)
	}
	return t
}()

// uuidDigits says where the two digits of each byte of a UUID stand.
var uuidDigits = [16]int{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34}

// parseUUID reads the one form of a UUID that appendUUID writes: an id must
// come back as it was.
func parseUUID(b []byte) (u [16]byte, ok bool) {
	if len(b) != 36 || b[8] != '-' || b[13] != '-' || b[18] != '-' || b[23] != '-' {
		return u, false
	}
	bad := byte(0)
	for i, pos := range uuidDigits {
		hi, lo := nibble[b[pos]], nibble[b[pos+1]]
		bad |= hi | lo
		u[i] = hi<<4 | lo
	}
	return u, bad < 16
}

func appendUUID(b []byte, u [16]byte) []byte {
	const digits = "0123456789abcdef"
	b = append(b, "........-....-....-....-............"...)
	text := b[len(b)-36:]
	for i, pos := range uuidDigits {
		text[pos], text[pos+1] = digits[u[i]>>4], digits[u[i]&15]
	}
	return b
}

// names numbers strings that many tasks share, for good. "" is 0.
type names struct {
	numbers map[string]uint32
	list    []string
}

// ownLane is the number of the session key "task:<id>", which is not kept.
const ownLane = 1

func newNames() names {
	return names{numbers: map[string]uint32{"": 0}, list: []string{"", ""}}
}

func (x *names) number(s string) uint32 {
	n, ok := x.numbers[s]
	if !ok {
		n = uint32(len(x.list))
		x.numbers[s], x.list = n, append(x.list, s)
	}
	return n
}

// tags are the words of a task that lists are filtered by.
type tags struct{ label, tenant, queue, agent string }

func tagsOf(t *Task) tags { return tags{t.Label, t.TenantID, t.Queue, t.Agent} }

// tagTable numbers combinations of tags, for good. That of none is 0.
type tagTable struct {
	numbers map[tags]uint32
	list    []tags
}

func newTagTable() tagTable {
	return tagTable{numbers: map[tags]uint32{{}: 0}, list: make([]tags, 1)}
}

// number gives the number of v; most often it is now, that of the task before.
func (x *tagTable) number(v tags, now uint32) uint32 {
	if x.list[now] == v {
		return now
	}
	n, ok := x.numbers[v]
	if !ok {
		n = uint32(len(x.list))
		x.numbers[v], x.list = n, append(x.list, v)
	}
	return n
}

// matching gives the combinations that a filter lets through, by number; nil if it
// lets all through, and any is false if it lets none through.
func (x *tagTable) matching(f Filter) (let []bool, any bool) {
	want := tags{f.Label, f.TenantID, f.Queue, f.Agent}
	if want == (tags{}) {
		return nil, true
	}
	let = make([]bool, len(x.list))
	for i, v := range x.list {
		let[i] = v.match(want)
		any = any || let[i]
	}
	return let, any
}

// match reports whether v has every word of want that is not empty.
func (v tags) match(want tags) bool {
	return (want.label == "" || want.label == v.label) && (want.tenant == "" || want.tenant == v.tenant) &&
		(want.queue == "" || want.queue == v.queue) && (want.agent == "" || want.agent == v.agent)
}

// A pool gives one string for equal bytes that come often, so that most fields
// of a record need no memory of their own. It forgets, and never grows. A nil
// pool copies.
type pool struct {
	seed  maphash.Seed
	slots [512]string
}

func (p *pool) get(b []byte) string {
	if p == nil || len(b) == 0 || len(b) > 256 {
		return string(b)
	}
	s := &p.slots[maphash.Bytes(p.seed, b)%uint64(len(p.slots))]
	if *s != string(b) {
		*s = string(b)
	}
	return *s
}
