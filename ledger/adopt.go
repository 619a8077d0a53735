package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// An adoption is the record that takes over how a section differs from what was
// last seen of it.
type adoption struct {
	change
	section *Section
	name    string // kind and id of the record
	renamed string // of a copy: the kind and id in whose place it stands; "": the record copied is still there
	record  Record
	text    string // what was taken over, in a few words; "": nothing that has an effect
	ignored []Pair // what stands in the section without an effect
	real    int    // fields that a person has changed, with those that have no effect
	stale   bool   // some fields are as they were before an edit that is in force
	guarded bool   // one of the changed fields is a guarded key
	notices []Notice
}

func newAdoption(c change, s *Section) *adoption {
	a := &adoption{change: c, section: s, name: nameOf(s)}
	if c.origin != nil {
		a.name = c.origin.id
	}
	return a
}

// finish makes the record but for what is ignored. It gives false if there is nothing to take over:
// only blanks or line ends differ.
func (a *adoption) finish() bool {
	if a.origin != nil && a.real == 0 && len(a.ignored) == 0 {
		return false
	}
	fields := a.record.Fields
	a.record = Record{Kind: a.section.Kind, ID: a.name[len(a.section.Kind)+1:]}
	if a.origin == nil || a.real > 0 {
		a.record.Add(KeyBy, ByHand)
	}
	a.record.Add(KeyAdopts, a.digest)
	switch {
	case a.origin != nil:
		a.record.Add(KeyEdits, a.origin.name)
	case a.copyOf > 0:
		a.record.Add(KeyCopies, strconv.FormatUint(a.copyOf, 10))
	}
	a.record.Fields = append(a.record.Fields, fields...)
	return true
}

// imply adds what the record changes beside what it names, or in its place. What the section says of
// that has no effect from now on, and is no edit when another line of it is edited.
func (a *adoption) imply(fields []Pair) {
	for _, f := range fields {
		if v := a.section.Value(f.Key); v != "" {
			a.ignored = append(a.ignored, Pair{f.Key, v})
		}
	}
	a.record.Set(fields...)
}

// decide takes over what people changed, in the order of the file. One save is
// one change: what a formatter did is held first.
func (p *planner) decide() {
	var list []*adoption
	for _, c := range p.todo {
		if p.ctx.Err() != nil {
			return
		}
		p.resolve(&c)
		a := newAdoption(c, &p.doc.Sections[c.index])
		if c.origin == nil && c.copyOf > 0 && !p.newCopy(a) {
			continue
		}
		base, latest := p.before(a)
		p.compare(a, base, latest)
		if p.isCutOff(c.index, c.origin) {
			a.leave()
		}
		if a.finish() {
			list = append(list, a)
		}
	}
	p.hold(list)
	for _, a := range list {
		if p.ctx.Err() != nil {
			return
		}
		if !p.isHeld(a) {
			p.take(a)
		}
	}
	p.checkTogether()
	for _, a := range p.accepted {
		p.adopt(a)
	}
}

// resolve finds the section that a new one is a later version of: one of the
// same id that was adopted, is like it, and is gone from the file. Another editor,
// whose buffer never had that one, may have written something else for the same id.
func (p *planner) resolve(c *change) {
	if c.origin != nil {
		return
	}
	s := &p.doc.Sections[c.index]
	x := p.alikes(nameOf(s), s)
	best := len(x.origins)
	if best == 0 {
		return
	}
	for _, what := range x.like(s, c.copyOf) {
		list := x.lists[what]
		for len(list) > 0 && (x.origins[list[0]].found || p.isBelowAdoption(c, x.origins[list[0]])) {
			list = list[1:] // it will be so for the sections below too
		}
		if x.lists[what] = list; len(list) > 0 {
			best = min(best, list[0])
		}
	}
	for i := 0; i < best && p.mayBeCutOff(c.index); i++ {
		if o := x.origins[i]; o.copies == c.copyOf && !o.found && p.isCutOff(c.index, o) && !p.isBelowAdoption(c, o) {
			best = i
		}
	}
	if best < len(x.origins) {
		c.origin = x.origins[best]
		c.origin.found = true
	}
}

// An alike has the adopted sections that those of one name may be later versions of.
type alike struct {
	origins []*origin
	lists   map[Pair][]int        // of them, by a field that they have, or by what wholeOf or copiesOf gives
	kinds   map[string][][]string // what keys they have together, by the first of these
}

// alikes gives what section s, and others of its name, may be later versions of.
func (p *planner) alikes(name string, s *Section) *alike {
	x := p.alike[name]
	if x != nil {
		return x
	}
	x = &alike{origins: p.candidates(s)}
	p.alike[name] = x
	if len(x.origins) == 0 {
		return x
	}
	x.lists, x.kinds = map[Pair][]int{}, map[string][][]string{}
	for i, o := range x.origins {
		if o.copies > 0 {
			x.lists[copiesOf(o.copies)] = append(x.lists[copiesOf(o.copies)], i)
			continue
		}
		keys := []string{}
		for key, value := range o.fields {
			x.lists[Pair{key, value}] = append(x.lists[Pair{key, value}], i)
			if value != "" {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		whole, first := wholeOf(keys), strings.Join(keys[:min(1, len(keys))], "")
		if x.lists[whole] == nil {
			x.kinds[first] = append(x.kinds[first], keys)
		}
		x.lists[whole] = append(x.lists[whole], i)
	}
	return x
}

// wholeOf stands for sections that have those keys and no other, copiesOf for those that
// are copies of a record. No field has an empty key.
func wholeOf(keys []string) Pair  { return Pair{"", strings.Join(keys, " ")} }
func copiesOf(record uint64) Pair { return Pair{"", "#" + strconv.FormatUint(record, 10)} }

// like gives what a section that s can be a later version of has in the lists: one
// thing that s says is the same, or s still speaks of all that it spoke of. A copy can
// be one of any other of the same record.
func (x *alike) like(s *Section, copyOf uint64) (list []Pair) {
	if copyOf > 0 {
		return []Pair{copiesOf(copyOf)}
	}
	now := fieldsOf(s)
	has := func(key string) bool { _, is := now[key]; return is }
	add := func(first string) {
		for _, keys := range x.kinds[first] {
			if !slices.ContainsFunc(keys, func(key string) bool { return !has(key) }) {
				list = append(list, wholeOf(keys))
			}
		}
	}
	add("")
	for key, value := range now {
		list = append(list, Pair{key, value})
		add(key)
	}
	return list
}

// isCutOff reports whether the i-th section is what a power cut, or a save that did
// not come to its end, has left of the adopted section o: the beginning of it, at
// the end of the file, without the records that stood behind it.
func (p *planner) isCutOff(i int, o *origin) bool {
	if o == nil || o.first == "" || !p.mayBeCutOff(i) {
		return false
	}
	fields := fieldList(&p.doc.Sections[i])
	for n, f := range fields {
		was, had := o.fields[f.Key]
		if !had || !strings.HasPrefix(was, f.Value) || was != f.Value && n < len(fields)-1 {
			return false
		}
	}
	return true
}

func (p *planner) mayBeCutOff(i int) bool { return p.lost > 0 && i == len(p.doc.Sections)-1 }

// leave makes all that the section says differently a thing without an effect.
func (a *adoption) leave() {
	a.ignored = append(a.ignored, a.record.Fields...)
	a.record, a.real, a.guarded = Record{}, 0, false
	a.notices = append(a.notices, Notice{Text: fmt.Sprintf("%s:%d: %s is cut off here, as a power cut leaves it; it stays as it was", TasksName, a.section.Line, a.name)})
}

// candidates gives the adopted sections of that name, and those that were copied from
// under it: a copy under the same id has a name of its own.
func (p *planner) candidates(s *Section) []*origin {
	list := slices.Clip(p.h.hand[nameOf(s)])
	for n := 1; ; n++ {
		more := p.h.hand[string(s.Kind)+" "+copyName(string(s.ID), n)]
		if len(more) == 0 {
			return list
		}
		for _, o := range more {
			if o.copies > 0 {
				list = append(list, o)
			}
		}
	}
}

// isBelowAdoption reports whether a section stands below the record that took o
// over: then it was written later, and is no newer version of o.
func (p *planner) isBelowAdoption(c *change, o *origin) bool {
	if c.copyOf > 0 {
		return false
	}
	record, taken := p.details(o.id).taken[o.first]
	return taken && record < c.index
}

// before gives the fields of the section that its editor had before him, and
// those that are in force, which may be newer.
func (p *planner) before(a *adoption) (base, latest map[string]string) {
	if a.origin == nil {
		return nil, nil
	}
	base, latest = a.origin.seenBy(p.newest), a.origin.fields
	if a.copyOf == 0 {
		return base, latest
	}
	return p.withOriginal(a, base), p.withOriginal(a, latest)
}

// withOriginal adds to the fields of a copy those of the record that it is a copy
// of and that it did not keep.
func (p *planner) withOriginal(a *adoption, fields map[string]string) map[string]string {
	all := map[string]string{}
	if o := p.h.originOf(a.copyOf); o != nil {
		maps.Copy(all, o.fields)
		maps.DeleteFunc(all, func(key, _ string) bool { return p.keeps(key) })
	}
	maps.Copy(all, fields)
	return all
}

// compare finds the fields that differ: from base by the hand of a person, or
// only from what is in force, because the section is from an old buffer, which may
// have been saved before with what a person changed in it.
func (p *planner) compare(a *adoption, base, latest map[string]string) {
	now := fieldsOf(a.section)
	for _, key := range keysIn(a) {
		value, present := now[key]
		switch {
		case same(latest, key, value, present):
		case a.origin == nil && a.copyOf > 0 && !p.keeps(key):
			a.ignored = append(a.ignored, p.unlikeOriginal(a, key, value)...)
		case same(base, key, value, present) || a.origin != nil && a.origin.wasSetAfter(p.newest, key, value):
			a.ignored, a.stale = append(a.ignored, Pair{key, value}), true
		default:
			p.takeField(a, key, value)
		}
	}
}

// keysIn gives the keys of a section in their order, each once, then those that
// were last seen in it and are gone.
func keysIn(a *adoption) []string {
	var keys []string
	seen := map[string]bool{}
	for _, f := range fieldList(a.section) {
		if !seen[f.Key] {
			keys, seen[f.Key] = append(keys, f.Key), true
		}
	}
	if a.origin == nil {
		return keys
	}
	for _, key := range slices.Sorted(maps.Keys(a.origin.fields)) {
		if !seen[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

// same reports whether a field is as it was: with that value, or not there, which
// is as good as empty.
func same(before map[string]string, key, value string, present bool) bool {
	old, had := before[key]
	return old == value && (had || !present)
}

// takeField adds a changed field, unless a later section has the last word.
func (p *planner) takeField(a *adoption, key, value string) {
	a.real++
	a.guarded = a.guarded || slices.Contains(p.opts.Guarded, key)
	if later := p.overriddenBy(a, key); later != nil {
		a.ignored = append(a.ignored, Pair{key, value})
		a.notices = append(a.notices, Notice{Text: fmt.Sprintf("%s:%d: this %s has no effect: the section in line %d names it later", TasksName, a.section.Line, key, later.Line)})
		return
	}
	a.record.Add(key, value)
}

func (p *planner) keeps(key string) bool { return p.opts.Copied == nil || p.opts.Copied(key) }

// unlikeOriginal gives the field if the copied record has another value there: a
// person wrote it before the copy was first seen.
func (p *planner) unlikeOriginal(a *adoption, key, value string) []Pair {
	if o := p.h.originOf(a.copyOf); o != nil && o.fields[key] == value {
		return nil
	}
	return []Pair{{key, value}}
}

// newCopy names the record that a copied section becomes. It gives false if there
// is nothing in it that a copy could keep, or its id is another's already.
func (p *planner) newCopy(a *adoption) bool {
	i, _ := p.h.find(a.copyOf)
	owner := string(p.h.nameOf(p.h.records[i]))
	if owner == a.name {
		a.name = p.freeName(a.section)
	}
	empty := !slices.ContainsFunc(fieldList(a.section), func(f Pair) bool { return p.keeps(f.Key) && f.Value != "" })
	if p.owner[i] < 0 {
		a.renamed = owner
	}
	known := p.h.has(a.name)
	switch {
	case empty && (known || p.isCopiedTo(a.name, a.index)):
		return false
	case empty:
		p.misplaced(a, "record %d belongs to %s, and a copy of it would keep nothing; put the heading right, or take the section out", a.copyOf, owner)
		return false
	case known:
		p.misplaced(a, "record %d belongs to %s, and there is a %s already; put the heading right, or leave the seq line out of a section that you copy", a.copyOf, owner, a.name)
		return false
	}
	return true
}

// misplaced reports a section whose heading or seq must be wrong.
func (p *planner) misplaced(a *adoption, format string, args ...any) {
	p.hurt = true
	p.findingAt(a.section.Line, format, args...)
}

// isCopiedTo reports whether a section before the i-th is a copy to that id that
// this plan takes: what is renamed as a whole stays together.
func (p *planner) isCopiedTo(name string, i int) bool {
	if p.copies == nil {
		p.copies = map[string]int{}
		for _, c := range p.todo {
			if c.copyOf > 0 {
				other := nameOf(&p.doc.Sections[c.index])
				putFirst(p.copies, other, c.index)
				p.copies[other] = min(p.copies[other], c.index)
			}
		}
	}
	first, is := p.copies[name]
	return is && first < i
}

// freeName gives the name of a section that was copied without a new id.
func (p *planner) freeName(s *Section) string {
	for n := p.tried[nameOf(s)] + 1; ; n++ {
		name := string(s.Kind) + " " + copyName(string(s.ID), n)
		if !p.h.has(name) && len(p.named(name).sections) == 0 && !p.taken[name] {
			p.taken[name], p.tried[nameOf(s)] = true, n
			return name
		}
	}
}

// copyName gives id-copy, id-copy2 and so on, cut to the length of an id.
func copyName(id string, n int) string {
	suffix := "-copy"
	if n > 1 {
		suffix = fmt.Sprintf("-copy%d", n)
	}
	return id[:min(len(id), maxID-len(suffix))] + suffix
}

// overriddenBy gives the later section that names key for the same record, so
// that the changed section has no say about it; nil if there is none. Records that
// were taken over from that section itself do not count, nor do, for a section
// that is new, others that people wrote: those below are taken over after it, and
// what was taken over from one above is older, wherever it stands.
func (p *planner) overriddenBy(a *adoption, key string) *Section {
	if n := p.named(a.name); len(n.sections) == 0 || n.sections[len(n.sections)-1] <= a.index {
		return nil
	}
	n, o := p.details(a.name), a.origin
	list := n.last[key]
	if o == nil {
		i, _ := slices.BinarySearchFunc(list, a.index, func(m mention, i int) int { return cmp.Compare(m.above, i) })
		if i < len(list) && list[i].section > a.index {
			return &p.doc.Sections[list[i].section]
		}
		return nil
	}
	for _, m := range slices.Backward(n.byKey[key]) {
		s := &p.doc.Sections[m.section]
		if m.section <= a.index {
			break
		}
		if s.Value(KeyEdits) != o.name && (o.first == "" || s.Value(KeyAdopts) != o.first) {
			return s
		}
	}
	return nil
}

// take accepts a record if the reader of the fold can take it behind those before it.
func (p *planner) take(a *adoption) {
	p.notices = append(p.notices, a.notices...)
	if a.stale {
		p.notices = append(p.notices, Notice{Text: fmt.Sprintf("%s:%d: %s is as it was before a later edit of it, which stays in force (an old buffer was saved?)", TasksName, a.section.Line, a.name)})
	}
	if a.origin != nil && a.real == 0 {
		p.accepted = append(p.accepted, a)
		return
	}
	a.text = a.what()
	if p.implied != nil {
		a.imply(p.implied(&a.record))
	}
	if err := p.checked(&a.record, a.section); err != nil {
		p.finding(err)
		return
	}
	p.accepted = append(p.accepted, a)
}

// checkTogether refuses what the reader of the fold cannot take over with the rest of
// this save.
func (p *planner) checkTogether() {
	if p.opts.Together == nil {
		return
	}
	list := make([]*Section, len(p.accepted))
	for i, a := range p.accepted {
		enc, err := Encode(&a.record)
		if err != nil {
			return // it was encoded before
		}
		list[i] = enc
	}
	for {
		bad := p.opts.Together(list)
		if len(bad) == 0 {
			return
		}
		n := 0
		for i, a := range p.accepted {
			if bad[i] == nil {
				list[n], p.accepted[n] = list[i], a
				n++
				continue
			}
			f := refusedAt(a.section, bad[i])
			f.File = TasksName
			p.finding(f)
		}
		list, p.accepted = list[:n], p.accepted[:n]
	}
}

// adopt adds a record to the plan.
func (p *planner) adopt(a *adoption) {
	a.record.AddIf(KeyIgnored, ignoredText(a.ignored))
	if a.text != "" {
		a.record.Add(keyUpdated, stamp(p.opts.now()))
		p.notices = append(p.notices, Notice{Text: fmt.Sprintf("%s:%d: %s: %s", TasksName, a.section.Line, a.name, a.text)})
	}
	p.records = append(p.records, a.record)
}

// what says in a few words what was taken over.
func (a *adoption) what() string {
	switch {
	case a.origin != nil:
		return "edited by hand: " + strings.Join(a.keys(), ", ")
	case a.copyOf > 0:
		text := fmt.Sprintf("copied by hand from record %d, as a draft; set its status to queued to run it: add \"## %s\" and \"- status: queued\" at the end", a.copyOf, a.name)
		if a.renamed != "" {
			text += fmt.Sprintf("; %s, whose heading this was, is still there and as it was: no task gets another id", a.renamed)
		}
		return text
	}
	return "written by hand"
}

// keys gives the keys that the record sets.
func (a *adoption) keys() []string {
	var keys []string
	for _, f := range a.record.Fields {
		if !ownKey(f.Key) {
			keys = append(keys, f.Key)
		}
	}
	if len(keys) == 0 {
		return []string{"nothing that has an effect"}
	}
	return keys
}
