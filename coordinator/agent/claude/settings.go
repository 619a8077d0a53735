package claude

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"stint/coordinator/task"
	"stint/ledger/durable"
)

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
