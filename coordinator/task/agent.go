package task

import (
	"context"
	"errors"
	"syscall"
	"time"

	"stint/prompt"
	"stint/state"
)

// GoOn is the user's message in a turn whose session has the real one already; see [Outcome].Kept.
const GoOn = prompt.GoOn

// An Agent runs one CLI. The adapters in coordinator/agent fill it.
type Agent interface {
	// Run runs one turn and returns when nothing of it is left alive: no process, no descendant. It calls report from one
	// goroutine at a time, never after it has returned. ctx ends the run early; context.Cause(ctx) says why (ErrCanceled,
	// ErrTimeout, ErrShutdown). Run does not fail: what went wrong is in the outcome's Class and Error.
	Run(ctx context.Context, turn Turn, report func(Event)) Outcome
}

// A PromptEscaper is an Agent whose CLI would expand parts of a prompt and has no option not to.
type PromptEscaper interface {
	// EscapePrompt returns the prompt in the form that the CLI sends on unchanged; prompt.md holds it.
	EscapePrompt(prompt string) string
}

// A Planner is an Agent that can say what it would run, without running it.
type Planner interface {
	// Plan returns what Run would start for a turn, whose files need not exist.
	Plan(turn Turn) Plan
}

// A Plan is what a turn would start.
type Plan struct {
	Argv  []string
	Env   []string    // names of the environment variables, sorted
	Class state.Class // "": it can be started
	Error string      // one sentence, if Class is not ""
}

// Causes with which the coordinator ends a run.
var (
	ErrCanceled = errors.New("canceled")
	ErrTimeout  = errors.New("timeout")
	ErrShutdown = errors.New("the master is shutting down")
)

// ErrLease is the cause of a run that ends because its lease did; it is an ErrShutdown too.
var ErrLease error = leaseError{}

type leaseError struct{}

func (leaseError) Error() string { return "its lease has ended" }
func (leaseError) Unwrap() error { return ErrShutdown }

// Sleep waits for d, or for the end of ctx, of which it returns the cause.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Wake puts a value into a channel with room for one, if there is none: whoever waits for it looks once for all.
func Wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// A Turn is one run of an agent: everything that the adapter needs to build a command line.
type Turn struct {
	TaskID    string
	RunID     string
	Attempt   int
	RunDir    string   // runs/<runId>, made by the coordinator; holds prompt.md
	Prompt    string   // path of the file with the exact prompt: the agent's stdin
	Workspace string   // absolute path: the agent's working directory
	Root      string   // what the task's runs can write: its workspace, or the checkout around that
	Model     string   // "" leaves it to the CLI
	Session   string   // native session id to resume; "" begins a new one
	Fork      bool     // begin a new session with the history of Session, which stays as it is; an agent that cannot resumes it
	Schema    string   // path of a JSON schema that the answer must follow, as far as the CLI can be told so; "": any text
	ReadOnly  bool     // the agent is only to answer: it needs no right to change anything
	Looks     bool     // with ReadOnly: it is to read the workspace for that
	Allow     []string // rules of what it may use besides; see [ParseRule]
	Files     string   // directory of the task's input files, which the agent must be able to read; "": none
	Env       []string // of the user's call, KEY=VALUE: it takes the place of the master's own; nil: that counts
	Account   AccountEnv
	Budget    float64 // USD that the turn may cost, where the CLI can be told so; 0: any amount
	Limits    RunLimits
}

// An AccountEnv is what an account gives its agent. No other setting changes it.
type AccountEnv struct {
	Env     []string // KEY=VALUE
	IsWhole bool     // its agent gets none of its own variables from anywhere else
}

// RunLimits bound one run. Zero means no limit.
type RunLimits struct {
	Idle    time.Duration // without a byte of output, once there was one
	Startup time.Duration // until the first byte of output
	Grace   time.Duration // between SIGTERM and SIGKILL
}

// An Event is what a running agent tells while it runs. A zero field says nothing.
type Event struct {
	Session string    // native session id, the moment it is first seen; of a fork, once it got anywhere
	Forked  bool      // that session is a fork of the turn's
	Text    string    // a message of the agent, complete
	Bytes   int64     // size of the output so far; Bytes alone is a sign of life
	Started bool      // the agent is at work, though it has said nothing yet; comes alone
	Env     []string  // of the first event, whatever else that tells: names of the agent's environment variables, sorted
	Log     *LogEvent // what it does, for people; without time and run, which the receiver adds
}

// An Outcome is how a run ended.
type Outcome struct {
	Class    state.Class    // "" is success
	Result   string         // the agent's final answer, whole
	Error    string         // one sentence for people, "" on success
	ExitCode int            // of the agent; -1 when it was ended by a signal or never started
	Session  string         // native session id, "" if none was seen, or if a fork got nowhere
	Forked   bool           // Session is a fork of the turn's
	Quota    []state.Window // of its account, where the CLI told it; without the time
	Usage    state.Usage    // of this run alone, where the CLI counts so; else zero
	Thread   state.Usage    // of the whole native session up to now, where the CLI counts so; a field of 0 is not counted so
	Kept     bool           // the turn did not end well, but the native session has the prompt in its history: it must not be sent again
	RetryAt  time.Time      // rate-limited: when the agent said that it may go on; zero if it did not

	Shortage syscall.Errno  // interrupted before the agent was at work, because the machine lacked something that comes back ([ShortageOf]); else 0
	Signal   syscall.Signal // that ended the agent; 0: none
	Final    bool           // it would fail again in the same way: no iteration and no attempt follows
	Fresh    bool           // the turn has begun a new session; the coordinator sets it
	Note     string         // something the user should know although the run went on, e.g. that a session was lost

	Findings []state.Issue // what the agent was denied, and what is wrong with its answer
}

// A Shell runs verify commands. coordinator/agent fills it.
type Shell interface {
	// Verify runs a command, and leaves nothing of it alive, as [Agent].Run does. Its result says what went wrong.
	Verify(ctx context.Context, v VerifyRun) VerifyResult
}

// A VerifyRun is one run of a verify command.
type VerifyRun struct {
	TaskID    string
	RunID     string
	Attempt   int
	Iteration int
	RunDir    string             // made by the coordinator
	Workspace string             // absolute path: the command's working directory
	Env       []string           // as in [Turn]
	Command   string             // for sh -c
	Safe      string             // not "": its PATH is the [SafePath] of the environment, with this root
	Timeout   time.Duration      // of the command; 0: none
	Grace     time.Duration      // between SIGTERM and SIGKILL
	Lives     func(isStart bool) // called when the command is at work, and when it has printed something; nil: nobody asks
}

// A VerifyResult is how a verify command ended.
type VerifyResult struct {
	Class    state.Class // "": by itself; timeout: by its limit; canceled or interrupted: by us, and it says nothing
	ExitCode int         // -1 if a signal ended it, or it did not end by itself
	Output   string      // head and tail of what it printed, stderr included
	Duration time.Duration
	Error    string // one sentence; "" if it has passed

	Shortage syscall.Errno // as in [Outcome]
}

// Passed reports whether the command says that all is well.
func (v *VerifyResult) Passed() bool { return v.Class == "" && v.ExitCode == 0 }

// CannotRun reports whether the shell could not run the command: no answer of an agent helps there.
func (v *VerifyResult) CannotRun() bool {
	return v.Class == "" && (v.ExitCode == 126 || v.ExitCode == 127)
}

// Conclusive reports whether the command says anything: it ended by itself or by its limit.
func (v *VerifyResult) Conclusive() bool { return v.Class == "" || v.Class == state.ClassTimeout }
