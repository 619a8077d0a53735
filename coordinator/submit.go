package coordinator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"stint/state"
)

// MaxPrompt is the largest prompt that is taken in, in bytes.
const MaxPrompt = state.MaxPrompt

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

// wrong is invalid about one field of a spec, by its name in JSON.
func wrong(field, hint, format string, args ...any) error {
	return &Error{Code: CodeInvalid, Message: fmt.Sprintf(format, args...), Hint: hint, Field: field}
}

// inField says which field an error is about, unless it names one itself.
func inField(field string, err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Field != "" {
		return err
	}
	at := *e
	at.Field = field
	return &at
}

// CheckPrompt says what is wrong with a prompt, as an *Error; nil if nothing is.
func CheckPrompt(text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return wrong("prompt", `stint task "what to do"`, "the prompt is empty")
	case len(text) > MaxPrompt:
		return wrong("prompt", "put the text into a file of the workspace and name it in the prompt", "the prompt has more than the %d bytes that are taken", MaxPrompt)
	case !utf8.ValidString(text):
		return wrong("prompt", "convert it, for example with: iconv -t UTF-8", "the prompt is not valid UTF-8 at byte %d", firstInvalid(text))
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
		return wrong("sessionKey", "choose another name", "session names that begin with %q or %q are reserved", state.LanePrefixDir, state.LanePrefixTask)
	case !isSessionName(key):
		return wrong("sessionKey", "choose a name such as web or fix-42", "%q cannot be the name of a session: 1 to 64 of A-Z a-z 0-9 . _ @ + -", key)
	}
	return nil
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// resolveWorkspace gives the path of a workspace without links, or says why no task can
// work there.
func resolveWorkspace(dir string) (string, error) {
	if !filepath.IsAbs(dir) || strings.ContainsAny(dir, "\x00\r\n") {
		return "", wrong("workspace", "name a directory with -C", "the workspace %q is no absolute path", dir)
	}
	if path, err := filepath.EvalSymlinks(dir + "/"); err == nil { // only a directory can have a slash behind it
		return path, nil
	}
	fi, err := os.Stat(dir)
	switch {
	case err != nil:
		return "", wrong("workspace", "name a directory that exists with -C", "the workspace %s cannot be used: %v", dir, errors.Unwrap(err))
	case !fi.IsDir():
		return "", wrong("workspace", "name a directory with -C", "the workspace %s is not a directory", dir)
	}
	return dir, nil
}

// isBelow reports whether path is dir or lies in it, links resolved.
func isBelow(path, dir string) bool { return isWithin(withoutLinks(path), withoutLinks(dir)) }

// isWithin is isBelow of paths as they are written.
func isWithin(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// withoutLinks resolves the links of a path, as far as it is there. "" is no path.
func withoutLinks(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil && path != "" {
		return real
	}
	return path
}

func checkSession(s *TaskSpec) error {
	if s.SessionKey != "" {
		if err := CheckSessionKey(s.SessionKey); err != nil {
			return err
		}
	}
	switch {
	case s.Resume != "" && s.Resume != "auto" && s.Resume != "always" && s.Resume != "never":
		return wrong("resume", "use auto, always or never", "resume %q is unknown", s.Resume)
	case s.Parallel && s.SessionKey != "":
		return wrong("parallel", "leave one of them out", "a task of a session cannot be parallel: a session is one conversation")
	case s.Parallel && s.Continue:
		return wrong("parallel", "leave one of them out", "a parallel task has no session to continue")
	case s.Continue && s.SessionKey != "":
		return wrong("continue", "leave --continue out", "a named session is continued anyway")
	case s.AgentSession != "" && !isArgument(s.AgentSession):
		return wrong("agentSession", "give the id that the agent's CLI shows", "%q cannot be an agent's session id", s.AgentSession)
	case s.AgentSession != "" && s.Resume == "never":
		return wrong("resume", "leave one of them out", "a session id is given, and resume is never")
	}
	return nil
}

// checkTime puts the time into UTC: it can be given with offsets and years that cannot
// be written again.
func checkTime(s *TaskSpec) error {
	s.NotBefore = s.NotBefore.UTC()
	if y := s.NotBefore.Year(); y < 1 || y > 9999 {
		return wrong("notBefore", "give a time such as 2026-12-01T08:00:00Z", "the time is out of range")
	}
	return nil
}

func checkLimits(s *TaskSpec) error {
	if s.Timeout != "" {
		if d, err := time.ParseDuration(s.Timeout); err != nil || d <= 0 {
			return wrong("timeout", "write for example 30m or 1h15m", "the timeout %q is no duration", s.Timeout)
		}
	}
	switch {
	case s.Priority < 0 || s.Priority > 9:
		return wrong("priority", "9 is first, 5 is usual", "the priority %d is not within 1 to 9", s.Priority)
	case s.MaxAttempts < 0:
		return wrong("maxAttempts", "use 1 or more", "max-attempts %d makes no sense", s.MaxAttempts)
	case s.Model != "" && !isArgument(s.Model):
		return wrong("model", "name it as the agent's CLI does", "%q cannot be the name of a model: it is one word of letters, digits and . _ : / @ + -", s.Model)
	case s.AfterPolicy != "" && s.AfterPolicy != state.AfterDone && s.AfterPolicy != state.AfterAny:
		return wrong("afterPolicy", "use done or any", "the after-policy %q is unknown", s.AfterPolicy)
	}
	return checkWords(s)
}

// maxCommand is the length of a verify command, in bytes.
const maxCommand = 16 << 10

// checkVerify checks what stands around a verify command.
func checkVerify(s *TaskSpec) error {
	if s.VerifyTimeout != "" {
		if d, err := time.ParseDuration(s.VerifyTimeout); err != nil || d <= 0 {
			return wrong("verifyTimeout", "write for example 90s or 10m", "the verify-timeout %q is no duration", s.VerifyTimeout)
		}
	}
	switch c := s.VerifyCommand; {
	case c != "" && strings.TrimSpace(c) == "":
		return wrong("verifyCommand", "leave it out, or write for example go test ./...", "the verify command is blank")
	case len(c) > maxCommand:
		return wrong("verifyCommand", "put it into a script of the workspace", "the verify command has more than the %d bytes that are taken", maxCommand)
	case !utf8.ValidString(c) || strings.ContainsRune(c, 0):
		return wrong("verifyCommand", "write it as the shell takes it", "the verify command is not valid UTF-8, or has NUL bytes")
	case s.MaxIterations < 0 || s.MaxIterations > MaxIterations:
		return wrong("maxIterations", "use 3, or a few more", "max-iterations %d is not within 1 to %d", s.MaxIterations, MaxIterations)
	}
	return nil
}

// checkFollowUps checks the prompts of follow-ups.
func checkFollowUps(s *TaskSpec) error {
	if err := CheckTemplate(s.OnFailure); err != nil {
		return inOption("onFailure", err)
	}
	return inOption("onIssue", CheckTemplate(s.OnIssue))
}

// inOption says which prompt an error is about.
func inOption(name string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	return &Error{Code: e.Code, Message: name + ": " + e.Message, Hint: e.Hint, Field: name}
}

// MaxIterations is the most rounds that a task may have.
const MaxIterations = state.MaxIterations

// checkWords checks what is free text on one line.
func checkWords(s *TaskSpec) error {
	if s.IdempotencyKey != "" {
		if err := CheckKey(s.IdempotencyKey); err != nil {
			return err
		}
	}
	for _, w := range []struct{ field, what, text string }{
		{"label", "label", s.Label},
		{"tenantId", "tenant", s.TenantID},
		{"queue", "queue", s.Queue},
	} {
		if !areWords(w.text) {
			return wrong(w.field, fmt.Sprintf("use at most %d printable characters", maxWords), "the %s cannot be used", w.what)
		}
	}
	return nil
}

// maxWords is the length of free text on one line, in bytes.
const maxWords = 256

// areWords reports whether s is free text on one line; "" is none.
func areWords(s string) bool { return len(s) <= maxWords && printable(s) }

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// Submit takes a task in. When it returns nil, the task is on the disk. A spec
// whose ID or idempotency key is known gives the task that is there already; the
// same key with another body is a conflict. The spec is checked first: where its workspace
// has gone meanwhile, it is refused although its key is known.
func (c *Coordinator) Submit(ctx context.Context, s TaskSpec) (state.Task, error) {
	defer c.call()()
	tasks, err := c.take(ctx, request{specs: []TaskSpec{s}})
	if err != nil {
		return state.Task{}, err
	}
	return tasks[0], nil
}

func (c *Coordinator) workspace(path string) WorkspaceSettings {
	if c.cfg.Workspace == nil {
		return WorkspaceSettings{}
	}
	return c.cfg.Workspace(path)
}

// repositoryRoot is checkoutAbove of a path that may have links.
func repositoryRoot(dir string) string { return checkoutAbove(withoutLinks(dir)) }

// checkoutAbove gives the directory above (or at) dir that is the top of a
// checkout, else dir: two tasks in one checkout are in one lane.
func checkoutAbove(dir string) string {
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
