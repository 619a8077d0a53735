package state

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"stint/ledger"
)

// Keys of task records. They are the JSON names of [Task].
const (
	KeyStatus          = "status"
	KeySessionKey      = "sessionKey"
	KeySessionID       = "sessionId"
	KeyWorkspace       = "workspace"
	KeyWorkspaceBy     = "workspaceBy" // hand or none, if not the one in by has named the workspace
	KeyAgent           = "agent"
	KeyTool            = "tool" // read as agent, never written
	KeyModel           = "model"
	KeyAccount         = "account"
	KeyBudget          = "budget" // what its runs may spend in all; see limits.ParseBudget
	KeySpare           = "spare"  // true: only quota that would otherwise lapse is for it
	KeyPinned          = "pinned" // true: a person has named the account, and no other one will do
	KeyResume          = "resume"
	KeyIsolation       = "isolation"
	KeyPriority        = "priority"
	KeyOrder           = "order"
	KeyLabel           = "label"
	KeyIdempotencyKey  = "idempotencyKey"
	KeyAfter           = "after"
	KeyAfterPolicy     = "afterPolicy"
	KeyHold            = "hold"
	KeyNotify          = "notify"
	KeyNotBefore       = "notBefore"
	KeyTimeout         = "timeout"
	KeyMaxAttempts     = "maxAttempts"
	KeyMaxLimitWait    = "maxLimitWait"
	KeyTenantID        = "tenantId"
	KeyQueue           = "queue"
	KeyFallback        = "fallback"
	KeyAllow           = "allow"
	KeyInputFiles      = "inputFiles"
	KeyOutputPolicy    = "outputPolicy"
	KeyOutputSpec      = "outputSpec"
	KeyOutputFiles     = "outputFiles"
	KeyPromptInHistory = "promptKept"
	KeyThreadTokens    = "threadTokens"
	KeyEndedRuns       = "endedRuns"   // of a merged record: its runs
	KeySteps           = "steps"       // of a merged record: the steps, where they do not follow from the task alone
	KeyFirstSeq        = "firstSeq"    // of a merged record: the number of the task's first record
	KeyEnvironment     = "environment" // digest of the environment of its programs
	KeyRunID           = "runId"
	KeyAttempt         = "attempt"
	KeyRetries         = "retries"
	KeyRequeues        = "requeues"
	KeyLimitWaits      = "limitWaits"
	KeyIteration       = "iteration"
	KeyPhase           = "phase"
	KeyReason          = "reason"
	KeyError           = "error"
	KeyExitCode        = "exitCode"
	KeyNote            = "note"
	KeyBy              = ledger.KeyBy
	KeyCreatedAt       = "createdAt"
	KeyStartedAt       = "startedAt"        // of the run
	KeyAttemptStarted  = "attemptStartedAt" // of a merged record, where the attempt did not begin with that run
	KeyUpdatedAt       = "updatedAt"
	KeyLimitSince      = "limitSince"
	KeyPrompt          = "prompt"
	KeyResult          = "result"

	KeyInputTokens       = "inputTokens"
	KeyCachedInputTokens = "cachedInputTokens"
	KeyOutputTokens      = "outputTokens"
	KeyReasoningTokens   = "reasoningTokens"
	KeyCostUSD           = "costUsd"

	KeyVerifyCommand  = "verifyCommand" // must pass after a run
	KeyMaxIterations  = "maxIterations"
	KeyVerifyTimeout  = "verifyTimeout"
	KeyVerifyExitCode = "verifyExitCode"
	KeyVerifyTime     = "verifyTime"
	KeyVerifyOutput   = "verifyOutput"
	KeyFindings       = "findings"
	KeyChanges        = "changes"      // in a git checkout, by the last attempt
	KeyChangedFiles   = "changedFiles" // a hundred of them
	KeyOnFailure      = "onFailure"
	KeyOnIssue        = "onIssue"
	KeyTriggeredBy    = "triggeredByTaskId"
	KeySharedID       = "sharedId" // the task of the shared queue whose twin this one is
	KeyTrigger        = "trigger"
	KeyIntake         = "intake"
	KeyWithin         = "within" // top of the checkout, if that is above the workspace
)

// Names and keys of control records. KeyHold, KeyReason and KeyLimitWaits are theirs too.
const (
	ControlDispatch = "dispatch"     // the record that pauses dispatch
	ControlAccount  = "account:"     // with the account's name behind it
	ControlSchedule = "schedule:"    // with the schedule's name behind it
	ControlInstance = "instance:"    // with the id of an instance behind it
	KeyPaused       = "paused"       // of ControlDispatch and ControlSchedule
	KeyCoolUntil    = "coolUntil"    // of ControlAccount
	KeyCoolGuessed  = "coolGuessed"  // of ControlAccount: nobody has named coolUntil, it is a backoff
	KeyLimitedAt    = "limitedAt"    // of ControlAccount: when it met its last rate limit
	KeyQuota        = "quota"        // of ControlAccount: what its CLI told of it last; see FormatQuota
	KeyDisabled     = "disabled"     // of ControlAccount: a person has taken it out of use
	KeyCron         = "cron"         // of ControlSchedule: the expression and zone to which the next key belongs
	KeyFiredThrough = "firedThrough" // of ControlSchedule: up to that instant each firing was made or skipped
	KeyOpenFirings  = "openFirings"  // of ControlSchedule: instants of the firings that have not ended, separated by blanks
	KeyUser         = "user"         // of ControlInstance: who has claimed it
	KeyTgUser       = "tgUser"       // of ControlInstance: id of that user at Telegram
	KeyBotRef       = "botRef"       // of ControlInstance: where the token of its bot is; never the token itself
	KeyClaimedAt    = "claimedAt"    // of ControlInstance
	KeyInitAt       = "initAt"       // of ControlInstance: when it was asked last to be set up
	KeyHealth       = "health"       // of ControlInstance: running, idle or failed; left out: unknown
	KeyFailCount    = "failCount"    // of ControlInstance: checks that failed since the last one that did not
	KeyLowBalance   = "lowBalance"   // of ControlInstance: its key is nearly used up, and that was told
)

// copied has the keys that say what a task is to do, and where, and how.
var copied = map[string]bool{
	KeyPrompt: true, KeySessionKey: true, KeyWorkspace: true, KeyAgent: true, KeyTool: true, KeyModel: true,
	KeyAccount: true, KeyPinned: true, KeySpare: true, KeyResume: true, KeyPriority: true, KeyLabel: true, KeyAfter: true, KeyAfterPolicy: true,
	KeyTimeout: true, KeyMaxAttempts: true, KeyMaxLimitWait: true, KeyVerifyCommand: true,

	KeyTenantID: true, KeyQueue: true, KeyFallback: true, KeyAllow: true, KeyInputFiles: true, KeyOutputSpec: true,
	KeyMaxIterations: true, KeyVerifyTimeout: true, KeyOnFailure: true, KeyOnIssue: true, KeyOutputPolicy: true, KeyEnvironment: true, KeyBudget: true, KeyIsolation: true,
}

// Copied reports whether a task that a person makes by copying the section of another keeps that field. What
// belongs to the other's runs is never kept, nor is its idempotency key.
func Copied(key string) bool { return copied[key] }

// otherKeys are those that mean something and are not in fields.
var otherKeys = []string{
	KeyStatus, KeySessionKey, KeySessionID, KeyWorkspace, KeyWorkspaceBy, KeyAgent, KeyTool, KeyAccount, KeyResume, KeyPriority, KeyOrder,
	KeyMaxIterations, KeyPhase, KeyPrompt, KeyInputFiles, KeyFindings, KeyChanges, KeyChangedFiles, KeyOutputFiles, KeyThreadTokens, KeyEndedRuns, KeySteps,
	KeyFirstSeq, KeyPaused, KeyCoolUntil, KeyCoolGuessed, KeyLimitedAt, KeyDisabled, KeyQuota, KeyBudget, KeyIsolation,
}

// otherWords maps what options of the command line are called to the keys that they set.
var otherWords = map[string]string{"session": KeySessionKey, "verify": KeyVerifyCommand, "cwd": KeyWorkspace, "directory": KeyWorkspace, "workdir": KeyIsolation, "policy": KeyOutputPolicy}

// MeantKey returns the key that a person who wrote key probably meant: key itself where it is known, one that differs in upper
// and lower case, or in one letter, or in two of a long one; "" if there is none, so that the key is the person's own.
func MeantKey(key string) string {
	if fields[key] != nil || slices.Contains(otherKeys, key) {
		return key
	}
	if word := otherWords[key]; word != "" {
		return word
	}
	known := slices.AppendSeq(slices.Clone(otherKeys), maps.Keys(fields))
	slices.Sort(known)
	for _, k := range known {
		if strings.EqualFold(k, key) {
			return k
		}
	}
	near := Nearest(key, known)
	if d := distance(key, near); near == "" || d > 1+len(key)/10 || len(key) < 4 {
		return ""
	}
	return near
}

// LanePrefixTask begins the session key of a task that has a lane of its own;
// the task's id follows. LanePrefixDir begins the key of a directory's lane.
const (
	LanePrefixTask = "task:"
	LanePrefixDir  = "dir:"
)

// The values of isolation: a task works in the workspace that it names, as without a value, in an empty directory of its own, or in
// the git worktree of its session, behind which an equals sign and what that is made from may stand.
const (
	IsolationInPlace  = "in-place"
	IsolationTemp     = "temp"
	IsolationWorktree = "worktree"
)

// WorktreeBase returns what the worktree of a task with that isolation is made from, "" for what is checked out. ok is false if it has none.
func WorktreeBase(isolation string) (base string, ok bool) {
	word, base, named := strings.Cut(isolation, "=")
	return base, word == IsolationWorktree && named == (base != "")
}

// The values of afterPolicy: a task may run when those that it comes after have
// ended, however they ended; or, as without a value, when they are done.
const (
	AfterAny  = "any"
	AfterDone = "done"
)

// NativeKey returns the key under which the native session id of an agent stands in a task record: codexSessionId for codex.
func NativeKey(agent string) string { return agent + nativeSuffix }

const nativeSuffix = "SessionId"

// firstAgents are the agents that were there before a record could have the native session id of any other. With an id of one
// of these, a record need not name the agent, and it is never a key of a person's own, as another key of that form may be. The
// list is part of the format and closed: a new agent's records name it. It cannot come from the configuration, because the fold
// of a ledger must not depend on which agents are installed.
var firstAgents = []string{"codex", "claude", "gemini", "demo"}

// nativeAgent returns the agent of a key that [NativeKey] returns, and whether it is one.
func nativeAgent(key string) (agent string, ok bool) {
	agent, ok = strings.CutSuffix(key, nativeSuffix)
	return agent, ok && agent != ""
}

// timeFormat is RFC 3339 with milliseconds, in UTC.
const timeFormat = "2006-01-02T15:04:05.000Z"

// FormatTime returns t as it stands in the ledger: UTC, with milliseconds, such as 2026-11-21T03:12:45.123Z. For the zero time
// that is "", which unsets a field, and for one beyond the year 9999 the end of that year: [ParseTime] takes no later one.
func FormatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	if t = t.UTC(); t.Year() > 9999 {
		t = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
	}
	return t.Format(timeFormat)
}

// ParseTime reads a time as RFC 3339 has it, with any zone and any fraction of a
// second, and returns it in UTC. "" is the zero time.
func ParseTime(s string) (time.Time, error) { return parseTime([]byte(s)) }

// readTime reads a time as FormatTime writes it, on a day that every month has; ok is false of any other.
func readTime(b []byte) (t time.Time, ok bool) {
	if len(b) != len(timeFormat) || b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[19] != '.' || b[23] != 'Z' {
		return t, false
	}
	n, ok := [8]int{}, b[22]-'0' <= 9 // two digits each
	for i, at := range [8]int{0, 2, 5, 8, 11, 14, 17, 20} {
		n[i] = int(b[at]-'0')*10 + int(b[at+1]-'0')
		ok = ok && b[at]-'0' <= 9 && b[at+1]-'0' <= 9
	}
	year, milli := n[0]*100+n[1], n[7]*10+int(b[22]-'0')
	ok = ok && year > 0 && n[2] > 0 && n[2] <= 12 && n[3] > 0 && n[3] <= 28 && n[4] <= 23 && n[5] <= 59 && n[6] <= 59
	return time.Date(year, time.Month(n[2]), n[3], n[4], n[5], n[6], milli*1e6, time.UTC), ok
}

func parseTime(b []byte) (time.Time, error) {
	t, ok := readTime(b)
	if ok || len(b) == 0 {
		return t, nil
	}
	if err := t.UnmarshalText(b); err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time such as 2026-11-21T03:12:45Z", b)
	}
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 { // no JSON can hold it
		return time.Time{}, fmt.Errorf("%q is outside the years 1 to 9999", b)
	}
	return t, nil
}
