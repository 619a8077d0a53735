package agent

import (
	"context"
	"errors"

	"stint/coordinator"
	"stint/state"
)

// A Demo runs the built-in agent, which thinks nothing and needs nobody. It
// speaks codex's events and remembers its sessions, so that everything around
// an agent can be tried and tested; see [DemoMain] for what it understands.
type Demo struct {
	Runner
	// Home is the directory that keeps its sessions and its log.
	Home string
	// Program is the command that starts the agent; the default is this program
	// with the argument "demo-agent".
	Program []string
}

var _ coordinator.Agent = (*Demo)(nil)

// Run carries out one turn; see coordinator.Agent.
func (d *Demo) Run(ctx context.Context, turn coordinator.Turn, report func(coordinator.Event)) coordinator.Outcome {
	turn.Fork = false // it resumes
	s, out := d.spec(turn)
	if out != nil {
		return *out
	}
	return d.runEvents(ctx, s, newCodexDecoder(turn, report), report)
}

// Plan says what Run would start; see coordinator.Planner.
func (d *Demo) Plan(turn coordinator.Turn) coordinator.Plan { return planOf(d.spec(turn)) }

// spec gives what a turn starts, or the outcome of one that cannot start.
func (d *Demo) spec(turn coordinator.Turn) (spec, *coordinator.Outcome) {
	if out := refuse("the demo agent", turn); out != nil {
		return spec{}, out
	}
	argv, err := d.program()
	if err != nil {
		return spec{}, refused(state.ClassAgentMissing, err.Error())
	}
	argv = append(argv, "exec", "--json", "-C", turn.Workspace)
	if turn.Schema != "" {
		argv = append(argv, "--output-schema", turn.Schema)
	}
	if turn.Session != "" {
		argv = append(argv, "resume", turn.Session)
	}
	return spec{turn: turn, argv: append(argv, "-"), env: d.agentEnv(turn, envDemoHome+"="+d.Home)}, nil
}

// FindSession gives the native session id of the run in runDir; see [Codex.FindSession].
func (d *Demo) FindSession(runDir string) (session string, kept bool) {
	return findSession(runDir, newCodexDecoder)
}

// ResumeCommand gives "": nobody talks to the demo agent by hand.
func (d *Demo) ResumeCommand(_, _ string) string { return "" }

func (d *Demo) program() ([]string, error) {
	if len(d.Program) > 0 {
		return append([]string(nil), d.Program...), nil
	}
	self, err := selfCommand()
	if err != nil {
		return nil, errors.Join(errors.New("the demo agent is not to be found"), err)
	}
	return append(self, "demo-agent"), nil
}
