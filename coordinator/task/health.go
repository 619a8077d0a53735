package task

import (
	"slices"
	"time"

	"stint/state"
)

// Health is what a master says about itself. The coordinator sets all of it but Socket and
// Background, which it is given when it is opened, and HTTP and HTTPError, which it is told.
type Health struct {
	Status     HealthStatus         `json:"status" enum:"failing,ending,paused,ok" doc:"How the master is, in one word" example:"ok"`
	PID        int                  `json:"pid" doc:"Process id of the master" example:"4711"`
	Start      time.Time            `json:"start" doc:"When this master started" example:"2026-11-21T03:12:45.123Z"`
	Version    string               `json:"version" doc:"Version of stint" example:"1.0.0"`
	Socket     string               `json:"socket,omitempty" doc:"Path of its unix socket" example:"/run/user/1000/stint/440131a06c2a1150.sock"`
	StateDir   string               `json:"stateDir" doc:"Absolute path of its state directory" example:"/home/ana/.local/state/stint"`
	Paused     bool                 `json:"paused" doc:"Dispatch is paused: no task starts" example:"false"`
	PauseWhy   string               `json:"pauseWhy,omitempty" doc:"The reason that was given for the pause" example:"release day"`
	Shortage   *Shortage            `json:"shortage,omitempty" doc:"What the machine lacks: until it is back one task at a time is started, at growing intervals; left out: nothing, or no task waits"`
	Counts     map[state.Status]int `json:"counts" doc:"Number of tasks by status" example:"{\"queued\":4,\"running\":1,\"done\":37}"`
	Running    []string             `json:"running,omitempty" doc:"Ids of the tasks that run now" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	Findings   []string             `json:"findings,omitempty" doc:"What could not be read in the ledger, with file and line" example:"tasks.md:812: unknown status"`
	LastError  string               `json:"lastError,omitempty" doc:"The last error that was not a task's own" example:"tasks.md could not be synced"`
	Background bool                 `json:"background" doc:"It was started by a client, and exits when idle" example:"false"`
	APIEnabled bool                 `json:"api_enabled" doc:"It listens on TCP" example:"true"`
	HTTP       string               `json:"http,omitempty" doc:"Its address there" example:"127.0.0.1:7433"`
	HTTPError  string               `json:"httpError,omitempty" doc:"Why it does not listen there although it should" example:"127.0.0.1:7433 is in use"`
	Postgres   *MirrorStatus        `json:"postgres,omitempty" doc:"State of the Postgres mirror; left out: none is configured"`
}

// A Shortage is something that the machine lacks, which keeps tasks from being started.
type Shortage struct {
	What  string    `json:"what" doc:"What is lacking" example:"no inodes are left on the disk of /home/ana/.local/state/stint"`
	Since time.Time `json:"since" doc:"When it was met first" example:"2026-11-21T03:12:45.123Z"`
	Next  time.Time `json:"next,omitzero" doc:"When one task finds out whether it is over; left out: one is doing so" example:"2026-11-21T03:13:17.123Z"`
}

// A HealthStatus says in one word how a master is. The set is closed; of several that fit, it is the first.
type HealthStatus string

// The statuses of a master.
const (
	HealthFailing HealthStatus = "failing" // its disk is full or has failed: it accepts no tasks
	HealthEnding  HealthStatus = "ending"  // it makes room for another one, or shuts down: it starts no tasks
	HealthPaused  HealthStatus = "paused"  // it accepts tasks, and starts none until stint resume
	HealthOK      HealthStatus = "ok"      // it accepts tasks and starts them
)

// A MirrorStatus says how far a mirror of the ledger in a database is.
type MirrorStatus struct {
	Target     string      `json:"target" doc:"Database, host and port; no user and no password" example:"cli_worker on db.example:5432"`
	State      MirrorState `json:"state" enum:"connecting,rebuilding,following,failing" doc:"What the mirror does now" example:"following"`
	Seq        uint64      `json:"seq" doc:"All records up to this one are in the mirror" example:"1042"`
	LagRecords uint64      `json:"lagRecords" doc:"Records that are not" example:"0"`
	LagSeconds float64     `json:"lagSeconds" doc:"How long the oldest of them has waited; 0: there is none" example:"0"`
	Rows       uint64      `json:"rows" doc:"Rows written since this master began" example:"380"`
	Failures   uint64      `json:"failures" doc:"Batches and connections that failed since then" example:"0"`
	LastError  string      `json:"lastError,omitempty" doc:"The last failure; kept when it is over" example:"connection refused"`
	ErrorAt    time.Time   `json:"errorAt,omitzero" doc:"When it failed last" example:"2026-11-21T03:15:09.482Z"`
	Warning    string      `json:"warning,omitempty" doc:"What a person should look at though the mirror goes on, such as clocks that differ" example:"the clocks differ by 3s"`
	Skipped    []string    `json:"skipped,omitempty" doc:"Tasks that the database did not take, with the reason: a few of them" example:"task x: its prompt is too long"`
}

// A MirrorState is how a mirror stands. The set is closed.
type MirrorState string

// The states of a mirror.
const (
	MirrorConnecting MirrorState = "connecting" // for the first time
	MirrorRebuilding MirrorState = "rebuilding" // all tasks are written
	MirrorFollowing  MirrorState = "following"  // what is new is written
	MirrorFailing    MirrorState = "failing"    // the database cannot be used; LastError says why, and it is tried again
)

// Metrics say how a master stands and what it has counted since it began. No text of a user is in them: agents and accounts are
// those of the configuration, models the first few that were seen, reasons those of the closed set, and all others are [Other].
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

// Counted is what a master has counted since it began, without what it has read again at the start.
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
