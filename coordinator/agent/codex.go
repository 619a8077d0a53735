package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"stint/coordinator"
	"stint/state"
)

// A Codex runs codex exec. Its fields are set before the first Run; then it may
// be used by several goroutines at once.
type Codex struct {
	Runner
	Bin      string // name or path of the program; the default is "codex"
	Model    string // used when a turn names none; "" leaves it to codex
	Profile  string // -p; "" leaves it out
	Sandbox  string // -s; the default is workspace-write, and "inherit" leaves it to codex's configuration
	FullAuto bool   // workspace-write, and no question is ever asked
}

var _ coordinator.Agent = (*Codex)(nil)

// Run carries out one turn; see coordinator.Agent.
func (c *Codex) Run(ctx context.Context, turn coordinator.Turn, report func(coordinator.Event)) coordinator.Outcome {
	if out := c.refuse(turn); out != nil {
		return *out
	}
	bin, err := c.find()
	if err != nil {
		return refused(state.ClassAgentMissing, err.Error())
	}
	s := spec{turn: turn, argv: append([]string{bin}, c.args(turn)...), env: c.agentEnv(turn)}
	return c.runEvents(ctx, s, report)
}

// FindSession gives the native session id that the run in runDir began or
// resumed, as its output tells, and "" if it got no further. It is for a master
// that died between the first event and its record.
func (c *Codex) FindSession(runDir string) string { return findSession(runDir) }

// refuse checks what must not reach the command line.
func (c *Codex) refuse(turn coordinator.Turn) *coordinator.Outcome {
	if out := refuseSession(turn); out != nil {
		return out
	}
	for _, v := range []struct{ what, value string }{
		{"model", c.model(turn)}, {"profile", c.Profile}, {"sandbox", c.Sandbox},
	} {
		if strings.HasPrefix(v.value, "-") || strings.ContainsRune(v.value, 0) {
			out := refused(state.ClassExit, fmt.Sprintf("%q is no name of a %s", v.value, v.what))
			return &out
		}
	}
	return nil
}

// refuseSession refuses to resume what is no UUID: codex would silently begin a
// new thread.
func refuseSession(turn coordinator.Turn) *coordinator.Outcome {
	if turn.Session == "" || isUUID(turn.Session) {
		return nil
	}
	out := refused(state.ClassSessionLost, fmt.Sprintf("session %q cannot be resumed: codex's sessions are named by UUIDs", turn.Session))
	return &out
}

// refused is the outcome of a run that was not begun.
func refused(class state.Class, msg string) coordinator.Outcome {
	return coordinator.Outcome{Class: class, Error: msg, ExitCode: -1}
}

func (c *Codex) model(turn coordinator.Turn) string { return or(turn.Model, c.Model) }

// args gives the command line of a turn without the program. The prompt comes on
// stdin and is no part of it. Codex forgets the sandbox between the turns of a
// thread, and takes these options only before the word resume.
func (c *Codex) args(turn coordinator.Turn) []string {
	args := []string{"exec", "--json", "--skip-git-repo-check"}
	switch {
	case c.FullAuto:
		args = append(args, "-s", "workspace-write", "-c", "approval_policy=never")
	case c.Sandbox != "inherit":
		args = append(args, "-s", or(c.Sandbox, "workspace-write"))
	}
	args = append(args, "-C", turn.Workspace)
	if m := c.model(turn); m != "" {
		args = append(args, "-m", m)
	}
	if c.Profile != "" {
		args = append(args, "-p", c.Profile)
	}
	if turn.Session != "" {
		args = append(args, "resume", turn.Session)
	}
	return append(args, "-")
}

// find gives the path of the program: for the package of npm the native binary
// in it, because the script in front of it costs a process and does not pass
// every signal on.
func (c *Codex) find() (string, error) {
	path, err := lookPath(or(c.Bin, "codex"), c.Env)
	if err != nil {
		return "", err
	}
	return nativeCodex(path), nil
}

// lookPath finds a program as a shell with that environment would.
func lookPath(name string, env []string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		if err := executable(name); err != nil {
			return "", err
		}
		return filepath.Abs(name)
	}
	for _, dir := range filepath.SplitList(lookupEnv(env, "PATH")) {
		path := filepath.Join(dir, name)
		if filepath.IsAbs(path) && executable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: not found in PATH: %w", name, fs.ErrNotExist)
}

func executable(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	if fi.IsDir() || fi.Mode()&0o111 == 0 {
		return fmt.Errorf("%s: %w", path, fs.ErrPermission)
	}
	return nil
}

// nativeCodex gives the native binary that belongs to npm's bin/codex.js: in the
// platform's package, which npm puts beside or below the main one, or in older
// versions in the main one. Anything else is given back as it is.
func nativeCodex(path string) string {
	target, err := filepath.EvalSymlinks(path)
	if err != nil || filepath.Base(target) != "codex.js" {
		return path
	}
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	for dir := filepath.Dir(target); ; dir = filepath.Dir(dir) {
		for _, pattern := range []string{
			filepath.Join("node_modules", "@openai", "codex-"+runtime.GOOS+"-"+arch, "vendor", "*", "bin", "codex"),
			filepath.Join("vendor", "*"+runtime.GOOS+"*", "bin", "codex"),
		} {
			found, _ := filepath.Glob(filepath.Join(escapeGlob(dir), pattern)) // the pattern is well formed
			if len(found) == 1 && executable(found[0]) == nil {
				return found[0]
			}
		}
		if dir == filepath.Dir(dir) {
			return path
		}
	}
}

func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// runEvents runs a program that speaks codex's events.
func (r *Runner) runEvents(ctx context.Context, s spec, report func(coordinator.Event)) coordinator.Outcome {
	st := newStream(report)
	e := r.supervise(ctx, s, st)
	st.lines.end()
	d := &st.decoder
	v := classify(e, d, r.now())
	out := coordinator.Outcome{
		Class: v.class, Error: v.msg, RetryAt: v.retryAt, Result: d.answer, ExitCode: e.end.Exit,
		Session: d.session, Usage: d.usage, Env: envNames(s.env), Note: note(e, st, s.turn),
	}
	if !e.started || e.lost {
		out.ExitCode = -1
	}
	if v.class == "" && e.end.Exit != 0 {
		out.ExitCode = -1
	}
	return out
}

// note says what the user should know although the run went on.
func note(e ended, st *stream, turn coordinator.Turn) string {
	d := &st.decoder
	var notes []string
	if turn.Session != "" && d.session != "" && !strings.EqualFold(turn.Session, d.session) {
		notes = append(notes, fmt.Sprintf("session %s was not resumed: the agent began %s instead", turn.Session, d.session))
	}
	if errors.Is(e.cause, errHung) {
		notes = append(notes, "the agent did not end after its turn was over and was stopped")
	}
	if d.cut {
		notes = append(notes, fmt.Sprintf("the answer was cut at %d MiB; the run's stdout has all of it", maxAnswer>>20))
	}
	if st.lines.skipped > 0 {
		notes = append(notes, fmt.Sprintf("%d events were too long to be read", st.lines.skipped))
	}
	if e.held {
		notes = append(notes, "a process outside the run holds its lock")
	}
	return strings.Join(notes, "; ")
}

// A stream turns the output of codex exec --json into events for the coordinator.
type stream struct {
	lines   lines
	decoder decoder
	report  func(coordinator.Event)
}

func newStream(report func(coordinator.Event)) *stream {
	st := &stream{report: report}
	st.decoder.onSession = func(id string) { report(coordinator.Event{Session: id}) }
	st.decoder.onMessage = func(text string) { report(coordinator.Event{Text: text}) }
	st.lines = lines{line: st.decoder.line, keep: mayMatter}
	return st
}

func (st *stream) feed(p []byte)    { st.lines.feed(p) }
func (st *stream) finished() bool   { return st.decoder.end != noTerminal }
func (st *stream) progress(n int64) { st.report(coordinator.Event{Bytes: n}) }

// findSession reads the beginning of a run's output; the session's event is the
// first one.
func findSession(runDir string) string {
	f, err := os.Open(filepath.Join(runDir, stdoutName))
	if err != nil {
		return ""
	}
	var d decoder
	l := lines{line: d.line, keep: mayMatter}
	data, _ := io.ReadAll(io.LimitReader(f, 1<<20)) // what could be read is enough
	_ = f.Close()                                   // only read from
	l.feed(data)
	return d.session
}
