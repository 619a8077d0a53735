package gemini

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"stint/coordinator/agent"
	"stint/coordinator/task"
)

// TestGeminiPolicies: the rules of a turn come after the policies that gemini would use without
// them, wherever those are.
func TestGeminiPolicies(t *testing.T) {
	home, run := t.TempDir(), t.TempDir()
	settings := filepath.Join(home, ".gemini", "settings.json")
	must(t, os.Mkdir(filepath.Dir(settings), 0o700))
	g := &Agent{Runner: agent.Runner{Env: []string{"HOME=" + home}}}
	turn := task.Turn{RunDir: run, Allow: []string{`Bash(go test "a b" *)`, "web_fetch"}}
	for text, want := range map[string]string{
		"":                             "--policy HOME/.gemini/policies --policy RUN/gemini-policy.toml",
		`{"policyPaths":[]} // mine`:   "--policy HOME/.gemini/policies --policy RUN/gemini-policy.toml",
		`{"policyPaths":["~/a","/b"]}`: "--policy ~/a --policy /b --policy RUN/gemini-policy.toml",
		`{"policyPaths":["/a,b"]}`:     "gemini cannot be told of the policies in /a,b, whose name has a comma",
		`{`:                            "HOME/.gemini/settings.json: unexpected end of JSON input",
	} {
		if must(t, os.RemoveAll(settings)); text != "" {
			must(t, os.WriteFile(settings, []byte(text), 0o600))
		}
		args, err := g.policies(turn)
		got := strings.Join(args, " ")
		if err != nil {
			got = err.Error()
		}
		if got = strings.NewReplacer(home, "HOME", run, "RUN").Replace(got); got != want {
			t.Errorf("%s: %s\nwant %s", text, got, want)
		}
	}
	if args, err := g.policies(task.Turn{}); args != nil || err != nil {
		t.Errorf("without rules: %q, %v", args, err)
	}
	must(t, g.writePolicy(turn))
	var file struct {
		Rule []struct {
			ToolName, Decision, ArgsPattern string
			Priority                        int
		}
	}
	if _, err := toml.DecodeFile(filepath.Join(run, policyFile), &file); err != nil || len(file.Rule) != 2 {
		t.Fatalf("%+v, %v", file, err)
	}
	if r := file.Rule[0]; r.ToolName != "run_shell_command" || r.Decision != "allow" || r.Priority != 0 || !regexp.MustCompile(r.ArgsPattern).MatchString("\x00\"command\":\"go test \\\"a b\\\" c\"\x00") {
		t.Errorf("%+v", r)
	}
	if r := file.Rule[1]; r.ToolName != "web_fetch" || r.Decision != "allow" || r.ArgsPattern != "" {
		t.Errorf("%+v", r)
	}
}

// TestArgsPattern: which commands a rule permits, as the JSON that gemini compares with it.
func TestArgsPattern(t *testing.T) {
	for _, c := range []struct{ rule, yes, no string }{ // lists with lines
		{"Bash(go test *)", "go test\ngo test ./... -run 'A B'\ngo test (a) {b} *", "go testx\ngo tes\nxgo test\ngo test; rm x\ngo test x && rm y\ngo test | sh\ngo test >x\ngo test <x\ngo test $(id)\ngo test `id`\ngo test \"a\"\ngo test a\\b\ngo test &"},
		{"Bash(a.b|c)", "a.b|c", "axb|c\na.b\na.b|c d"},
		{"Bash(a; b)", "a; b", "a; b c"},
	} {
		rule, err := task.ParseRule(c.rule)
		must(t, err)
		pattern := regexp.MustCompile(argsPattern(rule))
		matches := func(command string) bool {
			return pattern.MatchString("{\x00\"command\":" + strconv.Quote(command) + "\x00,\x00\"description\":\"x\"\x00}")
		}
		for _, command := range strings.Split(c.yes, "\n") {
			if !matches(command) {
				t.Errorf("%s does not permit %s", c.rule, command)
			}
		}
		for _, command := range append(strings.Split(c.no, "\n"), "go test\nrm x", "rm x\ngo test") {
			if matches(command) {
				t.Errorf("%s permits %s", c.rule, command)
			}
		}
		// The command of a rule in another argument, or deeper, is not the command.
		for _, args := range []string{`{NUL"command":"rm x"NUL,NUL"x":{"command":"go test"}NUL}`, `{NUL"command":"rm x"NUL,NUL"x":"\"command\":\"go test\""NUL}`} {
			if pattern.MatchString(strings.ReplaceAll(args, "NUL", "\x00")) {
				t.Errorf("%s permits %s", c.rule, args)
			}
		}
	}
}
