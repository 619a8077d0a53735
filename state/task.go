package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"stint/ledger"
)

// A Status is the state of a task. The set is closed; transition.go says which may follow which.
type Status string

// The Statuses of a task.
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

// A Class is the way in which a run failed; "" is success. It becomes the task's reason.
type Class string

// The failure classes (closed set).
const (
	ClassExit          Class = "exit"           // the agent ended with an error of its own
	ClassTimeout       Class = "timeout"        // the whole run took too long
	ClassStalled       Class = "stalled"        // no output for too long
	ClassVerify        Class = "verify"         // the verify command never passed
	ClassRateLimited   Class = "rate-limited"   // the provider said: later
	ClassAuth          Class = "auth"           // not logged in, refused, or the provider wants to be paid
	ClassNetwork       Class = "network"        // not reached, 5xx, broken stream
	ClassBudget        Class = "budget"         // a spending limit of the user's was reached
	ClassAgentMissing  Class = "agent-missing"  // no such program
	ClassOutputMissing Class = "output-missing" // ended well without an answer
	ClassSessionBusy   Class = "session-busy"   // someone else uses the agent's session
	ClassSessionLost   Class = "session-lost"   // the agent no longer knows the session
	ClassContextFull   Class = "context-full"   // the conversation is longer than the model can read
	ClassDenied        Class = "denied"         // a tool was denied, and the configuration wants that to fail
	ClassSetup         Class = "setup"          // its worktree could not be made, or set up
	ClassInterrupted   Class = "interrupted"    // by us: shutdown or crash
	ClassOrphaned      Class = "orphaned"       // by us, and its processes cannot be proved dead
	ClassCanceled      Class = "canceled"
)

// Classes are the closed set.
var Classes = [...]Class{
	ClassExit, ClassTimeout, ClassStalled, ClassVerify, ClassRateLimited, ClassAuth, ClassNetwork, ClassBudget,
	ClassAgentMissing, ClassOutputMissing, ClassSessionBusy, ClassSessionLost, ClassContextFull, ClassDenied, ClassSetup, ClassInterrupted, ClassOrphaned, ClassCanceled,
}

// Known reports whether a class is one of the set: a person may have written another reason into the ledger.
func (c Class) Known() bool { return slices.Contains(Classes[:], c) }

// A Phase says what a run of a task does; "" is an agent's turn.
type Phase string

// The phases of an attempt, in their order, behind the agent's turn.
const (
	PhaseVerify   Phase = "verify"   // the verify command
	PhaseEvaluate Phase = "evaluate" // the turn of an agent that judges the answer
)

// An Issue is something about an answer that a person should look at.
type Issue struct {
	Kind    string `json:"kind" doc:"What kind of finding it is" example:"tests-deleted"`
	Message string `json:"message" doc:"One sentence about it" example:"The change removes the test TestLogin."`
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
	Name    string `json:"name" doc:"Relative path" example:"notes/plan.txt"`
	Content string `json:"content" doc:"The text of the file" example:"1. Reproduce the failure."`
}

// An OutputFile is a file that was collected from the workspace after a run, into
// the run's directory files. Path is relative to both.
type OutputFile struct {
	Path   string `json:"path" doc:"Relative path, in the workspace and in the directory files of the run" example:"report.md"`
	Size   int64  `json:"size" doc:"In bytes" example:"1204"`
	SHA256 string `json:"sha256,omitempty" doc:"SHA-256 of the file, in hex" example:"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"`
}

// What has become of a file.
const (
	FileAdded    = "added"
	FileModified = "modified"
	FileDeleted  = "deleted"
	FileRenamed  = "renamed"
)

// A FileChange is what an attempt has done to one file.
type FileChange struct {
	Path    string `json:"path" doc:"Path, relative to the workspace" example:"cart.go"`
	From    string `json:"from,omitempty" doc:"Of a renamed file: its path before" example:"basket.go"`
	Change  string `json:"change" enum:"added,modified,deleted,renamed" doc:"What has become of it" example:"modified"`
	Added   int    `json:"added,omitempty" doc:"Lines that were added" example:"12"`
	Removed int    `json:"removed,omitempty" doc:"Lines that were removed" example:"3"`
	Binary  bool   `json:"binary,omitempty" doc:"It has no lines" example:"true"`
}

// Changes are what an attempt has changed in its git checkout, as two trees of git show it.
type Changes struct {
	Files     int     `json:"files" doc:"Files that were added, modified, deleted or renamed" example:"2"`
	Added     int     `json:"added" doc:"Lines that were added" example:"12"`
	Removed   int     `json:"removed" doc:"Lines that were removed" example:"3"`
	Uncertain bool    `json:"uncertain,omitempty" doc:"Another task ran in the checkout meanwhile: some of it may be its doing" example:"true"`
	Before    string  `json:"before" doc:"Id of git's tree before the first turn; empty if only the branch is known" example:"4b825dc642cb6eb9a060e54bf8d69288fbee4904"`
	After     string  `json:"after" doc:"Id of git's tree after the last turn; empty if only the branch is known" example:"8d2636da55da593c421e1cb09eea502a05556a69"`
	Branch    *Branch `json:"branch,omitempty" doc:"The branch of its worktree, if it has one"`
}

// A Branch is what the branch of a task's worktree has that no other branch has.
type Branch struct {
	Name    string `json:"name" doc:"Name of the branch" example:"stint/web"`
	Tip     string `json:"tip" doc:"Id of its last commit" example:"8d2636da55da593c421e1cb09eea502a05556a69"`
	Commits int    `json:"commits" doc:"How many commits it has that have not landed" example:"2"`
	Files   int    `json:"files" doc:"How many files they change" example:"3"`
	Added   int    `json:"added" doc:"Lines added" example:"12"`
	Removed int    `json:"removed" doc:"Lines removed" example:"3"`
}

// IsTree reports whether s is the id of a tree of git, in full.
func IsTree(s string) bool {
	return len(s) >= 40 && len(s) <= 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// String returns the lines that were added and removed: "+12 −3"; of a worktree's branch those that have not landed, with their commits; of files without lines their
// number, with a question mark if that is uncertain, and "" if nothing has changed.
func (c *Changes) String() string {
	if c != nil && c.Branch != nil && c.Branch.Commits > 0 {
		return fmt.Sprintf("%s, +%d −%d", ledger.Plural(c.Branch.Commits, "commit", "commits"), c.Branch.Added, c.Branch.Removed)
	}
	if c == nil || c.Files == 0 {
		return ""
	}
	text := fmt.Sprintf("+%d −%d", c.Added, c.Removed)
	if c.Added+c.Removed == 0 {
		text = fmt.Sprintf("files: %d", c.Files)
	}
	if c.Uncertain {
		text += "?"
	}
	return text
}

// Usage is an amount of tokens and money. Input tokens include the cached ones, output tokens those of
// reasoning. CostUSD is 0 where the CLI does not know a price, as with a flat plan.
type Usage struct {
	InputTokens       int64   `json:"inputTokens,omitempty" doc:"Input tokens, those from the cache included" example:"48213"`
	CachedInputTokens int64   `json:"cachedInputTokens,omitempty" doc:"Input tokens that came from the cache" example:"39104"`
	OutputTokens      int64   `json:"outputTokens,omitempty" doc:"Output tokens, those of reasoning included" example:"2810"`
	ReasoningTokens   int64   `json:"reasoningTokens,omitempty" doc:"Output tokens of reasoning" example:"704"`
	CostUSD           float64 `json:"costUsd,omitempty" doc:"Cost in US dollars as the agent reports it; left out where it knows no price, as with a flat plan" example:"0.31"`
}

// A Task is the folded view of one task. The names of its JSON are the keys of the ledger, but for Title,
// AgentSession and Extra, which are put together from several. Prompt and Result are empty where the text was
// left in the file. What ExitCode, After and Changes point to must not be changed.
type Task struct {
	ID             string    `json:"id" doc:"Id of the task" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	Status         Status    `json:"status" doc:"What the task does now" example:"done"`
	SessionKey     string    `json:"sessionKey,omitempty" doc:"The lane of the task: the name of a session, dir: and a directory, or task: and an id" example:"web"`
	SessionID      string    `json:"sessionId,omitempty" doc:"Id of the conversation, which names its transcript" example:"019ab3f0-70aa-7b52-8f1e-5d0c3b9e4a10"`
	Workspace      string    `json:"workspace,omitempty" doc:"Absolute path of the directory in which the agent works" example:"/home/ana/shop"`
	Isolation      string    `json:"isolation,omitempty" doc:"temp: the workspace is a directory of the task's own, which is removed after its end; worktree, or worktree= and what that is made from: it is the git worktree of the session; left out: it is the one that was named" example:"worktree"`
	Agent          string    `json:"agent,omitempty" doc:"Name of the agent" example:"codex"`
	Model          string    `json:"model,omitempty" doc:"Model, as the agent's CLI knows it; left out: the CLI's own choice" example:"gpt-5.5"`
	Account        string    `json:"account,omitempty" doc:"Account whose credentials are used" example:"codex-main"`
	Pinned         bool      `json:"pinned,omitempty" doc:"A person has named the account, and no other one will do" example:"false"`
	Budget         string    `json:"budget,omitempty" doc:"What its runs may spend in all; left out: as configured" example:"5usd"`
	Spare          bool      `json:"spare,omitempty" doc:"It runs only on quota that would otherwise lapse" example:"false"`
	Resume         string    `json:"resume,omitempty" enum:"auto,always,never" doc:"Whether the agent resumes its conversation" example:"auto"`
	AgentSession   string    `json:"agentSession,omitempty" doc:"Id of the conversation as the agent's CLI knows it" example:"01999d1c-5f0b-7c11-b1c4-2a8d0e7c9b31"`
	Priority       int       `json:"priority,omitempty" doc:"1 to 9, 9 first; left out: 5" example:"5"`
	Order          int64     `json:"order,omitempty" doc:"Explicit place in the lane; left out: by age" example:"1"`
	Label          string    `json:"label,omitempty" doc:"Free text to filter lists by" example:"nightly"`
	IdempotencyKey GivenKey  `json:"idempotencyKey,omitempty" doc:"The idempotency key as the client gave it; the tasks of a list share that of the list" example:"deps-2026-11-21"`
	After          []string  `json:"after,omitempty" doc:"Ids of the tasks that must be done first" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	AfterPolicy    string    `json:"afterPolicy,omitempty" enum:"any,done" doc:"any: it is enough that those have ended" example:"any"`
	Hold           bool      `json:"hold,omitempty" doc:"The task waits until it is released" example:"true"`
	Notify         bool      `json:"notify,omitempty" doc:"The user is told how the task ends, whatever [[notify]] of the configuration filters" example:"true"`
	NotBefore      time.Time `json:"notBefore,omitzero" doc:"The task does not start before this instant" example:"2026-11-21T03:15:09.482Z"`
	Timeout        string    `json:"timeout,omitempty" doc:"Longest run: a Go duration" example:"30m"`
	MaxAttempts    int       `json:"maxAttempts,omitempty" doc:"How often the task is tried" example:"3"`
	MaxLimitWait   string    `json:"maxLimitWait,omitempty" doc:"Longest wait for rate limits: a Go duration; 0s: none" example:"24h"`
	TenantID       string    `json:"tenantId,omitempty" doc:"Free text to filter lists by" example:"ana"`
	Queue          string    `json:"queue,omitempty" doc:"Free text to filter lists by" example:"nightly"`
	Fallback       []string  `json:"fallback,omitempty" doc:"Agents that may take over when the task's own is rate-limited" example:"claude"`
	Allow          []string  `json:"allow,omitempty" doc:"What the agent may use besides: rules as claude has them" example:"Bash(go test *)"`
	OutputSpec     []string  `json:"outputSpec,omitempty" doc:"Files of the workspace to collect after the run: relative paths" example:"report.md"`
	VerifyCommand  string    `json:"verifyCommand,omitempty" doc:"Shell command that must pass after a run" example:"go test ./..."`
	MaxIterations  int       `json:"maxIterations,omitempty" doc:"Most iterations of agent and verify command; left out: as configured" example:"3"`
	VerifyTimeout  string    `json:"verifyTimeout,omitempty" doc:"Longest run of the verify command: a Go duration" example:"5m"`
	TriggeredBy    string    `json:"triggeredByTaskId,omitempty" doc:"Id of the task that queued this one" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	SharedID       string    `json:"sharedId,omitempty" doc:"Id of the task in the shared queue that this one runs for a worker" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	Trigger        Trigger   `json:"trigger,omitempty" enum:"failure,issue,agent" doc:"Why that task queued this one: it failed, its answer has findings, or its agent asked for it" example:"failure"`
	Intake         string    `json:"intake,omitempty" enum:"open" doc:"open: an agent asked for the task, and it did not have to wait for a person" example:"open"`
	Environment    string    `json:"environment,omitempty" doc:"Digest of the environment that the task's programs run in, as its user's call had it; left out: that of the master" example:"9f86d081884c7d659a2feaa0c55ad015"`

	RunID           string    `json:"runId,omitempty" doc:"Id of the present run, or the last one" example:"019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee"`
	Attempt         int       `json:"attempt,omitempty" doc:"Counted tries" example:"1"`
	Retries         int       `json:"retries,omitempty" doc:"Interruptions by stint, which spend no attempt" example:"1"`
	Requeues        int       `json:"requeues,omitempty" doc:"How often an edit by hand restarted the task while it ran" example:"1"`
	LimitWaits      int       `json:"limitWaits,omitempty" doc:"Waits for a rate limit" example:"1"`
	Iteration       int       `json:"iteration,omitempty" doc:"Iteration of the verify loop, from 1; left out: there is no loop" example:"1"`
	Phase           Phase     `json:"phase,omitempty" enum:"verify,evaluate" doc:"What the present run does, or the next one begins with; left out: a turn of the agent" example:"verify"`
	Reason          Class     `json:"reason,omitempty" doc:"How the last run failed. A person may have written another word into the ledger" example:"exit"`
	Error           string    `json:"error,omitempty" doc:"Why it failed, in words" example:"exit status 1: no space left on device"`
	ExitCode        *int      `json:"exitCode,omitempty" doc:"Exit code of the agent" example:"0"`
	Note            string    `json:"note,omitempty" doc:"Note of the last record" example:"waits for review"`
	By              string    `json:"by,omitempty" doc:"Who caused the last record: client, hand, agent, or stint itself" example:"client"`
	CreatedAt       time.Time `json:"createdAt,omitzero" doc:"When the task was submitted" example:"2026-11-21T03:12:45.123Z"`
	StartedAt       time.Time `json:"startedAt,omitzero" doc:"When its last attempt began: with the first turn of its agent" example:"2026-11-21T03:12:45.131Z"`
	RunStartedAt    time.Time `json:"runStartedAt,omitzero" doc:"When its last run began, which may be that of its verify command" example:"2026-11-21T03:14:02.507Z"`
	UpdatedAt       time.Time `json:"updatedAt,omitzero" doc:"When its last record was written" example:"2026-11-21T03:15:09.482Z"`
	LimitSince      time.Time `json:"limitSince,omitzero" doc:"When the present wait for a rate limit began" example:"2026-11-21T03:15:09.482Z"`
	Usage           Usage     `json:"usage,omitzero" doc:"What all runs of the task have used so far"`
	PromptInHistory string    `json:"promptKept,omitempty" doc:"Conversation whose history has the prompt of a turn that did not end well" example:"01999d1c-5f0b-7c11-b1c4-2a8d0e7c9b31"`

	VerifyExitCode *int   `json:"verifyExitCode,omitempty" doc:"Exit code of the last verify run; -1: it did not end by itself" example:"0"`
	VerifyTime     string `json:"verifyTime,omitempty" doc:"How long the last verify run took: a Go duration" example:"8.2s"`

	Changes *Changes `json:"changes,omitempty" doc:"What its last attempt has changed in its git checkout; left out: that is not known"`

	Archived string `json:"archived,omitempty" doc:"File of the archive that has the task; left out: it is in the journal" example:"tasks-2026-11.md"`

	InputFiles   []InputFile  `json:"inputFiles,omitempty" doc:"Files that came with the task. Only in answers about one task"`
	OutputFiles  []OutputFile `json:"outputFiles,omitempty" doc:"Files that were collected after its last run. Only in answers about one task"`
	ChangedFiles []FileChange `json:"changedFiles,omitempty" doc:"The first hundred of the files that were changed. Only in answers about one task"`
	Findings     []Issue      `json:"findings,omitempty" doc:"What a person should look at. Only in answers about one task"`

	Seq uint64 `json:"-"` // number of its last record; 0 where that was not read

	WorkspaceByHand bool `json:"-"` // a person's edit has named the workspace: nobody has checked it, and it may be a link

	Within string `json:"-"` // top of the checkout when it was queued, if that is above the workspace; see Place

	PromptChanged bool `json:"-"` // it runs, and its prompt was changed since its agent's last turn began

	Steps []Step `json:"-"` // of a whole task only: its runs, in their order

	VerifyOutput string `json:"verifyOutput,omitempty" doc:"Head and tail of what the last verify run printed, if it did not pass. Only in answers about one task" example:"--- FAIL: TestLogin"`
	OnFailure    string `json:"onFailure,omitempty" doc:"Prompt of the task to queue when this one fails: a template. Only in answers about one task" example:"Say why task {{.ID}} failed: {{.Error}}"`
	OnIssue      string `json:"onIssue,omitempty" doc:"Prompt of the task to queue when the answer of this one has findings: a template. Only in answers about one task" example:"Look at the findings of {{.ID}}."`

	OutputPolicy string `json:"outputPolicy,omitempty" doc:"How the answer is to look: brief, final, none, or a text; left out: as configured. Only in answers about one task" example:"final"`

	FollowUps []string `json:"followUps,omitempty" doc:"Ids of the tasks that this one queued. Only in answers about one task" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`

	Title  string            `json:"title,omitempty" doc:"First line of the prompt, cut to 80 characters" example:"Fix the flaky login test."`
	Prompt string            `json:"prompt,omitempty" doc:"The prompt. Only in answers about one task" example:"Fix the flaky login test."`
	Result string            `json:"result,omitempty" doc:"The answer of the agent, cut to 64 KiB; of a task that failed without one its error. Only in answers about one task" example:"The test waited for a timer; it now waits for the event."`
	Extra  map[string]string `json:"extra,omitempty" doc:"Fields of the ledger that stint does not know, kept as they are" example:"{\"ticket\":\"SHOP-17\"}"`
}

// Answer returns the answer of the agent: the result, unless that only repeats the error of a task that failed without an answer.
func (t *Task) Answer() string {
	if t.Result == t.Error {
		return ""
	}
	return t.Result
}

// Place returns the directory whose checkout the task is in: whatever .git comes to be below it, a run may have made
// that. A task that a run asks for in its own checkout is in that one.
func (t *Task) Place() string {
	if !t.WorkspaceByHand && t.Within != "" && strings.HasPrefix(t.Workspace+"/", t.Within+"/") {
		return t.Within
	}
	return t.Workspace
}

// Overlap reports whether one directory is the other or lies in it. A checkout in another one counts with that: a
// run can have made it, or can take the outer .git away.
func Overlap(a, b string) bool {
	return strings.HasPrefix(a+"/", b+"/") || strings.HasPrefix(b+"/", a+"/")
}

// Lane returns the name of the lane that the task waits in: its session key, or if it has none that of its workspace, or its own
// if it has a directory of its own.
func (t *Task) Lane() string {
	switch {
	case t.SessionKey != "":
		return t.SessionKey
	case t.Isolation != "":
		return LanePrefixTask + t.ID
	}
	return LanePrefixDir + t.Workspace
}

// LaneName returns what the lane of that key is called in a sentence.
func LaneName(key string) string {
	if dir, ok := strings.CutPrefix(key, LanePrefixDir); ok {
		return "the lane of " + cmp.Or(dir, "no directory")
	}
	return "session " + key
}

// AccountName returns the name under which the task's account is held, cooled down and counted: its account,
// or the name of its agent if it has none, which is the name of that agent's default account.
func (t *Task) AccountName() string {
	return cmp.Or(t.Account, t.Agent)
}

// UsedAccount returns the account that the task's run needs, the present or the next one: none
// for its verify command, and none for a judgement that is still to be asked for, as
// the task ends as it would without it: it is not to wait for one, nor to end for it.
func (t *Task) UsedAccount() string {
	if t.Phase == PhaseVerify || t.Phase == PhaseEvaluate && t.Status == Queued {
		return ""
	}
	return t.AccountName()
}

// Tried reports whether the task ran before, so that a time to wait for is a retry's and not the user's.
func (t *Task) Tried() bool {
	return t.Attempt > 0 || t.Retries > 0 || t.LimitWaits > 0 || t.Reason == ClassInterrupted
}

// Passed reports whether the tasks behind it in its lane go before it: it is held, or waits for a time that its user has named.
func (t *Task) Passed(now time.Time) bool {
	return t.Hold || t.NotBefore.After(now) && !t.Tried()
}

// Orphaned reports whether the task is held because the agent of its last run may still be alive. Until a
// person says that it is not, or a master proves it, its lane and its session are taken.
func (t *Task) Orphaned() bool { return t.Status == Queued && t.Hold && t.Reason == ClassOrphaned }

// Rank is the task's priority with the default filled in.
func (t *Task) Rank() int {
	return cmp.Or(t.Priority, 5)
}

// maxTitle is the length of a title in characters.
const maxTitle = 80

// TitleOf returns the title of a task with that prompt: its first line that is not blank, on one line and cut.
func TitleOf(prompt string) string {
	for line := range strings.Lines(prompt) {
		if line = strings.TrimSpace(line); line != "" {
			return Cut(strings.Map(plain, line), maxTitle)
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

// Cut shortens s to at most n characters; the last one then is an ellipsis.
func Cut(s string, n int) string {
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

// LastRef is the reference that stint takes for the task created last.
const LastRef = "@last"

// The largest texts that a task is given, in bytes. What is in the journal is read whatever its size.
const (
	MaxPrompt = 1 << 20
	MaxPolicy = 64 << 10
)
