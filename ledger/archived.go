package ledger

import "time"

// An ArchiveEntry is what the index of the archive has of a task that was moved
// out: what is needed of it every day, and where all of it stands.
type ArchiveEntry struct {
	ID        string    `json:"id,omitempty"`
	Status    string    `json:"status,omitempty"`   // its last one
	Key       string    `json:"key,omitempty"`      // idempotency key; "" if it has none
	Parent    string    `json:"parent,omitempty"`   // the task that has queued it; "" if none has
	Trigger   string    `json:"trigger,omitempty"`  // why that has
	UpdatedAt time.Time `json:"updatedAt,omitzero"` // of its last record; zero if it has none
	Runs      *string   `json:"runs,omitempty"`     // what its runs used, as in its record; nil in an index of before, or one made anew: not known
	File      string    `json:"file,omitempty"`     // base name of the file in archive/
	Off       int64     `json:"off,omitempty"`      // offset of its record there
}

// Keep makes the records that the journal is to hold after a compaction: tasks first and oldest first.
type Keep []func() (Record, error)

// Add adds records that are in memory.
func (k *Keep) Add(records ...Record) {
	for _, r := range records {
		*k = append(*k, func() (Record, error) { return r, nil })
	}
}

// A CompactReport says what a compaction did, or would do. Sizes are in bytes.
type CompactReport struct {
	Before   int64  `json:"before" doc:"Size of the journal in bytes" example:"1048576"`
	After    int64  `json:"after" doc:"Its size afterwards; the same if there was nothing to do" example:"65536"`
	Merged   int    `json:"merged" doc:"Records that are left" example:"42"`
	Archived int    `json:"archived" doc:"Tasks that were moved to the archive" example:"310"`
	Archive  string `json:"archive,omitempty" doc:"File below archive/ that has them; left out: there was nothing to do" example:"tasks-2026-11.md"`
}

// Moved is a task that goes to the archive: all that its records say, in one.
type Moved struct {
	Record Record
	Entry  ArchiveEntry // File and Off are given by the log
}

// KeyArchived stands in the record of a task that compaction has moved out: when that was. It is no field of the task.
const KeyArchived = "archivedAt"
