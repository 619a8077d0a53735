package ledger

import "slices"

// A Kind is the first word of a record's heading. The engine treats all kinds
// alike; what a kind means is the business of the package that folds it.
type Kind string

// The kinds of record that stint writes.
const (
	KindTask    Kind = "Task"
	KindJob     Kind = "Job"
	KindControl Kind = "Control"
)

// Keys that the engine itself reads. All others belong to the reader of the fold.
const (
	KeySeq    = "seq"    // number of the record, written by stint alone
	KeyBy     = "by"     // who caused the record: "hand" for an adopted edit
	KeyAdopts = "adopts" // digest of the section that an adopted edit was read from
	KeyEdits  = "edits"  // seq of the record whose section was edited, if it had one
)

// ByHand is the value of KeyBy in a record that was adopted from a person's edit.
const ByHand = "hand"

// A Pair is one field of a record to be written. An empty Value unsets the key.
type Pair struct {
	Key, Value string
}

// A Record is one section of the ledger as it is handed to the log: what is
// to be written. What was read is a [Section].
type Record struct {
	Kind   Kind
	ID     string
	Seq    uint64 // given by the log; 0 until then
	Fields []Pair
}

// Get gives the last value of key, and whether the record names the key.
func (r *Record) Get(key string) (string, bool) {
	for _, f := range slices.Backward(r.Fields) {
		if f.Key == key {
			return f.Value, true
		}
	}
	return "", false
}

// Add appends a field. It gives the record back, so that calls can be chained.
func (r *Record) Add(key, value string) *Record {
	r.Fields = append(r.Fields, Pair{key, value})
	return r
}

// AddIf appends a field unless its value is empty.
func (r *Record) AddIf(key, value string) *Record {
	if value != "" {
		r.Add(key, value)
	}
	return r
}
