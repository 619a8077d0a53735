package main

import (
	"slices"
	"testing"

	"stint/coordinator/task"
)

// TestTaskEnvironment: the environment of the call takes the place of all that is captured, and
// leaves the master's own secrets and what else its agents get alone.
func TestTaskEnvironment(t *testing.T) {
	cfg := mustLoad(t, "env = [\"MY_SERVICE\"]\n", nil, nil)
	master := []string{
		"PATH=/m", "VIRTUAL_ENV=/m/venv", "HOME=/h", "MY_SERVICE=on", "UNKNOWN=1", "MISE_GITHUB_TOKEN=x", "HTTPS_PROXY=http://u:p@proxy", "HTTP_PROXY=http://proxy", "ANTHROPIC_API_KEY=k",
	}
	for name, c := range map[string]struct{ env, want []string }{
		"that of the master": {nil, []string{"ANTHROPIC_API_KEY=k", "HOME=/h", "HTTPS_PROXY=http://u:p@proxy", "HTTP_PROXY=http://proxy", "MY_SERVICE=on", "PATH=/m", "VIRTUAL_ENV=/m/venv"}},
		"its own":            {[]string{"GOFLAGS=-x", "PATH=/t"}, []string{"ANTHROPIC_API_KEY=k", "GOFLAGS=-x", "HOME=/h", "HTTPS_PROXY=http://u:p@proxy", "MY_SERVICE=on", "PATH=/t"}},
	} {
		r := agentRunner(cfg, master, "claude")
		r.Use(task.Turn{Env: c.env})
		got := r.Env
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
