package task

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"stint/state"
	"stint/state/limits"

	"golang.org/x/text/unicode/norm"
)

// IsNamedLane reports whether a session key is a name that somebody chose, and not a lane's own.
func IsNamedLane(key string) bool { return key != "" && !strings.Contains(key, ":") }

// A FileError reports why a file of a task cannot be taken or given.
type FileError struct {
	What string // "input file" or "output file"
	Path string // as it was named
	Err  error  // what is wrong
}

func (e *FileError) Error() string { return fmt.Sprintf("the %s %q %v", e.What, e.Path, e.Err) }

func (e *FileError) Unwrap() error { return e.Err }

// CleanPath returns a relative path in its shortest form, or why it does not stay below its directory.
func CleanPath(path string) (string, error) {
	const maxFileName = 1024 // bytes of the path
	switch {
	case path == "":
		return "", errors.New("has no name")
	case len(path) > maxFileName || !IsPrintable(path) || strings.TrimSpace(path) != path:
		return "", errors.New("has a name that cannot be used")
	case filepath.IsAbs(path):
		return "", errors.New("is an absolute path")
	case slices.Contains(strings.Split(path, "/"), ".."):
		return "", errors.New("leads out of its directory by \"..\"")
	case strings.HasSuffix(path, "/") || filepath.Clean(path) == ".":
		return "", errors.New("is a directory")
	}
	return filepath.Clean(path), nil
}

// HasVerify reports whether the task has a verify command.
func HasVerify(t *state.Task) bool { return t.VerifyCommand != "" && t.VerifyCommand != NoVerify }

// CheckKey returns what is wrong with an idempotency key, as an *Error; nil if nothing is.
func CheckKey(key string) error {
	if key == "" || !areWords(key) {
		return Wrong("idempotencyKey", "use 1 to 256 printable characters, such as those of a UUID", "the idempotency key cannot be used")
	}
	return nil
}

// Bounds of what comes and goes with a task.
const (
	MaxPrompt     = state.MaxPrompt     // bytes
	MaxIterations = state.MaxIterations // of a verify loop
	MaxInputFiles = 1 << 20             // bytes of all input files of a task together
	maxFiles      = 100                 // files in or out
	maxCommand    = 16 << 10            // bytes of a verify command
	maxWords      = 256                 // bytes of free text on one line
)

// NoteQuestion is how the prompt of an agent begins that is asked about an entry of governed notes. Such a task
// changes nothing: it can only read the workspace, and gets no notes, which would be no evidence; its answer is
// not judged, since lessons about it would be notes to ask about.
const NoteQuestion = "Does this note about the workspace still hold? "

// NoteSchema is what the answer to it must be.
const NoteSchema = `{"type":"object","additionalProperties":false,"required":["verdict","text","evidence"],"properties":{` +
	`"verdict":{"type":"string","enum":["holds","revised","fails","unknowable"]},` +
	`"text":{"type":"string","description":"if revised: the whole note as it has to be; else empty"},` +
	`"evidence":{"type":"string","description":"one or two sentences: which files, lines or commands show it"}}}`

// NoVerify as a verify command says that there is to be none, whatever is configured.
const NoVerify = "none"

// CheckInputFiles checks the files that come with a task.
func CheckInputFiles(s *TaskSpec) error {
	if len(s.InputFiles) > maxFiles {
		return Wrong("inputFiles", "put them into the workspace and name them in the prompt", "%d input files are too many; at most %d are taken", len(s.InputFiles), maxFiles)
	}
	names, size := map[string]bool{}, 0
	files := slices.Clone(s.InputFiles)
	for i := range files {
		f := &files[i]
		name, err := checkFileName("input file", f.Name)
		if err != nil {
			return InField(fileField(i, "name"), err)
		}
		if names[name] {
			return Wrong(fileField(i, "name"), "give each a name of its own", "two input files are named %q", name)
		}
		if !utf8.ValidString(f.Content) {
			return Wrong(fileField(i, "content"), "put it into the workspace and name it in the prompt", "the input file %s is not valid UTF-8", name)
		}
		names[name], f.Name = true, name
		if size += len(f.Content); size > MaxInputFiles {
			return Wrong("inputFiles", "put them into the workspace and name them in the prompt", "the input files have more than %d bytes together", MaxInputFiles)
		}
	}
	s.InputFiles = files
	for name := range names {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if names[dir] {
				return Wrong("inputFiles", "rename one of them", "%q is an input file and a directory of the input file %q", dir, name)
			}
		}
	}
	return nil
}

func fileField(i int, name string) string { return fmt.Sprintf("inputFiles.%d.%s", i, name) }

// CheckOutputSpec checks the names of the files that are collected after a run.
func CheckOutputSpec(s *TaskSpec) error {
	if len(s.OutputSpec) > maxFiles {
		return Wrong("outputSpec", "let the agent pack them into one", "%d output files are too many; at most %d are collected", len(s.OutputSpec), maxFiles)
	}
	var list []string
	for i, name := range s.OutputSpec {
		name, err := checkFileName("output file", name)
		if err != nil {
			return InField(fmt.Sprintf("outputSpec.%d", i), err)
		}
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	s.OutputSpec = list
	return nil
}

// checkFileName is cleanPath for what a client names.
func checkFileName(what, name string) (string, error) {
	clean, err := CleanPath(name)
	if err != nil {
		return "", Invalid("name it relative to the workspace, such as out/results.txt", "%v", &FileError{what, name, err})
	}
	return clean, nil
}

// IsArgument reports whether s may stand on an agent's command line: it is one word and no option.
func IsArgument(s string) bool {
	return s != "" && len(s) <= 128 && s[0] != '-' && strings.Trim(s, alnum+"._:/@+-") == ""
}

// CheckPrompt returns what is wrong with a prompt, as an *Error; nil if nothing is.
func CheckPrompt(text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return Wrong("prompt", `stint task "what to do"`, "the prompt is empty")
	case len(text) > MaxPrompt:
		return Wrong("prompt", "put the text into a file of the workspace and name it in the prompt", "the prompt has more than the %d bytes that are taken", MaxPrompt)
	case !utf8.ValidString(text):
		return Wrong("prompt", "convert it, for example with: iconv -t UTF-8", "the prompt is not valid UTF-8")
	}
	return nil
}

// CheckSessionKey returns what is wrong with the name of a session; nil if nothing is.
func CheckSessionKey(key string) error {
	switch {
	case strings.HasPrefix(key, state.LanePrefixDir) || strings.HasPrefix(key, state.LanePrefixTask):
		return Wrong("sessionKey", "choose another name", "session names that begin with %q or %q are reserved", state.LanePrefixDir, state.LanePrefixTask)
	case !isSessionName(key):
		return Wrong("sessionKey", "choose a name such as web or fix-42", "%q cannot be the name of a session: 1 to 64 letters and digits of any script, and . _ @ + -", key)
	}
	return nil
}

// isSessionName reports whether a key can be typed as one word. One that can be written in
// several ways, such as é, must be in its composed form: else it would name two sessions.
func isSessionName(key string) bool {
	bad := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune("._@+-", r)
	}
	return key != "" && utf8.RuneCountInString(key) <= 64 && !strings.ContainsFunc(key, bad) && norm.NFC.IsNormalString(key)
}

// CheckSession returns what is wrong with the session that a task names, as an *Error; nil if nothing is.
func CheckSession(s *TaskSpec) error {
	base, isTree := state.WorktreeBase(s.Isolation)
	switch {
	case s.SessionKey != "" && CheckSessionKey(s.SessionKey) != nil:
		return CheckSessionKey(s.SessionKey)
	case s.Resume != "" && s.Resume != "auto" && s.Resume != "always" && s.Resume != "never":
		return Wrong("resume", "use auto, always or never", "resume %q is unknown", s.Resume)
	case s.Shared:
		return Wrong("shared", "submit it as it is, without a preview or a schedule", "a task of the shared queue is none of the ledger")
	case s.Parallel && (s.SessionKey != "" || s.Continue):
		return Wrong("parallel", "leave one of them out", "a task of a session cannot be parallel: a session is one conversation")
	case s.Continue && s.SessionKey != "":
		return Wrong("continue", "leave --continue out", "a named session is continued anyway")
	case s.Isolation != "" && s.Isolation != state.IsolationInPlace && s.Isolation != state.IsolationTemp && !isTree:
		return Wrong("isolation", "use in-place, temp, worktree or worktree=BASE", "the isolation (--workdir) %q is unknown", s.Isolation)
	case isTree && (!IsPrintable(base) || strings.HasPrefix(base, "-")):
		return Wrong("isolation", "name a branch, a tag or a commit", "no worktree can be made from %q", base)
	case isTree && (s.Continue || s.AgentSession != ""):
		return Wrong("isolation", "name a session with --session: its tasks share a worktree, and each resumes the last", "a task with a worktree cannot continue a conversation that began elsewhere")
	case s.Isolation == state.IsolationTemp && (s.SessionKey != "" || s.Continue || s.AgentSession != ""):
		return Wrong("isolation", "leave the session out, or the isolation", "a task with a directory of its own has a conversation of its own: an agent may find one only where it began")
	case s.AgentSession != "" && !IsArgument(s.AgentSession):
		return Wrong("agentSession", "give the id that the agent's CLI shows", "%q cannot be an agent's session id", s.AgentSession)
	case s.AgentSession != "" && s.Resume == "never":
		return Wrong("resume", "leave one of them out", "a session id is given, and resume is never")
	}
	return nil
}

// CheckTime puts the time into UTC: it can be given with offsets and years that cannot be written again.
func CheckTime(s *TaskSpec) error {
	s.NotBefore = s.NotBefore.UTC()
	if y := s.NotBefore.Year(); y < 1 || y > 9999 {
		return Wrong("notBefore", "give a time such as 2026-12-01T08:00:00Z", "the time is out of range")
	}
	return nil
}

// CheckLimits returns what is wrong with the numbers, names and labels of a task, as an *Error; nil if nothing.
func CheckLimits(s *TaskSpec) error {
	for _, limit := range []struct{ field, name, text string }{{"timeout", "timeout", s.Timeout}, {"verifyTimeout", "verify-timeout", s.VerifyTimeout}} {
		if d, err := time.ParseDuration(cmp.Or(limit.text, "1s")); err != nil || d <= 0 {
			return Wrong(limit.field, "write for example 90s, 30m or 1h15m", "the %s %q is no duration", limit.name, limit.text)
		}
	}
	if _, err := limits.ParseBudget(s.Budget); err != nil {
		return Wrong("budget", "write for example 5usd, 200ktok, 90m, or several of these", "%v", err)
	}
	switch {
	case s.Priority < 0 || s.Priority > 9:
		return Wrong("priority", "9 is first, 5 is usual", "the priority %d is not within 1 to 9", s.Priority)
	case s.MaxAttempts < 0 || s.MaxAttempts > math.MaxInt32:
		return Wrong("maxAttempts", "use 1 or more", "max-attempts %d is not within 1 to %d", s.MaxAttempts, math.MaxInt32)
	case s.Model != "" && !IsArgument(s.Model):
		return Wrong("model", "name it as the agent's CLI does", "%q cannot be the name of a model: it is one word of letters, digits and . _ : / @ + -", s.Model)
	case s.AfterPolicy != "" && s.AfterPolicy != state.AfterDone && s.AfterPolicy != state.AfterAny:
		return Wrong("afterPolicy", "use done or any", "the after-policy %q is unknown", s.AfterPolicy)
	case s.IdempotencyKey != "" && CheckKey(s.IdempotencyKey) != nil:
		return CheckKey(s.IdempotencyKey)
	}
	for _, w := range []struct{ field, what, text string }{
		{"label", "label", s.Label},
		{"tenantId", "tenant", s.TenantID},
		{"queue", "queue", s.Queue},
	} {
		if !areWords(w.text) {
			return Wrong(w.field, fmt.Sprintf("use at most %d printable characters", maxWords), "the %s cannot be used", w.what)
		}
	}
	return nil
}

// CheckVerify checks what stands around a verify command.
func CheckVerify(s *TaskSpec) error {
	switch c := s.VerifyCommand; {
	case c != "" && strings.TrimSpace(c) == "":
		return Wrong("verifyCommand", "leave it out, or write for example go test ./...", "the verify command is blank")
	case len(c) > maxCommand:
		return Wrong("verifyCommand", "put it into a script of the workspace", "the verify command has more than the %d bytes that are taken", maxCommand)
	case !utf8.ValidString(c) || strings.ContainsRune(c, 0):
		return Wrong("verifyCommand", "write it as the shell takes it", "the verify command is not valid UTF-8, or has NUL bytes")
	case s.MaxIterations < 0 || s.MaxIterations > MaxIterations:
		return Wrong("maxIterations", "use 3, or a few more", "max-iterations %d is not within 1 to %d", s.MaxIterations, MaxIterations)
	}
	return nil
}

// areWords reports whether s is free text on one line; "" is none.
func areWords(s string) bool { return len(s) <= maxWords && IsPrintable(s) }

// IsPrintable reports whether s is valid UTF-8 without control characters.
func IsPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// A Rule permits an agent more than its mode does. It has claude's form: Tool for all uses of a
// tool, Tool(text) for one use, or Bash(command *) for a command with any arguments.
type Rule struct {
	Tool   string
	Text   string // "": all uses of the tool
	Prefix bool   // any arguments may follow Text
}

const (
	maxRules = 32  // of a task
	maxRule  = 200 // bytes
	alnum    = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
)

// ParseRule reads a rule. A star is permitted only at the end of a command, after a blank: its
// meaning elsewhere differs from agent to agent.
func ParseRule(s string) (r Rule, err error) {
	tool, text, hasText := strings.Cut(s, "(")
	text, closed := strings.CutSuffix(text, ")")
	r.Tool = tool
	if r.Text = text; tool == "Bash" {
		r.Text, r.Prefix = strings.CutSuffix(text, " *")
	}
	isName := tool != "" && strings.Trim(tool, alnum+"_-") == ""
	isPrinted := utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
	if len(s) > maxRule || !isName || hasText != closed || hasText && r.Text == "" || !isPrinted || strings.ContainsAny(r.Text, `*()\`) || strings.TrimSpace(r.Text) != r.Text {
		return Rule{}, Wrong("allow", `write for example "Bash(go test *)", "Bash(make)" or "WebFetch"`,
			`allow: a rule has the form TOOL, TOOL(TEXT) or "Bash(COMMAND *)", and at most %[2]d printed characters; a * is permitted only at the end of a command, after a blank; %.60[1]q is none`, s, maxRule)
	}
	return r, nil
}

// Covers reports whether a rule permits all that another one does. Arguments in the other one
// must be plain words: with a ; or a $ it may be more than one command.
func (r Rule) Covers(other Rule) bool {
	if r.Tool != other.Tool {
		return false
	}
	if r.Text == "" || r == other {
		return true
	}
	behind, found := strings.CutPrefix(other.Text, r.Text)
	isPlain := strings.Trim(behind, alnum+" ._/=:,@+%-") == ""
	return r.Prefix && found && isPlain && (behind == "" || behind[0] == ' ')
}

// Beyond returns the rules that no permitted one covers. What is no rule neither covers nor is covered.
func Beyond(rules, permitted []string) []string {
	return slices.DeleteFunc(slices.Clone(rules), func(s string) bool {
		rule, err := ParseRule(s)
		return err == nil && slices.ContainsFunc(permitted, func(p string) bool {
			by, err := ParseRule(p)
			return err == nil && by.Covers(rule)
		})
	})
}

// CheckAllow checks the form of a spec's rules.
func CheckAllow(s *TaskSpec) error {
	if len(s.Allow) > maxRules {
		return Wrong("allow", "allow the commands of one program with one rule", "allow has %d rules; a task has at most %d", len(s.Allow), maxRules)
	}
	for _, rule := range s.Allow {
		if _, err := ParseRule(rule); err != nil {
			return err
		}
	}
	return nil
}
