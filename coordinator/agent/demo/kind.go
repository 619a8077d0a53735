// Package demo has the built-in agent, which thinks nothing and needs nobody: the adapter
// ([Agent]) and the program that it runs ([Main]). It speaks codex's events.
package demo

import (
	"stint/coordinator/agent"
	"stint/coordinator/agent/codex"
)

// Kind is how the demo agent is registered.
var Kind = agent.Kind{
	Name: "demo", Decoder: codex.NewDecoder,
	New: func(c agent.Config) agent.Adapter { return &Agent{Runner: c.Runner, Home: c.Dir} },
}
