package claude

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"stint/coordinator/agent"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// CLI implements [agent.Adapter]. A probe starts claude twice, offline, and takes some 250 ms.
func (c *Agent) CLI() *agent.CLI {
	bin := state.ShellQuote(cmp.Or(c.Bin, "claude"))
	return &agent.CLI{
		Find: c.find, Version: c.Version, Login: c.login, Tested: versions,
		LogIn: bin + " auth login", Resume: bin + " --resume",
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

// theWay are variables, in capitals, that say how a program comes to its server and its account, where its
// home is, and where it tells what it does.
var theWay = []string{
	"*ANTHROPIC*", "*CLAUDE*", "AWS_*", "AZURE_*", "GOOGLE_*", "GCLOUD_*", "GCE_*", "CLOUD*", "VERTEX_*", "METADATA_*", "USE_*",
	"HOME*", "XDG_*", "*_PROXY*", "*_BASE_URL*", "*_ENDPOINT*", "SESSION_INGRESS_*", "SSL_*", "GRPC_*", "NODE_*", "BUN_*", "OTEL_*",
}

// keys are settings that name programs which give claude a key, or its account.
var keys = []string{"*Helper", "aws*", "gcp*", "forceLogin*", "__proto__"}

// userSettings makes claude pass over the settings of a workspace.
var userSettings = []string{"--setting-sources", "user"}

// misleads reports whether settings in a directory would have claude use another home, account or
// server than its turn's: a run may have written them. What cannot be read here may do so.
func misleads(dir string) bool {
	for _, file := range []string{"settings.json", "settings.local.json"} {
		path := filepath.Join(dir, ".claude", file)
		fi, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || !fi.Mode().IsRegular() || fi.Size() > 1<<20 {
			return true
		}
		data, _ := durable.ReadFile(durable.OS, path)
		var all, env map[string]json.RawMessage // claude tells capitals from small letters, as no struct does
		if json.Unmarshal(data, &all) != nil || all["env"] != nil && json.Unmarshal(all["env"], &env) != nil {
			return true
		}
		for name := range all {
			if task.IsNamed(name, keys) {
				return true
			}
		}
		for name := range env {
			if task.IsNamed(strings.ToUpper(name), theWay) {
				return true
			}
		}
	}
	return false
}
