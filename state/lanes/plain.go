package lanes

import (
	"maps"
	"slices"
	"strings"

	"stint/ledger"
	"stint/ledger/plain"
	"stint/state"
)

// Code writes the queues as plain bytes, or reads them into queues without a task. A task that has not ended comes as if its
// last record had just been folded, sessions and controls by what compaction writes of them.
func (s *Queues) Code(c *plain.Coder) {
	defer s.PackAll() // so that both go on alike
	packed, live := map[uint32]string{}, slices.Sorted(maps.Keys(s.live))
	for _, n := range live {
		packed[n] = s.Packed(&s.live[n].Body) // which may give numbers to words
	}
	s.Tasks.Code(c)
	plain.List(c, &live, func(n *uint32) {
		if plain.Numbers(c, n); c.Reads {
			s.Revive(*n)
		}
		l, text := s.live[*n], packed[*n]
		plain.Numbers(c, &l.since)
		if c.Texts(&text); c.Reads {
			l.status = state.Queued.Index() // as one that has waited it keeps since
			s.Set(l, new(state.Folded), s.Unpacked(*n, text), true)
		}
	})
	sessions, controls := strings.Join(s.CarriedSessions(), "\n"), ""
	for _, r := range s.ControlRecords() {
		r.Seq = 1
		raw, _ := ledger.AppendRecord(nil, &r) // what was a record before can be one
		controls += string(raw)
	}
	if c.Texts(&sessions, &controls); c.Reads {
		lines, _ := state.ParseLines("session", sessions, func(m map[string]string) (map[string]string, error) { return m, nil })
		s.SetSessions(lines)
		for _, sec := range ledger.Parse([]byte(controls)).Sections {
			_ = s.ApplyControl(&sec) // nor can it be refused
		}
	}
	plain.Map(c, s.homes, func(key *uint32, h *home) { plain.Numbers(c, key, &h.n, &h.dir, &h.by) })
	plain.Map(c, s.ran, func(agent *string, has *bool) { c.Texts(agent); c.Flags(has) })
}
