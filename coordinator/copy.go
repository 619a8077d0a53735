package coordinator

import (
	"time"

	"stint/state"
)

// An Image is one task as a copy of the ledger elsewhere has it.
type Image struct {
	Task     state.Task // whole
	Runs     []TaskRun  // the oldest first
	HoldsKey bool       // of all tasks that name its idempotency key, it is the one that has it
}

// A MirrorStatus says how far a copy of the ledger in a database is.
type MirrorStatus struct {
	Target     string      `json:"target" doc:"Database, host and port; no user and no password"`
	State      MirrorState `json:"state" enum:"connecting,rebuilding,following,failing"`
	Seq        uint64      `json:"seq" doc:"All records up to this one are in the copy"`
	LagRecords uint64      `json:"lagRecords" doc:"Records that are not"`
	LagSeconds float64     `json:"lagSeconds" doc:"How long the oldest of them has waited; 0: there is none"`
	Rows       uint64      `json:"rows" doc:"Rows written since this master began"`
	Failures   uint64      `json:"failures" doc:"Batches and connections that failed since then"`
	LastError  string      `json:"lastError,omitempty" doc:"The last failure; kept when it is over"`
	ErrorAt    time.Time   `json:"errorAt,omitzero"`
	Warning    string      `json:"warning,omitempty" doc:"What a person should look at though the copy goes on, such as clocks that differ"`
	Skipped    []string    `json:"skipped,omitempty" doc:"Tasks that the database did not take, with the reason: a few of them"`
}

// A MirrorState is how a copy stands. The set is closed.
type MirrorState string

// The states of a copy.
const (
	MirrorConnecting MirrorState = "connecting" // for the first time
	MirrorRebuilding MirrorState = "rebuilding" // all tasks are written
	MirrorFollowing  MirrorState = "following"  // what is new is written
	MirrorFailing    MirrorState = "failing"    // the database cannot be used; LastError says why, and it is tried again
)
