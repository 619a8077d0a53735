package state

import (
	"slices"
	"strings"
	"time"
	"unicode"
)

// A Status is the state of a task. The set is closed; transition.go says which
// may follow which.
type Status string

// The statuses of a task.
const (
	Draft    Status = "draft"    // shown, never run
	Queued   Status = "queued"   // waits for its turn
	Running  Status = "running"  // an agent works on it
	Done     Status = "done"     // ended well
	Failed   Status = "failed"   // ended badly; reason says how
	Canceled Status = "canceled" // ended by a person
	Dead     Status = "dead"     // retries used up: the dead letter
)

// Terminal reports whether a task of that status has ended.
func (s Status) Terminal() bool {
	return s == Done || s == Failed || s == Canceled || s == Dead
}

// A Class is the way in which a run failed; "" is success. It becomes the
// task's reason.
type Class string

// The failure classes (closed set).
const (
	ClassExit          Class = "exit"           // the agent ended with an error of its own
	ClassTimeout       Class = "timeout"        // the whole run took too long
	ClassStalled       Class = "stalled"        // no output for too long
	ClassVerify        Class = "verify"         // the verify command never passed
	ClassRateLimited   Class = "rate-limited"   // the provider said: later
	ClassAuth          Class = "auth"           // not logged in, or refused
	ClassNetwork       Class = "network"        // not reached, 5xx, broken stream
	ClassBudget        Class = "budget"         // a spending limit was reached
	ClassAgentMissing  Class = "agent-missing"  // no such program
	ClassOutputMissing Class = "output-missing" // ended well without an answer
	ClassSessionBusy   Class = "session-busy"   // someone else uses the agent's session
	ClassSessionLost   Class = "session-lost"   // the agent no longer knows the session
	ClassInterrupted   Class = "interrupted"    // by us: shutdown or crash
	ClassOrphaned      Class = "orphaned"       // by us, and its processes cannot be proved dead
	ClassCanceled      Class = "canceled"
)

// classes holds the closed set.
var classes = [...]Class{
	ClassExit, ClassTimeout, ClassStalled, ClassVerify, ClassRateLimited, ClassAuth, ClassNetwork, ClassBudget,
	ClassAgentMissing, ClassOutputMissing, ClassSessionBusy, ClassSessionLost, ClassInterrupted, ClassOrphaned, ClassCanceled,
}

// Known reports whether a class is one of the set: a person may have written another
// reason into the ledger.
func (c Class) Known() bool { return slices.Contains(classes[:], c) }

// A Phase says what a run of a task carries out; "" is an agent's turn.
type Phase string

// The phases of an attempt, in their order, behind the agent's turn.
const (
	PhaseVerify   Phase = "verify"   // the verify command
	PhaseEvaluate Phase = "evaluate" // the turn of an agent that judges the answer
)

// An Issue is something about an answer that a person should look at.
type Issue struct {
	Kind    string `json:"kind"`    // such as empty or verify-weakened
	Message string `json:"message"` // one sentence
}

// A Trigger says why a task was queued by another one.
type Trigger string

// The triggers of a task that has triggeredByTaskId.
const (
	OnFailure Trigger = "failure" // that task failed
	OnIssue   Trigger = "issue"   // that task's answer has findings
	ByAgent   Trigger = "agent"   // the agent of that task asked for it
)

// IntakeOpen is the intake of a task that an agent asked for, that was not held then, and
// that nobody has moved into another conversation since.
const IntakeOpen = "open"

// An InputFile is a small file that comes with a task. Name is a relative path.
type InputFile struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

// An OutputFile is a file that was collected from the workspace after a run, into
// the run's directory files. Path is relative to both.
type OutputFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`             // bytes
	SHA256 string `json:"sha256,omitempty"` // in hex
}

// Usage is an amount of tokens and money. Input tokens include the cached ones,
// output tokens those of reasoning. CostUSD is 0 where the CLI does not know a
// price, as with a flat plan.
type Usage struct {
	InputTokens       int64   `json:"inputTokens,omitempty"`
	CachedInputTokens int64   `json:"cachedInputTokens,omitempty"`
	OutputTokens      int64   `json:"outputTokens,omitempty"`
	ReasoningTokens   int64   `json:"reasoningTokens,omitempty"`
	CostUSD           float64 `json:"costUsd,omitempty"`
}

// A Task is the folded view of one task. The names of its JSON are the keys of
// the ledger, but for Title, AgentSession and Extra, which are put together from
// several. Prompt and Result are empty where the text was left in the file. What
// ExitCode and After point to must not be changed.
type Task struct {
	ID             string    `json:"id"`
	Status         Status    `json:"status"`
	SessionKey     string    `json:"sessionKey,omitempty"` // the lane: a name, "dir:<path>" or "task:<id>"
	SessionID      string    `json:"sessionId,omitempty"`  // stint's session: names the transcript
	Workspace      string    `json:"workspace,omitempty"`
	Agent          string    `json:"agent,omitempty"`
	Model          string    `json:"model,omitempty"`
	Account        string    `json:"account,omitempty"`
	Resume         string    `json:"resume,omitempty"`       // auto, always, never
	AgentSession   string    `json:"agentSession,omitempty"` // native session id of the task's own agent
	Priority       int       `json:"priority,omitempty"`     // 1 to 9, 9 first; 0 counts as 5
	Order          int64     `json:"order,omitempty"`        // explicit place in the lane; 0: by age
	Label          string    `json:"label,omitempty"`
	IdempotencyKey string    `json:"idempotencyKey,omitempty"`
	After          []string  `json:"after,omitempty"`       // ids that must be done first
	AfterPolicy    string    `json:"afterPolicy,omitempty"` // "any": it is enough that they have ended
	Hold           bool      `json:"hold,omitempty"`
	NotBefore      time.Time `json:"notBefore,omitzero"`
	Timeout        string    `json:"timeout,omitempty"` // Go duration
	MaxAttempts    int       `json:"maxAttempts,omitempty"`
	MaxLimitWait   string    `json:"maxLimitWait,omitempty"`      // Go duration; "0s": do not wait for rate limits
	TenantID       string    `json:"tenantId,omitempty"`          // free text to filter by
	Queue          string    `json:"queue,omitempty"`             // likewise
	Fallback       []string  `json:"fallback,omitempty"`          // agents that may take over when the task's own is rate-limited
	OutputSpec     []string  `json:"outputSpec,omitempty"`        // files of the workspace to collect after the run: relative paths
	VerifyCommand  string    `json:"verifyCommand,omitempty"`     // for the shell: must pass after a run
	MaxIterations  int       `json:"maxIterations,omitempty"`     // rounds of agent and verify command; 0: as configured
	VerifyTimeout  string    `json:"verifyTimeout,omitempty"`     // Go duration
	TriggeredBy    string    `json:"triggeredByTaskId,omitempty"` // the task that has queued this one
	Trigger        Trigger   `json:"trigger,omitempty"`           // why it has
	Intake         string    `json:"intake,omitempty"`            // "open": an agent asked for it, and it had to wait for no person

	RunID      string    `json:"runId,omitempty"`
	Attempt    int       `json:"attempt,omitempty"`    // counted tries
	Retries    int       `json:"retries,omitempty"`    // interruptions by us
	Requeues   int       `json:"requeues,omitempty"`   // edits by hand that began it anew while it ran
	LimitWaits int       `json:"limitWaits,omitempty"` // waits for a rate limit
	Iteration  int       `json:"iteration,omitempty"`  // round of the verify loop, from 1; 0: there is no loop
	Phase      Phase     `json:"phase,omitempty"`      // what the present run carries out, or the next one begins with
	Reason     Class     `json:"reason,omitempty"`
	Error      string    `json:"error,omitempty"`
	ExitCode   *int      `json:"exitCode,omitempty"`
	Note       string    `json:"note,omitempty"`
	By         string    `json:"by,omitempty"` // who caused the last record
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	UpdatedAt  time.Time `json:"updatedAt,omitzero"`
	LimitSince time.Time `json:"limitSince,omitzero"`  // when the present wait for a rate limit began
	Usage      Usage     `json:"usage,omitzero"`       // of all runs of the task so far
	PromptKept string    `json:"promptKept,omitempty"` // native session whose history has the prompt of a turn that did not end well

	VerifyExitCode *int   `json:"verifyExitCode,omitempty"` // of the last verify run; -1: it did not end by itself
	VerifyTime     string `json:"verifyTime,omitempty"`     // how long that took: a Go duration

	Archived string `json:"archived,omitempty"` // file of the archive that has the task; "": it is in the journal

	InputFiles  []InputFile  `json:"inputFiles,omitempty"`  // of a whole task only, like its texts
	OutputFiles []OutputFile `json:"outputFiles,omitempty"` // likewise
	Findings    []Issue      `json:"findings,omitempty"`    // likewise

	Seq uint64 `json:"-"` // number of its last record; 0 where that was not read

	WorkspaceByHand bool `json:"-"` // a person's edit has named the workspace: nobody has checked it, and it may be a link

	Reworded bool `json:"-"` // it runs, and its prompt was changed since its agent's last turn began

	Steps []Step `json:"-"` // of a whole task only: its runs, in their order

	VerifyOutput string `json:"verifyOutput,omitempty"` // of a whole task: head and tail of what the last verify run printed, if it did not pass
	OnFailure    string `json:"onFailure,omitempty"`    // of a whole task: prompt of the task to queue when this one fails; a template
	OnIssue      string `json:"onIssue,omitempty"`      // likewise, when its answer has findings

	FollowUps []string `json:"followUps,omitempty"` // of a whole task: ids of the tasks that it has queued

	Title  string            `json:"title,omitempty"` // first line of the prompt that is not blank, cut to 80 characters
	Prompt string            `json:"prompt,omitempty"`
	Result string            `json:"result,omitempty"`
	Extra  map[string]string `json:"extra,omitempty"` // keys that stint does not know, kept
}

// Lane gives the name of the lane that the task waits in: its session key, or
// the lane of its workspace if it has none.
func (t *Task) Lane() string {
	if t.SessionKey == "" {
		return LanePrefixDir + t.Workspace
	}
	return t.SessionKey
}

// AccountName gives the name under which the task's account is held, cooled
// down and counted: its account, or the name of its agent if it has none, which
// is the name of that agent's default account.
func (t *Task) AccountName() string {
	if t.Account == "" {
		return t.Agent
	}
	return t.Account
}

// using gives the account that the task's run needs, the present or the next one: none
// for its verify command, and none for a judgement that is still to be asked for, as
// the task ends as it would without it: it is not to wait for one, nor to end for it.
func (t *Task) using() string {
	if t.Phase == PhaseVerify || t.Phase == PhaseEvaluate && t.Status == Queued {
		return ""
	}
	return t.AccountName()
}

// tried reports whether the task ran before, so that a time to wait for is a
// retry's and not the user's.
func (t *Task) tried() bool {
	return t.Attempt > 0 || t.Retries > 0 || t.LimitWaits > 0 || t.Reason == ClassInterrupted
}

// Passed reports whether the tasks behind it in its lane go before it: it is held, or
// waits for a time that its user has named.
func (t *Task) Passed(now time.Time) bool {
	return t.Hold || t.NotBefore.After(now) && !t.tried()
}

// Orphaned reports whether the task is held because the agent of its last run may
// still be alive. Until a person says that it is not, or a master proves it, its lane
// and its session are taken.
func (t *Task) Orphaned() bool { return t.Status == Queued && t.Hold && t.Reason == ClassOrphaned }

// rank is the task's priority with the default filled in.
func (t *Task) rank() int {
	if t.Priority == 0 {
		return 5
	}
	return t.Priority
}

// maxTitle is the length of a title in characters.
const maxTitle = 80

// TitleOf gives the title of a task with that prompt: its first line that is not
// blank, on one line and cut.
func TitleOf(prompt string) string {
	for line := range strings.Lines(prompt) {
		if line = strings.TrimSpace(line); line != "" {
			return cut(strings.Map(plain, line), maxTitle)
		}
	}
	return ""
}

// plain turns what could move a terminal's cursor into a blank.
func plain(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

// cut shortens s to at most n characters; the last one then is an ellipsis.
func cut(s string, n int) string {
	end := 0
	for i := range s {
		switch n--; n {
		case 0:
			end = i
		case -1:
			return s[:end] + "…"
		}
	}
	return s
}
