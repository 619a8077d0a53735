// Package claude runs claude -p: its command line and input, its events, what its errors
// mean, and what claude can be asked about itself.
package claude

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"stint/coordinator/agent"
	"stint/coordinator/agent/gate"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

var versions = agent.Versions{
	Oldest: "2.1.299", Newest: "2.1.330",
	Breaks:  "it cannot be told that a prompt is only text, so stint turns off all its attachments, the lists of skills and deferred tools too",
	Install: "npm install -g @anthropic-ai/claude-code",
}

// beforePrompts has the last version without --permission-prompts.
var beforePrompts = agent.Versions{Newest: "2.1.258"}

// An Agent runs claude -p. Its fields are set before the first Run; then it may be used by several goroutines at once.
type Agent struct {
	agent.Runner
	Bin            string   // name or path of the program; the default is "claude"
	Model          string   // used when a turn names none; "" leaves it to claude
	PermissionMode string   // the default is acceptEdits; "inherit" leaves it to claude's settings
	AllowedTools   []string // permission rules, such as Bash(git diff:*), besides those of claude's settings
	MaxTurns       int      // 0: no bound
}

// Run runs one turn; see task.Agent.
func (c *Agent) Run(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
	s, out := c.spec(turn)
	if out != nil {
		return *out
	}
	if err := writeInput(s.Stdin, turn.Prompt); err != nil {
		return task.Outcome{Class: state.ClassInterrupted, Error: err.Error(), ExitCode: -1, Shortage: task.ShortageOf(err)}
	}
	end := c.RunEvents(ctx, s, NewDecoder(turn, report), report)
	if slices.Contains(s.Argv, userSettings[0]) {
		end.Note = cmp.Or(end.Note, "the settings in .claude name a server, a home or an account, and were left out")
	}
	return end
}

// Plan returns what Run would start; see task.Planner.
func (c *Agent) Plan(turn task.Turn) task.Plan { return agent.PlanOf(c.spec(turn)) }

// spec returns what a turn starts, or the outcome of one that cannot start. Rules of tools
// need no check: they go in a JSON object.
func (c Agent) spec(turn task.Turn) (gate.Spec, *task.Outcome) {
	c.Use(turn)
	bin, out := agent.Begin("claude", turn, c.find, "model", cmp.Or(turn.Model, c.Model), "permission mode", c.PermissionMode)
	if out != nil {
		return gate.Spec{}, out
	}
	argv := append([]string{bin}, c.args(turn)...)
	if beforePrompts.IsNewer(installedVersion(bin)) {
		argv = append(argv, "--permission-prompts", "none") // nobody is there to be asked
	}
	return gate.Spec{
		Turn: turn, Argv: argv, Env: c.AgentEnv(turn, c.env(bin)...),
		Stdin: filepath.Join(turn.RunDir, inputFile),
	}, nil
}

func (c *Agent) find() (string, error) { return c.LookPath(cmp.Or(c.Bin, "claude")) }

// args returns the command line of a turn without the program. The prompt comes on
// stdin: --add-dir takes all arguments up to the next option, and would take it.
func (c *Agent) args(turn task.Turn) []string {
	args := append(agent.Options([]string{"-p"}, "--add-dir", turn.Files), "--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
	switch {
	case turn.ReadOnly:
		// What the user's settings allow is not for it: it has no tools but those that read, and no MCP servers.
		tools := ""
		if turn.Looks {
			tools = "Read,Glob,Grep"
		}
		args = append(args, "--permission-mode", "default", "--tools", tools, "--strict-mcp-config")
	case c.PermissionMode != "inherit":
		args = append(args, "--permission-mode", cmp.Or(c.PermissionMode, "acceptEdits"))
	}
	if schema, err := durable.ReadFile(durable.OS, turn.Schema); err == nil { // claude takes the text; the prompt has it too
		args = append(args, "--json-schema", string(bytes.TrimSpace(schema)))
	}
	if allow := slices.Concat(c.AllowedTools, turn.Allow); len(allow) > 0 && !turn.ReadOnly {
		// As settings of claude, which are added to the user's own.
		settings, _ := json.Marshal(map[string]any{"permissions": map[string]any{"allow": allow}}) // strings alone
		args = append(args, "--settings", string(settings))
	}
	args = agent.Options(args, "--model", cmp.Or(turn.Model, c.Model))
	if turn.Budget > 0 {
		args = append(args, "--max-budget-usd", strconv.FormatFloat(turn.Budget, 'f', -1, 64))
	}
	if c.MaxTurns > 0 {
		args = append(args, "--max-turns", strconv.Itoa(c.MaxTurns))
	}
	if misleads(turn.Workspace) || misleads(turn.Root) {
		args = append(args, userSettings...)
	}
	args = agent.Options(args, "--resume", turn.Session)
	if turn.Fork {
		args = append(args, "--fork-session")
	}
	return args
}

// inputFile is the file in a run's directory that claude reads on stdin.
const inputFile = "stdin"

// writeInput writes a prompt as the one message of claude's stream-json input. Claude reads every file that a plain prompt
// names with an @ and runs a command that it begins with; client_composed makes it send the text as it is written.
func writeInput(path, prompt string) error {
	text, err := durable.ReadFile(durable.OS, prompt)
	if err == nil {
		line, _ := json.Marshal(map[string]any{ // strings always can be
			"type": "user", "message": map[string]string{"role": "user", "content": string(text)}, "client_composed": true,
		})
		err = durable.PutFile(path, append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("input for claude: %w", err)
	}
	return nil
}

// env returns what shortens claude's own retries, some three minutes of them, and keeps it from changing under a run: there the
// user's values win. They do not where claude is told to expand nothing: skills, which a run may have written, keep the @ of
// their text; and an older claude, to which client_composed means nothing, goes without all that it attaches to a prompt.
func (c *Agent) env(bin string) []string {
	env := slices.DeleteFunc([]string{"CLAUDE_CODE_MAX_RETRIES=2", "DISABLE_AUTOUPDATER=1"}, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return agent.HasEnv(c.Env, name)
	})
	env = append(env, "CLAUDE_CODE_DISABLE_FILE_MENTIONS=1")
	if versions.IsOlder(installedVersion(bin)) {
		env = append(env, "CLAUDE_CODE_DISABLE_ATTACHMENTS=1")
	}
	return env
}

// installedVersion returns what the files of an installed claude say of its version,
// without starting it: npm's package, or the name of claude's own installer's file.
func installedVersion(bin string) string {
	target := task.WithoutLinks(bin)
	return cmp.Or(agent.PackageVersion(target, "claude-code"), filepath.Base(target))
}

// Kind is how claude is registered.
var Kind = agent.Kind{
	Name: "claude", Tested: versions, Decoder: NewDecoder,
	HomeEnv: "CLAUDE_CONFIG_DIR", CredFile: ".credentials.json", KeyEnv: "ANTHROPIC_API_KEY", Max: 3,
	Env: []string{
		"CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN",
		"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_BETAS",
		"ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_*", "ANTHROPIC_SMALL_FAST_MODEL*", "CLAUDE_CODE_SUBAGENT_MODEL",
		"CLAUDE_CODE_CLIENT_*", "CLAUDE_CODE_API_KEY_HELPER_TTL_MS", "CLAUDE_CODE_MAX_*", "CLAUDE_CODE_DISABLE_*", "CLAUDE_CODE_EFFORT_LEVEL",
		"API_TIMEOUT_MS", "MAX_THINKING_TOKENS", "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS", "BASH_MAX_OUTPUT_LENGTH", "MCP_TIMEOUT", "MCP_TOOL_TIMEOUT",
		"DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DISABLE_AUTOUPDATER", "DISABLE_PROMPT_CACHING*",
	},
	// All that claude needs of a cloud, by the variable that tells it to use that one. The
	// credentials are the user's for other programs too, so no agent gets them otherwise.
	EnvIf: map[string][]string{
		"CLAUDE_CODE_USE_BEDROCK": {"CLAUDE_CODE_*_BEDROCK*", "ANTHROPIC_BEDROCK_*", "AWS_*"},
		"CLAUDE_CODE_USE_VERTEX": {
			"CLAUDE_CODE_*_VERTEX*", "ANTHROPIC_VERTEX_*", "CLOUD_ML_REGION", "VERTEX_REGION_*",
			"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_*", "GCLOUD_PROJECT", "CLOUDSDK_*",
		},
		"CLAUDE_CODE_USE_FOUNDRY": {"CLAUDE_CODE_*_FOUNDRY*", "ANTHROPIC_FOUNDRY_*", "AZURE_*"},
	},
	Settings: []agent.Setting{
		{Name: "bin", Default: "claude", Help: "name or path of the claude CLI"},
		{Name: "model", Default: "", Help: "model of claude; empty: as claude is configured", Workspace: true},
		{
			Name: "permission_mode", Default: "acceptEdits", Help: "what claude may do; inherit: as claude is configured",
			Choices: []string{"acceptEdits", "inherit", "default", "plan", "dontAsk", "auto", "bypassPermissions"}, Danger: "bypassPermissions", Instead: "acceptEdits",
		},
		{Name: "allowed_tools", Default: []string(nil), Help: `what claude may do besides, such as "Bash(go test *)"`},
		{Name: "max_turns", Default: 0, Help: "rounds of claude in one run; 0: no limit", Most: 100000},
	},
	New: func(c agent.Config) agent.Adapter {
		a := &Agent{Runner: c.Runner, Bin: c.Text("bin"), Model: c.Text("model"), PermissionMode: c.Text("permission_mode")}
		a.AllowedTools, _ = c.Value("allowed_tools").([]string)
		a.MaxTurns, _ = c.Value("max_turns").(int)
		return a
	},
}
