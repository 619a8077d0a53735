package table

import "stint/state"

// A Body is all of a task that has not ended. Of one that runs, or comes after many, it is the task itself; of any
// other it is a few bytes, beside what [Entry] has of it.
type Body struct {
	N      uint32        // in Tasks.Entries; the age of the task
	whole  *state.Folded // or nil
	packed string        // the rest of it, while that is nil
}

// IsEmpty reports whether nothing was put there.
func (b *Body) IsEmpty() bool { return b.whole == nil && b.packed == "" }

// manyAfter is how many tasks one may come after, and still be packed: who looks for circles
// asks for them again and again.
const manyAfter = 64

// Put keeps what is not noted elsewhere of a task that has not ended.
func (s *Tasks) Put(b *Body, t *state.Folded) {
	switch {
	case t.Status != state.Running && len(t.After) <= manyAfter:
		s.LetGo(b)
		b.packed = s.packer.pack(t)
		return
	case b.whole == nil:
		b.whole = s.wholes.Take()
	}
	*b.whole, b.packed = *t, ""
}

// LetGo ends that the task is held as a whole.
func (s *Tasks) LetGo(b *Body) {
	if b.whole != nil {
		*b.whole = state.Folded{}
		s.wholes.Give(b.whole)
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
