package table

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"stint/ledger/plain"
	"stint/state"
)

// A Body is all of a task that has not ended. Of one that runs, comes after many, or was put there just now, it is
// the task itself; of any other it is a few bytes, beside what [Entry] has of it.
type Body struct {
	N      uint32        // in Tasks.Entries; the age of the task
	at     uint32        // in Tasks.fresh, if it is there
	whole  *state.Folded // or nil
	packed string        // the rest of it, while that is nil
}

// IsEmpty reports whether nothing was put there.
func (b *Body) IsEmpty() bool { return b.whole == nil && b.packed == "" }

// manyAfter is how many tasks one may come after, and still be packed: who looks for circles asks for them again and again.
const manyAfter = 64

// packs reports whether a few bytes are kept of the task.
func packs(t *state.Folded) bool { return t.Status != state.Running && len(t.After) <= manyAfter }

// Put keeps what is not noted elsewhere of a task that has not ended. It is packed when others have come: the next
// record of many a task follows soon.
func (s *Tasks) Put(b *Body, t *state.Folded) {
	if b.whole == nil {
		b.whole = s.wholes.Take()
	}
	*b.whole, b.packed = *t, ""
	if b.whole.ID = ""; !packs(t) || s.fresh[b.at] == b { // a task that was read has its id
		return
	}
	s.packNext()
	s.fresh[s.turn], b.at = b, s.turn
}

// packNext packs the task that waits longest for that.
func (s *Tasks) packNext() {
	s.turn = (s.turn + 1) % uint32(len(s.fresh))
	if old := s.fresh[s.turn]; old != nil && packs(old.whole) {
		old.packed = s.packer.pack(old.whole)
		s.LetGo(old)
	}
	s.fresh[s.turn] = nil
}

// PackAll packs all that can be.
func (s *Tasks) PackAll() {
	for range s.fresh {
		s.packNext()
	}
}

// LetGo ends that the task is held as a whole.
func (s *Tasks) LetGo(b *Body) {
	if b.whole != nil {
		*b.whole = state.Folded{}
		s.wholes.Give(b.whole)
	}
	if s.fresh[b.at] == b {
		s.fresh[b.at] = nil
	}
	b.whole = nil
}

// Whole returns the task, which is not to be changed.
func (s *Tasks) Whole(b *Body) *state.Folded {
	if b.whole != nil {
		return b.whole
	}
	t := new(state.Folded)
	s.WholeInto(b, t)
	return t
}

// WholeInto is Whole that writes the task into t.
func (s *Tasks) WholeInto(b *Body, t *state.Folded) {
	if b.whole != nil {
		*t = *b.whole
		return
	}
	e := s.Entries.At(b.N)
	tag := s.Tags.List[e.Tags]
	*t = state.Folded{}
	t.Status, t.SessionKey = e.Status(), s.KeyOf(b.N, e)
	t.Label, t.TenantID, t.Queue, t.Agent = tag.Label, tag.Tenant, tag.Queue, tag.Agent
	s.packer.unpack(b.packed, t)
	t.AgentSession = t.Native(t.Agent)
}

// Packed returns the few bytes of a task that has not ended, and Unpacked the task again.
func (s *Tasks) Packed(b *Body) string { return s.packer.pack(s.Whole(b)) }

// Unpacked is the inverse of Packed.
func (s *Tasks) Unpacked(n uint32, packed string) *state.Folded {
	return s.Whole(&Body{N: n, packed: packed})
}

// SessionID returns the id of stint's session that the task names.
func (s *Tasks) SessionID(b *Body) string {
	if b.whole != nil {
		return b.whole.SessionID
	}
	return s.packer.sessionID(b.packed)
}

// MaxSpare bounds the memory that is kept for values to come.
const MaxSpare = 256

// Spares keeps the memory of some values that are not used any more.
type Spares[T any] []*T

// Take returns such a value as it was given, or a new one.
func (p *Spares[T]) Take() *T {
	i := len(*p) - 1
	if i < 0 {
		return new(T)
	}
	x := (*p)[i]
	*p = (*p)[:i]
	return x
}

// Give adds a value that is not used any more.
func (p *Spares[T]) Give(x *T) {
	if len(*p) < MaxSpare {
		*p = append(*p, x)
	}
}

// A packer turns a task that has not ended into a few bytes, and back. One list of
// fields serves both ways: which of them are not zero comes first, then their values.
type packer struct {
	plain.Coder
	common Numbering[string] // shared strings, by number
	fields uint64            // those that are not zero, the first one in the lowest bit
	turn   uint64            // the bit of the next one
	memory []byte            // for Bytes
}

// pack returns the bytes of a task. What is noted elsewhere is not among them: id, status
// and session key, and what lists are filtered by.
func (p *packer) pack(t *state.Folded) string {
	p.Reads, p.fields, p.turn, p.Bytes = false, 0, 1, binary.LittleEndian.AppendUint64(p.memory[:0], 0)
	p.task(t)
	p.memory = p.Bytes
	binary.LittleEndian.PutUint64(p.memory, p.fields)
	return string(p.memory)
}

// unpack is the inverse of pack. It leaves alone what is noted elsewhere.
func (p *packer) unpack(packed string, t *state.Folded) {
	p.open(packed)
	p.task(t)
}

func (p *packer) open(packed string) {
	p.memory = append(p.memory[:0], packed...)
	p.Reads, p.fields, p.turn, p.Bytes = true, binary.LittleEndian.Uint64(p.memory), 1, p.memory[8:]
}

// sessionID returns the session id of a task, which is its first field.
func (p *packer) sessionID(packed string) (id string) {
	p.open(packed)
	p.texts(&id)
	return id
}

// task has the fields, those that tasks often have first.
func (p *packer) task(t *state.Folded) {
	p.texts(&t.SessionID)
	p.words(&t.Workspace, &t.Account, &t.Resume)
	p.times(&t.CreatedAt, &t.UpdatedAt)
	numbers(p, &t.Seq)
	numbers(p, &t.PromptAt, &t.Order)
	p.flags(&t.Binds, &t.Hold, &t.WorkspaceByHand, &t.PromptChanged, &t.Learned, &t.Counted, &t.Notify, &t.Pinned, &t.Spare)
	numbers(p, &t.MaxAttempts, &t.Priority, &t.MaxIterations, &t.Attempt, &t.Retries, &t.Requeues, &t.LimitWaits, &t.Iteration)
	p.words(&t.VerifyCommand, &t.Model, &t.By, (*string)(&t.Reason), (*string)(&t.Phase), &t.Timeout, &t.VerifyTimeout, &t.MaxLimitWait, &t.AfterPolicy,
		&t.Within, &t.Isolation, &t.Budget, (*string)(&t.Trigger), &t.Intake, &t.Environment)
	p.texts((*string)(&t.IdempotencyKey), &t.TriggeredBy, &t.RunID, &t.Error, &t.Note, &t.PromptInHistory, &t.VerifyTime, &t.SharedID)
	p.lists(&t.After, &t.Fallback, &t.OutputSpec, &t.Allow)
	p.times(&t.NotBefore, &t.StartedAt, &t.RunStartedAt, &t.LimitSince)
	p.exits(&t.ExitCode, &t.VerifyExitCode)
	p.usages(&t.Usage, &t.Thread)
	items(p, &t.Natives, func(n *state.Native) { p.string(&n.Agent, true); p.string(&n.ID, false) })
	p.changes(&t.Changes)
}

func (p *packer) changes(c **state.Changes) {
	if !p.has(*c == nil) {
		return
	}
	*c = cmp.Or(*c, new(state.Changes))
	numbers(p, &(*c).Files, &(*c).Added, &(*c).Removed)
	p.flags(&(*c).Uncertain)
	p.texts(&(*c).Before, &(*c).After)
	if b := &(*c).Branch; p.has(*b == nil) {
		*b = cmp.Or(*b, new(state.Branch))
		p.string(&(*b).Name, false)
		p.string(&(*b).Tip, false)
		plain.Numbers(&p.Coder, &(*b).Commits, &(*b).Files, &(*b).Added, &(*b).Removed)
	}
}

// has moves on to the next field, and reports whether it is written or read.
func (p *packer) has(zero bool) bool {
	bit := p.turn
	p.turn <<= 1
	if !p.Reads && !zero {
		p.fields |= bit
	}
	return p.fields&bit != 0
}

// numbers is for whole numbers: seldom below zero.
func numbers[T int | int64 | uint64](p *packer, list ...*T) {
	for _, v := range list {
		if p.has(*v == 0) {
			plain.Numbers(&p.Coder, v)
		}
	}
}

func (p *packer) flags(list ...*bool) {
	if p.has(!slices.ContainsFunc(list, func(is *bool) bool { return *is })) {
		p.Flags(list...)
	}
}

func (p *packer) times(list ...*time.Time) {
	for _, t := range list {
		if sec, nsec := t.Unix(), int64(t.Nanosecond()); p.has(t.IsZero()) {
			plain.Numbers(&p.Coder, &sec, &nsec)
			*t = time.Unix(sec, nsec).UTC()
		}
	}
}

func (p *packer) exits(list ...**int) {
	for _, code := range list {
		if p.has(*code == nil) {
			*code = cmp.Or(*code, new(int))
			plain.Numbers(&p.Coder, *code)
		}
	}
}

// usages takes one bit for each: most tasks that have not ended have used nothing.
func (p *packer) usages(list ...*state.Usage) {
	for _, u := range list {
		if p.has(*u == state.Usage{}) {
			CodeUsage(&p.Coder, u)
		}
	}
}

// CodeUsage writes or reads what was used.
func CodeUsage(c *plain.Coder, u *state.Usage) {
	cost := math.Float64bits(u.CostUSD)
	plain.Numbers(c, &u.InputTokens, &u.CachedInputTokens, &u.OutputTokens, &u.ReasoningTokens)
	plain.Numbers(c, &cost)
	u.CostUSD = math.Float64frombits(cost)
}

// items is for a list, which few tasks have.
func items[T any](p *packer, list *[]T, item func(*T)) {
	if p.has(len(*list) == 0) {
		plain.List(&p.Coder, list, item)
	}
}

func (p *packer) lists(lists ...*[]string) {
	for _, list := range lists {
		items(p, list, func(s *string) { p.string(s, false) })
	}
}

// words is for strings that many tasks share, texts for those of this task alone.
func (p *packer) words(list ...*string) { p.strings(list, true) }
func (p *packer) texts(list ...*string) { p.strings(list, false) }

func (p *packer) strings(list []*string, shared bool) {
	for _, s := range list {
		if p.has(*s == "") {
			p.string(s, shared)
		}
	}
}

// The lowest two bits of what a string begins with say how it stands there.
const (
	asWord = 1 + iota // the number of a word
	asText            // its length; itself follows
	asUUID            // its 16 bytes follow
)

// maxWords and maxWordLen bound the words, which are kept for good.
const (
	maxWords   = 16 << 10
	maxWordLen = 256
)

func (p *packer) string(s *string, shared bool) {
	if p.Reads {
		*s = p.read()
		return
	}
	u, isUUID := state.ParseUUID(*s)
	n, known := p.common.Numbers[*s]
	if !known && !isUUID && shared && len(p.common.List) < maxWords && len(*s) <= maxWordLen {
		n, known = p.common.Number(*s), true
	}
	switch head := n<<2 | asWord; {
	case isUUID:
		p.Bytes = append(append(p.Bytes, asUUID), u[:]...)
	case known:
		plain.Numbers(&p.Coder, &head)
	default:
		head = uint32(len(*s))<<2 | asText
		plain.Numbers(&p.Coder, &head)
		p.Bytes = append(p.Bytes, *s...)
	}
}

func (p *packer) read() (s string) {
	var head uint32
	plain.Numbers(&p.Coder, &head)
	n := int(head >> 2)
	switch head & 3 {
	case asWord:
		return p.common.List[n]
	case asUUID:
		var u [16]byte
		p.Raw(u[:])
		return string(state.AppendUUID(make([]byte, 0, 36), u))
	}
	s, p.Bytes = string(p.Bytes[:n]), p.Bytes[n:]
	return s
}
