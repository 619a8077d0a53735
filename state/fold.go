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
)

// A RecordError says why a record has no effect.
type RecordError struct {
	Kind ledger.Kind
	ID   string
	Seq  uint64 // 0: written by a person
	Key  string // the field concerned, "" if it is the record as a whole
	Line int    // of that field in its file, as far as the section knows it
	Err  error
}

// Error returns the sentence, without the line, which only means something beside
// a file's name.
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

// FieldKey returns Key; by it the ledger finds the line in the file of a person's
// section.
func (e *RecordError) FieldKey() string { return e.Key }

// NewRecordError puts err into its place; f is the field concerned, or nil.
func NewRecordError(sec *ledger.Section, f *ledger.Field, err error) error {
	e := &RecordError{Kind: sec.Kind, ID: string(sec.ID), Seq: sec.Seq, Line: sec.Line, Err: err}
	if f != nil {
		e.Key, e.Line = string(f.Key), sec.LineOf(f)
	}
	return e
}

// A Native is the native session id that a task has with an agent.
type Native struct{ Agent, ID string }

// Keep says how much of a task's texts the fold holds on to.
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

	placed  bool // the last record named the workspace
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
	t.By, t.placed, t.Binds, t.Learned, t.Counted = "", false, false, false, false
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
	if t.placed {
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
	for i := range sec.Fields {
		agent, ok := bytes.CutSuffix(sec.Fields[i].Key, []byte(nativeSuffix))
		t.Learned = t.Learned || ok && len(agent) > 0 && string(agent) == t.Agent
	}
	if t.AgentSession != native && !t.Counted {
		t.Thread = Usage{} // what was counted was another session
	}
	if k == KeepAll {
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

// set takes over one field.
func (t *Folded) set(sec *ledger.Section, f *ledger.Field, p *Pool, k Keep) (err error) {
	switch string(f.Key) {
	case KeyStatus:
		t.Status, err = parseStatus(f.Bytes())
	case KeySessionKey:
		t.SessionKey, t.Binds = p.get(f.Bytes()), true
	case KeySessionID:
		t.SessionID, t.Binds = p.get(f.Bytes()), true
	case KeyWorkspace:
		t.Workspace, t.placed = p.get(f.Bytes()), true
	case KeyAgent, KeyTool:
		t.Agent, t.Binds = p.get(f.Bytes()), true
	case KeyModel:
		t.Model = p.get(f.Bytes())
	case KeyAccount:
		t.Account, t.Binds = p.get(f.Bytes()), true
	case KeyResume:
		t.Resume, err = parseResume(f.Bytes(), p)
	case KeyPriority:
		t.Priority, err = parsePriority(f.Bytes())
	case KeyOrder:
		t.Order, err = parseInt(f.Bytes())
	case KeyLabel:
		t.Label = p.get(f.Bytes())
	case KeyIdempotencyKey:
		setString((*string)(&t.IdempotencyKey), f)
	case KeyAfter:
		t.After = parseList(f.Bytes())
	case KeyAfterPolicy:
		t.AfterPolicy = p.get(f.Bytes())
	case KeyHold:
		t.Hold, err = parseBool(f.Bytes())
	case KeyNotBefore:
		t.NotBefore, err = parseTime(f.Bytes())
	case KeyTimeout:
		t.Timeout, err = parseDuration(f.Bytes(), p)
	case KeyMaxAttempts:
		t.MaxAttempts, err = parseCount(f.Bytes())
	case KeyMaxLimitWait:
		t.MaxLimitWait, err = parseDuration(f.Bytes(), p)
	case KeyPrompt:
		t.PromptAt = sec.Off + 1
		t.PromptInHistory = "" // what an agent remembers is another one
		t.setPrompt(f, k)
	case KeyTenantID:
		t.TenantID = p.get(f.Bytes())
	case KeyQueue:
		t.Queue = p.get(f.Bytes())
	case KeyFallback:
		t.Fallback = parseList(f.Bytes())
	case KeyOutputSpec:
		t.OutputSpec = parseLines(f.Bytes())
	case KeyInputFiles:
		return setList(&t.InputFiles, f, k)
	case KeyVerifyCommand:
		t.VerifyCommand = p.get(f.Bytes())
	case KeyMaxIterations:
		t.MaxIterations, err = parseIterations(f.Bytes())
	case KeyVerifyTimeout:
		t.VerifyTimeout, err = parseDuration(f.Bytes(), p)
	case KeyOnFailure:
		setText(&t.OnFailure, f, k)
	case KeyOnIssue:
		setText(&t.OnIssue, f, k)
	case KeyTriggeredBy:
		t.TriggeredBy = p.get(f.Bytes())
	case KeyTrigger:
		t.Trigger = Trigger(p.get(f.Bytes()))
	case KeyIntake:
		t.Intake = p.get(f.Bytes())
	case KeyResult:
		setText(&t.Result, f, k)
	case ledger.KeySeq, ledger.KeyAdopts, ledger.KeyEdits, ledger.KeyCopies, ledger.KeyIgnored, ledger.KeyArchived:
		// The engine's own.
	default:
		return t.setRun(f, p, k)
	}
	return err
}

// setRun takes over one field of those that running a task adds, or one that
// nobody here knows.
func (t *Folded) setRun(f *ledger.Field, p *Pool, k Keep) (err error) {
	switch string(f.Key) {
	case KeyRunID:
		setString(&t.RunID, f)
	case KeyAttempt:
		t.Attempt, err = parseCount(f.Bytes())
	case KeyRetries:
		t.Retries, err = parseCount(f.Bytes())
	case KeyRequeues:
		t.Requeues, err = parseCount(f.Bytes())
	case KeyLimitWaits:
		t.LimitWaits, err = parseCount(f.Bytes())
	case KeyIteration:
		t.Iteration, err = parseCount(f.Bytes())
	case KeyPhase:
		t.Phase, err = parsePhase(f.Bytes())
	case KeyVerifyExitCode:
		t.VerifyExitCode, err = parseExit(f.Bytes())
	case KeyVerifyTime:
		t.VerifyTime, err = parseDuration(f.Bytes(), p)
	case KeyVerifyOutput:
		setText(&t.VerifyOutput, f, k)
	case KeyFindings:
		return setList(&t.Findings, f, k)
	case KeyOutputFiles:
		return setList(&t.OutputFiles, f, k)
	case KeyPromptInHistory:
		setString(&t.PromptInHistory, f)
	case KeyThreadTokens:
		t.Thread, err = ParseThread(f.Bytes())
		t.Counted = true
	case KeyEndedRuns:
		_, err = parseRuns(f.String())
	case KeySteps:
		_, err = ParseSteps(f.String())
	case KeyFirstSeq:
		_, err = ParseSeq(f.Bytes())
	case KeyWorkspaceBy:
		// Read with the workspace.
	case KeyReason:
		t.Reason = Class(p.get(f.Bytes()))
	case KeyError:
		setString(&t.Error, f)
	case KeyExitCode:
		t.ExitCode, err = parseExit(f.Bytes())
	case KeyNote:
		setString(&t.Note, f)
	case KeyBy:
		t.By = p.get(f.Bytes())
	case KeyCreatedAt:
		t.CreatedAt, err = parseTime(f.Bytes())
	case KeyStartedAt:
		t.RunStartedAt, err = parseTime(f.Bytes())
	case KeyAttemptStarted:
		t.StartedAt, err = parseTime(f.Bytes())
	case KeyUpdatedAt:
		t.UpdatedAt, err = parseTime(f.Bytes())
	case KeyLimitSince:
		t.LimitSince, err = parseTime(f.Bytes())
	case KeyInputTokens:
		t.Usage.InputTokens, err = parseTokens(f.Bytes())
	case KeyCachedInputTokens:
		t.Usage.CachedInputTokens, err = parseTokens(f.Bytes())
	case KeyOutputTokens:
		t.Usage.OutputTokens, err = parseTokens(f.Bytes())
	case KeyReasoningTokens:
		t.Usage.ReasoningTokens, err = parseTokens(f.Bytes())
	case KeyCostUSD:
		t.Usage.CostUSD, err = parseCost(f.Bytes())
	default:
		if agent, ok := bytes.CutSuffix(f.Key, []byte(nativeSuffix)); ok && len(agent) > 0 {
			t.setNative(Native{p.get(agent), p.get(f.Bytes())})
		} else {
			t.setExtra(f, k)
		}
	}
	return err
}

// setNative makes n the task's native session with its agent; an empty id unsets it.
func (t *Folded) setNative(n Native) {
	i, found := slices.BinarySearchFunc(t.Natives, n.Agent, func(n Native, agent string) int { return strings.Compare(n.Agent, agent) })
	switch {
	case !found && n.ID == "", found && t.Natives[i] == n:
	case !found:
		t.Natives = slices.Insert(slices.Clone(t.Natives), i, n)
	case n.ID == "":
		t.Natives = slices.Delete(slices.Clone(t.Natives), i, i+1)
	default:
		t.Natives = slices.Clone(t.Natives)
		t.Natives[i] = n
	}
}

func (t *Folded) setPrompt(f *ledger.Field, k Keep) {
	if k == KeepNone {
		return
	}
	prompt := f.String()
	t.Title = TitleOf(prompt)
	if k == KeepAll {
		t.Prompt = prompt
	}
}

func (t *Folded) setExtra(f *ledger.Field, k Keep) {
	switch {
	case k != KeepAll:
	case f.Empty():
		delete(t.Extra, string(f.Key))
	case t.Extra == nil:
		t.Extra = map[string]string{string(f.Key): f.String()}
	default:
		t.Extra[string(f.Key)] = f.String()
	}
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

// setText keeps a long text, if texts are kept.
func setText(dst *string, f *ledger.Field, k Keep) {
	if k == KeepAll {
		*dst = f.String()
	}
}

func parsePhase(b []byte) (Phase, error) {
	switch p := Phase(b); p {
	case "", PhaseVerify, PhaseEvaluate:
		return p, nil
	}
	return "", fmt.Errorf("unknown value %q: phase is verify, evaluate, or nothing", b)
}

// setString copies a value that few tasks share, unless it is the same as before.
func setString(dst *string, f *ledger.Field) {
	if b := f.Bytes(); *dst != string(b) {
		*dst = string(b)
	}
}

func parseInt(b []byte) (int64, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", b)
	}
	return n, nil
}

// parseCount reads a whole number that is not below zero.
func parseCount(b []byte) (int, error) {
	n, err := parseTokens(b)
	if err == nil && n > math.MaxInt32 {
		return 0, fmt.Errorf("%q is too big", b)
	}
	return int(n), err
}

// MaxIterations is the most rounds that a verify loop may have.
const MaxIterations = 100

func parseIterations(b []byte) (int, error) {
	n, err := parseCount(b)
	if err == nil && n > MaxIterations {
		return 0, fmt.Errorf("%q is more than %d", b, MaxIterations)
	}
	return n, err
}

func parseTokens(b []byte) (int64, error) {
	n, err := parseInt(b)
	if err == nil && n < 0 {
		return 0, fmt.Errorf("%q is below zero", b)
	}
	return n, err
}

func parsePriority(b []byte) (int, error) {
	n, err := parseInt(b)
	if err == nil && len(b) > 0 && (n < 1 || n > 9) {
		return 0, fmt.Errorf("%q is not within 1 to 9, where 9 goes first", b)
	}
	return int(n), err
}

// exits holds the usual exit codes, so that they need no memory of their own.
var exits = func() (t [257]int) {
	for i := range t {
		t[i] = i - 1
	}
	return t
}()

func parseExit(b []byte) (*int, error) {
	n, err := parseInt(b)
	switch {
	case err != nil || len(b) == 0:
		return nil, err
	case n < math.MinInt32 || n > math.MaxInt32:
		return nil, fmt.Errorf("%q is not an exit code", b)
	}
	return exitCode(int(n)), nil
}

func exitCode(n int) *int {
	if n >= -1 && n <= 255 {
		return &exits[n+1]
	}
	return &n
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

func parseBool(b []byte) (bool, error) {
	switch string(b) {
	case "true":
		return true, nil
	case "false", "":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", b)
}

func parseDuration(b []byte, p *Pool) (string, error) {
	if len(b) == 0 {
		return "", nil
	}
	s := p.get(b)
	if d, err := time.ParseDuration(s); err != nil || d < 0 {
		return "", fmt.Errorf("%q is not a duration such as 90s, 30m or 2h", b)
	}
	return s, nil
}

var errResume = errors.New("resume is one of auto, always, never")

func parseResume(b []byte, p *Pool) (string, error) {
	switch string(b) {
	case "", "auto", "always", "never":
		return p.get(b), nil
	}
	return "", fmt.Errorf("unknown value %q: %w", b, errResume)
}

// parseLines reads a list of one item a line.
func parseLines(b []byte) []string {
	var list []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
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
		if *to, err = parseTokens(f[i]); err != nil {
			return Usage{}, err
		}
	}
	u.CostUSD, err = parseCost(f[4])
	return u, err
}

// parseList reads ids that are separated by blanks or commas.
func parseList(b []byte) []string {
	var list []string
	start := -1
	for i, c := range b {
		switch separator := c == ' ' || c == ',' || c == '\t' || c == '\n'; {
		case separator && start >= 0:
			list, start = append(list, string(b[start:i])), -1
		case !separator && start < 0:
			start = i
		}
	}
	if start >= 0 {
		list = append(list, string(b[start:]))
	}
	return list
}
