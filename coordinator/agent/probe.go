package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/BurntSushi/toml"
)

// A Probe is what can be known of an agent without spending a token.
type Probe struct {
	Found    bool   // the program is there
	Path     string // what would be executed
	Version  string // as the program says it
	LoggedIn bool   // it has credentials; whether they are good shows only in use
	Detail   string // where the credentials come from, or what is wrong
	Fix      string // the command that helps; "" if nothing is wrong
}

// Probe looks whether codex is installed and logged in. It starts codex twice,
// offline, and takes some 30 ms; ctx bounds it.
func (c *Codex) Probe(ctx context.Context) Probe {
	path, err := c.find()
	if err != nil {
		return Probe{Detail: err.Error(), Fix: "npm install -g @openai/codex"}
	}
	p := Probe{Found: true, Path: path}
	out, err := c.output(ctx, path, "--version")
	if err != nil {
		p.Detail, p.Fix = fmt.Sprintf("%s --version: %v", path, err), "npm install -g @openai/codex"
		return p
	}
	p.Version = out
	p.LoggedIn, p.Detail = c.login(ctx, path)
	if !p.LoggedIn {
		p.Fix = "codex login"
	}
	return p
}

// login looks for credentials in the order in which codex takes them.
func (c *Codex) login(ctx context.Context, path string) (ok bool, detail string) {
	if provider, found, err := c.provider(); err != nil {
		return false, err.Error()
	} else if found {
		return provider.ready(c.Env)
	}
	if lookupEnv(c.Env, "CODEX_API_KEY") != "" {
		return true, "CODEX_API_KEY is set"
	}
	out, err := c.output(ctx, path, "login", "status")
	if err == nil {
		return true, or(out, "logged in")
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return false, or(out, "not logged in")
	}
	return false, err.Error()
}

// output runs codex for a question about itself and gives the last line: the
// answer may be on either stream, with warnings above it.
func (c *Codex) output(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = c.Env
	if cmd.Env == nil {
		cmd.Env = []string{} // nil would be our own
	}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	out = bytes.TrimSpace(out)
	return string(out[bytes.LastIndexByte(out, '\n')+1:]), err
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
	case lookupEnv(env, p.EnvKey) != "":
		return true, fmt.Sprintf("%s is set, for model provider %q", p.EnvKey, p.name)
	}
	return false, fmt.Sprintf("model provider %q needs %s in the environment", p.name, p.EnvKey)
}

// provider gives the configured model provider if it is one with a login of its own.
func (c *Codex) provider() (p provider, found bool, err error) {
	home := lookupEnv(c.Env, "CODEX_HOME")
	if home == "" {
		home = filepath.Join(lookupEnv(c.Env, "HOME"), ".codex")
	}
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
			return provider{}, false, fmt.Errorf("codex's configuration: %w", err)
		}
	}
	p, found = conf.Providers[conf.Provider]
	p.name = conf.Provider
	return p, found && !p.NeedAuth, nil
}
