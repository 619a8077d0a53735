package task

import (
	"slices"
	"time"

	"stint/state"
)

// Metrics say how a master stands and what it has counted since it began. No text of a
// user is in them: agents and accounts are those of the configuration, models the first
// few that were seen, reasons those of the closed set, and all others are [Other].
type Metrics struct {
	Start   time.Time // when this master began
	Version string

	Tasks       map[state.Status]int // by status; a status that no task has is left out
	Held        int                  // queued tasks on hold
	OldestWait  time.Duration        // how long the task waits for its turn that waits longest; 0: none does
	MaxWorkers  int                  // tasks that may run at the same time
	MaxQueued   int                  // tasks that may wait; 0: no bound
	Paused      bool                 // dispatch is
	Accounts    []AccountMetrics     // by name
	Findings    int                  // in the ledger
	JournalSize int64                // bytes
	Mirror      *MirrorStatus        // of the mirror in a database; nil: none is configured

	Counted
}

// AccountMetrics say whether an account may be used.
type AccountMetrics struct {
	Name    string
	Held    bool // on hold: a person must fix something
	Cooling bool // it has met a rate limit, and nothing of it starts
}

// Counted is what a master has counted since it began. What was there before, and is
// read again at the start, is not in it.
type Counted struct {
	Added      uint64                  // tasks that came in
	Outcomes   map[Ending]uint64       // tasks that ended
	Retries    map[Retry]uint64        // runs after which the task was queued again
	RateLimits map[string]uint64       // runs that met a rate limit, by account
	Usage      map[Spender]state.Usage // by the agent that the task had when it was recorded
	Commits    Histogram               // records of each write to the journal
	Sync       Histogram               // seconds of each fdatasync
	Append     Histogram               // seconds that each change waited until it was durable
	Failures   uint64                  // writes to the journal of which nothing was kept
}

// An Ending is how a task ended.
type Ending struct {
	Status state.Status
	Reason string // a class, Other, or "" for none
}

// A Retry says why a task was queued again after a run.
type Retry string

// The kinds of retries.
const (
	RetryAttempt     Retry = "attempt"     // the run failed, which spent an attempt
	RetryInterrupted Retry = "interrupted" // by us: a shutdown, a crash, a shortage
	RetrySession     Retry = "session"     // the agent's session was lost; a new one was begun
)

// A Spender is who uses tokens.
type Spender struct{ Agent, Model string } // Model is "" if it is the CLI's own choice

// Other stands for all names that are not known, or too many.
const Other = "other"

// A Histogram counts values by size. It is not safe for concurrent use.
type Histogram struct {
	Bounds []float64 // of the buckets, each the largest value in it, ascending; never changed
	Counts []uint64  // by bucket, and last those above all bounds
	Sum    float64   // of all values
}

// NewHistogram returns a histogram with these buckets.
func NewHistogram(bounds []float64) Histogram {
	return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

// Observe counts a value.
func (h *Histogram) Observe(v float64) {
	i, _ := slices.BinarySearch(h.Bounds, v)
	h.Counts[i]++
	h.Sum += v
}

// Clone returns a copy that counts on its own.
func (h *Histogram) Clone() Histogram {
	return Histogram{Bounds: h.Bounds, Counts: slices.Clone(h.Counts), Sum: h.Sum}
}
