// Package demo has the built-in agent, which thinks nothing and needs nobody: the adapter
// ([Agent]) and the program that it runs ([Main]). It speaks codex's events.
package demo

import (
	"context"

	"stint/coordinator/agent"
	"stint/coordinator/agent/codex"
	"stint/coordinator/agent/gate"
	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
)

// An Agent runs the built-in agent, which thinks nothing and needs nobody. It speaks codex's events and remembers its sessions,
// so that everything around an agent can be tried and tested; see [Main] for what it understands.
type Agent struct {
	agent.Runner
	// Home is the directory that keeps its sessions and its log.
	Home string
}

// Command is the hidden subcommand of the program that is the demo agent: see [Main].
const Command = "demo-agent"

// Run runs one turn; see task.Agent.
func (d *Agent) Run(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
	turn.Fork = false // it resumes
	s, out := d.spec(turn)
	if out != nil {
		return *out
	}
	return d.RunEvents(ctx, s, codex.NewDecoder(turn, report), report)
}

// Plan returns what Run would start; see task.Planner.
func (d *Agent) Plan(turn task.Turn) task.Plan { return agent.PlanOf(d.spec(turn)) }

// spec returns what a turn starts, or the outcome of one that cannot start.
func (d Agent) spec(turn task.Turn) (gate.Spec, *task.Outcome) {
	d.Use(turn)
	bin, out := agent.Begin("the demo agent", turn, hold.SelfBelow)
	if out != nil {
		return gate.Spec{}, out
	}
	argv := agent.Options([]string{bin, Command, "exec", "--json"}, "-C", turn.Workspace, "--output-schema", turn.Schema, "resume", turn.Session)
	return gate.Spec{Turn: turn, Argv: append(argv, "-"), Env: d.AgentEnv(turn, envHome+"="+d.Home)}, nil
}

// CLI implements [agent.Adapter]: the demo agent is always ready, there is nothing to log in to, and nobody talks to it by hand.
func (d *Agent) CLI() *agent.CLI {
	return &agent.CLI{
		Find:    func() (string, error) { return "", nil },
		Version: func(context.Context, string) (string, error) { return "built in", nil },
		Login:   func(context.Context, string) (ok bool, detail, fix string) { return true, "", "" },
	}
}

// Kind is how the demo agent is registered.
var Kind = agent.Kind{
	Name: "demo", Decoder: codex.NewDecoder,
	New: func(c agent.Config) agent.Adapter { return &Agent{Runner: c.Runner, Home: c.Dir} },
}
