package codex

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"stint/coordinator/agent"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/ledger/lazy"
	"stint/state"
)

// CLI implements [agent.Adapter]. A probe starts codex twice, offline, and takes some 30 ms; a closer look takes up to some seconds.
func (c *Agent) CLI() *agent.CLI {
	bin, homeIn := state.ShellQuote(cmp.Or(c.Bin, "codex")), ""
	if task.LookupEnv(c.Env, "CODEX_HOME") != "" {
		homeIn = "CODEX_HOME"
	}
	return &agent.CLI{
		HomeIn: homeIn, Find: c.find, Version: c.Version, Login: c.login, Tested: versions, More: c.sandboxProblem,
		LogIn: bin + " login", Resume: bin + " resume",
		Home: c.home(), NoHome: agent.Problem{Text: "codex cannot write its home", Fatal: true},
	}
}

// brokenConfig reports whether codex cannot read its configuration.
func brokenConfig(said []byte) bool { return bytes.Contains(said, []byte("Error loading config")) }

// correctConfig is what helps then: neither a login nor a sandbox was tried.
func (c *Agent) correctConfig() string {
	return "correct " + state.ShellQuote(filepath.Join(c.home(), "config.toml"))
}

// login looks for credentials in the order in which codex takes them.
func (c *Agent) login(ctx context.Context, path string) (ok bool, detail, fix string) {
	p, found, err := c.provider()
	switch {
	case err != nil:
		return false, err.Error(), c.correctConfig()
	case found && p.EnvKey == "":
		return true, fmt.Sprintf("model provider %q needs no key", p.name), ""
	case found && task.LookupEnv(c.Env, p.EnvKey) != "":
		return true, fmt.Sprintf("%s is set, for model provider %q", p.EnvKey, p.name), ""
	case found:
		return false, fmt.Sprintf("model provider %q needs %s in the environment", p.name, p.EnvKey), ""
	case task.LookupEnv(c.Env, "CODEX_API_KEY") != "":
		return true, "CODEX_API_KEY is set", ""
	}
	out, err := c.Output(ctx, path, "login", "status")
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true, cmp.Or(agent.LastLine(out), "logged in"), ""
	case brokenConfig(out):
		return false, agent.LastLine(out), c.correctConfig()
	case errors.As(err, &exit):
		return false, cmp.Or(agent.LastLine(out), "not logged in"), ""
	}
	return false, err.Error(), ""
}

// A provider is a model provider of codex's own configuration.
type provider struct {
	name     string
	EnvKey   string `toml:"env_key"`
	NeedAuth bool   `toml:"requires_openai_auth"`
}

// A config is what matters here of codex's own configuration.
type config struct {
	Provider  string              `toml:"model_provider"`
	Providers map[string]provider `toml:"model_providers"`
}

// config reads the configuration, with that of the profile.
func (c *Agent) config() (conf config, err error) {
	for _, name := range []string{"config.toml", c.Profile + ".config.toml"} {
		if _, err := toml.DecodeFile(filepath.Join(c.home(), name), &conf); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return conf, fmt.Errorf("codex's configuration: %w", err)
		}
	}
	return conf, nil
}

// provider returns the configured model provider if it is one with a login of its own.
func (c *Agent) provider() (p provider, found bool, err error) {
	conf, err := c.config()
	p, found = conf.Providers[conf.Provider]
	p.name = conf.Provider
	return p, found && !p.NeedAuth, err
}

// home is where codex keeps its configuration and its threads.
func (c *Agent) home() string { return agent.HomeOf(c.Env, "CODEX_HOME", ".codex") }

// sandboxProblem runs a command in codex's sandbox: where it cannot be set up,
// every command of the agent fails and codex still ends well.
func (c *Agent) sandboxProblem(ctx context.Context, path string) []agent.Problem {
	if c.Sandbox == "danger-full-access" {
		return nil
	}
	out, err := c.Output(ctx, path, "sandbox", "--", "true")
	if err == nil {
		return nil
	}
	if _, _, err := c.provider(); err != nil {
		return nil // Probe tells of it
	}
	if said, _ := c.Output(ctx, path, "login", "status"); brokenConfig(said) {
		return []agent.Problem{{Text: agent.LastLine(said), Fix: c.correctConfig(), Fatal: true}}
	}
	p := agent.Problem{Text: fmt.Sprintf("codex's sandbox does not work here, so that all commands of the agent fail (%v): %s", err, agent.LastLine(out)), Fatal: true}
	if runtime.GOOS == "linux" {
		p.Fix = "sudo sysctl -e -w kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 user.max_user_namespaces=15000"
	}
	return []agent.Problem{p}
}

// noProject makes codex trust no directory, so that it passes over what .codex in a workspace says.
var noProject = []string{"-c", "projects={}"}

// theWay finds the settings that say which server, login or profile codex uses.
var theWay = lazy.Regexp(`provider|base_url|login|auth|profile|forced`)

// misleads reports whether a .codex/config.toml in a workspace, or above it in its checkout, would have codex use another account
// or server than its turn's, where the user trusts that directory: a run may have written it. What cannot be read here may do so.
func misleads(turn task.Turn) bool {
	for dir := turn.Workspace; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, ".codex", "config.toml")
		if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
			data, err := durable.ReadFile(durable.OS, path)
			var set map[string]any
			if err != nil || len(data) > 1<<20 || toml.Unmarshal(data, &set) != nil {
				return true
			}
			for key := range set {
				if theWay().MatchString(key) {
					return true
				}
			}
		}
		if turn.Root == "" || dir == turn.Root || dir == filepath.Dir(dir) {
			return false
		}
	}
}

// keepKeys returns the options that keep codex's keys, also those of the providers in its configuration, and those of its account,
// from the programs that the model has it start: there they are empty. A list of what is left out would replace the user's own.
func (c *Agent) keepKeys() (args []string) {
	names := []string{"CODEX_API_KEY", "OPENAI_API_KEY"}
	for _, kv := range c.Account {
		if name, value, _ := strings.Cut(kv, "="); task.IsSecret(name, value) {
			names = append(names, name)
		}
	}
	conf, _ := c.config() // what is no configuration codex does not start with
	for _, p := range conf.Providers {
		names = append(names, p.EnvKey)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name != "" {
			args = append(args, "-c", "shell_environment_policy.set."+name+`=""`)
		}
	}
	return args
}

// quotaTail is how much of the end of a thread's file is looked at: a line with an answer may be long.
const quotaTail = 1 << 20

// quota returns how much of its account's windows is used, as the file of a thread in codex's home has it
// last: `codex exec --json` does not tell it. nil if it is not there.
func (c *Agent) quota(thread string) []state.Window {
	found, _ := fs.Glob(os.DirFS(c.home()), "sessions/*/*/*/rollout-*-"+thread+".jsonl") // it is well formed
	if len(found) == 0 {
		return nil
	}
	f, err := durable.Open(filepath.Join(c.home(), found[len(found)-1]), os.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()                    // only read from
	_, _ = f.Seek(-quotaTail, io.SeekEnd)               // of a shorter file it fails: that is read from its beginning
	data, _ := io.ReadAll(io.LimitReader(f, quotaTail)) // what could be read
	for _, line := range slices.Backward(bytes.Split(data, []byte("\n"))) {
		if list := windowsOf(line); list != nil {
			return list
		}
	}
	return nil
}

// windowsOf returns the windows that a line of a thread's file tells of.
func windowsOf(line []byte) (list []state.Window) {
	if !bytes.Contains(line, []byte(`"rate_limits"`)) {
		return nil
	}
	type window struct {
		Used     float64 `json:"used_percent"`
		Minutes  int     `json:"window_minutes"`
		ResetsAt int64   `json:"resets_at"` // Unix seconds
	}
	var e struct {
		Timestamp time.Time `json:"timestamp"` // which may be long past: a turn may end before it is told anything
		Payload   struct {
			Limits struct {
				Primary   *window `json:"primary"`
				Secondary *window `json:"secondary"`
			} `json:"rate_limits"`
		} `json:"payload"`
	}
	if json.Unmarshal(line, &e) != nil {
		return nil
	}
	for name, w := range map[string]*window{"primary": e.Payload.Limits.Primary, "secondary": e.Payload.Limits.Secondary} {
		if w != nil && w.ResetsAt > 0 {
			list = state.MergeQuota(list, []state.Window{{Name: name, Used: w.Used, Minutes: max(w.Minutes, 0), ResetsAt: time.Unix(w.ResetsAt, 0), At: e.Timestamp}})
		}
	}
	return list
}
