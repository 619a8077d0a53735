package claude

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"stint/coordinator/agent"
)

// Probe looks whether claude is installed and logged in. It starts claude twice,
// offline, and takes some 250 ms; ctx bounds it.
func (c *Agent) Probe(ctx context.Context) agent.Probe { return c.questions().Probe(ctx) }

func (c *Agent) questions() agent.Questions {
	return agent.Questions{Find: c.find, Version: c.Version, Login: c.login, Tested: versions}
}

func (c *Agent) login(ctx context.Context, path string) (ok bool, detail, fix string) {
	ok, detail = c.credentials(ctx, path)
	return ok, detail, c.LoginCommand()
}

// credentials asks claude itself, which knows of keys, logins, helpers and clouds.
func (c *Agent) credentials(ctx context.Context, path string) (ok bool, detail string) {
	out, err := c.Output(ctx, path, "auth", "status", "--json")
	var status struct {
		LoggedIn bool   `json:"loggedIn"`
		Method   string `json:"authMethod"`
		Source   string `json:"apiKeySource"`
		Provider string `json:"apiProvider"`
	}
	if json.Unmarshal(firstObject(out), &status) != nil || status.Method == "" {
		if err == nil {
			err = fmt.Errorf("unexpected answer %q", agent.LastLine(out))
		}
		return false, fmt.Sprintf("%s auth status: %v", path, err)
	}
	if !status.LoggedIn {
		return false, "not logged in"
	}
	if status.Source != "" {
		return true, "the API key is from " + status.Source
	}
	if status.Provider != "" && status.Provider != "firstParty" {
		return true, "through " + status.Provider
	}
	return true, "logged in by " + status.Method
}

// firstObject returns what follows from the first brace on: warnings may stand above.
func firstObject(out []byte) []byte {
	for i, b := range out {
		if b == '{' {
			return out[i:]
		}
	}
	return nil
}

// Examine looks closer than Probe; see [Codex.Examine].
func (c *Agent) Examine(ctx context.Context) []agent.Problem {
	path, found := c.questions().Examine(ctx)
	if path == "" {
		return found
	}
	if err := agent.Writable(c.home()); err != nil {
		found = append(found, agent.Problem{
			Text: fmt.Sprintf("claude cannot write its home, and then silently saves no session, so that none can be resumed: %v", err),
			Fix:  "chmod u+rwx " + agent.Quote(c.home()),
		})
	}
	return found
}

// home is where claude keeps its settings and sessions.
func (c *Agent) home() string {
	if dir := agent.LookupEnv(c.Env, "CLAUDE_CONFIG_DIR"); dir != "" {
		return dir
	}
	return filepath.Join(agent.LookupEnv(c.Env, "HOME"), ".claude")
}
