package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"stint/ledger"
)

// An adoption is the record that takes over how a section differs from what was last seen of it.
type adoption struct {
	change
	section *ledger.Section
	name    string // kind and id of the record
	record  ledger.Record
	encoded *ledger.Section
	text    string        // what was taken over, in a few words; "": nothing that has an effect
	ignored []ledger.Pair // what stands in the section without an effect
	real    int           // fields that a person has changed, with those that have no effect
	stale   bool          // some fields are as they were before an edit that is in force
	guarded bool          // one of the changed fields is a guarded key
	notices []ledger.Notice

	unedited *ledger.Record // the record, if the section says something else for the first time
}

func newAdoption(c change, s *ledger.Section) *adoption {
	a := &adoption{change: c, section: s, name: s.Name()}
	if c.origin != nil {
		a.name = c.origin.id
	}
	return a
}

// makeRecord makes the record but for what is ignored. It reports whether there is one: not if there is nothing to take over:
// only blanks or line ends differ.
func (a *adoption) makeRecord(file string) bool {
	if a.origin != nil && a.real == 0 && len(a.ignored) == 0 {
		if a.unedited == nil {
			return false
		}
		a.notices = append(a.notices, ledger.Notice{Text: fmt.Sprintf("%s:%d: what was changed in %s has no effect: those lines are stint's, or a later one of the same key counts", file, a.section.Line, a.name)})
	}
	fields := a.record.Fields
	a.record = ledger.Record{Kind: a.section.Kind, ID: a.name[len(a.section.Kind)+1:]}
	if a.origin == nil && !a.isOld || a.real > 0 {
		a.record.Add(ledger.KeyBy, ledger.ByHand)
	}
	a.record.Add(ledger.KeyAdopts, a.digest)
	switch {
	case a.origin != nil:
		a.record.Add(ledger.KeyEdits, a.origin.name)
	case a.copyOf > 0:
		a.record.Add(ledger.KeyCopies, strconv.FormatUint(a.copyOf, 10))
	}
	a.record.Fields = append(a.record.Fields, fields...)
	return true
}

// decide takes over what people changed, in the order of the file. One save is
// one change: what a formatter did is quarantined first.
func (p *planner) decide() {
	var list []*adoption
	for _, c := range p.todo {
		if p.ctx.Err() != nil {
			return
		}
		p.resolve(&c)
		a := newAdoption(c, &p.doc.Sections[c.index])
		switch {
		case c.isOld:
			a.ignored = fieldList(a.section)
			a.notices = append(a.notices, ledger.Notice{Text: fmt.Sprintf("%s:%d: %s was taken over before the compaction (an old buffer was saved?) and has no effect again", p.File, a.section.Line, a.name)})
		case c.copyOf > 0:
			if !p.draft(a) {
				continue
			}
		case c.origin != nil:
			p.compare(a, c.origin.since(p.Newest)...)
		default:
			p.compare(a)
		}
		if p.isCutOff(c.index, c.origin) {
			a.ignored = append(a.ignored, a.record.Fields...)
			a.record, a.real, a.guarded = ledger.Record{}, 0, false
			a.notices = append(a.notices, ledger.Notice{Text: fmt.Sprintf("%s:%d: %s is cut off here, as a power cut leaves it; it stays as it was", p.File, a.section.Line, a.name)})
		}
		if o := a.origin; o != nil && o.first == "" && o.digest == "" {
			seq, _ := ledger.ParseUint([]byte(o.name)) // it was formatted before
			if r := p.h.section(seq).Record(); !slices.Equal(r.Fields, a.section.Record().Fields) {
				a.unedited = &r
			}
		}
		if a.makeRecord(p.File) {
			list = append(list, a)
		}
	}
	for _, a := range p.quarantine(list) {
		if p.ctx.Err() != nil {
			return
		}
		p.take(a)
	}
	p.checkTogether()
	for _, a := range p.accepted {
		p.adopt(a)
	}
}

// maxReworded is in how many records one save may change a guarded key before it is quarantined as the work of a formatter.
const maxReworded = 3

// quarantine returns the list without all edits of a save that changes guarded keys of more than
// three records: a formatter has gone over it, and nobody knows what else it has changed.
func (p *planner) quarantine(list []*adoption) []*adoption {
	line, reworded := 0, map[string]bool{}
	for _, a := range list {
		if a.origin != nil && a.guarded {
			line, reworded[a.name] = cmp.Or(line, a.section.Line), true
		}
	}
	if p.Accept || len(reworded) <= maxReworded {
		return list
	}
	p.findingAt(line, "%s changed in one save (a formatter?); quarantined with all that this save edits: stint edit --accept, or undo the change in your editor", ledger.Plural(len(reworded), "task's prompt", "tasks' prompts"))
	return slices.DeleteFunc(list, func(a *adoption) bool {
		if a.origin != nil {
			p.Quarantined++
		}
		return a.origin != nil
	})
}

// resolve finds the section that a new one is a later version of: one of the same id that was adopted, is like it, and is gone
// from the file. Another editor, whose buffer never had that one, may have written something else for the same id.
func (p *planner) resolve(c *change) {
	if c.origin != nil || c.copyOf > 0 || c.isOld {
		return
	}
	s := &p.doc.Sections[c.index]
	now := fieldsOf(s)
	for _, o := range p.h.hand[s.Name()] {
		if o.found {
			continue
		}
		if slices.ContainsFunc(p.named(o.id), func(j int) bool {
			above := &p.doc.Sections[j]
			return j < c.index && above.Seq > 0 && above.Value(ledger.KeyAdopts) == o.first
		}) {
			continue // it stands below the record that took o over: it was written later
		}
		if o.isLike(now) || p.isCutOff(c.index, o) {
			c.origin, o.found = o, true
			return
		}
	}
}

// isLike reports whether a section with those fields can be a later version of o: one
// thing that it says is the same, or it still speaks of all that o spoke of.
func (o *origin) isLike(now map[string]string) bool {
	all := true
	for key, was := range o.fields {
		value, has := now[key]
		if has && value == was {
			return true
		}
		all = all && (has || was == "")
	}
	return all
}

// isCutOff reports whether the i-th section is what a power cut, or a save that did not come to its end, has left of the
// adopted section o: the beginning of it, at the end of the file, without the records that stood behind it.
func (p *planner) isCutOff(i int, o *origin) bool {
	if o == nil || o.first == "" || p.lost == 0 || i < len(p.doc.Sections)-1 {
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

// compare finds the fields that a person has changed. Those that differ only from what was seen of the section last, and are as
// they were seen before, are of an old buffer, which may have been saved before with what a person changed in it.
func (p *planner) compare(a *adoption, seen ...map[string]string) {
	now := fieldsOf(a.section)
	for _, key := range keysIn(a) {
		value, present := now[key]
		// As it was: with that value, or not there, which is as good as empty.
		isSame := func(before map[string]string) bool {
			old, had := before[key]
			return old == value && (had || !present)
		}
		switch {
		case len(seen) > 0 && isSame(seen[len(seen)-1]):
		case slices.ContainsFunc(seen, isSame):
			a.ignored, a.stale = append(a.ignored, ledger.Pair{Key: key, Value: value}), true
		default: // it counts, unless a later section has the last word
			a.real++
			a.guarded = a.guarded || slices.Contains(p.Guarded, key)
			later := p.overriddenBy(a, key)
			if later == nil {
				a.record.Add(key, value)
				continue
			}
			a.ignored = append(a.ignored, ledger.Pair{Key: key, Value: value})
			a.notices = append(a.notices, ledger.Notice{Text: fmt.Sprintf("%s:%d: this %s has no effect: the section in line %d names it later", p.File, a.section.Line, key, later.Line)})
		}
	}
}

// keysIn returns the keys of a section in their order, each once, then those that were last seen in it and are gone.
func keysIn(a *adoption) []string {
	var keys []string
	for _, f := range fieldList(a.section) {
		keys = append(keys, f.Key)
	}
	if a.origin != nil {
		keys = append(keys, slices.Sorted(maps.Keys(a.origin.fields))...)
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(keys, func(key string) bool {
		twice := seen[key]
		seen[key] = true
		return twice
	})
}

// draft makes a section with the seq of another record a draft of its own, with the fields that say what is
// to be done. It reports whether it can: the section has such fields, and its id is new.
func (p *planner) draft(a *adoption) bool {
	i, _ := p.h.find(a.copyOf)
	owner := string(p.h.nameOf(p.h.records[i]))
	if owner == a.name {
		a.name = copyName(a.section)
	}
	for _, key := range keysIn(a) {
		if value := a.section.Value(key); value != "" && (p.KeepOnCopy == nil || p.KeepOnCopy(key)) {
			a.record.Add(key, value)
		}
	}
	if len(a.record.Fields) == 0 || p.h.has(a.name) || p.drafts[a.name] || a.name != a.section.Name() && len(p.named(a.name)) > 0 {
		p.hurt = true
		p.findingAt(a.section.Line, "this section has the seq of record %d, which belongs to %s; put the heading right, or leave the seq and the end line out of what you write", a.copyOf, owner)
		return false
	}
	p.drafts[a.name] = true
	return true
}

// copyName returns the name of a section that was copied without a new id.
func copyName(s *ledger.Section) string {
	const suffix = "-copy"
	return string(s.Kind) + " " + string(s.ID[:min(len(s.ID), ledger.MaxID-len(suffix))]) + suffix
}

// overriddenBy returns the later section that names key for the same record, so that the changed section has no say about it; nil
// if there is none. Records that were taken over from that section itself do not count, nor do, for a section that is new, others
// that people wrote: those below are taken over after it, and what was taken over from one above is older, wherever it stands.
func (p *planner) overriddenBy(a *adoption, key string) *ledger.Section {
	list, o := p.named(a.name), a.origin
	for _, j := range slices.Backward(list) {
		if j <= a.index {
			return nil
		}
		s := &p.doc.Sections[j]
		if s.Get(key) == nil {
			continue
		}
		adopts := s.Value(ledger.KeyAdopts)
		if o != nil {
			if s.Value(ledger.KeyEdits) != o.name && (o.first == "" || adopts != o.first) {
				return s
			}
			continue
		}
		if s.Seq > 0 && !(adopts != "" && slices.ContainsFunc(list, func(k int) bool {
			above := &p.doc.Sections[k]
			return k < a.index && above.Seq == 0 && ledger.Digest(above.Raw) == adopts
		})) {
			return s
		}
	}
	return nil
}

// take accepts a record if the reader of the fold can take it behind those before it.
func (p *planner) take(a *adoption) {
	p.Notices = append(p.Notices, a.notices...)
	if a.stale {
		p.Notices = append(p.Notices, ledger.Notice{Text: fmt.Sprintf("%s:%d: %s is as it was before a later edit of it, which stays in force (an old buffer was saved?)", p.File, a.section.Line, a.name)})
	}
	isNote := a.isOld || a.origin != nil && a.real == 0
	if !isNote {
		a.text = a.what()
	}
	if !isNote && p.implied != nil {
		fields := p.implied(&a.record)
		for _, f := range fields { // what the section says of them has no effect from now on
			if v := a.section.Value(f.Key); v != "" {
				a.ignored = append(a.ignored, ledger.Pair{Key: f.Key, Value: v})
			}
		}
		a.record.Set(fields...)
	}
	var err error
	if a.encoded, err = ledger.Encode(&a.record); err == nil && !isNote && p.check != nil {
		a.encoded.Seq = 0 // it has no number yet, and a finding is not to name one
		err = p.check(a.encoded)
	}
	if err != nil {
		p.refuse(a.section, err)
		return
	}
	p.accepted = append(p.accepted, a)
}

// checkTogether refuses what the reader of the fold cannot take over with the rest of this save.
func (p *planner) checkTogether() {
	for p.CheckBatch != nil {
		var list []*ledger.Section
		for _, a := range p.accepted {
			list = append(list, a.encoded)
		}
		bad := p.CheckBatch(list)
		if len(bad) == 0 {
			return
		}
		all := p.accepted
		p.accepted = nil
		for i, a := range all {
			if bad[i] != nil {
				p.refuse(a.section, bad[i])
			} else {
				p.accepted = append(p.accepted, a)
			}
		}
	}
}

// adopt adds a record to the plan.
func (p *planner) adopt(a *adoption) {
	if a.unedited != nil {
		a.record.Add(ledger.KeyUnedited, ledger.FormatFields(a.unedited.Fields))
	}
	a.record.AddIf(ledger.KeyIgnored, ledger.FormatFields(a.ignored))
	if a.text != "" {
		a.record.Add(ledger.KeyUpdated, ledger.Stamp(p.Now))
		if text := fmt.Sprintf("%s: %s", a.name, a.text); a.copyOf > 0 {
			p.findingAt(a.section.Line, "%s", text)
		} else {
			p.Notices = append(p.Notices, ledger.Notice{Text: fmt.Sprintf("%s:%d: %s", p.File, a.section.Line, text)})
		}
	}
	p.Records = append(p.Records, a.record)
}

// what says in a few words what was taken over.
func (a *adoption) what() string {
	switch {
	case a.origin != nil:
		return "edited by hand: " + strings.Join(a.keys(), ", ")
	case a.copyOf > 0 && a.section.Kind != ledger.KindTask:
		return fmt.Sprintf("copied by hand from record %d", a.copyOf)
	case a.copyOf > 0:
		return fmt.Sprintf("copied by hand from record %d, as a draft; to run it, add \"## %s\" and \"- status: queued\" at the end", a.copyOf, a.name)
	}
	return "written by hand: " + strings.Join(a.keys(), ", ")
}

// keys returns the keys that the record sets.
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
