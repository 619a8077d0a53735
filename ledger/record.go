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
	KeyBy     = "by"     // who caused the record: ByHand, ByClient, ByAgent; without it the master
	KeyAdopts = "adopts" // digest of the section that an adopted edit was read from
	KeyEdits  = "edits"  // what was edited: the seq of a record, or the name of a section that was adopted before

	KeyUpdated = "updatedAt" // when the record was written; its writer sets it
	KeyCopies  = "copies"    // seq of the record whose section a person copied
	KeyIgnored = "ignored"   // fields of the adopted section that have no effect, as they stand there

	KeyUnedited = "unedited" // in the first adoption of an edit of a record: its fields as they were written
)

// IsEngineKey reports whether a key says how a record came into the ledger, and nothing about what it is a record of.
func IsEngineKey(key string) bool {
	switch key {
	case KeySeq, KeyAdopts, KeyEdits, KeyCopies, KeyIgnored, KeyUnedited, KeyArchived:
		return true
	}
	return false
}

// Values of KeyBy. A record without the key is the master's own.
const (
	ByHand   = "hand"   // adopted from a person's edit
	ByClient = "client" // asked for by a command or a request
	ByWorker = "worker" // a worker of the shared queue has lost, or given back, what it is the twin of
	ByAgent  = "agent"  // asked for by what a run has started
)

// A Pair is one field of a record to be written. An empty Value unsets the key.
type Pair struct {
	Key, Value string
}

// A Record is one section of the ledger as it is handed to the log: what is to be written. What was read is a [Section].
type Record struct {
	Kind   Kind
	ID     string
	Seq    uint64 // given by the log; 0 until then
	Fields []Pair
}

// Get returns the last value of key, and whether the record names the key.
func (r *Record) Get(key string) (string, bool) {
	for _, f := range slices.Backward(r.Fields) {
		if f.Key == key {
			return f.Value, true
		}
	}
	return "", false
}

// Add appends a field. It returns the record, so that calls can be chained.
func (r *Record) Add(key, value string) *Record {
	r.Fields = append(r.Fields, Pair{key, value})
	return r
}

// Set adds fields in the place of those of the same keys.
func (r *Record) Set(fields ...Pair) {
	for _, f := range fields {
		r.Fields = slices.DeleteFunc(r.Fields, func(old Pair) bool { return old.Key == f.Key })
	}
	r.Fields = append(r.Fields, fields...)
}

// AddIf appends a field unless its value is empty.
func (r *Record) AddIf(key, value string) *Record {
	return r.AddWhen(value != "", key, value)
}

// AddWhen appends a field if that is to be.
func (r *Record) AddWhen(is bool, key, value string) *Record {
	if is {
		r.Add(key, value)
	}
	return r
}

// Name returns kind and id, as the heading has them.
func (r *Record) Name() string { return string(r.Kind) + " " + r.ID }
