package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"stint/coordinator/agent"
	"stint/coordinator/agent/claude"
	"stint/coordinator/agent/codex"
	"stint/coordinator/agent/demo"
	"stint/coordinator/agent/gate"
	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/agent/gemini"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// envForAgents names the variables of the master's environment that all agents get; a star stands for anything. An agent's Kind
// and the configuration's env add to them. Everything else, such as the credentials of other programs, stays with the master.
var envForAgents = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LC_*", "XDG_*", // what any program needs
	"STINT_STATE_DIR",                                                            // which stint it belongs to
	"*_PROXY", "*_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", // the way to the provider
	"SSH_AUTH_SOCK",                                                   // git push and fetch
	"GOPATH", "GOCACHE", "GOMODCACHE", "GOFLAGS", "GOPROXY", "GORACE", // building what they change
}

// agentKinds are the known agents, in the order in which one is chosen. The last one is built in.
var agentKinds = []agent.Kind{codex.Kind, claude.Kind, gemini.Kind, demo.Kind}

// agentNames are all agents, cliNames those that have to be installed; builtIn is always ready.
var (
	agentNames = mapped(agentKinds, func(k *agent.Kind) string { return k.Name })
	cliNames   = slices.Clip(agentNames[:len(agentNames)-1])
	builtIn    = agentNames[len(agentNames)-1]
)

// findKind returns the agent of that name, nil if there is none.
func findKind(name string) *agent.Kind {
	return find(agentKinds, func(k *agent.Kind) bool { return k.Name == name })
}

// agentEnv filters an environment by what all agents get, what the one of that name gets, and more names.
func agentEnv(environ []string, name string, more []string) []string {
	allowed := slices.Concat(envForAgents, more)
	if kind := findKind(name); kind != nil {
		allowed = append(allowed, kind.Env...)
		for _, kv := range environ {
			variable, value, _ := strings.Cut(kv, "=")
			if slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(value)) {
				allowed = append(allowed, kind.EnvIf[variable]...)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool { return !task.IsNamed(kv, allowed) })
}

// adapterOf returns an agent's adapter, nil if there is none. stateDir may be "" where nothing is run.
func adapterOf(cfg *Config, name, stateDir string) agent.Adapter {
	return adapterFor(cfg, name, stateDir, task.Turn{})
}

// adapterFor is adapterOf for turns that have the same environment (nil: the master's) and account.
func adapterFor(cfg *Config, name, stateDir string, turn task.Turn) agent.Adapter {
	kind := findKind(name)
	if kind == nil {
		return nil
	}
	runner := agentRunner(cfg, os.Environ(), name)
	runner.Own = kind.Own()
	runner.Use(turn)
	return kind.New(agent.Config{
		Runner: runner, Dir: filepath.Join(stateDir, name),
		Value: func(setting string) any { return cfg.agents[name+"_"+setting] },
	})
}

// agentRunner returns what runs an agent, or verify commands if there is no name, and their environment.
func agentRunner(cfg *Config, environ []string, name string) agent.Runner {
	env, patterns := agentEnv(environ, name, cfg.Env), cfg.capturePatterns()
	for _, kv := range environ {
		if task.IsCaptured(kv, patterns) && !slices.Contains(env, kv) {
			env = append(env, kv)
		}
	}
	return agent.Runner{
		Env: env, Captured: patterns,
		Supervisor: gate.Supervisor{Redact: cfg.Redact, Resources: hold.Resources{
			CPU: cfg.LimitCPU, Files: uint64(cfg.LimitFiles), FileSize: uint64(cfg.LimitFileSize),
			Memory: uint64(cfg.LimitMemory), Nice: cfg.Nice,
		}},
	}
}

// agents returns all adapters by name, also of CLIs that are missing: their tasks say so.
func agents(cfg *Config, state string) map[string]task.Agent {
	all := map[string]task.Agent{}
	for _, name := range agentNames {
		all[name] = adapterOf(cfg, name, state)
	}
	return all
}

// findSession reads an agent's session from what an old run has written.
func findSession(name, runDir string) (session string, kept bool) {
	if kind := findKind(name); kind != nil {
		return agent.FindSession(runDir, kind.Decoder)
	}
	return "", false
}

// resumeCommand returns the command with which a person goes on with a task's session
// in the agent's own CLI, and in the home of its account; "" where there is none.
func resumeCommand(cfg *Config, accounts *accountsFile, t *state.Task) string {
	c := adapterOf(cfg, t.Agent, "")
	if c == nil || t.AgentSession == "" || c.CLI().Resume == "" {
		return ""
	}
	command := c.CLI().Resume + " " + state.ShellQuote(t.AgentSession)
	if a := accounts.find(t.Account); a != nil {
		if home, _ := a.home(); home != "" { // else it is that of the user
			command = findKind(a.Tool).HomeEnv + "=" + state.ShellQuote(home) + " " + command
		}
	}
	if t.Workspace != "" {
		command = "cd " + state.ShellQuote(t.Workspace) + " && " + command
	}
	return command
}

// loginCommand returns what logs in to an agent's CLI, "" if there is none. A running master lacks what a shell sets.
func loginCommand(name string) string {
	c := adapterOf(&Config{}, name, "")
	if c == nil {
		return ""
	}
	login := c.CLI().LogIn
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

// A readiness knows which CLIs are installed and logged in. Looking costs a start or two of each, so it is
// not done for every task. It may be used by several goroutines at once.
type readiness struct {
	ctx      context.Context
	cfg      *Config
	accounts *accountsFile

	chosen sync.Map // the default agent by environment, once a CLI was ready
	mu     sync.Mutex
	seen   map[string]seen // by agent and environment
}

type seen struct {
	ready bool
	at    time.Time
}

func newReadiness(ctx context.Context, cfg *Config, accounts *accountsFile) *readiness {
	return &readiness{ctx: ctx, cfg: cfg, accounts: accounts, seen: map[string]seen{}}
}

// ready reports whether a task with that environment could run with an agent, in any of its accounts.
func (r *readiness) ready(name string, env []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := adapterFor(r.cfg, name, "", task.Turn{Env: env})
	if c == nil {
		return false
	}
	_, key := task.EncodeEnvironment(env)
	key = name + " " + key
	s, age := r.seen[key], time.Since(r.seen[key].at)
	if s.ready && age < readyFor || !s.ready && age < missingFor {
		return s.ready
	}
	p := c.CLI().Probe(r.ctx)
	s = seen{ready: p.Found && (p.LoggedIn || p.Version != "" && r.accounts.hasOther(name)), at: time.Now()}
	r.seen[key] = s
	return s.ready
}

// found reports whether an agent's program can be started now, for a task with that environment.
func (r *readiness) found(name string, env []string) bool {
	c := adapterFor(r.cfg, name, "", task.Turn{Env: env})
	if c == nil {
		return true
	}
	p := c.CLI().Probe(r.ctx)
	return p.Found && p.Version != "" // without Node there is a program that does not start
}

// defaultAgent names the agent of tasks with that environment that name none: the configured one, or the
// first CLI that is ready, which it then stays, else the demo.
func (r *readiness) defaultAgent(env []string) string {
	if r.cfg.Agent != "" {
		return r.cfg.Agent
	}
	_, key := task.EncodeEnvironment(env)
	for _, name := range cliNames {
		if _, known := r.chosen.Load(key); !known && r.ready(name, env) {
			r.chosen.LoadOrStore(key, name)
		}
	}
	if name, known := r.chosen.Load(key); known {
		return name.(string)
	}
	return builtIn
}

// checkReady refuses a task whose agent is not installed, or was not logged in when doctor looked, or warns of that where
// nobody waits for the end. It starts no program. Of an agent that has done tasks, the program may be back soon.
func (a *app) checkReady(ctx context.Context, o *taskOptions, s *task.TaskSpec) error {
	name := cmp.Or(s.Agent, s.DefaultAgent)
	base, err := a.base()
	if err != nil || !slices.Contains(cliNames, name) {
		return err
	}
	why, try := name+" was not logged in when stint doctor last looked", "stint doctor, which looks again"
	missing, isOut := a.lastLook(base, name)
	if missing != nil {
		done, err := a.listRunning(ctx, state.Filter{Agent: name, Status: []state.Status{state.Done}, Limit: 1})
		if err == nil && len(done) > 0 {
			return nil
		}
		why, try = missing.Error(), findKind(name).Tested.Install
	} else if dir, err := a.state(); err != nil || !isOut || newAccountsFile(dir).hasOther(name) {
		return err
	}
	if o.detach {
		a.hint("stint: warning: %s is not ready: %s; %s\n", name, escapeText(why), try)
		return nil
	}
	return &cliError{code: exitAgent, message: name + " cannot work, nothing was queued: " + why, try: try}
}

// lastLook returns why the program of an agent is not found, and whether doctor found it logged out.
func (a *app) lastLook(base *Config, name string) (missing error, isOut bool) {
	bin, _ := base.agents[name+"_bin"].(string)
	_, missing = exec.LookPath(cmp.Or(bin, name))
	var cached struct{ NotLoggedIn []string }
	dir, err := a.state()
	if err != nil {
		return missing, false
	}
	data, err := durable.ReadFile(durable.OS, filepath.Join(dir, loginsName))
	return missing, err == nil && json.Unmarshal(data, &cached) == nil && slices.Contains(cached.NotLoggedIn, name)
}

// noteDemo prints on stderr that the demo agent answers one of the tasks, unless the user chose it.
func (a *app) noteDemo(specs []task.TaskSpec, views []wire.TaskView) {
	for i, s := range specs {
		if views[i].Agent == builtIn && s.Agent != builtIn && s.DefaultAgent != builtIn {
			a.hint("stint: using the built-in demo agent; what a real one needs: stint doctor\n")
			return
		}
	}
}

// A master in the background keeps the environment of the shell that happened to start it. So a task records
// what the tools of its own shell need, as its user's call has it: PATH, and variables without secrets.
// Agents' programs are looked for in that PATH too, which is why nothing of the kind is accepted from a run.

// defaultCapture are the variables that are recorded with a task unless the configuration says otherwise. Direnv's and mise's
// records of what they have changed are not among them: they have the values of all variables, secrets too.
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
		if name == captureDefault {
			patterns = append(patterns, defaultCapture...)
		} else if name != captureNone {
			patterns = append(patterns, name)
		}
	}
	return patterns
}

// environment returns the variables of this shell that tasks get, and which of them do not fit.
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
func (a *app) askAgents(ctx context.Context, probe bool) (wire.AgentsBody, error) {
	env, _ := a.environment()
	return fetch[wire.AgentsBody](ctx, a.callRunning, http.MethodPost, "/v1/agents", wire.AgentsQuery{Probe: probe, Environment: env})
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
					p := adapterFor(cfg, name, "", task.Turn{Env: env}).CLI().Probe(ctx)
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

// compareAgents returns where a master would run an agent otherwise than this shell would. A run is not told.
func compareAgents(cfg *Config, looks []look, body *wire.AgentsBody) (found []finding) {
	for _, l := range looks {
		v, p := find(body.Agents, func(v *wire.AgentView) bool { return v.Name == l.name }), &l.probe
		if v == nil || ownRun() != "" || p.Path == v.Path && (!p.Found || p.LoggedIn == v.LoggedIn) {
			continue
		}
		text := fmt.Sprintf("for the master (pid %d) it is otherwise: %s", body.PID, strings.TrimPrefix(v.Path+", "+oneLine(v.Detail), ", "))
		if names := missingSecrets(cfg, v); len(names) > 0 {
			text += "; it lacks " + strings.Join(names, ", ") + " of this shell"
		}
		found = append(found, finding{l.name, healthWarn, text, restart(body.Background) + ", and call stint from this shell"})
	}
	return found
}
