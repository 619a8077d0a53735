package reconcile

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"stint/ledger"
	"stint/ledger/mark"
)

// An origin is a section as it first came into the ledger, with the fields that were last seen of it: the
// record with that seq, or a section that a person wrote or copied.
type origin struct {
	id     string // kind and id of the record
	name   string // what a record that adopts an edit of it has in KeyEdits: its seq, or a digest
	first  string // digest of the text that was adopted first; "" for a record of ours
	digest string // of the text that was last seen; "" for an unedited record
	found  bool   // a section with that text is in tasks.md; set by the planner
	fields map[string]string
	before []version // older ones, oldest first
}

// A version is what was seen of a section until a record took over an edit of it.
type version struct {
	until  uint64 // seq of that record
	fields map[string]string
}

// since returns what was seen of the section since the ledger ended with record seq, oldest first: what whoever had read that
// far could see, and what has come behind it. Who edits a section that was not there then has written it himself.
func (o *origin) since(seq uint64) (seen []map[string]string) {
	for _, v := range o.before {
		if v.until > seq {
			seen = append(seen, v.fields)
		}
	}
	return append(seen, o.fields)
}

// renew notes what record s says of a newer version, or of the first.
func (o *origin) renew(s *ledger.Section) {
	if o.first == "" || o.digest != "" {
		o.before = append(o.before, version{s.Seq, o.fields})
		o.fields = maps.Clone(o.fields)
	}
	// What a person wrote in the section and had no effect is no news when it is edited again.
	for _, f := range slices.Concat(fieldList(s), ledger.ParseFields(s.Value(ledger.KeyIgnored))) {
		if !ownKey(f.Key) {
			o.fields[f.Key] = f.Value
		}
	}
}

// A history is what the journal knows about the sections of tasks.md. It serves
// one plan and is owned by the goroutine that makes it.
type history struct {
	data     []byte  // the journal
	end      int64   // its size
	records  []place // in the order of their seqs
	last     uint64  // highest seq
	through  uint64  // highest seq of those that a compaction has merged or archived; 0 without one
	restored uint64  // highest seq of those that a restore has taken back, and its own; 0 without one
	edited   map[uint64]*origin
	hand     map[string][]*origin // sections without seq and copies by kind and id, in the order in which they were adopted
	names    map[string]*origin   // the same by name
	times    map[string]int       // how many sections of equal text were adopted, by that digest
	adopted  map[string][]*origin // the same by the digest of what was last seen
	known    map[string]bool      // what has tells; nil until somebody asks
}

// A place is where in the journal a record stands.
type place struct {
	seq uint64
	off int64
}

// newHistory scans the bytes of a journal.
func newHistory(data []byte) *history {
	h := &history{
		data: data, end: int64(len(data)),
		edited: map[uint64]*origin{}, hand: map[string][]*origin{}, names: map[string]*origin{},
		times: map[string]int{}, adopted: map[string][]*origin{},
	}
	var adoptions []uint64
	ledger.EachRecord(data, func(s *ledger.Section) {
		if m, ok := mark.In(s); ok && len(h.records) == 0 {
			h.through = m.Through
		}
		if s.Kind == ledger.KindControl && string(s.ID) == mark.Restore {
			h.restored = s.Seq
		}
		h.records = append(h.records, place{s.Seq, s.Off})
		h.last = max(h.last, s.Seq)
		if s.Get(ledger.KeyAdopts) != nil {
			adoptions = append(adoptions, s.Seq)
		}
	})
	slices.SortStableFunc(h.records, func(a, b place) int { return cmp.Compare(a.seq, b.seq) }) // as they are but in what older versions rebuilt
	for _, seq := range adoptions {
		h.adopt(h.section(seq))
	}
	return h
}

// find returns the index of record seq.
func (h *history) find(seq uint64) (int, bool) {
	return slices.BinarySearchFunc(h.records, seq, func(p place, seq uint64) int { return cmp.Compare(p.seq, seq) })
}

// adopt notes a record that was taken over from a person's edit.
func (h *history) adopt(s *ledger.Section) {
	digest, edits := s.Value(ledger.KeyAdopts), s.Value(ledger.KeyEdits)
	seq, isSeq := ledger.ParseUint([]byte(edits))
	var o *origin
	switch {
	case edits == "":
		o = &origin{id: s.Name(), name: digest, first: digest, fields: map[string]string{}}
		if h.times[digest]++; h.times[digest] > 1 { // of equal ones
			o.name = fmt.Sprintf("%s.%d", digest, h.times[digest])
		}
		h.names[o.name] = o
		h.hand[o.id] = append(h.hand[o.id], o)
	case isSeq:
		if o = h.lastSeen(seq); o == nil {
			return
		}
		h.edited[seq] = o
	default:
		if o = h.names[edits]; o == nil {
			return
		}
		list := h.adopted[o.digest] // is not the text that was last seen of it any more
		if i := slices.Index(list, o); i == 0 {
			h.adopted[o.digest] = list[1:] // as a rule, and of many equal ones
		} else if i > 0 {
			h.adopted[o.digest] = slices.Delete(list, i, i+1)
		}
	}
	o.renew(s)
	o.digest = digest
	if !isSeq {
		h.adopted[digest] = append(h.adopted[digest], o)
	}
}

// claim reports whether a section with that digest was adopted before, and counts
// it as found: of equal ones the n-th in the file is the n-th that was adopted.
func (h *history) claim(digest string) bool {
	list := h.adopted[digest]
	if len(list) == 0 {
		return false
	}
	list[0].found = true
	h.adopted[digest] = list[1:]
	return true
}

// lastSeen returns what was last seen of record seq; nil if the journal has none.
func (h *history) lastSeen(seq uint64) *origin {
	if o := h.edited[seq]; o != nil {
		return o
	}
	s := h.section(seq)
	if s == nil {
		return nil
	}
	return &origin{id: s.Name(), name: strconv.FormatUint(seq, 10), fields: fieldsOf(s)}
}

// pristine returns the digest of record seq as it was written; "" if there is none.
func (h *history) pristine(seq uint64) string {
	if s := h.section(seq); s != nil {
		return ledger.Digest(s.Raw)
	}
	return ""
}

// section returns the journal's record seq, or nil.
func (h *history) section(seq uint64) *ledger.Section {
	i, ok := h.find(seq)
	if !ok {
		return nil
	}
	s, _ := ledger.SectionIn(h.data, h.records[i].off) // it was read before
	return s
}

// nameOf returns kind and id of a record, as a view.
func (h *history) nameOf(r place) []byte {
	line, _, _ := bytes.Cut(h.data[r.off:], []byte("\n"))
	return line[len("## "):]
}

// has reports whether the journal has a record of that kind and id.
func (h *history) has(name string) bool {
	if h.known == nil {
		h.known = map[string]bool{}
		for _, r := range h.records {
			h.known[string(h.nameOf(r))] = true
		}
	}
	return h.known[name]
}

// ownKey reports whether a key belongs to the engine: a person's edit cannot set
// it. When a record was written is for its writer to say.
func ownKey(k string) bool {
	return k == ledger.KeyBy || k == ledger.KeyUpdated || ledger.IsEngineKey(k)
}

// fieldList returns the fields of a section that are not the engine's, in order.
func fieldList(s *ledger.Section) []ledger.Pair {
	list := make([]ledger.Pair, 0, len(s.Fields))
	for i := range s.Fields {
		if k := string(s.Fields[i].Key); !ownKey(k) {
			list = append(list, ledger.Pair{Key: k, Value: s.Fields[i].String()})
		}
	}
	return list
}

func fieldsOf(s *ledger.Section) map[string]string {
	m := make(map[string]string, len(s.Fields))
	for _, f := range fieldList(s) {
		m[f.Key] = f.Value
	}
	return m
}
