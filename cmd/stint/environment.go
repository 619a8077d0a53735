package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// A master in the background keeps the environment of the shell that happened to start it. So a task records
// what the tools of its own shell need, as its user's call has it: PATH, and variables without secrets.
// Agents' programs are looked for in that PATH too, which is why nothing of the kind is accepted from a run.

// defaultCapture are the variables that are recorded with a task unless the configuration says
// otherwise. Direnv's and mise's records of what they have changed are not among them: they have
// the values of all variables, secrets too.
var defaultCapture = []string{
	"PATH", "LANG", "LANGUAGE", "LC_*", "TZ",
	"VIRTUAL_ENV", "PYTHONPATH", "CONDA_*", "PYENV_*", "POETRY_HOME", "UV_*",
	"NVM_*", "FNM_*", "VOLTA_HOME", "RBENV_*", "GEM_HOME", "GEM_PATH", "ASDF_*", "MISE_*", "DIRENV_DIR", "DIRENV_FILE",
	"GOPATH", "GOROOT", "GOBIN", "GOFLAGS", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOSUMDB", "GOTOOLCHAIN", "GOWORK", "GOENV",
	"JAVA_HOME", "JDK_HOME", "MAVEN_HOME", "M2_HOME", "GRADLE_HOME", "GRADLE_USER_HOME", "SDKMAN_*", "CARGO_HOME", "RUSTUP_*",
	"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
}

// captureDefault is the word for defaultCapture, captureNone for nothing at all.
const (
	captureDefault = "default"
	captureNone    = "none"
)

// capturePatterns returns the names that are captured.
func (c *Config) capturePatterns() (patterns []string) {
	for _, name := range c.CaptureEnv {
		switch name {
		case captureDefault:
			patterns = append(patterns, defaultCapture...)
		case captureNone:
		default:
			patterns = append(patterns, name)
		}
	}
	return patterns
}

// environment returns what an account's agent gets for a run, and puts its credentials into its home.
func (a *app) environment() (env, removed []string) {
	cfg, err := a.base()
	if err != nil || ownRun() != "" {
		return nil, nil
	}
	return task.FitEnvironment(task.CaptureEnvironment(os.Environ(), cfg.capturePatterns()))
}

// addEnvironment adds the environment to tasks: the first one's counts for those without.
func (a *app) addEnvironment(specs []task.TaskSpec) {
	if specs[0].Environment != nil {
		return
	}
	var removed []string
	if specs[0].Environment, removed = a.environment(); len(removed) > 0 {
		a.hint("stint: warning: the tasks do not get %s of this shell: more than %d bytes are not recorded (capture_env)\n", strings.Join(removed, ", "), task.MaxEnvironment)
	}
}

// askAgents asks a running master about the agents, for tasks of this shell.
func (a *app) askAgents(ctx context.Context, probe bool) (body wire.AgentsBody, err error) {
	env, _ := a.environment()
	err = a.callRunning(func(c *client.Client) error {
		body, err = c.Agents(ctx, wire.AgentsQuery{Probe: probe, Environment: env})
		return err
	})
	return body, err
}

// lookAtAgents returns the function with which a master tells of its agents.
func lookAtAgents(cfg *Config) func(context.Context, []string, bool) []wire.AgentView {
	return func(ctx context.Context, env []string, probe bool) []wire.AgentView {
		views, probes := make([]wire.AgentView, len(agentNames)), sync.WaitGroup{} // at once: each program is started several times
		for i, name := range agentNames {
			v := &views[i]
			v.Name, v.Variables = name, []string{}
			for _, kv := range agentEnv(os.Environ(), name, cfg.Env) {
				if variable, value, _ := strings.Cut(kv, "="); value != "" {
					v.Variables = append(v.Variables, variable)
				}
			}
			if slices.Sort(v.Variables); probe {
				probes.Go(func() {
					p := adapterFor(cfg, name, "", task.Turn{Env: env}).Probe(ctx)
					v.Found, v.LoggedIn, v.Path, v.Version, v.Detail = p.Found, p.LoggedIn, p.Path, p.Version, p.Detail
				})
			}
		}
		probes.Wait()
		return views
	}
}

// missingSecrets returns the names of secret variables that we have for an agent, and the master has not.
func missingSecrets(cfg *Config, v *wire.AgentView) (names []string) {
	for _, kv := range agentEnv(os.Environ(), v.Name, cfg.Env) {
		name, value, _ := strings.Cut(kv, "=")
		if value != "" && task.IsSecret(name, value) && !slices.Contains(v.Variables, name) {
			names = append(names, name)
		}
	}
	return names
}

// lacksSecrets returns which keys of an agent this shell has and the master has not: they are not
// recorded with a task. With probe it returns nil if the agent is logged in for the master all the same.
func (a *app) lacksSecrets(ctx context.Context, name string, probe bool) *cliError {
	cfg, err := a.base()
	if err != nil || name == builtIn || ownRun() != "" || missingSecrets(cfg, &wire.AgentView{Name: name}) == nil {
		return nil
	}
	body, err := a.askAgents(ctx, false)
	i := slices.IndexFunc(body.Agents, func(v wire.AgentView) bool { return v.Name == name })
	if err != nil || i < 0 {
		return nil // there is no master, or it ends
	}
	names := missingSecrets(cfg, &body.Agents[i])
	if len(names) > 0 && probe {
		body, err = a.askAgents(ctx, true)
	}
	if len(names) == 0 || err != nil || probe && body.Agents[i].LoggedIn {
		return nil
	}
	return &cliError{
		code:    exitAgent,
		message: fmt.Sprintf("the master (pid %d) lacks %s of this shell: secrets are not recorded with a task", body.PID, strings.Join(names, ", ")),
		try:     restart(body.Background) + ", and call stint from this shell again",
	}
}

// warnSecrets prints on stderr which keys the master lacks for these agents.
func (a *app) warnSecrets(ctx context.Context, agents ...string) {
	slices.Sort(agents)
	for _, name := range slices.Compact(agents) {
		if lack := a.lacksSecrets(ctx, name, false); lack != nil {
			a.hint("stint: %s\n  try: %s\n", lack.message, lack.try)
		}
	}
}

// compareAgents returns where a master would run an agent otherwise than this shell would. A run is not told.
func compareAgents(cfg *Config, looks []look, body *wire.AgentsBody) (found []finding) {
	for _, l := range looks {
		i := slices.IndexFunc(body.Agents, func(v wire.AgentView) bool { return v.Name == l.name })
		if i < 0 || ownRun() != "" {
			continue
		}
		v, p, text := &body.Agents[i], &l.probe, ""
		switch {
		case p.Path != v.Path:
			text = fmt.Sprintf("the master (pid %d) finds %s, this shell %s", body.PID, cmp.Or(v.Path, "nothing"), cmp.Or(p.Path, "nothing"))
		case p.Found && p.LoggedIn != v.LoggedIn:
			text = fmt.Sprintf("for the master (pid %d) it is otherwise: %s", body.PID, oneLine(v.Detail))
		}
		if names := missingSecrets(cfg, v); len(names) > 0 && text != "" {
			text += "; it lacks " + strings.Join(names, ", ") + " of this shell"
		}
		if text != "" {
			found = append(found, finding{l.name, healthWarn, text, restart(body.Background) + ", and call stint from this shell"})
		}
	}
	return found
}
