package claude

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"stint/coordinator/agent"
)

// Probe looks whether claude is installed and logged in. It starts claude twice,
// offline, and takes some 250 ms; ctx bounds it.
func (c *Agent) Probe(ctx context.Context) agent.Probe { return c.questions().Probe(ctx) }

func (c *Agent) questions() *agent.Questions {
	return &agent.Questions{
		Find: c.find, Version: c.Version, Login: c.login, LogIn: c.LoginCommand(), Tested: versions,
		Home:   agent.HomeOf(c.Env, "CLAUDE_CONFIG_DIR", ".claude"),
		NoHome: agent.Problem{Text: "claude cannot write its home, and then silently saves no session, so that none can be resumed"},
	}
}

// login asks claude itself, which knows of keys, logins, helpers and clouds.
func (c *Agent) login(ctx context.Context, path string) (ok bool, detail, fix string) {
	out, err := c.Output(ctx, path, "auth", "status", "--json")
	var status struct {
		LoggedIn bool   `json:"loggedIn"`
		Method   string `json:"authMethod"`
		Source   string `json:"apiKeySource"`
		Provider string `json:"apiProvider"`
	}
	// Warnings may stand above the object.
	if json.Unmarshal(out[max(0, bytes.IndexByte(out, '{')):], &status) != nil || status.Method == "" {
		if err == nil {
			err = fmt.Errorf("unexpected answer %q", agent.LastLine(out))
		}
		return false, fmt.Sprintf("%s auth status: %v", path, err), ""
	}
	if !status.LoggedIn {
		return false, "not logged in", ""
	}
	if status.Source != "" {
		return true, "the API key is from " + status.Source, ""
	}
	if status.Provider != "" && status.Provider != "firstParty" {
		return true, "through " + status.Provider, ""
	}
	return true, "logged in by " + status.Method, ""
}

// Examine looks closer than Probe, for a person who asks; see [agent.Adapter].
func (c *Agent) Examine(ctx context.Context) []agent.Problem {
	_, found := c.questions().Examine(ctx)
	return found
}
