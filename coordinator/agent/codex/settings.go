package codex

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"stint/coordinator/agent"
	"stint/coordinator/task"
	"stint/ledger/durable"
)

// noProject makes codex trust no directory, so that it passes over what .codex in a workspace says.
var noProject = []string{"-c", "projects={}"}

// theWay finds the settings that say which server, login or profile codex uses.
var theWay = agent.LazyRegexp(`provider|base_url|login|auth|profile|forced`)

// misleads reports whether a .codex/config.toml in a workspace, or above it in its checkout, would have
// codex use another account or server than its turn's, where the user trusts that directory: a run
// may have written it. What cannot be read here may do so.
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

// keepKeys returns the options that keep codex's keys, also those of the providers in its configuration,
// and those of its account, from the programs that the model has it start: there they are empty. A list
// of what is left out would replace the user's own.
func (c *Agent) keepKeys() (args []string) {
	names := []string{"CODEX_API_KEY", "OPENAI_API_KEY"}
	for _, kv := range c.Account {
		if name, value, _ := strings.Cut(kv, "="); task.IsSecret(name, value) {
			names = append(names, name)
		}
	}
	var config struct {
		Providers map[string]struct {
			Key string `toml:"env_key"`
		} `toml:"model_providers"`
	}
	_, _ = toml.DecodeFile(filepath.Join(c.home(), "config.toml"), &config) // what is no configuration codex does not start with
	for _, p := range config.Providers {
		names = append(names, p.Key)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name != "" {
			args = append(args, "-c", "shell_environment_policy.set."+name+`=""`)
		}
	}
	return args
}
