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
	ID             string    `json:"id,omitempty" doc:"UUIDv7 chosen by the client, so that a resend is harmless; left out: the master chooses"`
	Prompt         string    `json:"prompt" doc:"UTF-8, not empty, at most 1 MiB"`
	Agent          string    `json:"agent,omitempty" doc:"Name of an adapter; left out: that of the session, else defaultAgent, else the master's default agent"`
	DefaultAgent   string    `json:"defaultAgent,omitempty" doc:"Agent of a task that names none and goes on with no session, whose agent it would have"`
	Model          string    `json:"model,omitempty" doc:"As the agent's CLI knows it; left out: the CLI's own choice"`
	Account        string    `json:"account,omitempty" doc:"Name of an account of that agent; left out: the default one"`
	Workspace      string    `json:"workspace,omitempty" doc:"Absolute path: the agent's working directory; left out: the master's workspace_root, where one is configured"`
	SessionKey     string    `json:"sessionKey,omitempty" doc:"A session's name, also its lane; left out: the lane of the workspace"`
	Label          string    `json:"label,omitempty" doc:"Free text to filter lists by"`
	Continue       bool      `json:"continue,omitempty" doc:"Binds the task to the last session of its lane, at submit"`
	Parallel       bool      `json:"parallel,omitempty" doc:"The task has a lane of its own, and is in no session"`
	Resume         string    `json:"resume,omitempty" doc:"auto, always or never; left out: the master's resume_policy"`
	AgentSession   string    `json:"agentSession,omitempty" doc:"Native session id to resume, as the agent's CLI gave it"`
	Timeout        string    `json:"timeout,omitempty" doc:"Longest run: a Go duration such as 30m; left out: the master's"`
	Priority       int       `json:"priority,omitempty" doc:"1 to 9, 9 first; 0 counts as 5"`
	IdempotencyKey string    `json:"idempotencyKey,omitempty" doc:"A key that is known gives the old task"`
	MaxAttempts    int       `json:"maxAttempts,omitempty" doc:"Counted tries; left out: the master's max_attempts"`
	NotBefore      time.Time `json:"notBefore,omitzero" doc:"Not run before this instant"`
	NoWaitLimit    bool      `json:"noWaitLimit,omitempty" doc:"Fail instead of waiting for a rate limit to pass"`
	After          []string  `json:"after,omitempty" doc:"Tasks that must be done first: ids, unique pieces of them, @last, or ids of the same batch"`
	AfterPolicy    string    `json:"afterPolicy,omitempty" doc:"any: it is enough that they have ended; done, or left out: they must be done"`
	Hold           bool      `json:"hold,omitempty" doc:"The task is queued, but not run before it is released"`
	TenantID       string    `json:"tenantId,omitempty" doc:"Free text to filter lists by"`
	Queue          string    `json:"queue,omitempty" doc:"Another free text to filter lists by"`
	Fallback       []string  `json:"fallback,omitempty" doc:"Agents that may take over when this one is rate-limited; the word none: none"`

	VerifyCommand string `json:"verifyCommand,omitempty" doc:"For sh -c in the workspace: must pass after each run of the agent"`
	MaxIterations int    `json:"maxIterations,omitempty" doc:"Rounds of agent and verify command; left out: the master's max_iterations"`
	VerifyTimeout string `json:"verifyTimeout,omitempty" doc:"Longest run of the verify command: a Go duration; left out: the master's"`
	OnFailure     string `json:"onFailure,omitempty" doc:"Prompt of the task to queue when this one fails: a template"`
	OnIssue       string `json:"onIssue,omitempty" doc:"Prompt of the task to queue when the answer of this one has findings: a template"`

	InputFiles []state.InputFile `json:"inputFiles,omitempty" doc:"Small files that the agent can read"`
	OutputSpec []string          `json:"outputSpec,omitempty" doc:"Files of the workspace to collect after the run: relative paths"`

	// AllowStateInWorkspace takes the task although the agent can write the state directory.
	AllowStateInWorkspace bool `json:"allowStateInWorkspace,omitempty" doc:"Take the task although its agent can write the state directory"`

	// Await says that the client waits for the task's end: one from a run is refused
	// where that end would have to come after the run's own.
	Await bool `json:"await,omitempty" doc:"The client waits for the task's end"`
	// FromRun is the run that the client is part of; "": none. It is the server's
	// finding, never the client's word.
	FromRun string `json:"-"`
}

// A Change tells a subscriber that a record of a task was applied. Subscribers
// get them in the order of the ledger, without gaps. All of them share one: it is
// only to be read.
type Change struct {
	Seq  uint64     `json:"seq"`           // number of the record
	Task state.Task `json:"task,omitzero"` // the task after it
	// Resync says that tasks may have come to lists or gone from them, or changed,
	// without a record of their own, or with one that was missed: who follows must list
	// anew. There is no Task then.
	Resync bool `json:"resync,omitempty"`

	line func() ([]byte, error) // JSON, made once; nil: made each time
}

// Health is what a master says about itself. The coordinator sets all of it but
// Socket and Background, which it is given when it is opened, and HTTP and HTTPError, which
// it is told.
type Health struct {
	Status     HealthStatus         `json:"status" enum:"failing,ending,paused,ok"`
	PID        int                  `json:"pid"`
	Start      time.Time            `json:"start"`               // when this master began
	Version    string               `json:"version"`             // of the program
	Socket     string               `json:"socket,omitempty"`    // path of the unix socket; "": none
	StateDir   string               `json:"stateDir"`            // absolute path
	Paused     bool                 `json:"paused"`              // nothing is dispatched
	PauseWhy   string               `json:"pauseWhy,omitempty"`  // the reason that was given
	Counts     map[state.Status]int `json:"counts"`              // tasks by status
	Running    []string             `json:"running,omitempty"`   // ids of the tasks that run now
	Findings   []string             `json:"findings,omitempty"`  // "tasks.md:812: ...": what could not be read
	LastError  string               `json:"lastError,omitempty"` // the last error that was not a task's own
	Background bool                 `json:"background"`          // started by a client, ends when idle
	APIEnabled bool                 `json:"api_enabled"`         // it can be called by HTTP on TCP; document 001's name
	HTTP       string               `json:"http,omitempty"`      // the address there, such as 127.0.0.1:7433
	HTTPError  string               `json:"httpError,omitempty"` // why it cannot, though it should
	Postgres   *MirrorStatus        `json:"postgres,omitempty"`  // the copy in a database; nil: none is configured
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
