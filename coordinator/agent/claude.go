package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"stint/coordinator"
	"stint/ledger/durable"
	"stint/state"
)

// A Claude runs claude -p. Its fields are set before the first Run; then it may
// be used by several goroutines at once.
type Claude struct {
	Runner
	Bin            string   // name or path of the program; the default is "claude"
	Model          string   // used when a turn names none; "" leaves it to claude
	PermissionMode string   // the default is acceptEdits; "inherit" leaves it to claude's settings
	AllowedTools   []string // permission rules, such as Bash(git diff:*), besides those of claude's settings
	MaxTurns       int      // 0: no bound
}

var _ coordinator.Agent = (*Claude)(nil)

// Run carries out one turn; see coordinator.Agent.
func (c *Claude) Run(ctx context.Context, turn coordinator.Turn, report func(coordinator.Event)) coordinator.Outcome {
	s, out := c.spec(turn)
	if out != nil {
		return *out
	}
	if err := writeClaudeInput(s.stdin, turn.Prompt); err != nil {
		return coordinator.Outcome{Class: state.ClassInterrupted, Error: err.Error(), ExitCode: -1, Shortage: coordinator.ShortageOf(err)}
	}
	return c.runEvents(ctx, s, newClaudeDecoder(turn, report), report)
}

// Plan says what Run would start; see coordinator.Planner.
func (c *Claude) Plan(turn coordinator.Turn) coordinator.Plan { return planOf(c.spec(turn)) }

// spec gives what a turn starts, or the outcome of one that cannot start.
func (c *Claude) spec(turn coordinator.Turn) (spec, *coordinator.Outcome) {
	if out := c.refuse(turn); out != nil {
		return spec{}, out
	}
	bin, err := c.find()
	if err != nil {
		return spec{}, refused(state.ClassAgentMissing, err.Error())
	}
	return spec{
		turn: turn, cli: true, argv: append([]string{bin}, c.args(turn)...), env: c.agentEnv(turn, c.env(bin)...),
		stdin: filepath.Join(turn.RunDir, claudeInput),
	}, nil
}

// FindSession gives the native session id of the run in runDir; see [Codex.FindSession].
func (c *Claude) FindSession(runDir string) (session string, kept bool) {
	return findSession(runDir, newClaudeDecoder)
}

// ResumeCommand is what a person types to go on with a session of claude.
func (c *Claude) ResumeCommand(session, workspace string) string {
	return resumeCommand(workspace, or(c.Bin, "claude"), "--resume", session)
}

// LoginCommand is what a person types to log in.
func (c *Claude) LoginCommand() string { return quote(or(c.Bin, "claude")) + " auth login" }

func (c *Claude) find() (string, error) { return lookPath(or(c.Bin, "claude"), c.Env) }

// refuse checks what must not reach the command line. Rules of tools do not: they
// go in a JSON object.
func (c *Claude) refuse(turn coordinator.Turn) *coordinator.Outcome {
	return refuse("claude", turn, value{"model", or(turn.Model, c.Model)}, value{"permission mode", c.PermissionMode})
}

// args gives the command line of a turn without the program. The prompt comes on
// stdin: --add-dir takes all arguments up to the next option, and would take it.
func (c *Claude) args(turn coordinator.Turn) []string {
	args := []string{"-p"}
	if turn.Files != "" {
		args = append(args, "--add-dir", turn.Files)
	}
	args = append(args, "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
	switch {
	case turn.ReadOnly:
		// What the user's settings allow is not for it: it has no tools, and no MCP servers.
		args = append(args, "--permission-mode", "default", "--tools", "", "--strict-mcp-config")
	case c.PermissionMode != "inherit":
		args = append(args, "--permission-mode", or(c.PermissionMode, "acceptEdits"))
	}
	if schema, err := durable.ReadFile(durable.OS, turn.Schema); err == nil { // claude takes the text; the prompt has it too
		args = append(args, "--json-schema", string(bytes.TrimSpace(schema)))
	}
	if len(c.AllowedTools) > 0 && !turn.ReadOnly {
		args = append(args, "--settings", c.settings())
	}
	if m := or(turn.Model, c.Model); m != "" {
		args = append(args, "--model", m)
	}
	if c.MaxTurns > 0 {
		args = append(args, "--max-turns", strconv.Itoa(c.MaxTurns))
	}
	if turn.Session != "" {
		args = append(args, "--resume", turn.Session)
	}
	if turn.Fork {
		args = append(args, "--fork-session")
	}
	return args
}

// settings gives the allowed tools as settings of claude, which are added to the
// user's own.
func (c *Claude) settings() string {
	var s struct {
		Permissions struct {
			Allow []string `json:"allow"`
		} `json:"permissions"`
	}
	s.Permissions.Allow = c.AllowedTools
	data, _ := json.Marshal(s) // strings alone
	return string(data)
}

// claudeInput is the file in a run's directory that claude reads on stdin.
const claudeInput = "stdin"

// writeClaudeInput writes a prompt as the one message of claude's stream-json input.
// Claude reads every file that a plain prompt names with an @ and runs a command that it
// begins with; client_composed makes it send the text as it is written.
func writeClaudeInput(path, prompt string) error {
	text, err := durable.ReadFile(durable.OS, prompt)
	if err != nil {
		return fmt.Errorf("input for claude: %w", err)
	}
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	line, err := json.Marshal(struct {
		Type           string  `json:"type"`
		Message        message `json:"message"`
		ClientComposed bool    `json:"client_composed"`
	}{"user", message{"user", string(text)}, true})
	if err != nil {
		return fmt.Errorf("input for claude: %w", err)
	}
	if err := durable.PutFile(path, append(line, '\n')); err != nil {
		return fmt.Errorf("input for claude: %w", err)
	}
	return nil
}

// env returns what shortens claude's own retries, some three minutes of them, and
// keeps it from changing under a run: there the user's values win. They do not where
// claude is told to expand nothing: skills, which a run may have written, keep the @
// of their text; and an older claude, to which client_composed means nothing, goes
// without all that it attaches to a prompt.
func (c *Claude) env(bin string) []string {
	env := append(unset(c.Env, "CLAUDE_CODE_MAX_RETRIES=2", "DISABLE_AUTOUPDATER=1"), "CLAUDE_CODE_DISABLE_FILE_MENTIONS=1")
	if knownClaude.isOlder(claudeVersion(bin)) {
		env = append(env, "CLAUDE_CODE_DISABLE_ATTACHMENTS=1")
	}
	return env
}

// claudeVersion returns what the files of an installed claude say of its version,
// without starting it: npm's package, or the name of claude's own installer's file.
func claudeVersion(bin string) string {
	target, err := filepath.EvalSymlinks(bin)
	if err != nil {
		return ""
	}
	return or(packageVersion(target, "claude-code"), filepath.Base(target))
}

// unset gives the entries whose variables an environment does not have.
func unset(env []string, entries ...string) []string {
	return slices.DeleteFunc(entries, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	})
}
