package fold

import (
	"stint/ledger/plain"
	"stint/state/table"
)

// Code writes the state as plain bytes, or reads it into that of no records: it is then as if it had folded them all. What is
// there for speed alone is left out.
func (s *State) Code(c *plain.Coder) {
	number, text := func(n *uint32) { plain.Numbers(c, n) }, func(s *string) { c.Texts(s) }
	s.Queues.Code(c)
	s.refs.Code(c, func(r *ref) { plain.Numbers(c, &r.off); plain.Numbers(c, &r.prev, &r.runs) })
	s.files.Code(c, text)
	plain.Map(c, s.byKey.whole, func(key *string, n *uint32) { text(key); number(n) })
	plain.Map(c, s.byKey.lists, func(list *string, tasks *[]uint32) { text(list); plain.List(c, tasks, number) })
	for i := range s.counts {
		plain.Numbers(c, &s.counts[i])
	}
	plain.Map(c, s.deleted, func(n *uint32, is *bool) { number(n); c.Flags(is) })
	plain.List(c, &s.revived, number)
	plain.Map(c, s.family.parents, func(n *uint32, p *parent) { number(n); text(&p.id); c.Flags(&p.asked) })
	plain.Map(c, s.family.children, func(id *string, list *[]string) { text(id); plain.List(c, list, text) })
	c.Flags(&s.used.gaps)
	plain.Map(c, s.used.sums, func(of *slot, u *sum) {
		plain.Numbers(c, &of.quarter)
		plain.Numbers(c, &of.session, &of.agent, &of.model, &of.account)
		plain.Numbers(c, &u.runs, &u.tasks)
		table.CodeUsage(c, &u.Usage)
	})
	plain.Numbers(c, &s.recent.seq, &s.recent.since)
	plain.List(c, &s.recent.changes, func(x *change) { plain.Numbers(c, &x.seq); plain.Numbers(c, &x.n, &x.ref) })
}
