// Package codex runs codex exec: its command line, its events, what its errors mean, and
// what codex can be asked about itself.
package codex

import (
	"stint/coordinator/agent"
	"stint/coordinator/task"
)

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
		if a.FullAuto, _ = c.Value("full_auto").(bool); a.FullAuto {
			a.Sandbox = "workspace-write"
		}
		return a
	},
}
