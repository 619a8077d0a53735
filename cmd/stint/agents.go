package main

import (
	"cmp"
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"stint/coordinator"
	"stint/coordinator/agent"
	"stint/coordinator/api"
	"stint/state"
)

// envForAgents names the variables of the master's environment that all agents get;
// a star stands for anything. envOfAgent and the configuration's env add to them.
// Everything else, such as the credentials of other programs, stays with the master.
var envForAgents = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LC_*", "XDG_*", // what any program needs
	"*_PROXY", "*_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", // the way to the provider
	"SSH_AUTH_SOCK",                                                   // git push and fetch
	"GOPATH", "GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY", "GORACE", // building what they change
}

// envOfAgent names what only one agent gets: its home, its credentials, and the
// settings that its CLI documents for users. What a CLI tells its own children,
// such as the id of the session that it is in, is not among them: stint may itself
// have been called by an agent.
var envOfAgent = map[string][]string{
	"codex": {"CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"},
	"claude": {
		"CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN",
		"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_BETAS",
		"ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_*", "ANTHROPIC_SMALL_FAST_MODEL*", "CLAUDE_CODE_SUBAGENT_MODEL",
		"CLAUDE_CODE_CLIENT_*", "CLAUDE_CODE_API_KEY_HELPER_TTL_MS", "CLAUDE_CODE_MAX_*", "CLAUDE_CODE_DISABLE_*", "CLAUDE_CODE_EFFORT_LEVEL",
		"API_TIMEOUT_MS", "MAX_THINKING_TOKENS", "BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS", "BASH_MAX_OUTPUT_LENGTH", "MCP_TIMEOUT", "MCP_TOOL_TIMEOUT",
		"DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "DISABLE_AUTOUPDATER", "DISABLE_PROMPT_CACHING*",
	},
	"gemini": {
		"GEMINI_CLI_HOME", "GEMINI_API_KEY", "GEMINI_API_KEY_AUTH_MECHANISM", "GEMINI_DEFAULT_AUTH_TYPE", "GEMINI_MODEL", "GEMINI_SYSTEM_MD",
		"GEMINI_CLI_SYSTEM_SETTINGS_PATH", "GEMINI_CLI_SYSTEM_DEFAULTS_PATH", "GEMINI_CLI_TRUST*", "GEMINI_CLI_CUSTOM_HEADERS", "GEMINI_CLI_USE_COMPUTE_ADC",
		"GEMINI_CLI_NO_RELAUNCH", "GEMINI_SANDBOX*", "GEMINI_TELEMETRY_*",
		"GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_*", "GOOGLE_GENAI_*", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_VERTEX_BASE_URL",
		"CLOUDSDK_CONFIG", "CODE_ASSIST_*",
	},
}

// envOfCloud names all that claude needs of a cloud, by the variable that tells it to use
// that one: it gets all of it, the switch too, or nothing. The credentials are the user's
// for other programs too, so no agent gets them otherwise. (gemini's are all in envOfAgent.)
var envOfCloud = map[string][]string{
	"CLAUDE_CODE_USE_BEDROCK": {"CLAUDE_CODE_*_BEDROCK*", "ANTHROPIC_BEDROCK_*", "AWS_*"},
	"CLAUDE_CODE_USE_VERTEX": {
		"CLAUDE_CODE_*_VERTEX*", "ANTHROPIC_VERTEX_*", "CLOUD_ML_REGION", "VERTEX_REGION_*",
		"GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_*", "GCLOUD_PROJECT", "CLOUDSDK_*",
	},
	"CLAUDE_CODE_USE_FOUNDRY": {"CLAUDE_CODE_*_FOUNDRY*", "ANTHROPIC_FOUNDRY_*", "AZURE_*"},
}

// agentEnv filters an environment by what all agents get, what the one of that name
// gets, and more names.
func agentEnv(environ []string, name string, more []string) []string {
	allowed := slices.Concat(envForAgents, envOfAgent[name], more)
	for _, kv := range environ {
		variable, value, _ := strings.Cut(kv, "=")
		if on := strings.ToLower(value); name == "claude" && slices.Contains([]string{"1", "true", "yes", "on"}, on) { // as claude has it
			allowed = append(allowed, envOfCloud[variable]...)
		}
	}
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.ContainsFunc(allowed, func(pattern string) bool {
			ok, err := path.Match(pattern, name)
			return ok && err == nil
		})
	})
}

// An adapter is an agent with what else there is to ask it.
type adapter interface {
	coordinator.Agent
	FindSession(runDir string) (session string, kept bool)
	ResumeCommand(session, workspace string) string
}

// A cli is the adapter of a program that the user has to install and log in to.
type cli interface {
	adapter
	Probe(ctx context.Context) agent.Probe
	Examine(ctx context.Context) []agent.Problem
	LoginCommand() string
}

// cliNames are the agents that are CLIs.
var cliNames = slices.DeleteFunc(slices.Clone(agentNames), func(name string) bool { return name == "demo" })

// cliOf gives the adapter of a CLI as it is configured, nil for any other agent.
func cliOf(cfg *Config, name string) cli {
	switch name {
	case "codex":
		return codexAgent(cfg)
	case "claude":
		return &agent.Claude{
			Runner: agentRunner(cfg, name), Bin: cfg.ClaudeBin, Model: cfg.ClaudeModel,
			PermissionMode: cfg.ClaudeMode, AllowedTools: cfg.ClaudeTools, MaxTurns: cfg.ClaudeMaxTurns,
		}
	case "gemini":
		return &agent.Gemini{Runner: agentRunner(cfg, name), Bin: cfg.GeminiBin, Model: cfg.GeminiModel, ApprovalMode: cfg.GeminiMode}
	}
	return nil
}

// codexAgent gives the adapter of codex as it is configured.
func codexAgent(cfg *Config) *agent.Codex {
	c := &agent.Codex{
		Runner:  agentRunner(cfg, "codex"),
		Bin:     cfg.CodexBin,
		Model:   cfg.CodexModel,
		Profile: cfg.CodexProfile,
		Sandbox: cfg.CodexSandbox,
	}
	if cfg.CodexFullAuto {
		c.Sandbox, c.FullAuto = "workspace-write", true
	}
	return c
}

func agentRunner(cfg *Config, name string) agent.Runner {
	return agent.Runner{
		Env: agentEnv(os.Environ(), name, cfg.Env),
		Resources: agent.Resources{
			CPU: cfg.LimitCPU, Files: uint64(cfg.LimitFiles), FileSize: uint64(cfg.LimitFileSize),
			Memory: uint64(cfg.LimitMemory), Nice: cfg.Nice,
		},
	}
}

// agents gives all adapters by name. The CLIs are there even if their programs are
// not: their tasks then say what is missing.
func agents(cfg *Config, state string) map[string]coordinator.Agent {
	all := map[string]coordinator.Agent{
		"demo": &agent.Demo{Runner: agentRunner(cfg, "demo"), Home: filepath.Join(state, "demo")},
	}
	for _, name := range cliNames {
		all[name] = cliOf(cfg, name)
	}
	return all
}

// findSession gives the function that reads an agent's session from what an old run
// has written.
func findSession(agents map[string]coordinator.Agent) func(name, runDir string) (session string, kept bool) {
	return func(name, runDir string) (session string, kept bool) {
		if a, ok := agents[name].(adapter); ok {
			return a.FindSession(runDir)
		}
		return "", false
	}
}

// resumeCommand gives the command with which a person goes on with a task's session
// in the agent's own CLI, "" where there is none.
func resumeCommand(cfg *Config, t *state.Task) string {
	if c := cliOf(cfg, t.Agent); c != nil && t.AgentSession != "" {
		return c.ResumeCommand(t.AgentSession, t.Workspace)
	}
	return ""
}

// loginCommand gives what logs in to an agent's CLI, "" if there is none. A variable
// that is set in a shell does not reach a master that runs already.
func loginCommand(name string) string {
	c := cliOf(&Config{}, name)
	if c == nil {
		return ""
	}
	login := c.LoginCommand()
	if strings.HasPrefix(login, "export ") {
		login += ", and end the master, which still lacks it (its pid: stint doctor)"
	}
	return login
}

// How long the answer counts that a CLI is ready, or that it is not yet.
const (
	readyFor   = time.Minute
	missingFor = 5 * time.Second
)

// A readiness knows which CLIs are installed and logged in. Looking costs a start
// or two of each, so it is not done for every task. It may be used by several
// goroutines at once.
type readiness struct {
	ctx context.Context
	cfg *Config

	mu     sync.Mutex
	seen   map[string]seen // by agent
	chosen string          // the default agent, once a CLI was ready
}

// seen is what the last look at a CLI has shown.
type seen struct {
	ready bool
	at    time.Time
}

func newReadiness(ctx context.Context, cfg *Config) *readiness {
	return &readiness{ctx: ctx, cfg: cfg, seen: map[string]seen{}}
}

// ready reports whether an agent's program is there and logged in.
func (r *readiness) ready(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.look(name)
}

// look is ready, under the lock.
func (r *readiness) look(name string) bool {
	c := cliOf(r.cfg, name)
	if c == nil {
		return name == "demo"
	}
	s, age := r.seen[name], time.Since(r.seen[name].at)
	if s.ready && age < readyFor || !s.ready && age < missingFor {
		return s.ready
	}
	p := c.Probe(r.ctx)
	s = seen{ready: p.Found && p.LoggedIn, at: time.Now()}
	r.seen[name] = s
	return s.ready
}

// found reports whether an agent's program can be started now.
func (r *readiness) found(name string) bool {
	c := cliOf(r.cfg, name)
	if c == nil {
		return true
	}
	p := c.Probe(r.ctx)
	return p.Found && p.Version != "" // without Node there is a program that does not start
}

// defaultAgent names the agent of tasks that name none: the configured one, or the
// first CLI that is ready, which it then stays, else the demo.
func (r *readiness) defaultAgent() string {
	if r.cfg.Agent != "" {
		return r.cfg.Agent
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range cliNames {
		if r.chosen == "" && r.look(name) {
			r.chosen = name
		}
	}
	if r.chosen == "" {
		return "demo"
	}
	return r.chosen
}

// noteDemo says that the demo agent answers, and how to get a real one, unless
// the user chose it.
func (a *app) noteDemo(ctx context.Context, o *taskOptions, view *api.TaskView) {
	if view.Agent != "demo" || o.spec.Agent == "demo" || o.spec.DefaultAgent == "demo" || a.quiet {
		return
	}
	base, err := a.base()
	if err != nil {
		return // told before
	}
	why, help := whyDemo(ctx, base)
	if help == "" {
		if o.spec.SessionKey != "" || o.spec.Continue || o.spec.AgentSession != "" {
			return // its session is one of the demo agent
		}
		why, help = "the master does not find "+why+" as you do", "stint task --agent "+why+" ..."
	}
	a.hint("stint: using the built-in demo agent (%s); with a real one: %s\n", why, help)
}

// whyDemo says why no CLI was taken, and what helps; without help it is the name of
// one that is ready.
func whyDemo(ctx context.Context, cfg *Config) (why, help string) {
	why, help = "neither codex nor claude nor gemini is installed", "npm i -g @openai/codex && codex login"
	for _, name := range slices.Backward(cliNames) { // the first one counts most
		c := cliOf(cfg, name)
		switch p := c.Probe(ctx); {
		case p.Found && p.LoggedIn:
			return name, ""
		case p.Found && p.Fix == c.LoginCommand():
			why, help = name+" is not logged in", p.Fix
		case p.Found:
			why, help = name+" cannot be used: "+p.Detail, cmp.Or(p.Fix, "stint doctor")
		}
	}
	return why, help
}
