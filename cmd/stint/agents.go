package main

import (
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
)

// envForAgents names the variables of the master's environment that agents get; a
// star stands for any end. The configuration's env adds to it. Everything else,
// such as the credentials of other programs, stays with the master.
var envForAgents = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LC_*", "XDG_*", // what any program needs
	"CODEX_HOME", "CODEX_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", // codex
	"*_PROXY", "*_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", // the way to the provider
	"SSH_AUTH_SOCK",                                         // git push and fetch
	"GOPATH", "GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY", // building what they change
}

// agentEnv filters an environment by [envForAgents] and more names.
func agentEnv(environ, more []string) []string {
	allowed := slices.Concat(envForAgents, more)
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.ContainsFunc(allowed, func(pattern string) bool {
			ok, err := path.Match(pattern, name)
			return ok && err == nil
		})
	})
}

// codexAgent gives the adapter of codex as it is configured.
func codexAgent(cfg *Config) *agent.Codex {
	c := &agent.Codex{
		Runner:  agentRunner(cfg),
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

func agentRunner(cfg *Config) agent.Runner {
	return agent.Runner{Env: agentEnv(os.Environ(), cfg.Env)}
}

// agents gives all adapters by name. Codex is there even if its program is not:
// its tasks then say what is missing.
func agents(cfg *Config, state string) map[string]coordinator.Agent {
	return map[string]coordinator.Agent{
		"codex": codexAgent(cfg),
		"demo":  &agent.Demo{Runner: agentRunner(cfg), Home: filepath.Join(state, "demo")},
	}
}

// findSession reads the agent's session from what an old run has written. All
// adapters of today speak the same events.
func findSession(_, runDir string) (session string, kept bool) {
	return (&agent.Codex{}).FindSession(runDir)
}

// probeAgain is how long the answer counts that there is no codex yet.
const probeAgain = 5 * time.Second

// defaultAgent gives the function that names the agent of tasks that name none:
// the configured one, codex as soon as it is ready, else the demo. Looking costs a
// start of codex, so it is not done for every task.
func defaultAgent(ctx context.Context, cfg *Config) func() string {
	var mu sync.Mutex
	name, looked := cfg.Agent, time.Time{}
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		if cfg.Agent != "" || name == "codex" || time.Since(looked) < probeAgain && name != "" {
			return name
		}
		name = "demo"
		if p := codexAgent(cfg).Probe(ctx); p.Found && p.LoggedIn {
			name = "codex"
		}
		looked = time.Now()
		return name
	}
}

// noteDemo says that the demo agent answers, and how to get a real one, unless
// the user chose it.
func (a *app) noteDemo(ctx context.Context, o *taskOptions, view *api.TaskView) {
	if view.Agent != "demo" || o.spec.Agent == "demo" || a.quiet {
		return
	}
	base, err := a.base()
	if err != nil {
		return // told before
	}
	switch p := codexAgent(base).Probe(ctx); {
	case !p.Found:
		a.hint("stint: using the built-in demo agent (codex is not installed); with a real one: npm i -g @openai/codex && codex login\n")
	case !p.LoggedIn:
		a.hint("stint: using the built-in demo agent (codex is not logged in); with a real one: codex login\n")
	default:
		a.hint("stint: using the built-in demo agent (the master does not find codex as you do); with codex: stint task --agent codex ...\n")
	}
}
