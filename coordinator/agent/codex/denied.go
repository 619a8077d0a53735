package codex

import (
	"strings"

	"stint/coordinator/agent"
)

// What codex's sandbox denies shows in how a command fails: by the errors that the kernel
// gives for it, in the last lines that the command has printed.
var (
	deniedWrite   = agent.LazyRegexp(`(?i)[:\]] (read-only file system|operation not permitted)\b`)
	deniedNetwork = agent.LazyRegexp(`(?i)\b(network is unreachable|could not resolve host|unable to resolve host|temporary failure (?:in name resolution|resolving)|` +
		`name or service not known|EAI_AGAIN|couldn't connect to server)\b`)
	deniedSetup = agent.LazyRegexp(`(?m)^(bwrap: .*)$`)
	shellCall   = agent.LazyRegexp(`(?s)^\S+ -l?c (['"])(.*)['"]$`) // as codex shows its commands
)

// noteDenied adds findings for a command or a change that failed because of the sandbox. Without
// one it was something else.
func (d *decoder) noteDenied(e *event) {
	if d.sandbox == "danger-full-access" {
		return
	}
	command, out := typedCommand(e.Item.Command), e.Item.Output[max(0, len(e.Item.Output)-4<<10):]
	find := func(re agent.Pattern) (what string) {
		if m := re().FindStringSubmatch(out); m != nil {
			what = m[1]
		}
		return what
	}
	switch setup, write, network := find(deniedSetup), find(deniedWrite), find(deniedNetwork); {
	case e.Item.Type == "file_change":
		paths := make([]string, len(e.Item.Changes))
		for i, c := range e.Item.Changes {
			paths[i] = c.Path
		}
		d.Deny("apply_patch", strings.Join(paths, " "), "", d.allowWrites())
	case e.Item.Type != "command_execution":
	case setup != "":
		d.Deny("shell", command, "its sandbox cannot be set up: "+setup, "see stint doctor")
	case write != "" || e.Item.Status == "declined":
		d.Deny("shell", command, write, d.allowWrites())
	case network != "":
		d.Deny("shell", command, network, "network_access = true below [sandbox_workspace_write] in codex's config.toml")
	}
}

// typedCommand returns a command without the shell that codex runs it with.
func typedCommand(command string) string {
	if m := shellCall().FindStringSubmatch(command); m != nil {
		return m[2]
	}
	return command
}

// allowWrites names the setting that lets codex write where it was not allowed to.
func (d *decoder) allowWrites() string {
	switch d.sandbox {
	case "read-only":
		return `codex_sandbox = "workspace-write"`
	case "inherit":
		return "sandbox_mode in codex's config.toml"
	}
	return `codex_sandbox = "danger-full-access" and allow_dangerous = true`
}
