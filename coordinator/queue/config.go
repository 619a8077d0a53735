package queue

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"stint/coordinator/checkout"
	"stint/coordinator/redact"
	"stint/coordinator/task"
	"stint/coordinator/worktree"
	"stint/ledger/durable"
	"stint/memory"
	"stint/prompt"
	"stint/state"

	"github.com/google/uuid"
)

// A Config is what a coordinator is opened with. All durations must be set; cmd has their defaults.
type Config struct {
	StateDir     string                    // absolute path; made if missing
	Agents       map[string]task.Agent     // by name
	DefaultAgent func(env []string) string // for tasks that name none, in that environment; asked each time, because one may be installed meanwhile

	// Accounts returns the accounts as they are configured now, those of an agent together, its
	// default one first. nil: each agent has that one alone.
	Accounts func() []state.AccountConfig
	// AccountEnv returns what an account gives its agent, for a run that begins. It reads
	// files, and its error says what is wrong with them. nil: no account gives any.
	AccountEnv func(id string) (task.AccountEnv, error)
	// Danger returns what the agent of an account can do without a guard, as it is configured; "" if it
	// has one. The error says why it may not. nil: every agent has one.
	Danger        func(account string) (effect string, err error)
	BudgetTask    string // what the runs of a task may spend, of one that names no budget; see [limits.ParseBudget]
	BudgetSession string // the same for all tasks of its session
	BudgetDay     string // what all runs may spend in a day by the clock on the wall

	// QueueMax has the number of tasks that may run at the same time, by queue.
	QueueMax map[string]int

	WorkspaceSettings // of tasks in directories for which nothing else is configured
	// Workspace returns what is configured for tasks in a directory. nil: WorkspaceSettings.
	Workspace func(path string) WorkspaceSettings
	// Exclusive says that Checkout is [CheckoutExclusive] for all or some directories.
	Exclusive bool

	MaxWorkers int // runs at the same time
	MaxRetries int // interruptions by us until a task is dead
	CrashLoop  int // masters that die within a minute, soon after they started runs, until nothing is started; 0: no number

	BackoffBase  time.Duration // before the second attempt; doubled each time
	BackoffMax   time.Duration
	MaxLimitWait time.Duration // how long a task waits for rate limits in all

	Shell task.Shell // runs verify commands

	FollowUpDepth int // how many tasks may follow one another, each queued by the one before; 0: none is queued by another
	MaxFollowUps  int // how many follow-ups a task may have, and how many tasks its agent may queue

	WorkspaceRoot string // directory of tasks that name none, an absolute path; "": they are refused

	WorkDir string // an absolute path without links, below which tasks have directories of their own; "": none has
	Cleanup bool   // these are removed once no task that has not ended works there

	Trees        worktree.Trees // where the worktrees of sessions are; the zero value: none has one
	MaxWorktrees int            // of them, beyond which no task begins that needs another; 0: no bound
	// Git runs commands of packages checkout and worktree in a directory, until ctx ends. It is not called with a lock held.
	Git func(ctx context.Context, dir string) checkout.Shell

	MaxQueued int // tasks that may wait: a submit beyond it is refused; 0: no bound

	IdleTimeout        time.Duration // of one run, without output
	StartupTimeout     time.Duration // of one run, until the first output
	Grace              time.Duration // between asking an agent to end and killing it; also how long a shutdown waits for runs
	SessionLockTimeout time.Duration

	CompactSize      int64         // bytes of the journal from which on the ledger is compacted by itself; 0: never
	CompactOlderThan time.Duration // how long ago tasks ended that are then moved to the archive

	Retention     time.Duration // how long what a task has left stays after its end; 0: it does not go by age
	RetentionSize int64         // bytes of all that tasks have left, from which on the oldest goes; 0: no bound

	HeartbeatInterval time.Duration
	HeartbeatPath     string        // "": heartbeat.json in StateDir
	IdleExit          time.Duration // Run returns after so long without work or clients; 0: never

	ResumeMissing string // new or error: when there is no session to resume although there must be

	// Memory returns what the notes of a workspace have for a prompt, without a lock held. nil: nothing.
	Memory func(ctx context.Context, workspace, prompt string) (memory.Result, error)

	// Injected is told what of that a prompt got, and what it would have got were it not archived. nil: nobody counts.
	Injected func(workspace string, hits []memory.Hit) error

	Socket     string // told in Health and the heartbeat
	Version    string // told in Health and the heartbeat
	Background bool   // told in Health and the heartbeat

	// Fallback names the agents, in order, that take over the tasks of a rate-limited
	// one, for tasks that name neither an agent nor a session nor a fallback.
	Fallback []string
	// Recover proves the processes of an old run dead, or ends them. An error says why it cannot.
	Recover func(ctx context.Context, runDir, runID string) error
	// FindSession reads from what an old run has written the agent's session id, ""
	// if it got no further, and whether that session has kept the prompt. nil: never.
	FindSession func(agent, runDir string) (session string, kept bool)
	// LeaseOf returns the lease under which the twin of a shared task may run; nil if it has none any more. nil: none has.
	LeaseOf func(id string) *task.Lease
	// AgentReady reports whether an agent's program is there and logged in, in the
	// environment of a task, for a fallback. It may be slow, and is not called with a lock held. nil: all are.
	AgentReady func(agent string, env []string) bool
	// AgentFound reports whether an agent's program can be started, and looks anew each time: nobody knows
	// how long what is missing stays away. It may be slow, and is not called with a lock held. nil: all can.
	AgentFound func(agent string, env []string) bool
	// HasKey reports whether this master's environment has a key for an agent. nil: not known.
	HasKey func(agent string) bool
	// CannotAllow returns why an agent cannot be told of a rule; "" if it can. nil: all can.
	CannotAllow func(agent string, rule task.Rule) string
	// Mirror says how far a copy of the ledger in a database is, for Health and Metrics.
	// It is not called with a lock held. nil: there is no copy.
	Mirror func() task.MirrorStatus
	// Beside returns what is wrong in the ledgers beside this one, for Findings. nil: there are none.
	Beside func() []task.Finding
	// Redact masks secrets in what an agent has to do with. nil: nothing is masked.
	Redact *redact.Filter

	FS        durable.FS // where the ledger lies; nil: the machine's, and only a test has another
	Unwatched bool       // edits are taken over at start only: a test with a clock of its own cannot wait for the kernel

	Log  *slog.Logger
	Now  func() time.Time // nil: time.Now
	Rand func() float64   // 0 to 1, for jitter; nil: math/rand
	ID   func() string    // nil: UUIDv7
}

// WorkspaceSettings are what may be configured for one workspace: what holds for tasks that do not say.
type WorkspaceSettings struct {
	Timeout      time.Duration     // of one run; 0: no limit
	MaxAttempts  int               // counted tries of a task
	ResumePolicy string            // auto, always or never; "": auto
	Models       map[string]string // by agent
	OutputPolicy string            // the text, of tasks that have none of their own; "": none

	PromptTemplate *prompt.Template // arranges what stands before the message; nil: as prompt.Build does

	EvalPrompt   string // what an agent is told that judges an answer; "": none does
	EvalMaxChars int    // characters of the lessons that one judgement leaves; 0: no bound
	LessonsPath  string // note of the workspace that they are added to, relative to it; "": they are not kept

	VerifyCommand string
	MaxIterations int           // iterations of agent and verify command
	VerifyTimeout time.Duration // of a verify command; 0: no limit

	Allow  []string // rules of what a task may allow its agent, see [task.ParseRule]; none: nothing
	Denied string   // finding or fail: what becomes of a task whose agent was denied a tool; "": finding

	Checkout string // shared or exclusive; "": shared

	Isolation     string          // of tasks that do not say, as in the ledger; "": in the workspace
	WorktreeSetup string          // command that sets a new worktree up; "": none
	SetupTimeout  time.Duration   // of that; 0: no limit
	Commit        string          // always or never: whether what a run leaves in a worktree is committed; "": always
	CommitAuthor  worktree.Author // as whom

	OnFailure      string // prompt of the follow-up of a task that fails and names none; "" or off: none
	OnIssue        string // prompt of the follow-up of a task whose answer has findings and that names none; "" or off: none
	TriggerSession string // session of follow-ups; "": a new one, in the lane of the directory
}

// CheckoutsName is the directory with the private indexes of git, one a workspace. Any may be removed.
const CheckoutsName = "checkouts"

// CheckoutExclusive lets one task at a time run in a git checkout, whatever its lane.
const CheckoutExclusive = "exclusive"

// CommitNever leaves what lies in a worktree uncommitted.
const CommitNever = "never"

// WithDefaults fills in what a configuration leaves to the package.
func (c Config) WithDefaults() Config {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.ID == nil {
		c.ID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Exclusive = c.Exclusive || c.Checkout == CheckoutExclusive
	c.HeartbeatPath = cmp.Or(c.HeartbeatPath, filepath.Join(c.StateDir, "heartbeat.json"))
	return c
}

// IsGuardedDir reports whether a directory of that name, such as .git or .claude, holds what belongs to git or an
// agent, and secrets. Nothing in it is collected, and no run may have a task work there.
func (c *Config) IsGuardedDir(name string) bool {
	owner, hidden := strings.CutPrefix(strings.ToLower(name), ".")
	_, known := c.Agents[owner]
	return hidden && (owner == "git" || known)
}

// Workspace returns what is configured for tasks in a directory.
func (s *Store) Workspace(path string) WorkspaceSettings {
	if s.Config.Workspace == nil {
		return s.Config.WorkspaceSettings
	}
	return s.Config.Workspace(path)
}

// IsTemp reports whether a workspace is a directory of a task's own, which its run makes.
func (c *Config) IsTemp(workspace string) bool {
	return c.WorkDir != "" && filepath.Dir(workspace) == c.WorkDir
}

// RecoverTimeout bounds how long the old processes of a run may take to die.
const RecoverTimeout = 30 * time.Second

// EndLimit bounds how long a run with that grace time is waited for once it is to end.
func EndLimit(grace time.Duration) time.Duration { return 2*grace + RecoverTimeout }

// Timeout returns how long a run of a task may take; 0: without an end.
func (s *Store) Timeout(t *state.Task) time.Duration {
	if d, err := time.ParseDuration(t.Timeout); err == nil {
		return d
	}
	return s.Workspace(t.Workspace).Timeout
}

// VerifyTimeout returns how long a task's verify command may take; 0: without an end.
func (s *Store) VerifyTimeout(t *state.Task) time.Duration {
	if d, err := time.ParseDuration(t.VerifyTimeout); err == nil {
		return d
	}
	return s.Workspace(t.Workspace).VerifyTimeout
}

// OutputPolicy returns what a task's agent is told about the look of its answer; "": nothing.
func (s *Store) OutputPolicy(t *state.Task) string {
	if text, named := prompt.Policies[t.OutputPolicy]; named {
		return text
	}
	return cmp.Or(t.OutputPolicy, s.Workspace(t.Workspace).OutputPolicy)
}

// MaxIterations returns how many iterations a task's verify loop may have.
func (s *Store) MaxIterations(t *state.Task) int {
	return cmp.Or(t.MaxIterations, s.Workspace(t.Workspace).MaxIterations)
}
