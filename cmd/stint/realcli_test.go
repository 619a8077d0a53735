package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// A realCLI is an agent's own program, as tests find it and point it to a model
// server of ours. Scripts whose name begins with its name and _ have it.
type realCLI struct {
	name   string
	pkg    string // where it comes from
	secret string // the variable that has its key
	// configure writes a home that points to the server and gives the
	// environment that the program needs beside its secret.
	configure func(home, baseURL string) (map[string]string, error)
}

var realCLIs = []realCLI{
	{"codex", "@openai/codex", "FAKE_KEY", configureCodex},
	{"claude", "@anthropic-ai/claude-code", "ANTHROPIC_API_KEY", configureClaude},
	{"gemini", "@google/gemini-cli", "GEMINI_API_KEY", configureGemini},
}

// find returns the path of the real program. CI must have it; elsewhere its tests are skipped without it.
func (c *realCLI) find(t skipper) string {
	variable := "STINT_TEST_" + strings.ToUpper(c.name)
	path := os.Getenv(variable)
	if path == "" {
		path, _ = exec.LookPath(c.name) // "" is the answer
	}
	if path == "" {
		missing(t, fmt.Sprintf("%s is not installed: npm install -g %s, or set %s", c.name, c.pkg, variable))
	}
	return path
}

// configureCodex writes a CODEX_HOME; codex's own retries are off, so that each error is seen at once.
func configureCodex(home, baseURL string) (map[string]string, error) {
	env := map[string]string{
		"CODEX_HOME": home,
		"STINT_ENV":  "FAKE_KEY", // stint hands no variable on that it is not told of
	}
	return env, writeHome(filepath.Join(home, "config.toml"), fmt.Sprintf(`model = "gpt-5.5"
model_provider = "fake"
check_for_update_on_startup = false

[model_providers.fake]
name = "fake"
base_url = "%s/v1"
env_key = "FAKE_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
stream_idle_timeout_ms = 3000

[analytics]
enabled = false
`, baseURL))
}

// configureClaude writes a CLAUDE_CONFIG_DIR, which is empty, as for one who only has a key.
func configureClaude(home, baseURL string) (map[string]string, error) {
	return map[string]string{
		"CLAUDE_CONFIG_DIR":                        home,
		"ANTHROPIC_BASE_URL":                       baseURL,
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
		"CLAUDE_CODE_MAX_RETRIES":                  "0", // each error is seen at once
	}, os.MkdirAll(home, 0o700)
}

// configureGemini writes a GEMINI_CLI_HOME in which gemini does not try again by itself. It names a model:
// without one gemini asks another model first which to take.
func configureGemini(home, baseURL string) (map[string]string, error) {
	env := map[string]string{
		"GEMINI_CLI_HOME":          home,
		"GOOGLE_GEMINI_BASE_URL":   baseURL,
		"GEMINI_TELEMETRY_ENABLED": "false",
	}
	return env, writeHome(filepath.Join(home, ".gemini", "settings.json"), `{
  "security": {"auth": {"selectedType": "gemini-api-key"}},
  "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false, "maxAttempts": 1},
  "model": {"name": "gemini-2.5-flash"},
  "telemetry": {"enabled": false},
  "privacy": {"usageStatisticsEnabled": false}
}
`)
}

func writeHome(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// withoutCLIs drops the directories with one of the real programs from a PATH: a
// script that is not about them must not find those of this machine.
func withoutCLIs(path string) string {
	dirs := slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool {
		return slices.ContainsFunc(realCLIs, func(c realCLI) bool {
			_, err := os.Stat(filepath.Join(dir, c.name))
			return err == nil
		})
	})
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// scriptCLIs returns the real programs that a script names before the first _,
// joined by a +: codex_…, codex+claude_…; a number may stand before them.
func scriptCLIs(name string) (found []realCLI) {
	prefix, _, _ := strings.Cut(strings.TrimLeft(name, "0123456789_"), "_")
	for _, c := range realCLIs {
		if slices.Contains(strings.Split(prefix, "+"), c.name) {
			found = append(found, c)
		}
	}
	return found
}

// moveState puts the state directory of scripts with gemini out of the temporary
// directory: gemini takes no settings below a directory that others may write.
func (s *scriptState) moveState(env *testscript.Env, clis []realCLI) error {
	if !slices.ContainsFunc(clis, func(c realCLI) bool { return c.name == "gemini" }) {
		return nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return err
	}
	s.state, err = os.MkdirTemp(cache, "stint-test-")
	env.Defer(func() {
		if err := os.RemoveAll(s.state); err != nil {
			s.tests.Error(err)
		}
	})
	return err
}

// setupCLI puts a real program first on the script's PATH, with a home that points to the model server.
func (s *scriptState) setupCLI(env *testscript.Env, c realCLI) error {
	path := c.find(env.T())
	if s.model == nil {
		if err := s.startModel(env); err != nil {
			return err
		}
	}
	more, err := c.configure(filepath.Join(env.WorkDir, c.name), s.model.URL)
	if err != nil {
		return err
	}
	for k, v := range more {
		env.Setenv(k, v)
	}
	env.Setenv(c.secret, "a-secret-of-"+c.name)
	env.Setenv("PATH", filepath.Dir(path)+string(filepath.ListSeparator)+env.Getenv("PATH"))
	return nil
}

// startModel starts the script's model server, which writes down in $REQUESTS what it is asked.
func (s *scriptState) startModel(env *testscript.Env) error {
	path := filepath.Join(env.WorkDir, "requests.jsonl")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	s.model = newModelServer(log)
	env.Defer(func() {
		s.model.Close()
		if err := log.Close(); err != nil {
			s.tests.Error(err)
		}
	})
	env.Setenv("REQUESTS", path)
	return nil
}

// cmdKillAgent: killagent SIGNAL ID [group] sends a signal to the main process of
// a task's agent, once it runs, or to its whole process group.
func cmdKillAgent(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 2, 3, "killagent KILL|TERM|INT ID [group]")
	sig, ok := map[string]syscall.Signal{"KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM, "INT": syscall.SIGINT}[args[0]]
	if !ok {
		ts.Fatalf("no signal %q", args[0])
	}
	pid := stateOf(ts).agentOf(ts, args[1])
	if len(args) == 3 {
		pid = -pid
	}
	ts.Check(syscall.Kill(pid, sig))
}

// agentOf returns the main process of a running task's agent, as the gate noted it.
func (s *scriptState) agentOf(ts *testscript.TestScript, task string) int {
	ts.Check(ts.Exec("stint", "show", "--json", task))
	var view struct{ RunID string }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &view))
	pid := 0
	if !poll(scriptDeadline, func() bool {
		text, err := os.ReadFile(filepath.Join(s.state, "runs", view.RunID, "lock"))
		if err != nil {
			return false // it comes
		}
		_, last, _ := strings.Cut(string(text), "\n") // the first line is the run's record
		_, err = fmt.Sscan(last, &pid)
		return err == nil && pid > 1
	}) {
		ts.Fatalf("task %s has no agent", task)
	}
	return pid
}

// cmdStopModel: stopmodel ends the model server: from then on, connections to it are refused.
func cmdStopModel(ts *testscript.TestScript, neg bool, args []string) {
	need(ts, neg, args, 0, 0, "stopmodel")
	stateOf(ts).model.Close()
}
