package coordinator

import (
	"time"

	"stint/state"
)

// A TaskSpec is what a client asks for. The names of its JSON are the keys of
// the ledger. The client sets every field; a zero field leaves the choice to the
// master's configuration. Submit checks all of them. What a field means is said in its
// tag, from which the API's description has it.
type TaskSpec struct {
	ID             string    `json:"id,omitempty" doc:"UUIDv7 chosen by the client, so that a resend is harmless; left out: the master chooses" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	Prompt         string    `json:"prompt" doc:"UTF-8, not empty, at most 1 MiB" example:"Fix the flaky login test."`
	Agent          string    `json:"agent,omitempty" doc:"Name of an adapter; left out: that of the session, else defaultAgent, else the master's default agent" example:"codex"`
	DefaultAgent   string    `json:"defaultAgent,omitempty" doc:"Agent of a task that names none and goes on with no session, whose agent it would have" example:"codex"`
	Model          string    `json:"model,omitempty" doc:"As the agent's CLI knows it; left out: the CLI's own choice" example:"gpt-5.5"`
	Account        string    `json:"account,omitempty" doc:"Name of an account of that agent; left out: the default one" example:"codex-main"`
	Workspace      string    `json:"workspace,omitempty" doc:"Absolute path: the agent's working directory; left out: the master's workspace_root, where one is configured" example:"/home/ana/shop"`
	SessionKey     string    `json:"sessionKey,omitempty" doc:"Tasks with the same key share one conversation and run one after another; left out: the lane of the workspace" example:"web"`
	Label          string    `json:"label,omitempty" doc:"Free text to filter lists by" example:"nightly"`
	Continue       bool      `json:"continue,omitempty" doc:"Binds the task to the last session of its lane, at submit" example:"false"`
	Parallel       bool      `json:"parallel,omitempty" doc:"The task has a lane of its own, and is in no session" example:"false"`
	Resume         string    `json:"resume,omitempty" enum:"auto,always,never" doc:"Whether the agent resumes its conversation; left out: the master's resume_policy" example:"auto"`
	AgentSession   string    `json:"agentSession,omitempty" doc:"Native session id to resume, as the agent's CLI gave it" example:"01999d1c-5f0b-7c11-b1c4-2a8d0e7c9b31"`
	Timeout        string    `json:"timeout,omitempty" doc:"Longest run: a Go duration such as 30m; left out: the master's" example:"30m"`
	Priority       int       `json:"priority,omitempty" doc:"1 to 9, 9 first; 0 counts as 5" example:"5"`
	IdempotencyKey string    `json:"idempotencyKey,omitempty" doc:"1 to 256 printable characters. If a task has this key already, that task is the answer" example:"deps-2026-11-21"`
	MaxAttempts    int       `json:"maxAttempts,omitempty" doc:"Counted tries; left out: the master's max_attempts" example:"3"`
	NotBefore      time.Time `json:"notBefore,omitzero" doc:"Not run before this instant" example:"2026-11-21T03:15:09.482Z"`
	NoWaitLimit    bool      `json:"noWaitLimit,omitempty" doc:"Fail instead of waiting for a rate limit to pass" example:"false"`
	After          []string  `json:"after,omitempty" doc:"Tasks that must be done first: ids, unique pieces of them, @last, or ids of the same batch" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	AfterPolicy    string    `json:"afterPolicy,omitempty" enum:"any,done" doc:"any: it is enough that they have ended; done, or left out: they must be done" example:"done"`
	Hold           bool      `json:"hold,omitempty" doc:"The task is queued, but not run before it is released" example:"false"`
	TenantID       string    `json:"tenantId,omitempty" doc:"Free text to filter lists by" example:"ana"`
	Queue          string    `json:"queue,omitempty" doc:"Another free text to filter lists by" example:"nightly"`
	Fallback       []string  `json:"fallback,omitempty" doc:"Agents that may take over when this one is rate-limited; the word none: none" example:"claude"`

	VerifyCommand string `json:"verifyCommand,omitempty" doc:"For sh -c in the workspace: must pass after each run of the agent" example:"go test ./..."`
	MaxIterations int    `json:"maxIterations,omitempty" doc:"Most iterations of agent and verify command; left out: the master's max_iterations" example:"3"`
	VerifyTimeout string `json:"verifyTimeout,omitempty" doc:"Longest run of the verify command: a Go duration; left out: the master's" example:"5m"`
	OnFailure     string `json:"onFailure,omitempty" doc:"Prompt of the task to queue when this one fails: a template" example:"Say why task {{.ID}} failed: {{.Error}}"`
	OnIssue       string `json:"onIssue,omitempty" doc:"Prompt of the task to queue when the answer of this one has findings: a template" example:"Look at the findings of {{.ID}}."`

	InputFiles []state.InputFile `json:"inputFiles,omitempty" doc:"Small files that the agent can read"`
	OutputSpec []string          `json:"outputSpec,omitempty" doc:"Files of the workspace to collect after the run: relative paths" example:"report.md"`

	// AllowStateInWorkspace takes the task although the agent can write the state directory.
	AllowStateInWorkspace bool `json:"allowStateInWorkspace,omitempty" doc:"Take the task although its agent can write the state directory" example:"false"`

	// Await says that the client waits for the task's end: one from a run is refused
	// where that end would have to come after the run's own.
	Await bool `json:"await,omitempty" doc:"The client waits for the task's end" example:"false"`
	// FromRun is the run that the client is part of; "": none. It is the server's
	// finding, never the client's word.
	FromRun string `json:"-"`
}

// A Change tells a subscriber that a record of a task was applied. Subscribers
// get them in the order of the ledger, without gaps. All of them share one: it is
// only to be read.
type Change struct {
	Seq  uint64     `json:"seq" doc:"Number of the record" example:"1042"`
	Task state.Task `json:"task,omitzero" doc:"The task after it. Of a task that has ended it has only the fields by which lists are filtered"`
	// Resync says that tasks may have come to lists or gone from them, or changed,
	// without a record of their own, or with one that was missed: who follows must list
	// anew. There is no Task then.
	Resync bool `json:"resync,omitempty" doc:"It cannot be told what has changed: list anew. There is no task then" example:"false"`

	line func() ([]byte, error) // JSON, made once; nil: made each time
}

// Health is what a master says about itself. The coordinator sets all of it but
// Socket and Background, which it is given when it is opened, and HTTP and HTTPError, which
// it is told.
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

// A HealthStatus says in one word how a master is. The set is closed; of several that
// fit, it is the first.
type HealthStatus string

// The statuses of a master.
const (
	HealthFailing HealthStatus = "failing" // its disk is full or has failed: it takes no tasks in
	HealthEnding  HealthStatus = "ending"  // it makes room for another one, or shuts down: it starts no tasks
	HealthPaused  HealthStatus = "paused"  // it takes tasks in, and starts none until stint resume
	HealthOK      HealthStatus = "ok"      // it takes tasks in and starts them
)

// A Code is the kind of an [Error], for programs. The set is closed; HTTP
// statuses and exit codes are derived from it.
type Code string

// The codes.
const (
	CodeInvalid      Code = "invalid"       // the request cannot be carried out as it stands
	CodeNotFound     Code = "not-found"     // no such task, session or file
	CodeAmbiguous    Code = "ambiguous"     // the reference fits more than one
	CodeConflict     Code = "conflict"      // it contradicts what is already so
	CodeChanged      Code = "changed"       // it is for what was there before
	CodeBusy         Code = "busy"          // a lock or a session is held by someone else
	CodeFull         Code = "disk-full"     // nothing can be written
	CodeShortage     Code = "shortage"      // the machine lacks something that comes back: nothing was done, and the same may succeed soon
	CodeStopped      Code = "stopped"       // the master is going away, or has gone
	CodeAgentMissing Code = "agent-missing" // no such program, or not logged in
	CodeForbidden    Code = "forbidden"     // a run, or a page of another site, may not do that
	CodeUnauthorized Code = "unauthorized"  // no token, or not the present one
	CodeTooMany      Code = "too-many"      // a bound is reached: of the queue, or of streams
	CodeUnavailable  Code = "unavailable"   // something outside that it needs, such as a database, does not answer or refuses
)

// An Error is an error for people and programs alike: a sentence that says what
// and why, and the next command.
type Error struct {
	Code    Code
	Message string // what and why, without a final period
	Hint    string // what to do next, such as "stint ls"; "" if there is nothing
	Field   string // what of the request is wrong, by its name in JSON, such as "prompt", or "2.prompt" in a list (from 0); "": all of it
}

// Error joins message and hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "; " + e.Hint
}

// Is reports whether target is an *Error with the same code that says no more
// than this, so that errors.Is(err, &Error{Code: CodeNotFound}) asks for a code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == "" && t.Hint == ""
}
