package state

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/ledger"
	"stint/state/limits"
)

// A RecordError says why a record has no effect.
type RecordError struct {
	Kind ledger.Kind
	ID   string
	Seq  uint64 // 0: written by a person
	Key  string // the field concerned, "" if it is the record as a whole
	Err  error
}

// Error returns the sentence, without the line, which only means something beside a file's name.
func (e *RecordError) Error() string {
	where := fmt.Sprintf("%s %s", e.Kind, e.ID)
	if e.Seq > 0 {
		where += fmt.Sprintf(", record %d", e.Seq)
	}
	if e.Key != "" {
		where += ": " + e.Key
	}
	return where + ": " + e.Err.Error()
}

// Unwrap returns the reason.
func (e *RecordError) Unwrap() error { return e.Err }

// FieldKey returns Key; by it the ledger finds the line in the file of a person's section.
func (e *RecordError) FieldKey() string { return e.Key }

// NewRecordError puts err into its place; f is the field concerned, or nil.
func NewRecordError(sec *ledger.Section, f *ledger.Field, err error) error {
	e := &RecordError{Kind: sec.Kind, ID: string(sec.ID), Seq: sec.Seq, Err: err}
	if f != nil {
		e.Key = string(f.Key)
	}
	return e
}

// A Native is the native session id that a task has with an agent.
type Native struct{ Agent, ID string }

// Keep is how much of a task's texts the fold holds on to.
type Keep uint8

const (
	KeepNone  Keep = iota
	KeepTitle      // the first line of the prompt
	KeepAll        // prompt, result and unknown keys too
)

// Folded is one task as its records make it. Of the Task in it, ID and Title
// are left empty, and the texts too, unless keep says otherwise.
type Folded struct {
	Task
	Natives  []Native // by agent; never changed in place
	PromptAt int64    // offset of the record that has the prompt, plus 1
	Thread   Usage    // what the CLI has counted over the whole native session
	Counted  bool     // the last record says so

	Binds   bool // the last record named the session, its key, agent or account
	Learned bool // the last record named the native session id of the task's agent
}

// Apply folds one record into t. It is the same for live records, replay and
// reading back. On an error t is spoilt: callers work on a copy.
func (t *Folded) Apply(sec *ledger.Section, p *Pool, k Keep) error {
	from, named, by := t.Status, (*ledger.Field)(nil), t.By
	var before Task
	if k == KeepAll {
		before = t.Task
	}
	t.Seq = sec.Seq
	started, native, run, promptAt := t.RunStartedAt, t.AgentSession, t.RunID, t.PromptAt
	t.By, t.Binds, t.Learned, t.Counted = "", false, false, false
	for i := range sec.Fields {
		f := &sec.Fields[i]
		if err := t.set(sec, f, p, k); err != nil {
			return NewRecordError(sec, f, err)
		}
		if string(f.Key) == KeyStatus {
			named = f
		}
	}
	if from == "" && named == nil {
		t.Status = Draft
	}
	byHand := t.By == ledger.ByHand
	if sec.Get(KeyWorkspace) != nil {
		t.WorkspaceByHand = t.Workspace != "" && cmp.Or(sec.Value(KeyWorkspaceBy), t.By) == ledger.ByHand
	}
	if (from == "" || named != nil) && !CanFollow(from, t.Status, byHand) {
		return NewRecordError(sec, named, &TransitionError{From: from, To: t.Status, ByHand: byHand})
	}
	if t.Status == Running && from != Running && t.RunStartedAt.Equal(started) {
		t.RunStartedAt = t.UpdatedAt
	}
	if t.StartedAt.IsZero() || t.RunStartedAt.IsZero() || t.Status == Running && t.Phase == "" && t.Iteration <= 1 { // as in LastAttempt
		t.StartedAt = t.RunStartedAt
	}
	if from != "" {
		t.rewind(t.PromptAt != promptAt, run)
	}
	if t.Reason == ClassOrphaned && !t.Hold {
		t.Reason = ClassInterrupted // it was released: a hold from here on is a person's
	}
	if byHand && from == Queued && t.Status.Terminal() && t.Reason == ClassInterrupted && sec.Get(KeyReason) == nil {
		t.Reason = "" // of a run that did not end; a person says how the task did
	}
	if t.By == ledger.ByClient && named == nil && from.Terminal() {
		t.By = by // how the task ended was another's doing
	}
	t.AgentSession = t.Native(t.Agent)
	t.Learned = t.Agent != "" && sec.Get(NativeKey(t.Agent)) != nil
	if t.AgentSession != native && !t.Counted {
		t.Thread = Usage{} // what was counted was another session
	}
	if k == KeepAll {
		delete(t.Extra, NativeKey(t.Agent)) // stint knows it
		t.Steps = StepsAfter(t.Steps, &before, &t.Task, sec)
	}
	return nil
}

// rewind lets a verify loop begin anew when the prompt has changed: at once, or, while
// the task runs, with the next turn of its agent. run is the one before the record.
func (t *Folded) rewind(changed bool, run string) {
	switch {
	case changed:
		t.PromptChanged = true
	case t.RunID != run && t.Phase == "":
		t.PromptChanged = false // that turn gets it
	}
	if !t.PromptChanged || t.Status == Running {
		return
	}
	if t.PromptChanged = false; changed || !t.Status.Terminal() {
		t.Phase, t.Iteration = "", min(t.Iteration, 1) // 0 is for an attempt that begins
	}
}

// Native returns the native session id that the task has with that agent, or "".
func (t *Folded) Native(agent string) string {
	for _, n := range t.Natives {
		if n.Agent == agent {
			return n.ID
		}
	}
	return ""
}

// Kinds of fields, beside those of Go, by how a value is read: an ownString is one that
// few tasks share, a text is kept with the texts alone, lines are a list with one on each line.
type (
	ownString string
	text      string
	duration  string
	lines     []string
)

// fields has the fields that are kept as they stand, by key, but for those that most tasks have: set knows these.
var fields = map[string]func(*Folded) any{
	KeyModel:          func(t *Folded) any { return &t.Model },
	KeyLabel:          func(t *Folded) any { return &t.Label },
	KeyIdempotencyKey: func(t *Folded) any { return (*ownString)(&t.IdempotencyKey) },
	KeyAfter:          func(t *Folded) any { return &t.After },
	KeyAfterPolicy:    func(t *Folded) any { return &t.AfterPolicy },
	KeyHold:           func(t *Folded) any { return &t.Hold },
	KeyNotify:         func(t *Folded) any { return &t.Notify },
	KeyPinned:         func(t *Folded) any { return &t.Pinned },
	KeySpare:          func(t *Folded) any { return &t.Spare },
	KeyNotBefore:      func(t *Folded) any { return &t.NotBefore },
	KeyTimeout:        func(t *Folded) any { return (*duration)(&t.Timeout) },
	KeyMaxAttempts:    func(t *Folded) any { return &t.MaxAttempts },
	KeyMaxLimitWait:   func(t *Folded) any { return (*duration)(&t.MaxLimitWait) },
	KeyTenantID:       func(t *Folded) any { return &t.TenantID },
	KeyQueue:          func(t *Folded) any { return &t.Queue },
	KeyFallback:       func(t *Folded) any { return &t.Fallback },
	KeyAllow:          func(t *Folded) any { return (*lines)(&t.Allow) },
	KeyOutputSpec:     func(t *Folded) any { return (*lines)(&t.OutputSpec) },
	KeyVerifyCommand:  func(t *Folded) any { return &t.VerifyCommand },
	KeyVerifyTimeout:  func(t *Folded) any { return (*duration)(&t.VerifyTimeout) },
	KeyOnFailure:      func(t *Folded) any { return (*text)(&t.OnFailure) },
	KeyOnIssue:        func(t *Folded) any { return (*text)(&t.OnIssue) },
	KeyOutputPolicy:   func(t *Folded) any { return (*text)(&t.OutputPolicy) },
	KeyTriggeredBy:    func(t *Folded) any { return &t.TriggeredBy },
	KeySharedID:       func(t *Folded) any { return &t.SharedID },
	KeyWithin:         func(t *Folded) any { return &t.Within },
	KeyTrigger:        func(t *Folded) any { return (*string)(&t.Trigger) },
	KeyIntake:         func(t *Folded) any { return &t.Intake },
	KeyEnvironment:    func(t *Folded) any { return &t.Environment },
	KeyResult:         func(t *Folded) any { return (*text)(&t.Result) },

	KeyAttempt:         func(t *Folded) any { return &t.Attempt },
	KeyRetries:         func(t *Folded) any { return &t.Retries },
	KeyRequeues:        func(t *Folded) any { return &t.Requeues },
	KeyLimitWaits:      func(t *Folded) any { return &t.LimitWaits },
	KeyIteration:       func(t *Folded) any { return &t.Iteration },
	KeyVerifyExitCode:  func(t *Folded) any { return &t.VerifyExitCode },
	KeyVerifyTime:      func(t *Folded) any { return (*duration)(&t.VerifyTime) },
	KeyVerifyOutput:    func(t *Folded) any { return (*text)(&t.VerifyOutput) },
	KeyPromptInHistory: func(t *Folded) any { return (*ownString)(&t.PromptInHistory) },
	KeyReason:          func(t *Folded) any { return (*string)(&t.Reason) },
	KeyError:           func(t *Folded) any { return (*ownString)(&t.Error) },
	KeyNote:            func(t *Folded) any { return (*ownString)(&t.Note) },
	KeyBy:              func(t *Folded) any { return &t.By },
	KeyStartedAt:       func(t *Folded) any { return &t.RunStartedAt },
	KeyAttemptStarted:  func(t *Folded) any { return &t.StartedAt },
	KeyLimitSince:      func(t *Folded) any { return &t.LimitSince },

	KeyCachedInputTokens: func(t *Folded) any { return &t.Usage.CachedInputTokens },
	KeyReasoningTokens:   func(t *Folded) any { return &t.Usage.ReasoningTokens },
	KeyCostUSD:           func(t *Folded) any { return &t.Usage.CostUSD },
}

// set sets one field.
func (t *Folded) set(sec *ledger.Section, f *ledger.Field, p *Pool, k Keep) (err error) {
	switch string(f.Key) {
	case KeyStatus:
		if t.Status = Draft; len(f.Bytes()) > 0 {
			t.Status, err = ParseStatus(f.Bytes())
		}
	case KeySessionKey:
		t.SessionKey, t.Binds = p.get(f.Bytes()), true
	case KeySessionID:
		t.SessionID, t.Binds = p.get(f.Bytes()), true
	case KeyWorkspace:
		t.Workspace = p.get(f.Bytes())
	case KeyAgent, KeyTool:
		t.Agent, t.Binds = p.get(f.Bytes()), true
	case KeyAccount:
		t.Account, t.Binds = p.get(f.Bytes()), true
	case KeyResume:
		if t.Resume = p.get(f.Bytes()); !slices.Contains([]string{"", "auto", "always", "never"}, t.Resume) {
			err = fmt.Errorf("unknown value %q: resume is one of auto, always, never", f.Bytes())
		}
	case KeyIsolation:
		t.Isolation = strings.TrimPrefix(p.get(f.Bytes()), IsolationInPlace)
		if _, ok := WorktreeBase(t.Isolation); !ok && t.Isolation != "" && t.Isolation != IsolationTemp {
			err = fmt.Errorf("unknown value %q: isolation is in-place, temp, worktree or worktree=BASE", f.Bytes())
		}
	case KeyPriority:
		if t.Priority, err = parseInt[int](f.Bytes(), 1, 9); err != nil {
			err = fmt.Errorf("%q is not within 1 to 9, where 9 goes first", f.Bytes())
		}
	case KeyBudget:
		t.Budget = p.get(f.Bytes())
		_, err = limits.ParseBudget(t.Budget)
	case KeyOrder:
		t.Order, err = parseInt[int64](f.Bytes(), math.MinInt64, math.MaxInt64)
	case KeyMaxIterations:
		t.MaxIterations, err = parseInt[int](f.Bytes(), 0, MaxIterations)
	case KeyPhase:
		t.Phase, err = parsePhase(f.Bytes())
	case KeyUpdatedAt:
		t.UpdatedAt, err = parseTime(f.Bytes())
	case KeyCreatedAt:
		t.CreatedAt, err = parseTime(f.Bytes())
	case KeyRunID:
		return read((*ownString)(&t.RunID), f, p, k)
	case KeyExitCode:
		t.ExitCode, err = parseExit(f.Bytes())
	case KeyInputTokens:
		t.Usage.InputTokens, err = parseInt[int64](f.Bytes(), 0, math.MaxInt64)
	case KeyOutputTokens:
		t.Usage.OutputTokens, err = parseInt[int64](f.Bytes(), 0, math.MaxInt64)
	case KeyPrompt:
		t.PromptAt = sec.Off + 1
		t.PromptInHistory = "" // what an agent remembers is another one
		if k != KeepNone {
			prompt := f.String()
			t.Title = TitleOf(prompt)
			if k == KeepAll {
				t.Prompt = prompt
			}
		}
	case KeyInputFiles:
		return setList(&t.InputFiles, f, k)
	case KeyFindings:
		return setList(&t.Findings, f, k)
	case KeyOutputFiles:
		return setList(&t.OutputFiles, f, k)
	case KeyChangedFiles:
		return setList(&t.ChangedFiles, f, k)
	case KeyChanges:
		t.Changes = nil
		if !f.Empty() {
			if err = json.Unmarshal([]byte(f.String()), &t.Changes); err != nil {
				err = fmt.Errorf("it is no JSON object of changes: %w", err)
			} else if c := t.Changes; c != nil && ((c.Branch == nil || c.Before+c.After != "") && (!IsTree(c.Before) || !IsTree(c.After)) || min(c.Files, c.Added, c.Removed) < 0) {
				t.Changes, err = nil, errors.New("it has a count below 0, or an id that is not 40 to 64 hexadecimal digits")
			}
		}
	case KeyThreadTokens:
		t.Thread, err = ParseThread(f.Bytes())
		t.Counted = true
	case KeyEndedRuns:
		_, err = ParseRuns(f.String())
	case KeySteps:
		_, err = ParseSteps(f.String())
	case KeyFirstSeq:
		if _, ok := ledger.ParseUint(f.Bytes()); !ok && !f.Empty() {
			err = fmt.Errorf("%q is not the number of a record", f.Bytes())
		}
	case KeyWorkspaceBy:
		// Read with the workspace.
	default:
		if field := fields[string(f.Key)]; field != nil {
			return read(field(t), f, p, k)
		}
		if agent, ok := bytes.CutSuffix(f.Key, []byte(nativeSuffix)); ok && len(agent) > 0 {
			t.setNative(Native{p.get(agent), p.get(f.Bytes())})
			if slices.Contains(firstAgents, string(agent)) {
				return nil
			}
		}
		switch {
		case k != KeepAll || ledger.IsEngineKey(string(f.Key)):
		case f.Empty():
			delete(t.Extra, string(f.Key))
		case t.Extra == nil:
			t.Extra = map[string]string{string(f.Key): f.String()}
		default:
			t.Extra[string(f.Key)] = f.String()
		}
	}
	return err
}

// setNative makes n the task's native session with its agent; an empty id unsets it.
func (t *Folded) setNative(n Native) {
	if t.Native(n.Agent) == n.ID {
		return
	}
	list := slices.DeleteFunc(slices.Clone(t.Natives), func(old Native) bool { return old.Agent == n.Agent })
	if n.ID != "" {
		list = append(list, n)
		slices.SortFunc(list, func(a, b Native) int { return strings.Compare(a.Agent, b.Agent) })
	}
	if t.Natives = list; len(list) == 0 {
		t.Natives = nil // as of a task that never had any
	}
}

// read reads the value of a field into where it is kept.
func read(field any, f *ledger.Field, p *Pool, k Keep) (err error) {
	if to, ok := field.(*text); ok {
		if k == KeepAll {
			*to = text(f.String())
		}
		return nil
	}
	b := f.Bytes()
	switch to := field.(type) {
	case *string:
		*to = p.get(b)
	case *ownString:
		if string(*to) != string(b) {
			*to = ownString(b)
		}
	case *bool:
		if *to = string(b) == "true"; !*to && string(b) != "false" && len(b) > 0 {
			err = fmt.Errorf("%q is neither true nor false", b)
		}
	case *int:
		*to, err = parseCount(b)
	case *int64:
		*to, err = parseInt[int64](b, 0, math.MaxInt64)
	case *float64:
		*to, err = parseCost(b)
	case **int:
		*to, err = parseExit(b)
	case *time.Time:
		*to, err = parseTime(b)
	case *duration:
		*to = duration(p.get(b))
		if len(b) == 0 {
			return nil
		}
		if d, err := time.ParseDuration(string(*to)); err != nil || d < 0 {
			return fmt.Errorf("%q is not a duration such as 90s, 30m or 2h", b)
		}
	case *lines:
		*to = nil
		for line := range strings.Lines(f.String()) {
			if line = strings.TrimSpace(line); line != "" {
				*to = append(*to, line)
			}
		}
	case *[]string: // of ids
		*to = nil
		if len(b) > 0 {
			*to = strings.FieldsFunc(string(b), func(r rune) bool { return strings.ContainsRune(" ,\t\n", r) })
		}
	}
	return err
}

// setList reads a list of files or findings, which stands in the ledger as JSON; it
// is kept with the texts alone, and checked always.
func setList[T any](dst *[]T, f *ledger.Field, k Keep) error {
	var list []T
	if !f.Empty() {
		if err := json.Unmarshal([]byte(f.String()), &list); err != nil {
			return fmt.Errorf("it is no JSON list of them: %w", err)
		}
	}
	if k == KeepAll {
		*dst = list
	}
	return nil
}

func parsePhase(b []byte) (Phase, error) {
	switch p := Phase(b); p {
	case "", PhaseVerify, PhaseEvaluate:
		return p, nil
	}
	return "", fmt.Errorf("unknown value %q: phase is verify, evaluate, or nothing", b)
}

// MaxIterations is the most iterations that a verify loop may have.
const MaxIterations = 100

// parseInt reads a whole number within bounds; "" is 0.
func parseInt[T int | int64](b []byte, low, high int64) (T, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	switch {
	case err == nil && low <= n && n <= high:
		return T(n), nil
	case low == math.MinInt64:
		return 0, fmt.Errorf("%q is not a whole number", b)
	case high == math.MaxInt64:
		return 0, fmt.Errorf("%q is not a whole number from %d on", b, low)
	}
	return 0, fmt.Errorf("%q is not a whole number from %d to %d", b, low, high)
}

func parseCount(b []byte) (int, error) { return parseInt[int](b, 0, math.MaxInt32) }

// exitOK is the exit code of most runs, which so needs no memory of its own.
var exitOK int

func parseExit(b []byte) (*int, error) {
	n, err := parseInt[int](b, math.MinInt32, math.MaxInt32)
	switch {
	case err != nil || len(b) == 0:
		return nil, err
	case n == 0:
		return &exitOK, nil
	}
	return new(n), nil // not &n, which would take memory for each
}

func parseCost(b []byte) (float64, error) {
	if len(b) == 0 {
		return 0, nil
	}
	v, err := strconv.ParseFloat(string(b), 64)
	if err != nil || v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%q is not an amount of money", b)
	}
	return v, nil
}

// FormatThread returns the value of threadTokens: input, cached input, output and
// reasoning tokens, and the cost, with blanks between them.
func FormatThread(u Usage) string {
	return fmt.Sprintf("%d %d %d %d %s", u.InputTokens, u.CachedInputTokens, u.OutputTokens, u.ReasoningTokens,
		strconv.FormatFloat(u.CostUSD, 'f', -1, 64))
}

// ParseThread is the inverse of FormatThread.
func ParseThread(b []byte) (u Usage, err error) {
	f := bytes.Fields(b)
	if len(b) == 0 {
		return u, nil
	}
	if len(f) != 5 {
		return u, fmt.Errorf("%q is not five numbers: input, cached, output and reasoning tokens, and the cost", b)
	}
	for i, to := range []*int64{&u.InputTokens, &u.CachedInputTokens, &u.OutputTokens, &u.ReasoningTokens} {
		if *to, err = parseInt[int64](f[i], 0, math.MaxInt64); err != nil {
			return Usage{}, err
		}
	}
	u.CostUSD, err = parseCost(f[4])
	return u, err
}
