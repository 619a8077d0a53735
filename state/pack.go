package state

import (
	"encoding/binary"
	"math"
	"strings"
	"time"
)

// A Packer turns a task that has not ended into a few bytes, and back. One list of
// fields serves both ways: which of them are not zero comes first, then their values.
type Packer struct {
	Words   *Numbering[string] // shared strings, by number
	writing bool
	fields  uint64 // those that are not zero, the first one in the lowest bit
	turn    uint64 // the bit of the next one
	out     []byte
	in      string
}

// Pack returns the bytes of a task. What is noted elsewhere is not among them: id, status
// and session key, and what lists are filtered by.
func (p *Packer) Pack(t *Folded) string {
	p.writing, p.fields, p.turn, p.out = true, 0, 1, p.out[:0]
	p.task(t)
	var head [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(head[:], p.fields)
	var b strings.Builder
	b.Grow(n + len(p.out))
	b.Write(head[:n])
	b.Write(p.out)
	return b.String()
}

// Unpack is the inverse of pack. It leaves alone what is noted elsewhere. The strings
// that few tasks share are pieces of packed.
func (p *Packer) Unpack(packed string, t *Folded) {
	p.open(packed)
	p.task(t)
	p.in = ""
}

func (p *Packer) open(packed string) {
	p.writing, p.turn, p.in = false, 1, packed
	p.fields = p.uvarint()
}

// SessionID returns the session id of a task, which is its first field.
func (p *Packer) SessionID(packed string) (id string) {
	p.open(packed)
	p.text(&id)
	return id
}

// task has the fields, those that tasks often have first.
func (p *Packer) task(t *Folded) {
	p.text(&t.SessionID)
	p.word(&t.Workspace)
	p.word(&t.Account)
	p.word(&t.Resume)
	p.time(&t.CreatedAt)
	p.time(&t.UpdatedAt)
	number(p, &t.Seq)
	number(p, &t.PromptAt)
	isTemp := t.Isolation == IsolationTemp
	if p.flags(&t.placed, &t.Binds, &t.Hold, &t.WorkspaceByHand, &t.PromptChanged, &t.Learned, &t.Counted, &t.Notify, &t.Pinned, &t.Spare, &isTemp); isTemp {
		t.Isolation = IsolationTemp
	}
	p.word(&t.VerifyCommand)
	number(p, &t.MaxAttempts)
	p.text((*string)(&t.IdempotencyKey))
	p.word(&t.Model)
	number(p, &t.Priority)
	p.word(&t.Timeout)
	number(p, &t.Order)
	p.word(&t.AfterPolicy)
	p.time(&t.NotBefore)
	p.word(&t.MaxLimitWait)
	p.list(&t.After)
	p.list(&t.Fallback)
	p.list(&t.OutputSpec)
	p.list(&t.Allow)
	number(p, &t.MaxIterations)
	p.word(&t.VerifyTimeout)
	p.text(&t.TriggeredBy)
	p.word(&t.Within)
	p.word(&t.Budget)
	p.word((*string)(&t.Trigger))
	p.word(&t.Intake)
	p.word(&t.Environment)
	p.text(&t.RunID)
	number(p, &t.Attempt)
	number(p, &t.Retries)
	number(p, &t.Requeues)
	number(p, &t.LimitWaits)
	number(p, &t.Iteration)
	p.word((*string)(&t.Phase))
	p.word((*string)(&t.Reason))
	p.text(&t.Error)
	p.exit(&t.ExitCode)
	p.text(&t.Note)
	p.word(&t.By)
	p.time(&t.StartedAt)
	p.time(&t.RunStartedAt)
	p.time(&t.LimitSince)
	p.usage(&t.Usage)
	p.text(&t.PromptInHistory)
	p.exit(&t.VerifyExitCode)
	p.text(&t.VerifyTime)
	items(p, &t.Natives, func(n Native) { p.write(n.Agent, true); p.write(n.ID, false) }, func() Native { return Native{p.read(), p.read()} })
	p.usage(&t.Thread)
	p.changes(&t.Changes)
}

func (p *Packer) changes(c **Changes) {
	switch {
	case !p.has(*c == nil):
		return
	case !p.writing:
		*c = new(Changes)
	}
	for _, n := range []*int{&(*c).Files, &(*c).Added, &(*c).Removed} {
		number(p, n)
	}
	p.flags(&(*c).Uncertain)
	p.text(&(*c).Before)
	p.text(&(*c).After)
}

// has moves on to the next field, and reports whether it is written or read.
func (p *Packer) has(zero bool) bool {
	bit := p.turn
	p.turn <<= 1
	if p.writing && !zero {
		p.fields |= bit
	}
	return p.fields&bit != 0
}

func (p *Packer) put(v uint64) { p.out = binary.AppendUvarint(p.out, v) }

func (p *Packer) uvarint() (v uint64) {
	for shift := 0; ; shift += 7 {
		c := p.in[0]
		p.in = p.in[1:]
		if v |= uint64(c&0x7f) << shift; c < 0x80 {
			return v
		}
	}
}

// number is for whole numbers: seldom below zero.
func number[T int | int64 | uint64 | uint8](p *Packer, v *T) {
	switch {
	case !p.has(*v == 0):
	case p.writing:
		p.put(uint64(*v))
	default:
		*v = T(p.uvarint())
	}
}

func (p *Packer) flags(list ...*bool) {
	var bits uint64
	for i, b := range list {
		if *b {
			bits |= 1 << i
		}
	}
	number(p, &bits)
	for i, b := range list {
		*b = bits&(1<<i) != 0
	}
}

func (p *Packer) time(t *time.Time) {
	switch {
	case !p.has(t.IsZero()):
	case p.writing:
		p.put(uint64(t.Unix()))
		p.put(uint64(t.Nanosecond()))
	default:
		sec := int64(p.uvarint())
		*t = time.Unix(sec, int64(p.uvarint())).UTC()
	}
}

func (p *Packer) exit(code **int) {
	switch {
	case !p.has(*code == nil):
	case p.writing:
		p.put(uint64(**code))
	default:
		*code = exitCode(int(p.uvarint()))
	}
}

// usage takes one bit: most tasks that have not ended have used nothing.
func (p *Packer) usage(u *Usage) {
	if !p.has(*u == Usage{}) {
		return
	}
	cost := int64(math.Float64bits(u.CostUSD))
	for _, v := range []*int64{&u.InputTokens, &u.CachedInputTokens, &u.OutputTokens, &u.ReasoningTokens, &cost} {
		if p.writing {
			p.put(uint64(*v))
		} else {
			*v = int64(p.uvarint())
		}
	}
	u.CostUSD = math.Float64frombits(uint64(cost))
}

// items is for a list, which few tasks have.
func items[T any](p *Packer, list *[]T, write func(T), read func() T) {
	switch {
	case !p.has(len(*list) == 0):
	case p.writing:
		p.put(uint64(len(*list)))
		for _, x := range *list {
			write(x)
		}
	default:
		*list = make([]T, p.uvarint())
		for i := range *list {
			(*list)[i] = read()
		}
	}
}

func (p *Packer) list(list *[]string) { items(p, list, func(s string) { p.write(s, false) }, p.read) }

// word is for a string that many tasks share, text for one of this task alone.
func (p *Packer) word(s *string) { p.string(s, true) }
func (p *Packer) text(s *string) { p.string(s, false) }

func (p *Packer) string(s *string, shared bool) {
	switch {
	case !p.has(*s == ""):
	case p.writing:
		p.write(*s, shared)
	default:
		*s = p.read()
	}
}

// The lowest two bits of what a string begins with say how it stands there.
const (
	asWord = 1 + iota // the number of a word
	asText            // its length; itself follows
	asUUID            // its 16 bytes follow
)

// maxWords and maxWord bound the words, which are kept for good.
const (
	maxWords   = 16 << 10
	maxWordLen = 256
)

func (p *Packer) write(s string, shared bool) {
	if u, ok := UUIDOf(s); ok {
		p.out = append(append(p.out, asUUID), u[:]...)
		return
	}
	n, known := p.Words.Numbers[s]
	if !known && shared && len(p.Words.List) < maxWords && len(s) <= maxWordLen {
		n, known = p.Words.Number(s), true
	}
	if known {
		p.put(uint64(n)<<2 | asWord)
	} else {
		p.put(uint64(len(s))<<2 | asText)
		p.out = append(p.out, s...)
	}
}

func (p *Packer) read() (s string) {
	head := p.uvarint()
	n := int(head >> 2)
	switch head & 3 {
	case asWord:
		return p.Words.List[n]
	case asUUID:
		var u [16]byte
		n = copy(u[:], p.in)
		s = string(AppendUUID(make([]byte, 0, 36), u))
	default:
		s = p.in[:n]
	}
	p.in = p.in[n:]
	return s
}
