package claude

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"stint/coordinator/task"
	"stint/ledger/durable"
)

// theWay are variables that say how a program comes to its server, and where its home is.
var theWay = []string{"HOME", "XDG_*", "*_PROXY", "*_proxy", "SSL_CERT_*", "NODE_*"}

// helpers are settings that name programs which give claude a key, or its account.
var helpers = []string{"apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "gcpAuthRefresh", "forceLoginMethod", "forceLoginOrgUUID"}

// userSettings makes claude pass over the settings of a workspace.
var userSettings = []string{"--setting-sources", "user"}

// misleads reports whether settings in a directory would have claude use another home, account or
// server than its turn's: a run may have written them. What cannot be read here may do so.
func misleads(dir string) bool {
	names := slices.Concat(Kind.Own(), theWay)
	for _, file := range []string{"settings.json", "settings.local.json"} {
		path := filepath.Join(dir, ".claude", file)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		data, err := durable.ReadFile(durable.OS, path)
		if err != nil || len(data) > 1<<20 {
			return true
		}
		var all map[string]json.RawMessage
		var set struct{ Env map[string]any }
		_, _ = json.Unmarshal(data, &all), json.Unmarshal(data, &set) // what is no JSON claude passes over
		for name := range set.Env {
			if task.IsNamed(name, names) {
				return true
			}
		}
		if slices.ContainsFunc(helpers, func(name string) bool { return all[name] != nil }) {
			return true
		}
	}
	return false
}
