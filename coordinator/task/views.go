package task

import (
	"fmt"
	"io"
	"slices"
	"time"

	"stint/ledger/durable"
	"stint/memory"
	"stint/state"
)

// TaskFiles are the files that go with a task.
type TaskFiles struct {
	Inputs  []TaskFile `json:"inputs" doc:"Those that came with the task"`
	Outputs []TaskFile `json:"outputs" doc:"Those that were collected after a run, which may be others by now"`
}

// A TaskFile is one file that goes with a task.
type TaskFile struct {
	Name    string `json:"name" doc:"A relative path" example:"report.md"`
	Size    int64  `json:"size" doc:"In bytes" example:"1204"`
	SHA256  string `json:"sha256,omitempty" doc:"Of what was collected, in hex" example:"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"`
	RunID   string `json:"runId,omitempty" doc:"The run in whose directory it lies; none of a file that came with the task" example:"019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee"`
	Problem string `json:"problem,omitempty" doc:"Why it cannot be had" example:"the copy is not kept any more"`
}

// Content is what is in a file that goes with a task. Whoever gets it closes it.
type Content struct {
	io.ReadSeeker
	Modified time.Time // zero if nothing says it
	Close    func() error
}

// A TaskRecord is one task as a mirror of the ledger has it: what its records say, and what is left
// of its runs' files. A compaction changes nothing of it but state.Task.Seq, nor does a move into
// the archive. What changes without a record of the task, FollowUps and Archived, is left empty.
type TaskRecord struct {
	Task     state.Task // whole
	Runs     []TaskRun  // the oldest first
	HoldsKey bool       // of all tasks that name its idempotency key, it is the one that has it
}

// A Finding is something that is wrong in a file of the ledger.
type Finding struct {
	File    string `json:"file" doc:"Name of the file" example:"tasks.md"`
	Line    int    `json:"line" doc:"Line number, from 1; 0: the file as a whole" example:"812"`
	Message string `json:"message" doc:"What is wrong" example:"unknown status \"qeued\"; it is one of draft, queued, running, done, failed, canceled, dead"`
}

// String returns "tasks.md:812: message".
func (f Finding) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// A Reconciled is the report of what taking over tasks.md did, or would do.
type Reconciled struct {
	Notices     []string  `json:"notices" doc:"What a person should know, without the findings" example:"tasks.md:15: Task mine: written by hand: status"`
	Findings    []Finding `json:"findings" doc:"What is wrong in tasks.md now"`
	Adopted     int       `json:"adopted" doc:"Number of records that were made of a person's edits" example:"1"`
	Missing     int       `json:"missing" doc:"Number of records that a stale buffer had dropped and that were appended again" example:"0"`
	Quarantined int       `json:"held" doc:"Number of edits that are quarantined because a formatter may have made them" example:"0"`
}

// A TaskPreview is what would become of a task if it were submitted now and ran next. The
// ids of its run, and of a session that begins, are made anew when it is.
type TaskPreview struct {
	Task    state.Task `json:"task" doc:"The task as it would be queued"`
	Known   bool       `json:"known,omitempty" doc:"The task exists already, under that id or idempotency key: nothing would be queued" example:"false"`
	Session string     `json:"session,omitempty" enum:"new,resume,later" doc:"Whether the agent would start a conversation, resume one, or resume that of a task that has not run yet" example:"resume"`
	Resumes string     `json:"resumes,omitempty" doc:"Id of the conversation that it would resume, as the agent's CLI knows it" example:"01999d1c-5f0b-7c11-b1c4-2a8d0e7c9b31"`
	Ahead   int        `json:"ahead,omitempty" doc:"Tasks of its lane that run, or would run before it" example:"2"`

	Argv   []string    `json:"argv,omitempty" doc:"The command line of the agent" example:"[\"codex\",\"exec\",\"--json\",\"-\"]"`
	Env    []string    `json:"env,omitempty" doc:"Names of the agent's variables" example:"HOME,PATH"`
	Reason state.Class `json:"reason,omitempty" doc:"Why the run could not begin; left out: it could" example:"agent-missing"`
	Error  string      `json:"error,omitempty" doc:"The same in words" example:"codex is not installed"`

	Timeout       string `json:"timeout,omitempty" doc:"Longest run: a Go duration; left out: there is no limit" example:"30m"`
	MaxIterations int    `json:"maxIterations,omitempty" doc:"Most iterations of agent and verify command, if there is a verify command" example:"3"`
	VerifyTimeout string `json:"verifyTimeout,omitempty" doc:"Longest run of the verify command: a Go duration" example:"10m"`

	Memory *memory.Result `json:"memory,omitempty" doc:"What was found in the notes; left out: there is nothing to search"`
	Prompt string         `json:"prompt,omitempty" doc:"What the agent would read on its standard input" example:"## User message\n\nFix the flaky login test."`
}

// How a task gets its session.
const (
	SessionNew    = "new"    // the agent begins one
	SessionResume = "resume" // the agent goes on with one that it has
	SessionLater  = "later"  // it goes on with that of the tasks before it, which have not run yet
)

// A SentPrompt is what an agent was sent in one run of a task, and what was found in the notes for it.
type SentPrompt struct {
	TaskID    string         `json:"taskId" doc:"Id of the task" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	RunID     string         `json:"runId" doc:"Id of the run" example:"019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee"`
	Phase     state.Phase    `json:"phase,omitempty" enum:"evaluate" doc:"evaluate: it is the prompt of an agent that judges the answer" example:"evaluate"`
	Number    int            `json:"number" doc:"Number among the agent's turns, from 1; 0: it is none of them" example:"1"`
	Of        int            `json:"of" doc:"How many turns there are" example:"1"`
	Attempt   int            `json:"attempt,omitempty" doc:"Attempt that it belongs to" example:"1"`
	Iteration int            `json:"iteration,omitempty" doc:"Iteration of the verify loop, from 1" example:"1"`
	SHA256    string         `json:"sha256" doc:"SHA-256 of the prompt, in hex" example:"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"`
	Prompt    string         `json:"prompt,omitempty" doc:"The prompt" example:"## User message\n\nFix the flaky login test."`
	Memory    *memory.Result `json:"memory,omitempty" doc:"What was found in the notes; left out: nothing was searched, found or skipped"`
}

// A TaskRun is one run of a task, with what its agent has used and what is left of its files.
type TaskRun struct {
	RunID     string      `json:"runId" doc:"Id of the run" example:"019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee"`
	Phase     state.Phase `json:"phase,omitempty" enum:"verify,evaluate" doc:"Left out of an agent's turn" example:"verify"`
	Number    int         `json:"number,omitempty" doc:"Among the agent's turns, from 1" example:"1"`
	Attempt   int         `json:"attempt,omitempty" doc:"Attempt that it belongs to" example:"1"`
	Iteration int         `json:"iteration,omitempty" doc:"Iteration of the verify loop, from 1" example:"1"`
	Agent     string      `json:"agent,omitempty" doc:"Agent that ran" example:"codex"`
	Model     string      `json:"model,omitempty" doc:"Model that it used" example:"gpt-5.5"`
	Account   string      `json:"account,omitempty" doc:"Account that it used" example:"codex-main"`
	StartedAt time.Time   `json:"startedAt,omitzero" doc:"When it began" example:"2026-11-21T03:12:45.131Z"`
	EndedAt   time.Time   `json:"endedAt,omitzero" doc:"When it ended; left out: it runs, or the records do not say" example:"2026-11-21T03:15:09.482Z"`
	ExitCode  *int        `json:"exitCode,omitempty" doc:"Of a verify command that was not cut off, where -1 says that it did not end by itself; of the last turn of an attempt, as far as the agent's CLI had one" example:"0"`
	Took      string      `json:"took,omitempty" doc:"How long the verify command took: a Go duration" example:"8.2s"`
	Reason    state.Class `json:"reason,omitempty" doc:"How it failed; left out: it ended well, or is at work" example:"timeout"`
	Usage     state.Usage `json:"usage,omitzero" doc:"What it has used"`
	RunDir    string      `json:"runDir" doc:"Absolute path of its files" example:"/home/ana/.local/state/stint/runs/019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee"`
	Kept      bool        `json:"kept" doc:"The files are still there" example:"true"`
	Stdout    int64       `json:"stdoutBytes" doc:"Length of what it wrote to stdout, as the logs give it" example:"18211"`
	Stderr    int64       `json:"stderrBytes" doc:"Length of what it wrote to stderr" example:"0"`
}

// A UsageQuery chooses runs that have ended, and says how to put them together.
type UsageQuery struct {
	By       string         // run, task, session, agent, model, account or day, or some of these with commas; "": all in one row
	Since    time.Time      // runs that ended then or later; zero: from the first
	Until    time.Time      // runs that ended before; zero: to the last
	Location *time.Location // whose days are meant; nil: UTC
}

// Pruned is what was removed of the files that tasks have left, or would be.
type Pruned struct {
	Removed []Leftover `json:"removed" doc:"What was removed, or would be, the oldest first"`
	Bytes   int64      `json:"bytes" doc:"Room on the disk that all of it took" example:"188416"`
	Left    int64      `json:"left" doc:"Room on the disk that what is left of such files takes" example:"52428800"`
}

// A Leftover is a directory or a file that tasks have left in the state directory.
type Leftover struct {
	Path   string    `json:"path" doc:"Relative to the state directory" example:"runs/019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee"`
	TaskID string    `json:"taskId,omitempty" doc:"Task whose run has left it, where that is known" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	Size   int64     `json:"size" doc:"Room on the disk, in bytes" example:"28672"`
	At     time.Time `json:"at" doc:"When the task ended, or when it last changed if that is later" example:"2026-10-21T03:15:09.482Z"`
}

// A UsageRow is what the runs of one key have used together.
type UsageRow struct {
	Key         string `json:"key,omitempty" doc:"An id, a name, or a day such as 2026-11-21, as the parameter by asks; left out where the task does not say" example:"2026-11-21"`
	Runs        int    `json:"runs" doc:"Number of runs" example:"12"`
	Tasks       int    `json:"tasks" doc:"Number of tasks whose first runs are among them" example:"9"`
	state.Usage        // of these runs
}

// A Place is where in its lane a task is to wait. Exactly one field is set.
type Place struct {
	First  bool   `json:"first,omitempty" doc:"Before all others that wait in its lane" example:"true"`
	Before string `json:"before,omitempty" doc:"Before this task of its lane" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
}

// A MemoryQuery asks what a task with that prompt would get from the notes of a workspace.
type MemoryQuery struct {
	Workspace string `json:"workspace" doc:"Absolute path of a directory" example:"/home/ana/shop"`
	Prompt    string `json:"prompt" doc:"What is searched for: the prompt of a task" example:"Rotate the deploy key"`
	FromRun   string `json:"-"` // the run that the client is part of, "" if none: it is the server's finding
}

// MemoryResult is what a search of notes has found, and why.
type MemoryResult = memory.Result

// ErrFromShared is what the run of a shared task gets that asks for tasks: they would be this machine's alone, beside its leases.
var ErrFromShared = &Error{
	Code: CodeForbidden, Message: "a task of the shared queue may queue no others on the machine that runs it", Hint: "do it in this task, or leave it to the user",
}

// ErrFromRun is what a run gets that asks for more than to queue tasks and to read.
var ErrFromRun = &Error{
	Code: CodeForbidden, Message: "a run may queue tasks and read, not change them, nor use the shared queue",
	Hint: "leave it to the user, who can do it outside of the run",
}

// A Change tells a subscriber that a record of a task was applied. Subscribers get them in the
// order of the ledger, without gaps. All of them share one: it is only to be read.
type Change struct {
	Seq  uint64     `json:"seq" doc:"Number of the record" example:"1042"`
	Task state.Task `json:"task,omitzero" doc:"The task after it. Of a task that has ended it has only the fields by which lists are filtered"`
	// Resync says that tasks may have come to lists or gone from them, or changed, without a record
	// of their own, or with one that was missed: who follows must list anew. There is no Task then.
	Resync bool `json:"resync,omitempty" doc:"It cannot be told what has changed: list anew. There is no task then" example:"false"`
}

// Line returns the change as JSON, in one line with its end.
func (c *Change) Line() ([]byte, error) { return durable.JSONLine(c) }

// A Schedule is what clients see of one.
type Schedule struct {
	Name    string      `json:"name" example:"nightly" doc:"Its name"`
	Cron    string      `json:"cron" example:"0 3 * * *" doc:"When it fires: a cron expression, @daily and the like, or @every and a duration"`
	Zone    string      `json:"zone,omitempty" example:"Europe/Berlin" doc:"Time zone of the expression; left out: the master's"`
	Job     string      `json:"job,omitempty" example:"compact-tasks" doc:"The job of the master's own that it runs"`
	Title   string      `json:"title,omitempty" example:"Update the dependencies" doc:"First line of the prompt of the task that it queues"`
	Overlap string      `json:"overlap" enum:"skip,queue,parallel" example:"skip" doc:"What becomes of a firing while the one before goes on"`
	Missed  string      `json:"missed" enum:"once,skip,all" example:"once" doc:"Which missed firings run later"`
	Most    int         `json:"missedMax" example:"10" doc:"How many at most"`
	Jitter  string      `json:"jitter,omitempty" example:"10m" doc:"Each firing is late by a part of it"`
	Paused  bool        `json:"paused" example:"false" doc:"It does not fire until it is resumed"`
	Origin  string      `json:"origin" example:"schedules.toml:3" doc:"Where it is configured"`
	Next    []time.Time `json:"next" example:"2026-12-01T03:00:00Z" doc:"Instants of the next firings"`
	Open    []time.Time `json:"open" example:"2026-11-30T03:00:00Z" doc:"Instants of the firings that have not ended"`
	Last    *JobRun     `json:"last,omitempty" doc:"The firing that has ended, or was skipped, last"`
}

// Outcomes of a [JobRun].
const (
	RunOK      = "ok"
	RunError   = "error"
	RunSkipped = "skipped"
)

// A JobRun is how a firing of a schedule went: a line of job_runs.jsonl.
type JobRun struct {
	Schedule  string    `json:"schedule" example:"nightly" doc:"Name of the schedule"`
	Scheduled time.Time `json:"scheduled" example:"2026-11-30T03:00:00Z" doc:"The instant for which it was scheduled; of several that were skipped, the last one"`
	Outcome   string    `json:"outcome" enum:"ok,error,skipped" example:"ok" doc:"How it went"`
	Reason    string    `json:"reason,omitempty" example:"missed" doc:"Why it was skipped, or the class of the task's failure"`
	Count     int       `json:"count,omitempty" example:"12" doc:"How many firings this line is about, if not one"`
	Started   time.Time `json:"started,omitzero" example:"2026-11-30T03:00:00.012Z" doc:"When it began"`
	Ended     time.Time `json:"ended" example:"2026-11-30T03:00:12.512Z" doc:"When it had ended"`
	Duration  float64   `json:"duration,omitempty" example:"12.5" doc:"Seconds between the two"`
	Task      string    `json:"task,omitempty" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11" doc:"Id of its task"`
	Detail    string    `json:"detail,omitempty" example:"no findings" doc:"What a job has done, or what went wrong, in one sentence"`
}

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
	Shared      *SharedStatus        // of the queue in that database; nil: none is configured

	Counted
}

// A SharedStatus is how much is in the shared queue.
type SharedStatus struct {
	IsUp    bool           // else nothing is known
	Tasks   map[string]int // by status, but for those that have ended
	Oldest  time.Duration  // how long the task has waited that is due the longest
	Workers []WorkerRow
}

// A WorkerRow is who leases for the shared queue.
type WorkerRow struct {
	ID        string    `json:"id" doc:"Its id, the same after a restart" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	Host      string    `json:"host" doc:"Name of its machine" example:"build-1"`
	PID       int       `json:"pid" doc:"Its process there" example:"4711"`
	StateDir  string    `json:"stateDir" doc:"Its ledger there" example:"/var/lib/stint"`
	Accounts  string    `json:"accounts" doc:"Accounts that it leases for" example:"codex-main,claude-a"`
	Processes int       `json:"processes" doc:"Tasks that it runs at the same time" example:"4"`
	Leases    int       `json:"leases" doc:"Tasks that it has leased" example:"2"`
	Draining  bool      `json:"draining" doc:"It leases nothing more, and ends" example:"false"`
	Version   string    `json:"version" doc:"Of stint there" example:"1.0.0"`
	StartedAt time.Time `json:"startedAt" doc:"When it began" example:"2026-11-21T03:15:09Z"`
	BeatAt    time.Time `json:"beatAt" doc:"Its last heartbeat" example:"2026-11-21T03:15:39Z"`
	Silent    string    `json:"silent" doc:"How long ago that was, by the clock of the database" example:"4s"`
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
