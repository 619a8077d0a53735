// Package gemini runs gemini without its user interface: its command line and settings, its
// events, what its errors mean, and what gemini can be asked about itself.
package gemini

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"stint/coordinator/agent"
	"stint/coordinator/agent/gate"
	"stint/coordinator/task"
	"stint/state"
)

var versions = agent.Versions{
	Oldest: "0.50.0", Newest: "0.61.0",
	Breaks:  "its events, --skip-trust and resuming by session id may be missing",
	Install: "npm install -g @google/gemini-cli",
}

// An Agent runs gemini without its user interface. Its fields are set before the
// first Run; then it may be used by several goroutines at once.
type Agent struct {
	agent.Runner
	Bin          string // name or path of the program; the default is "gemini"
	Model        string // used when a turn names none; "" leaves it to gemini
	ApprovalMode string // the default is auto_edit; "inherit" leaves it to gemini's settings
}

var _ task.PromptEscaper = (*Agent)(nil)

// Run runs one turn; see task.Agent.
func (g Agent) Run(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
	turn.Fork = false // it cannot, and need not: it forgets a prompt that was refused
	s, out := g.spec(turn)
	if out != nil {
		return *out
	}
	g.Use(turn)
	if err := cmp.Or(g.writeDefaults(turn.RunDir), g.writePolicy(turn)); err != nil {
		return task.Outcome{Class: state.ClassInterrupted, Error: err.Error(), ExitCode: -1, Shortage: task.ShortageOf(err)}
	}
	return g.RunEvents(ctx, s, NewDecoder(turn, report), report)
}

// Plan returns what Run would start; see task.Planner.
func (g *Agent) Plan(turn task.Turn) task.Plan { return agent.PlanOf(g.spec(turn)) }

// spec returns what a turn starts, or the outcome of one that cannot start.
func (g Agent) spec(turn task.Turn) (gate.Spec, *task.Outcome) {
	g.Use(turn)
	bin, out := agent.Begin("gemini", turn, g.find, "model", cmp.Or(turn.Model, g.Model), "approval mode", g.ApprovalMode)
	if out != nil {
		return gate.Spec{}, out
	}
	unset, err := g.unset(turn.Workspace)
	policies, wrong := g.policies(turn)
	if err = cmp.Or(err, wrong); err != nil {
		return gate.Spec{}, agent.Refused(state.ClassExit, err.Error())
	}
	env := g.AgentEnv(turn, append(unset, g.env(turn.RunDir)...)...)
	return gate.Spec{Turn: turn, Argv: slices.Concat([]string{bin}, g.args(turn), policies), Env: env}, nil
}

// EscapePrompt returns a prompt as gemini leaves it alone: each @ has a backslash before it, because gemini
// reads what an @ names and has no option not to; and it does not begin with a slash, which would make it a
// command. The model gets the backslashes too, so a line at the top tells of them. See task.PromptEscaper.
func (g *Agent) EscapePrompt(prompt string) string {
	if strings.Contains(prompt, "@") {
		return escapeNote + strings.ReplaceAll(prompt, "@", `\@`)
	}
	if strings.HasPrefix(prompt, "/") {
		return "\n" + prompt
	}
	return prompt
}

const escapeNote = "In this text a backslash before an at sign is not part of the text.\n\n"

func (g *Agent) find() (string, error) { return g.LookPath(cmp.Or(g.Bin, "gemini")) }

// args returns the command line of a turn without the program. The prompt comes on
// stdin. Without --skip-trust gemini refuses a directory that it does not know.
func (g *Agent) args(turn task.Turn) []string {
	mode := cmp.Or(g.ApprovalMode, "auto_edit")
	switch {
	case turn.ReadOnly:
		mode = "default" // without anybody to ask, that offers no tool that writes
	case mode == "inherit":
		mode = ""
	}
	return agent.Options([]string{"--skip-trust"}, "--include-directories", turn.Files, "--output-format", "stream-json",
		"--approval-mode", mode, "--model", cmp.Or(turn.Model, g.Model), "--resume", turn.Session)
}

// Kind is how gemini is registered.
var Kind = agent.Kind{
	Name: "gemini", Tested: versions, Decoder: NewDecoder,
	CannotAllow: func(rule task.Rule) string {
		if rule.Tool != "Bash" && rule.Text != "" {
			return "gemini takes commands of Bash, and else a tool by its own name, such as web_fetch"
		}
		return ""
	},
	HomeEnv: "GEMINI_CLI_HOME", CredFile: ".gemini/oauth_creds.json", KeyEnv: "GEMINI_API_KEY", Max: 5,
	Env: []string{
		"GEMINI_CLI_HOME", "GEMINI_API_KEY", "GEMINI_API_KEY_AUTH_MECHANISM", "GEMINI_DEFAULT_AUTH_TYPE", "GEMINI_MODEL", "GEMINI_SYSTEM_MD",
		"GEMINI_CLI_SYSTEM_SETTINGS_PATH", "GEMINI_CLI_SYSTEM_DEFAULTS_PATH", "GEMINI_CLI_TRUST*", "GEMINI_CLI_CUSTOM_HEADERS", "GEMINI_CLI_USE_COMPUTE_ADC",
		"GEMINI_CLI_NO_RELAUNCH", "GEMINI_SANDBOX*", "GEMINI_TELEMETRY_*",
		"GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_*", "GOOGLE_GENAI_*", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL",
		"CLOUDSDK_CONFIG", "CODE_ASSIST_*",
	},
	Settings: []agent.Setting{
		{Name: "bin", Default: "gemini", Help: "name or path of the gemini CLI"},
		{Name: "model", Default: "", Help: "model of gemini; empty: as gemini is configured", Workspace: true},
		{
			Name: "approval_mode", Default: "auto_edit", Help: "what gemini may do; inherit: as gemini is configured",
			Choices: []string{"auto_edit", "inherit", "default", "plan", "yolo"}, Danger: "yolo", Instead: "auto_edit",
		},
	},
	New: func(c agent.Config) agent.Adapter {
		return &Agent{Runner: c.Runner, Bin: c.Text("bin"), Model: c.Text("model"), ApprovalMode: c.Text("approval_mode")}
	},
}
