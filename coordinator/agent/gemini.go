package agent

import (
	"context"
	"strings"

	"stint/coordinator"
	"stint/state"
)

// A Gemini runs gemini without its user interface. Its fields are set before the
// first Run; then it may be used by several goroutines at once.
type Gemini struct {
	Runner
	Bin          string // name or path of the program; the default is "gemini"
	Model        string // used when a turn names none; "" leaves it to gemini
	ApprovalMode string // the default is auto_edit; "inherit" leaves it to gemini's settings
}

var (
	_ coordinator.Agent         = (*Gemini)(nil)
	_ coordinator.PromptEscaper = (*Gemini)(nil)
)

// Run carries out one turn; see coordinator.Agent.
func (g *Gemini) Run(ctx context.Context, turn coordinator.Turn, report func(coordinator.Event)) coordinator.Outcome {
	turn.Fork = false // it cannot, and need not: it forgets a prompt that was refused
	s, out := g.spec(turn)
	if out != nil {
		return *out
	}
	if err := g.writeDefaults(turn.RunDir); err != nil {
		return coordinator.Outcome{Class: state.ClassInterrupted, Error: err.Error(), ExitCode: -1, Shortage: coordinator.ShortageOf(err)}
	}
	return g.runEvents(ctx, s, newGeminiDecoder(turn, report), report)
}

// Plan says what Run would start; see coordinator.Planner.
func (g *Gemini) Plan(turn coordinator.Turn) coordinator.Plan { return planOf(g.spec(turn)) }

// spec gives what a turn starts, or the outcome of one that cannot start.
func (g *Gemini) spec(turn coordinator.Turn) (spec, *coordinator.Outcome) {
	if out := g.refuse(turn); out != nil {
		return spec{}, out
	}
	bin, err := g.find()
	if err != nil {
		return spec{}, refused(state.ClassAgentMissing, err.Error())
	}
	unset, err := g.unset(turn.Workspace)
	if err != nil {
		return spec{}, refused(state.ClassExit, err.Error())
	}
	env := g.agentEnv(turn, append(unset, g.env(turn.RunDir)...)...)
	return spec{turn: turn, cli: true, argv: append([]string{bin}, g.args(turn)...), env: env}, nil
}

// EscapePrompt returns a prompt as gemini leaves it alone: each @ has a backslash before
// it, because gemini reads what an @ names and has no option not to; and it does not
// begin with a slash, which would make it a command. The model gets the backslashes
// too, so a line at the top tells of them. See coordinator.PromptEscaper.
func (g *Gemini) EscapePrompt(prompt string) string {
	if strings.Contains(prompt, "@") {
		return geminiEscapes + strings.ReplaceAll(prompt, "@", `\@`)
	}
	if strings.HasPrefix(prompt, "/") {
		return "\n" + prompt
	}
	return prompt
}

const geminiEscapes = "In this text a backslash before an at sign is not part of the text.\n\n"

// FindSession gives the native session id of the run in runDir; see
// [Codex.FindSession].
func (g *Gemini) FindSession(runDir string) (session string, kept bool) {
	return findSession(runDir, newGeminiDecoder)
}

// ResumeCommand is what a person types to go on with a session of gemini, which
// finds it from its own workspace alone.
func (g *Gemini) ResumeCommand(session, workspace string) string {
	return resumeCommand(workspace, or(g.Bin, "gemini"), "--resume", session)
}

// LoginCommand is what a person types to log in.
func (g *Gemini) LoginCommand() string { return "export GEMINI_API_KEY=..." }

func (g *Gemini) find() (string, error) { return lookPath(or(g.Bin, "gemini"), g.Env) }

// refuse checks what must not reach the command line.
func (g *Gemini) refuse(turn coordinator.Turn) *coordinator.Outcome {
	return refuse("gemini", turn, value{"model", or(turn.Model, g.Model)}, value{"approval mode", g.ApprovalMode})
}

// args gives the command line of a turn without the program. The prompt comes on
// stdin. Without --skip-trust gemini refuses a directory that it does not know.
func (g *Gemini) args(turn coordinator.Turn) []string {
	args := []string{"--skip-trust"}
	if turn.Files != "" {
		args = append(args, "--include-directories", turn.Files)
	}
	args = append(args, "--output-format", "stream-json")
	switch {
	case turn.ReadOnly:
		args = append(args, "--approval-mode", "default") // without anybody to ask, that offers no tool that writes
	case g.ApprovalMode != "inherit":
		args = append(args, "--approval-mode", or(g.ApprovalMode, "auto_edit"))
	}
	if m := or(turn.Model, g.Model); m != "" {
		args = append(args, "--model", m)
	}
	if turn.Session != "" {
		args = append(args, "--resume", turn.Session)
	}
	return args
}
