package coordinator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"stint/ledger"
	"stint/state"
)

// MaxPrompt is the largest prompt that is taken in, in bytes.
const MaxPrompt = 1 << 20

// wordOf reports whether s has 1 to most characters: letters and digits of ASCII,
// and those in more.
func wordOf(s, more string, most int) bool {
	for _, r := range s {
		if !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') && !strings.ContainsRune(more, r) {
			return false
		}
	}
	return 0 < len(s) && len(s) <= most
}

// isSessionName reports whether a person may name a session so.
func isSessionName(s string) bool { return wordOf(s, "._@+-", 64) }

// isArgument reports whether s may stand on an agent's command line: it is one
// word and no option.
func isArgument(s string) bool { return wordOf(s, "._:/@+-", 128) && s[0] != '-' }

func invalid(hint, format string, args ...any) error {
	return &Error{Code: CodeInvalid, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// CheckPrompt says what is wrong with a prompt, as an *Error; nil if nothing is.
func CheckPrompt(text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return invalid(`stint task "what to do"`, "the prompt is empty")
	case len(text) > MaxPrompt:
		return invalid("put the text into a file of the workspace and name it in the prompt", "the prompt has %d bytes; at most %d are taken", len(text), MaxPrompt)
	case !utf8.ValidString(text):
		return invalid("convert it, for example with: iconv -t UTF-8", "the prompt is not valid UTF-8 at byte %d", firstInvalid(text))
	}
	return nil
}

func firstInvalid(text string) int {
	for i, r := range text {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(text[i:]); n == 1 {
				return i
			}
		}
	}
	return len(text)
}

// CheckSessionKey says what is wrong with the name of a session; nil if nothing is.
func CheckSessionKey(key string) error {
	switch {
	case strings.HasPrefix(key, state.LanePrefixDir) || strings.HasPrefix(key, state.LanePrefixTask):
		return invalid("choose another name", "session names that begin with %q or %q are reserved", state.LanePrefixDir, state.LanePrefixTask)
	case !isSessionName(key):
		return invalid("choose a name such as web or fix-42", "%q cannot be the name of a session: 1 to 64 of A-Z a-z 0-9 . _ @ + -", key)
	}
	return nil
}

// check says what is wrong with a spec, and fills in what it leaves to us.
func (c *Coordinator) check(s *TaskSpec) error {
	if err := CheckPrompt(s.Prompt); err != nil {
		return err
	}
	if s.ID == "" {
		s.ID = c.cfg.ID()
	} else if _, err := uuid.Parse(s.ID); err != nil || len(s.ID) != 36 {
		return invalid("leave it out", "the id %q is no UUID", s.ID)
	}
	if s.Agent == "" {
		s.Agent = c.cfg.DefaultAgent()
	}
	if c.cfg.Agents[s.Agent] == nil {
		return invalid("stint doctor", "there is no agent %q; known are %s", s.Agent, strings.Join(sortedNames(c.cfg.Agents), ", "))
	}
	if s.Account == "" {
		s.Account = s.Agent
	} else if s.Account != s.Agent {
		return invalid("leave it out", "there is no account %q; known is %s", s.Account, s.Agent)
	}
	if err := checkWorkspace(s.Workspace); err != nil {
		return err
	}
	if !s.AllowStateInWorkspace && isBelow(c.cfg.StateDir, s.Workspace) {
		return invalid("choose another workspace with -C, or set STINT_STATE_DIR to a directory outside of it",
			"the state directory %s lies in the workspace %s, where the agent could change tasks and configuration", c.cfg.StateDir, s.Workspace)
	}
	return errors.Join(checkSession(s), checkLimits(s))
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func checkWorkspace(dir string) error {
	if !filepath.IsAbs(dir) || strings.ContainsAny(dir, "\x00\r\n") {
		return invalid("name a directory with -C", "the workspace %q is no absolute path", dir)
	}
	fi, err := os.Stat(dir)
	switch {
	case err != nil:
		return invalid("name a directory that exists with -C", "the workspace %s cannot be used: %v", dir, errors.Unwrap(err))
	case !fi.IsDir():
		return invalid("name a directory with -C", "the workspace %s is not a directory", dir)
	}
	return nil
}

// isBelow reports whether path is dir or lies in it, links resolved.
func isBelow(path, dir string) bool {
	for _, p := range []*string{&path, &dir} {
		if real, err := filepath.EvalSymlinks(*p); err == nil {
			*p = real
		}
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

func checkSession(s *TaskSpec) error {
	if s.SessionKey != "" {
		if err := CheckSessionKey(s.SessionKey); err != nil {
			return err
		}
	}
	switch {
	case s.Resume != "" && s.Resume != "auto" && s.Resume != "always" && s.Resume != "never":
		return invalid("use auto, always or never", "resume %q is unknown", s.Resume)
	case s.Parallel && s.SessionKey != "":
		return invalid("leave one of them out", "a task of a session cannot be parallel: a session is one conversation")
	case s.Parallel && s.Continue:
		return invalid("leave one of them out", "a parallel task has no session to continue")
	case s.Continue && s.SessionKey != "":
		return invalid("leave --continue out", "a named session is continued anyway")
	case s.AgentSession != "" && !isArgument(s.AgentSession):
		return invalid("give the id that the agent's CLI shows", "%q cannot be an agent's session id", s.AgentSession)
	case s.AgentSession != "" && s.Resume == "never":
		return invalid("leave one of them out", "a session id is given, and resume is never")
	}
	return nil
}

func checkLimits(s *TaskSpec) error {
	if s.Timeout != "" {
		if d, err := time.ParseDuration(s.Timeout); err != nil || d <= 0 {
			return invalid("write for example 30m or 1h15m", "the timeout %q is no duration", s.Timeout)
		}
	}
	switch {
	case s.Priority < 0 || s.Priority > 9:
		return invalid("9 is first, 5 is usual", "the priority %d is not within 1 to 9", s.Priority)
	case s.MaxAttempts < 0:
		return invalid("use 1 or more", "max-attempts %d makes no sense", s.MaxAttempts)
	case s.Model != "" && !isArgument(s.Model):
		return invalid("name it as the agent's CLI does", "%q cannot be the name of a model", s.Model)
	case len(s.IdempotencyKey) > 256 || !printable(s.IdempotencyKey):
		return invalid("use at most 256 printable characters", "the idempotency key cannot be used")
	case len(s.Label) > 256 || !printable(s.Label):
		return invalid("use at most 256 printable characters", "the label cannot be used")
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Submit takes a task in. When it returns nil, the task is on the disk. A spec
// whose ID or idempotency key is known gives the task that is there already; the
// same key with another body is a conflict.
func (c *Coordinator) Submit(ctx context.Context, s TaskSpec) (state.Task, error) {
	defer c.call()()
	if c.isGoing() {
		return state.Task{}, c.stopped()
	}
	if err := c.check(&s); err != nil {
		return state.Task{}, err
	}
	id := s.ID
	err := c.update(ctx, func(tx *ledger.Tx) error {
		old, err := c.known(&s)
		if err != nil {
			return err
		}
		if id = s.ID; old != "" {
			id = old
			return nil
		}
		r, err := c.newTask(&s, tx)
		if err != nil {
			return err
		}
		if s.IdempotencyKey != "" {
			tx.Claim("key " + s.IdempotencyKey)
		}
		tx.Append(r)
		return nil
	})
	if err != nil {
		return state.Task{}, err
	}
	return c.whole(id)
}

// known gives the id of the task that the spec asks for again; "" if it is new.
func (c *Coordinator) known(s *TaskSpec) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.state.Peek(s.ID); ok {
		return s.ID, nil
	}
	if s.IdempotencyKey == "" {
		return "", nil
	}
	id, ok := c.state.ByIdempotencyKey(s.IdempotencyKey)
	if !ok {
		return "", nil
	}
	old, err := c.wholeOf(id)
	if err != nil {
		return "", err
	}
	if !sameBody(&old, s) {
		return "", &Error{Code: CodeConflict, Message: fmt.Sprintf("the idempotency key %q belongs to task %s, which asks for something else", s.IdempotencyKey, id), Hint: "stint show " + id}
	}
	return id, nil
}

// sameBody reports whether a task is what the spec asks for. What the spec leaves
// to the configuration does not count, nor does the time.
func sameBody(t *state.Task, s *TaskSpec) bool {
	named := t.SessionKey
	if strings.Contains(named, ":") {
		named = "" // a lane that the task was given
	}
	return t.Prompt == s.Prompt && t.Agent == s.Agent && t.Workspace == s.Workspace && named == s.SessionKey &&
		t.Label == s.Label && t.Priority == s.Priority && t.Timeout == s.Timeout && t.MaxAttempts == s.MaxAttempts &&
		(s.Model == "" || t.Model == s.Model)
}

// newTask makes the record of a new task.
func (c *Coordinator) newTask(s *TaskSpec, tx *ledger.Tx) (*ledger.Record, error) {
	now := state.FormatTime(c.cfg.Now())
	set := c.workspace(s.Workspace)
	lane, sessionID, resume, err := c.sessionFor(s, first(s.Resume, set.ResumePolicy, c.cfg.ResumePolicy, "auto"), tx)
	if err != nil {
		return nil, err
	}
	r := &ledger.Record{Kind: ledger.KindTask, ID: s.ID}
	r.Add(state.KeyStatus, string(state.Queued)).Add(state.KeySessionKey, lane).Add(state.KeySessionID, sessionID).
		Add(state.KeyWorkspace, s.Workspace).Add(state.KeyAgent, s.Agent).Add(state.KeyAccount, s.Account).
		AddIf(state.KeyModel, first(s.Model, set.Model)).Add(state.KeyCreatedAt, now).Add(state.KeyUpdatedAt, now).Add(state.KeyResume, resume).
		AddIf(state.NativeKey(s.Agent), s.AgentSession).AddIf(state.KeyLabel, s.Label).AddIf(state.KeyIdempotencyKey, s.IdempotencyKey).
		AddIf(state.KeyTimeout, s.Timeout).Add(state.KeyBy, ledger.ByClient)
	if s.Priority > 0 {
		r.Add(state.KeyPriority, strconv.Itoa(s.Priority))
	}
	if s.MaxAttempts > 0 {
		r.Add(state.KeyMaxAttempts, strconv.Itoa(s.MaxAttempts))
	}
	if s.NoWaitLimit {
		r.Add(state.KeyMaxLimitWait, "0s")
	}
	if !s.NotBefore.IsZero() {
		r.Add(state.KeyNotBefore, state.FormatTime(s.NotBefore))
	}
	return r.Add(state.KeyPrompt, s.Prompt), nil
}

// first gives the first word that is not empty.
func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

func (c *Coordinator) workspace(path string) WorkspaceSettings {
	if c.cfg.Workspace == nil {
		return WorkspaceSettings{}
	}
	return c.cfg.Workspace(path)
}

// sessionFor decides about lane and session of a new task. A session is context,
// a lane is order: a named session is both; without a name, the lane is the
// directory's and the session is new, unless the task continues the last one.
func (c *Coordinator) sessionFor(s *TaskSpec, resume string, tx *ledger.Tx) (lane, sessionID, policy string, err error) {
	switch {
	case s.Parallel:
		return state.LanePrefixTask + s.ID, c.cfg.ID(), resume, nil
	case s.SessionKey == "":
		lane = state.LanePrefixDir + repositoryRoot(s.Workspace)
	default:
		lane = s.SessionKey
	}
	if s.SessionKey == "" && !s.Continue || resume == "never" || s.AgentSession != "" {
		return lane, c.cfg.ID(), resume, nil
	}
	c.mu.Lock()
	current, ok := c.state.CurrentSession(lane, s.Agent, s.Account)
	c.mu.Unlock()
	switch {
	case ok:
		return lane, current.ID, resume, nil
	case s.Continue:
		return "", "", "", &Error{Code: CodeNotFound, Message: fmt.Sprintf("there is no session of %s to continue in %s", s.Agent, strings.TrimPrefix(lane, state.LanePrefixDir)), Hint: "leave --continue out"}
	}
	tx.Claim("session " + lane) // two first tasks of a session must not both begin it
	return lane, c.cfg.ID(), resume, nil
}

// repositoryRoot gives the directory above (or at) dir that is the top of a
// checkout, else dir: two tasks in one checkout are in one lane.
func repositoryRoot(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for at := dir; ; at = filepath.Dir(at) {
		if isCheckout(at) {
			return at
		}
		if at == filepath.Dir(at) {
			return dir
		}
	}
}

// isCheckout reports whether dir holds a .git of git's: a file, or a directory
// with a HEAD. Sandboxes leave empty ones behind.
func isCheckout(dir string) bool {
	git := filepath.Join(dir, ".git")
	fi, err := os.Stat(git)
	if err != nil || !fi.IsDir() {
		return err == nil
	}
	_, err = os.Stat(filepath.Join(git, "HEAD"))
	return err == nil
}
