// Package codex runs codex exec: its command line, its events, what its errors mean, and what codex can be asked about itself.
package codex

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"stint/coordinator/agent"
	"stint/coordinator/agent/gate"
	"stint/coordinator/task"
)

var versions = agent.Versions{
	Oldest: "0.160.0", Newest: "0.169.0",
	Breaks:  "options and events may differ: the sandbox, approvals and resumed sessions",
	Install: "npm install -g @openai/codex",
}

// An Agent runs codex exec. Its fields are set before the first Run; then it may be used by several goroutines at once.
type Agent struct {
	agent.Runner
	Bin     string // name or path of the program; the default is "codex"
	Model   string // used when a turn names none; "" leaves it to codex
	Profile string // -p; "" leaves it out
	Sandbox string // -s; the default is workspace-write, and "inherit" leaves it to codex's configuration
}

// Run runs one turn; see task.Agent.
func (c *Agent) Run(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
	s, out := c.spec(turn)
	if out != nil {
		return *out
	}
	d := NewDecoder(turn, report)
	d.(*decoder).sandbox = c.sandbox(turn)
	end := c.RunEvents(ctx, s, d, report)
	own := *c
	own.Use(turn) // whose home is that of the turn's account
	end.Quota = own.quota(end.Session)
	return end
}

// Plan returns what Run would start; see task.Planner.
func (c *Agent) Plan(turn task.Turn) task.Plan { return agent.PlanOf(c.spec(turn)) }

// spec returns what a turn starts, or the outcome of one that cannot start.
func (c Agent) spec(turn task.Turn) (gate.Spec, *task.Outcome) {
	c.Use(turn)
	bin, out := agent.Begin("codex", turn, c.find, "model", c.model(turn), "profile", c.Profile, "sandbox", c.Sandbox)
	if out != nil {
		return gate.Spec{}, out
	}
	return gate.Spec{Turn: turn, Argv: append([]string{bin}, c.args(turn)...), Env: c.AgentEnv(turn)}, nil
}

// sandbox names the one that a turn runs in.
func (c *Agent) sandbox(turn task.Turn) string {
	if turn.ReadOnly {
		return "read-only"
	}
	return cmp.Or(c.Sandbox, "workspace-write")
}

func (c *Agent) model(turn task.Turn) string { return cmp.Or(turn.Model, c.Model) }

// args returns the command line of a turn without the program. The prompt comes on stdin and is no part of it. Codex forgets
// the sandbox between the turns of a thread, and takes these options only before the words resume and fork.
func (c *Agent) args(turn task.Turn) []string {
	args := append([]string{"exec", "--json", "--skip-git-repo-check"}, c.keepKeys()...)
	if s := c.sandbox(turn); s != "inherit" {
		args = append(args, "-s", s)
	}
	if misleads(turn) {
		args = append(args, noProject...)
	}
	args = agent.Options(append(args, "-C", turn.Workspace), "-m", c.model(turn), "-p", c.Profile, "--output-schema", turn.Schema)
	switch {
	case turn.Fork:
		args = append(args, "fork", turn.Session)
	case turn.Session != "":
		args = append(args, "resume", turn.Session)
	}
	return append(args, "-")
}

// find returns the path of the program: for the package of npm the native binary in it, because the script in
// front of it costs a process and does not pass every signal on.
func (c *Agent) find() (string, error) {
	path, err := c.LookPath(cmp.Or(c.Bin, "codex"))
	if err != nil {
		return "", err
	}
	return nativeBinary(path), nil
}

// nativeBinary returns the native binary that belongs to npm's bin/codex.js: in the platform's package, which npm puts beside
// or below the main one. Anything else is given back as it is.
func nativeBinary(path string) string {
	target, err := filepath.EvalSymlinks(path)
	if err != nil || filepath.Base(target) != "codex.js" {
		return path
	}
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	pattern := "node_modules/@openai/codex-" + runtime.GOOS + "-" + arch + "/vendor/*/bin/codex"
	for dir := filepath.Dir(target); ; dir = filepath.Dir(dir) {
		found, _ := fs.Glob(os.DirFS(dir), pattern) // it is well formed
		if len(found) == 1 {                        // else the script knows which
			if bin := filepath.Join(dir, found[0]); agent.Executable(bin) == nil {
				return bin
			}
		}
		if dir == filepath.Dir(dir) {
			return path
		}
	}
}

// Kind is how codex is registered.
var Kind = agent.Kind{
	Name: "codex", Tested: versions, Decoder: NewDecoder,
	CannotAllow: func(task.Rule) string {
		return "it has no rules for one task; codex_sandbox decides what it may do"
	},
	HomeEnv: "CODEX_HOME", CredFile: "auth.json", KeyEnv: "CODEX_API_KEY", Max: 5,
	Env: []string{
		"CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL",
	},
	Settings: []agent.Setting{
		{Name: "bin", Default: "codex", Help: "name or path of the codex CLI"},
		{Name: "model", Default: "", Help: "model of codex; empty: as codex is configured", Workspace: true},
		{Name: "profile", Default: "", Help: "profile of codex; empty: as codex is configured"},
		{Name: "full_auto", Default: false, Help: "codex_sandbox workspace-write, and codex never asks"},
		{
			Name: "sandbox", Default: "workspace-write", Help: "what codex may write; inherit: as codex is configured",
			Choices: []string{"read-only", "workspace-write", "danger-full-access", "inherit"}, Danger: "danger-full-access", Instead: "workspace-write",
		},
	},
	New: func(c agent.Config) agent.Adapter {
		a := &Agent{Runner: c.Runner, Bin: c.Text("bin"), Model: c.Text("model"), Profile: c.Text("profile"), Sandbox: c.Text("sandbox")}
		if c.Value("full_auto") == true { // codex exec never asks
			a.Sandbox = "workspace-write"
		}
		return a
	},
}
