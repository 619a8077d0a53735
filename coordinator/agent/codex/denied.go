package codex

import (
	"strings"

	"stint/coordinator/agent"
)

var (
	deniedSetup = agent.LazyRegexp(`^(bwrap: .*)\n?$`)              // alone: the command has printed nothing
	shellCall   = agent.LazyRegexp(`(?s)^\S+ -l?c (['"])(.*)['"]$`) // as codex shows its commands
)

// noteDenied adds a finding for a command or a change that codex itself says it has not let
// through. What a command printed is no sign of that: "Operation not permitted" may be of its tests.
func (d *decoder) noteDenied(e *event) {
	if d.sandbox == "danger-full-access" {
		return
	}
	setup := deniedSetup().FindStringSubmatch(e.Item.Output)
	switch command := typedCommand(e.Item.Command); {
	case e.Item.Type == "file_change":
		paths := make([]string, len(e.Item.Changes))
		for i, c := range e.Item.Changes {
			paths[i] = c.Path
		}
		d.Deny("apply_patch", strings.Join(paths, " "), "", d.allowWrites())
	case e.Item.Type != "command_execution":
	case setup != nil:
		d.Deny("shell", command, "its sandbox cannot be set up: "+setup[1], "see stint doctor")
	case e.Item.Status == "declined":
		d.Deny("shell", command, "", d.allowWrites())
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
