package coordinator

import (
	"time"

	"stint/state"
)

// A TaskSpec is what a client asks for. The names of its JSON are the keys of
// the ledger. The client sets every field; a zero field leaves the choice to the
// master's configuration. Submit checks all of them.
type TaskSpec struct {
	ID             string    `json:"id,omitempty"`             // UUIDv7 chosen by the client, so that a resend is harmless; "": the master chooses
	Prompt         string    `json:"prompt"`                   // UTF-8, not empty, at most 1 MiB
	Agent          string    `json:"agent,omitempty"`          // name of an adapter; "": that of the session, else DefaultAgent, else the master's default agent
	DefaultAgent   string    `json:"defaultAgent,omitempty"`   // likewise, if Agent is "" and the task goes on with no session, whose agent it would have
	Model          string    `json:"model,omitempty"`          // as the agent's CLI knows it; "": the CLI's own choice
	Account        string    `json:"account,omitempty"`        // name of an account of that agent; "": the default one
	Workspace      string    `json:"workspace,omitempty"`      // absolute path: the agent's working directory
	SessionKey     string    `json:"sessionKey,omitempty"`     // a session's name, also its lane; "": the lane of the workspace
	Label          string    `json:"label,omitempty"`          // free text to filter lists by
	Continue       bool      `json:"continue,omitempty"`       // binds the task to the last session of its lane, at submit
	Parallel       bool      `json:"parallel,omitempty"`       // a lane of its own
	Resume         string    `json:"resume,omitempty"`         // auto, always or never; "": the master's resume_policy
	AgentSession   string    `json:"agentSession,omitempty"`   // native session id to resume, as the agent's CLI gave it
	Timeout        string    `json:"timeout,omitempty"`        // of one run: a Go duration such as "30m"; "": the master's
	Priority       int       `json:"priority,omitempty"`       // 1 to 9, 9 first; 0 counts as 5
	IdempotencyKey string    `json:"idempotencyKey,omitempty"` // a key that is known gives the old task
	MaxAttempts    int       `json:"maxAttempts,omitempty"`    // counted tries; 0: the master's max_attempts
	NotBefore      time.Time `json:"notBefore,omitzero"`       // not run before this instant
	NoWaitLimit    bool      `json:"noWaitLimit,omitempty"`    // fail instead of waiting for a rate limit to pass
	After          []string  `json:"after,omitempty"`          // tasks that must be done first: ids, unique pieces of them, @last, or ids of the same batch
	AfterPolicy    string    `json:"afterPolicy,omitempty"`    // "any": it is enough that they have ended; "" or "done": they must be done
	Hold           bool      `json:"hold,omitempty"`           // queued, but not run before it is released
	TenantID       string    `json:"tenantId,omitempty"`       // free text to filter lists by
	Queue          string    `json:"queue,omitempty"`          // likewise
	Fallback       []string  `json:"fallback,omitempty"`       // agents that may take over when this one is rate-limited; "none": none

	VerifyCommand string `json:"verifyCommand,omitempty"` // for sh -c in the workspace: must pass after each run of the agent
	MaxIterations int    `json:"maxIterations,omitempty"` // rounds of agent and verify command; 0: the master's max_iterations
	VerifyTimeout string `json:"verifyTimeout,omitempty"` // of the command: a Go duration; "": the master's
	OnFailure     string `json:"onFailure,omitempty"`     // prompt of the task to queue when this one fails: a template
	OnIssue       string `json:"onIssue,omitempty"`       // likewise, when its answer has findings

	InputFiles []state.InputFile `json:"inputFiles,omitempty"` // small files that the agent can read
	OutputSpec []string          `json:"outputSpec,omitempty"` // files of the workspace to collect after the run: relative paths

	// AllowStateInWorkspace takes the task although the agent can write the state directory.
	AllowStateInWorkspace bool `json:"allowStateInWorkspace,omitempty"`

	// Await says that the client waits for the task's end: one from a run is refused
	// where that end would have to come after the run's own.
	Await bool `json:"await,omitempty"`
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
// Socket and Background, which it is given when it is opened, and HTTP, which it is told.
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
