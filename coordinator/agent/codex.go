package agent

import (
	"context"
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
	s, out := c.spec(turn)
	if out != nil {
		return *out
	}
	d := newCodexDecoder(turn, report)
	d.(*codexDecoder).sandbox = c.sandbox(turn)
	return c.runEvents(ctx, s, d, report)
}

// Plan says what Run would start; see coordinator.Planner.
func (c *Codex) Plan(turn coordinator.Turn) coordinator.Plan { return planOf(c.spec(turn)) }

// spec gives what a turn starts, or the outcome of one that cannot start.
func (c *Codex) spec(turn coordinator.Turn) (spec, *coordinator.Outcome) {
	if out := c.refuse(turn); out != nil {
		return spec{}, out
	}
	bin, err := c.find()
	if err != nil {
		return spec{}, refused(state.ClassAgentMissing, err.Error())
	}
	return spec{turn: turn, cli: true, argv: append([]string{bin}, c.args(turn)...), env: c.agentEnv(turn)}, nil
}

// FindSession gives the native session id that the run in runDir began or
// resumed, as its output tells, and "" if it got no further; kept says that the
// session has the run's prompt in its history. It is for a master that died
// between the first event and its record.
func (c *Codex) FindSession(runDir string) (session string, kept bool) {
	return findSession(runDir, newCodexDecoder)
}

// ResumeCommand is what a person types to go on with a session of codex.
func (c *Codex) ResumeCommand(session, workspace string) string {
	return resumeCommand(workspace, or(c.Bin, "codex"), "resume", session)
}

// LoginCommand is what a person types to log in.
func (c *Codex) LoginCommand() string { return quote(or(c.Bin, "codex")) + " login" }

// refuse checks what must not reach the command line. Codex would silently begin
// a new thread for a session that is no UUID.
func (c *Codex) refuse(turn coordinator.Turn) *coordinator.Outcome {
	return refuse("codex", turn, value{"model", c.model(turn)}, value{"profile", c.Profile}, value{"sandbox", c.Sandbox})
}

// sandbox names the one that a turn runs in.
func (c *Codex) sandbox(turn coordinator.Turn) string {
	switch {
	case turn.ReadOnly:
		return "read-only"
	case c.FullAuto:
		return "workspace-write"
	}
	return c.Sandbox
}

func (c *Codex) model(turn coordinator.Turn) string { return or(turn.Model, c.Model) }

// args gives the command line of a turn without the program. The prompt comes on
// stdin and is no part of it. Codex forgets the sandbox between the turns of a
// thread, and takes these options only before the words resume and fork.
func (c *Codex) args(turn coordinator.Turn) []string {
	args := []string{"exec", "--json", "--skip-git-repo-check"}
	switch {
	case turn.ReadOnly:
		args = append(args, "-s", "read-only")
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
	if turn.Schema != "" {
		args = append(args, "--output-schema", turn.Schema)
	}
	switch {
	case turn.Fork:
		args = append(args, "fork", turn.Session)
	case turn.Session != "":
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
