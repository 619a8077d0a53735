package ledger

import (
	"cmp"
	"maps"
	"slices"
)

// Originals has, by the seq of a record whose section a person has edited, the fields that
// the edits named, as the record was written with them; nil for a field that it did not have.
type Originals map[uint64]map[string]*string

// Originals returns what the adoptions in d know of records that were edited. Without it a
// journal that is made anew of tasks.md would have an edit at the place of the record, and
// not where it was taken over: what happened in between might then be impossible.
func (d *Document) Originals() Originals {
	var adoptions []*Section
	for i := range d.Sections {
		if s := &d.Sections[i]; s.Seq > 0 && s.Get(KeyWas) != nil {
			adoptions = append(adoptions, s)
		}
	}
	slices.SortStableFunc(adoptions, func(a, b *Section) int { return cmp.Compare(a.Seq, b.Seq) })
	o := Originals{}
	for _, s := range adoptions {
		seq, isSeq := ParseUint([]byte(s.Value(KeyEdits)))
		if !isSeq {
			continue
		}
		was, r := map[string]*string{}, s.Record()
		for _, f := range ParseFields(s.Value(KeyWas)) {
			was[f.Key] = &f.Value
		}
		if o[seq] == nil {
			o[seq] = map[string]*string{}
		}
		for _, f := range slices.Concat(r.Fields, ParseFields(s.Value(KeyIgnored))) {
			if _, earlier := o[seq][f.Key]; !earlier && f.Key != KeyBy && f.Key != KeyUpdated && !IsEngineKey(f.Key) {
				o[seq][f.Key] = was[f.Key]
			}
		}
	}
	return o
}

// Record returns the record of a section as it was written, as far as that is known, and
// whether the section differs from it.
func (o Originals) Record(s *Section) (r Record, edited bool) {
	r = s.Record()
	stands := slices.Clone(r.Fields)
	for _, key := range slices.Sorted(maps.Keys(o[s.Seq])) {
		was := o[s.Seq][key]
		i := slices.IndexFunc(r.Fields, func(f Pair) bool { return f.Key == key })
		switch {
		case was == nil:
			r.Fields = slices.DeleteFunc(r.Fields, func(f Pair) bool { return f.Key == key })
		case i < 0:
			r.Add(key, *was)
		default:
			r.Fields[i].Value = *was
		}
	}
	return r, !slices.Equal(r.Fields, stands)
}
