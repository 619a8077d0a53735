package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
)

// Probe looks whether claude is installed and logged in. It starts claude twice,
// offline, and takes some 250 ms; ctx bounds it.
func (c *Claude) Probe(ctx context.Context) Probe { return probe(ctx, c, knownClaude.install) }

func (c *Claude) login(ctx context.Context, path string) (ok bool, detail, fix string) {
	ok, detail = c.credentials(ctx, path)
	return ok, detail, c.LoginCommand()
}

// credentials asks claude itself, which knows of keys, logins, helpers and clouds.
func (c *Claude) credentials(ctx context.Context, path string) (ok bool, detail string) {
	out, err := c.output(ctx, path, "auth", "status", "--json")
	var status struct {
		LoggedIn bool   `json:"loggedIn"`
		Method   string `json:"authMethod"`
		Source   string `json:"apiKeySource"`
		Provider string `json:"apiProvider"`
	}
	if json.Unmarshal(firstObject(out), &status) != nil || status.Method == "" {
		if err == nil {
			err = fmt.Errorf("unexpected answer %q", lastLine(out))
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

// firstObject gives what follows from the first brace on: warnings may stand above.
func firstObject(out []byte) []byte {
	for i, b := range out {
		if b == '{' {
			return out[i:]
		}
	}
	return nil
}

// Examine looks closer than Probe; see [Codex.Examine].
func (c *Claude) Examine(ctx context.Context) []Problem {
	path, found := examine(ctx, c, knownClaude)
	if path == "" {
		return found
	}
	if err := writable(c.home()); err != nil {
		found = append(found, Problem{
			Text: fmt.Sprintf("claude cannot write its home, and then silently saves no session, so that none can be resumed: %v", err),
			Fix:  "chmod u+rwx " + quote(c.home()),
		})
	}
	return found
}

// home is where claude keeps its settings and sessions.
func (c *Claude) home() string {
	if dir := lookupEnv(c.Env, "CLAUDE_CONFIG_DIR"); dir != "" {
		return dir
	}
	return filepath.Join(lookupEnv(c.Env, "HOME"), ".claude")
}
