package agent_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/coordinator/agent"
	"stint/coordinator/agent/claude"
	"stint/coordinator/agent/codex"
	"stint/coordinator/agent/gemini"
	"stint/coordinator/task"
	"stint/state"
)

// A real is the adapter of an installed CLI with a provider of ours.
type real struct {
	agent.Adapter
	name     string
	runner   *agent.Runner // of the adapter
	home     string
	settings string // its file of settings
}

// realAgent returns the adapter of an installed CLI.
func realAgent(t *testing.T, b *Bench, name string) (real, *fakeProvider) {
	t.Helper()
	bin, err := exec.LookPath(name)
	if err != nil {
		agent.Missing(t, name+" is not installed")
	}
	home, server := Home(t), startProvider(t)
	env := append(b.Runner.Env, "HOME="+home, "LANG=C.UTF-8", "TMPDIR="+t.TempDir()) // gemini leaves reports of its errors there
	switch name {
	case "claude":
		env = append(env, "ANTHROPIC_BASE_URL="+server.URL, "ANTHROPIC_API_KEY=sk-ant-x", "CLAUDE_CONFIG_DIR="+home,
			"DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "CLAUDE_CODE_MAX_RETRIES=1")
		a := &claude.Agent{Bin: bin, Runner: agent.Runner{Env: env}}
		return real{a, name, &a.Runner, home, filepath.Join(home, "settings.json")}, server
	case "gemini":
		must(t, os.Mkdir(filepath.Join(home, ".gemini"), 0o700))
		settings := `{"security":{"auth":{"selectedType":"gemini-api-key"}}, // a comment
			"general":{"enableAutoUpdate":false,"enableAutoUpdateNotification":false,"maxAttempts":1},"telemetry":{"enabled":false},"privacy":{"usageStatisticsEnabled":false}}`
		path := filepath.Join(home, ".gemini", "settings.json")
		must(t, os.WriteFile(path, []byte(settings), 0o600))
		env = append(env, "GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL="+server.URL, "GEMINI_CLI_HOME="+home)
		a := &gemini.Agent{Bin: bin, Model: "gemini-2.5-flash", Runner: agent.Runner{Env: env}}
		return real{a, name, &a.Runner, home, path}, server
	}
	config := fmt.Sprintf(`model = "gpt-5.5"
model_provider = "fake"
check_for_update_on_startup = false
[model_providers.fake]
name = "fake"
base_url = %q
env_key = "FAKE_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[analytics]
enabled = false
`, server.URL+"/v1")
	path := filepath.Join(home, "config.toml")
	must(t, os.WriteFile(path, []byte(config), 0o600))
	env = append(env, "CODEX_HOME="+home, "FAKE_KEY=x")
	a := &codex.Agent{Bin: bin, Runner: agent.Runner{Env: env}}
	return real{a, name, &a.Runner, home, path}, server
}

var realNames = []string{"codex", "claude", "gemini"}

// runReal carries out a turn of a real CLI.
func runReal(t *testing.T, b *Bench, c real, session, prompt string) (task.Outcome, task.Turn) {
	t.Helper()
	turn := b.Turn(prompt)
	turn.Session = session
	out := c.Run(t.Context(), turn, quiet)
	agent.WantGone(t, turn)
	return out, turn
}

// eachReal runs a test for each of some CLIs, side by side.
func eachReal(t *testing.T, names []string, test func(t *testing.T, b *Bench, c real, p *fakeProvider)) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := NewBench(t)
			c, p := realAgent(t, b, name)
			test(t, b, c, p)
		})
	}
}

// TestRealTurns: a session of each CLI, from its probe on. What they make of errors and limits of
// their provider is shown by the scripts of cmd/stint, with the same CLIs.
func TestRealTurns(t *testing.T) {
	t.Parallel()
	eachReal(t, realNames, func(t *testing.T, b *Bench, c real, _ *fakeProvider) {
		if p := c.CLI().Probe(t.Context()); !p.Found || !p.LoggedIn || p.Version == "" || p.Fix != "" {
			t.Errorf("probe: %+v", p)
		}
		for _, found := range examine(t, c) {
			if c.name != "gemini" || !strings.Contains(found.Fix, `"general"`) { // whose defaults are bad
				t.Errorf("%+v", found)
			}
		}
		first, turn := runReal(t, b, c, "", "hello alpha")
		if first.Class != "" || first.Result != "hello alpha" || !agent.IsUUID(first.Session) || first.Kept {
			t.Fatalf("first turn: %+v\n%s", first, readAll(turn))
		}
		if in := first.Usage.InputTokens + first.Thread.InputTokens; in != 110 {
			t.Errorf("%d tokens: %+v", in, first)
		}
		second, turn := runReal(t, b, c, first.Session, "hello beta")
		if second.Class != "" || second.Result != "hello alpha ;; hello beta" || second.Session != first.Session || second.Note != "" {
			t.Errorf("second turn: %+v\n%s", second, readAll(turn))
		}
		if one, all := second.Usage.InputTokens, second.Thread.InputTokens; one+all != 110 && (one != 0 || all != 220) {
			t.Errorf("usage %+v, thread %+v", second.Usage, second.Thread)
		}
		if out, turn := runReal(t, b, c, "00000000-0000-4000-8000-000000000000", "x"); out.Class != state.ClassSessionLost || out.Session != "" {
			t.Errorf("unknown session: %+v\n%s", out, readAll(turn))
		}
	})
}

// A provider that is not there: codex waits for it for ever.
func TestRealUnreachable(t *testing.T) {
	eachReal(t, []string{"codex"}, func(t *testing.T, b *Bench, c real, p *fakeProvider) {
		p.Close()
		c.runner.Patience = time.Second
		if out, turn := runReal(t, b, c, "", "hello"); out.Class != state.ClassNetwork {
			t.Errorf("%+v\n%s", out, readAll(turn))
		}
	})
}

// Where gemini reads them, stint's defaults shorten its retries, and the user's own settings win over them.
func TestRealGeminiDefaults(t *testing.T) {
	t.Parallel()
	b := NewBench(t)
	c, p := realAgent(t, b, "gemini")
	b.Dir = RootDir(t)
	ask := func(want int64) {
		t.Helper()
		p.asked.Store(0)
		out, turn := runReal(t, b, c, "", "fail 503")
		if n := p.asked.Load(); out.Class != state.ClassNetwork || n != want {
			t.Errorf("%d requests: %+v\n%s", n, out, readAll(turn))
		}
	}
	settings := func(attempts string) {
		must(t, os.WriteFile(c.settings, []byte(`{"security":{"auth":{"selectedType":"gemini-api-key"}},"general":{`+attempts+`"enableAutoUpdate":false}}`), 0o600))
	}
	settings(`"maxAttempts":1,`)
	ask(1)
	settings("")
	ask(3)
}

func TestRealCanceled(t *testing.T) {
	t.Parallel()
	eachReal(t, realNames, func(t *testing.T, b *Bench, c real, p *fakeProvider) {
		first, _ := runReal(t, b, c, "", "begin")
		turn := b.Turn("hang")
		turn.Session = first.Session
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		done := make(chan task.Outcome, 1)
		go func() { done <- c.Run(ctx, turn, quiet) }()
		<-p.begun
		cancel(task.ErrCanceled)
		if out := <-done; out.Class != state.ClassCanceled || out.Session != first.Session {
			t.Errorf("outcome: %+v\n%s", out, readAll(turn))
		}
		agent.WantGone(t, turn)
	})
}

func readAll(turn task.Turn) string {
	var all strings.Builder
	for _, name := range []string{"stdout", "stderr"} {
		data, err := os.ReadFile(filepath.Join(turn.RunDir, name))
		fmt.Fprintf(&all, "%s (%v):\n%s\n", name, err, data)
	}
	return all.String()
}
