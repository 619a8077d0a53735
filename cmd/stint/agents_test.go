package main

import (
	"slices"
	"testing"
)

func TestAgentEnv(t *testing.T) {
	environ := []string{
		"PATH=/bin", "HOME=/h", "LC_ALL=C", "LANG=C", "XDG_CONFIG_HOME=/c", "HTTPS_PROXY=p", "https_proxy=p", "NO_PROXY=n",
		"OPENAI_API_KEY=k", "CODEX_HOME=/x", "GOFLAGS=-v", "SSH_AUTH_SOCK=/s", "MY_TOKEN=t", "EMPTY=",
		"AWS_SECRET_ACCESS_KEY=s", "GITHUB_TOKEN=t", "ANTHROPIC_API_KEY=k", "STINT_STATE_DIR=/s", "LD_PRELOAD=/x", "PATHX=1", "XPATH=1",
	}
	want := []string{
		"PATH=/bin", "HOME=/h", "LC_ALL=C", "LANG=C", "XDG_CONFIG_HOME=/c", "HTTPS_PROXY=p", "https_proxy=p", "NO_PROXY=n",
		"OPENAI_API_KEY=k", "CODEX_HOME=/x", "GOFLAGS=-v", "SSH_AUTH_SOCK=/s", "MY_TOKEN=t", "EMPTY=",
	}
	if got := agentEnv(environ, []string{"MY_TOKEN", "EMPTY", "NOT_SET"}); !slices.Equal(got, want) {
		t.Errorf("agents get %q, want %q", got, want)
	}
	// A name that is a pattern gone wrong lets nothing through.
	if got := agentEnv([]string{"[=x", "A=1"}, []string{"["}); len(got) != 0 {
		t.Errorf("agents get %q", got)
	}
}

func TestCodexFromConfig(t *testing.T) {
	c := mustLoad(t, "codex_bin = \"/opt/codex\"\ncodex_model = \"m\"\ncodex_profile = \"p\"\ncodex_sandbox = \"inherit\"\n", nil, nil)
	if a := codexAgent(c); a.Bin != "/opt/codex" || a.Model != "m" || a.Profile != "p" || a.Sandbox != "inherit" || a.FullAuto {
		t.Errorf("%+v", a)
	}
	c = mustLoad(t, "codex_full_auto = true\ncodex_sandbox = \"read-only\"\n", nil, nil)
	if a := codexAgent(c); !a.FullAuto || a.Sandbox != "workspace-write" {
		t.Errorf("codex_full_auto: %+v", a)
	}
}

func TestDefaultAgent(t *testing.T) {
	c := mustLoad(t, "codex_bin = \"/does/not/exist\"\n", nil, nil)
	if got := defaultAgent(t.Context(), c)(); got != "demo" {
		t.Errorf("without codex: %q", got)
	}
	c = mustLoad(t, "codex_bin = \"/does/not/exist\"\nagent = \"codex\"\n", nil, nil)
	if got := defaultAgent(t.Context(), c)(); got != "codex" {
		t.Errorf("as configured: %q", got)
	}
}
