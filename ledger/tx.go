package ledger

import "slices"

// A Tx collects the records of one change. They become durable together: after a crash all of them are there or none.
type Tx struct {
	Records []Record // what was appended, to be numbered and written
	Claims  []string // what was claimed
	Counted int      // what this change has counted
	ahead   int      // sum of what the changes before it in the batch count
}

// Grow makes room for n records.
func (tx *Tx) Grow(n int) {
	tx.Records, tx.Claims = slices.Grow(tx.Records, n), slices.Grow(tx.Claims, n)
}

// Append adds a record. Its Seq is given by the log.
func (tx *Tx) Append(r *Record) {
	tx.Records = append(tx.Records, *r)
	tx.Claim(string(r.Kind) + " " + r.ID)
}

// Size returns about how many bytes the records have when they are written.
func (tx *Tx) Size() (n int) {
	for i := range tx.Records {
		n += 100 + len(tx.Records[i].ID)
		for _, f := range tx.Records[i].Fields {
			n += len(f.Key) + len(f.Value) + len("- : \n")
		}
	}
	return n
}

// Merge adds all that another change has collected.
func (tx *Tx) Merge(other *Tx) {
	tx.Records = append(tx.Records, other.Records...)
	tx.Claims = append(tx.Claims, other.Claims...)
	tx.Counted += other.Counted
}

// Count adds n to what the changes that follow in the same batch are told by
// [Tx.Ahead]: the fold does not know of this one when they are made.
func (tx *Tx) Count(n int) { tx.Counted += n }

// Ahead returns the sum of what the changes before this one in its batch have counted.
func (tx *Tx) Ahead() int { return tx.ahead }

// Claim names something that this change decided upon, such as an idempotency key. Two changes that claim the same never share
// a batch: the second is asked again when the first has been applied. Each record claims its own id.
func (tx *Tx) Claim(what string) { tx.Claims = append(tx.Claims, what) }

// Reset makes tx empty, for a change that is asked for its records anew behind others of its batch that have counted ahead.
func (tx *Tx) Reset(ahead int) {
	tx.Records, tx.Claims = tx.Records[:0], tx.Claims[:0]
	tx.ahead, tx.Counted = ahead, 0
}
