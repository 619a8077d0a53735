// Package claude runs claude -p: its command line and input, its events, what its errors
// mean, and what claude can be asked about itself.
package claude

import "stint/coordinator/agent"

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
