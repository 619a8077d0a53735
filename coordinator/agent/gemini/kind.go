// Package gemini runs gemini without its user interface: its command line and settings, its
// events, what its errors mean, and what gemini can be asked about itself.
package gemini

import "stint/coordinator/agent"

// Kind is how gemini is registered.
var Kind = agent.Kind{
	Name: "gemini", Tested: versions, Decoder: NewDecoder, CannotAllow: cannotAllow,
	HomeEnv: "GEMINI_CLI_HOME", CredFile: ".gemini/oauth_creds.json", KeyEnv: "GEMINI_API_KEY", Max: 5,
	Env: []string{
		"GEMINI_CLI_HOME", "GEMINI_API_KEY", "GEMINI_API_KEY_AUTH_MECHANISM", "GEMINI_DEFAULT_AUTH_TYPE", "GEMINI_MODEL", "GEMINI_SYSTEM_MD",
		"GEMINI_CLI_SYSTEM_SETTINGS_PATH", "GEMINI_CLI_SYSTEM_DEFAULTS_PATH", "GEMINI_CLI_TRUST*", "GEMINI_CLI_CUSTOM_HEADERS", "GEMINI_CLI_USE_COMPUTE_ADC",
		"GEMINI_CLI_NO_RELAUNCH", "GEMINI_SANDBOX*", "GEMINI_TELEMETRY_*",
		"GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_*", "GOOGLE_GENAI_*", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL",
		"CLOUDSDK_CONFIG", "CODE_ASSIST_*",
	},
	Settings: []agent.Setting{
		{Name: "bin", Default: "gemini", Help: "name or path of the gemini CLI"},
		{Name: "model", Default: "", Help: "model of gemini; empty: as gemini is configured", Workspace: true},
		{
			Name: "approval_mode", Default: "auto_edit", Help: "what gemini may do; inherit: as gemini is configured",
			Choices: []string{"auto_edit", "inherit", "default", "plan", "yolo"}, Danger: "yolo", Instead: "auto_edit",
		},
	},
	New: func(c agent.Config) agent.Adapter {
		return &Agent{Runner: c.Runner, Bin: c.Text("bin"), Model: c.Text("model"), ApprovalMode: c.Text("approval_mode")}
	},
}
