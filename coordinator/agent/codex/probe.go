package codex

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"stint/coordinator/agent"
	"stint/coordinator/task"
	"stint/state"

	"github.com/BurntSushi/toml"
)

// Probe looks whether codex is installed and logged in. It starts codex twice,
// offline, and takes some 30 ms; ctx bounds it.
func (c *Agent) Probe(ctx context.Context) agent.Probe { return c.questions().Probe(ctx) }

func (c *Agent) questions() *agent.Questions {
	homeIn := ""
	if task.LookupEnv(c.Env, "CODEX_HOME") != "" {
		homeIn = "CODEX_HOME"
	}
	return &agent.Questions{
		HomeIn: homeIn, Find: c.find, Version: c.Version, Login: c.login, LogIn: c.LoginCommand(), Tested: versions,
		Home: c.home(), NoHome: agent.Problem{Text: "codex cannot write its home", Fatal: true},
	}
}

func (c *Agent) login(ctx context.Context, path string) (ok bool, detail, fix string) {
	if ok, detail = c.credentials(ctx, path); brokenConfig(detail) {
		fix = c.correctConfig()
	}
	return ok, detail, fix
}

// ownConfig begins what is said of codex's own configuration.
const ownConfig = "codex's configuration: "

// brokenConfig reports whether codex, or we in its place, cannot read its configuration.
func brokenConfig(said string) bool {
	return strings.HasPrefix(said, ownConfig) || strings.Contains(said, "Error loading config")
}

// correctConfig is what helps then: neither a login nor a sandbox was tried.
func (c *Agent) correctConfig() string {
	return "correct " + state.ShellQuote(filepath.Join(c.home(), "config.toml"))
}

// credentials looks for them in the order in which codex takes them.
func (c *Agent) credentials(ctx context.Context, path string) (ok bool, detail string) {
	if provider, found, err := c.provider(); err != nil {
		return false, err.Error()
	} else if found {
		return provider.ready(c.Env)
	}
	if task.LookupEnv(c.Env, "CODEX_API_KEY") != "" {
		return true, "CODEX_API_KEY is set"
	}
	out, err := c.Output(ctx, path, "login", "status")
	if err == nil {
		return true, cmp.Or(agent.LastLine(out), "logged in")
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return false, cmp.Or(agent.LastLine(out), "not logged in")
	}
	return false, err.Error()
}

// A provider is a model provider of codex's own configuration.
type provider struct {
	name     string
	EnvKey   string `toml:"env_key"`
	NeedAuth bool   `toml:"requires_openai_auth"`
}

func (p provider) ready(env []string) (bool, string) {
	switch {
	case p.EnvKey == "":
		return true, fmt.Sprintf("model provider %q needs no key", p.name)
	case task.LookupEnv(env, p.EnvKey) != "":
		return true, fmt.Sprintf("%s is set, for model provider %q", p.EnvKey, p.name)
	}
	return false, fmt.Sprintf("model provider %q needs %s in the environment", p.name, p.EnvKey)
}

// provider returns the configured model provider if it is one with a login of its own.
func (c *Agent) provider() (p provider, found bool, err error) {
	home := c.home()
	var conf struct {
		Provider  string              `toml:"model_provider"`
		Providers map[string]provider `toml:"model_providers"`
	}
	for _, name := range []string{"config.toml", c.Profile + ".config.toml"} {
		data, err := os.ReadFile(filepath.Join(home, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = toml.Unmarshal(data, &conf)
		}
		if err != nil {
			return provider{}, false, fmt.Errorf(ownConfig+"%w", err)
		}
	}
	p, found = conf.Providers[conf.Provider]
	p.name = conf.Provider
	return p, found && !p.NeedAuth, nil
}

// home is where codex keeps its configuration and its threads.
func (c *Agent) home() string { return agent.HomeOf(c.Env, "CODEX_HOME", ".codex") }

// Examine looks closer than Probe, for a person who asks: whether the version is
// known, the sandbox works and the home can be written. It gives only what is
// wrong. It takes up to some seconds; ctx bounds it.
func (c *Agent) Examine(ctx context.Context) []agent.Problem {
	path, found := c.questions().Examine(ctx)
	if path == "" || slices.ContainsFunc(found, func(p agent.Problem) bool { return p.Fatal }) {
		return found // without a home the sandbox cannot be tried
	}
	return append(found, c.sandboxProblem(ctx, path)...)
}

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
	if said, _ := c.Output(ctx, path, "login", "status"); brokenConfig(string(said)) {
		return []agent.Problem{{Text: agent.LastLine(said), Fix: c.correctConfig(), Fatal: true}}
	}
	p := agent.Problem{Text: fmt.Sprintf("codex's sandbox does not work here, so that all commands of the agent fail (%v): %s", err, agent.LastLine(out)), Fatal: true}
	if runtime.GOOS == "linux" {
		p.Fix = "sudo sysctl -e -w kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 user.max_user_namespaces=15000"
	}
	return []agent.Problem{p}
}
