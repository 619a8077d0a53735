package gemini

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"stint/coordinator/agent"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/ledger/lazy"
)

const (
	envDefaults  = "GEMINI_CLI_SYSTEM_DEFAULTS_PATH"
	envSystem    = "GEMINI_CLI_SYSTEM_SETTINGS_PATH"
	defaultsFile = "gemini-defaults.json"
	maxAttempts  = 3 // of a request: the default of 10 takes minutes
)

// env returns what keeps gemini in one process, which then listens to signals, and our defaults for its settings.
func (g *Agent) env(runDir string) []string {
	env := []string{"GEMINI_CLI_NO_RELAUNCH=true"}
	if g.defaults(runDir) != nil {
		env = append(env, envDefaults+"="+filepath.Join(runDir, defaultsFile))
	}
	return env
}

// dotenvName is what may be the name of one of gemini's variables in a .env file, or of one
// that leads its requests through another server; gemini takes fewer for one.
var dotenvName = lazy.Regexp(`((?:GEMINI|GOOGLE|CODE_ASSIST)_\w+|(?i:https?_proxy)|NODE_TLS_REJECT_UNAUTHORIZED)[\s\v\p{Z}\x{FEFF}]*[=:]`)

// unset returns gemini's variables in .env files of a directory and those above it, up to the home, as empty
// ones, which gemini leaves so: a run may have written them, and some of them have gemini send another file,
// or to another server, or with another key. Other variables there are for the programs of the workspace.
func (g *Agent) unset(dir string) (env []string, err error) {
	home, _ := filepath.EvalSymlinks(task.LookupEnv(g.Env, "HOME"))
	dir, _ = filepath.EvalSymlinks(dir) // where gemini finds itself; if there is no such place, it does not start
	for last := ""; dir != home && dir != last; last, dir = dir, filepath.Dir(dir) {
		for _, file := range []string{filepath.Join(dir, ".gemini", ".env"), filepath.Join(dir, ".env")} {
			fi, err := os.Stat(file)
			if err != nil || fi.IsDir() {
				continue // there is nothing that gemini could read
			}
			if !fi.Mode().IsRegular() || fi.Size() > 1<<20 {
				return nil, fmt.Errorf("gemini would read %s, which is no file of at most 1 MiB", file)
			}
			text, _ := os.ReadFile(file) // what we may not read, gemini may not either
			for _, m := range dotenvName().FindAllSubmatch(text, -1) {
				name := string(m[1])
				if !agent.HasEnv(g.Env, name) {
					env = append(env, name+"=")
				}
			}
		}
	}
	return env, nil
}

// writeDefaults writes the lowest layer of gemini's settings, where there is to be one.
func (g *Agent) writeDefaults(dir string) error {
	settings := g.defaults(dir)
	if settings == nil {
		return nil
	}
	data, _ := json.MarshalIndent(settings, "", "  ") // it was JSON before
	if err := durable.PutFile(filepath.Join(dir, defaultsFile), append(data, '\n')); err != nil {
		return fmt.Errorf("settings for gemini: %w", err)
	}
	return nil
}

// defaults returns the lowest layer of gemini's settings for a run with files in dir: those that the machine has there, with fewer
// tries of a request and without the retention that deletes sessions which are still used. What the user has set wins. It returns
// nil where gemini would not read ours, or the machine's own cannot be read: then those stay in force, and Examine tells of it.
func (g *Agent) defaults(dir string) map[string]any {
	settings, err := readSettings(g.defaultsPath())
	if err != nil || !agent.RootOwned(dir) {
		return nil
	}
	put := func(section, key string, value any) { // what is there stays
		in, ok := settings[section].(map[string]any)
		if !ok {
			in = map[string]any{}
			settings[section] = in
		}
		if _, ok := in[key]; !ok {
			in[key] = value
		}
	}
	put("general", "maxAttempts", maxAttempts)
	put("general", "sessionRetention", map[string]any{"enabled": false})
	var allowed []string // in the model's shell, for which keys of its own are not
	for _, kv := range g.Env {
		if name, _, _ := strings.Cut(kv, "="); !task.IsNamed(kv, Kind.Own()) && !agent.HasEnv(g.Account, name) {
			allowed = append(allowed, name)
		}
	}
	put("security", "environmentVariableRedaction", map[string]any{"enabled": true, "allowed": allowed})
	return settings
}

// defaultsPath is where gemini looks for the machine's defaults.
func (g *Agent) defaultsPath() string {
	if path := task.LookupEnv(g.Env, envDefaults); path != "" {
		return path
	}
	dir := "/etc/gemini-cli"
	if runtime.GOOS == "darwin" {
		dir = "/Library/Application Support/GeminiCli"
	}
	if path := task.LookupEnv(g.Env, envSystem); path != "" {
		dir = filepath.Dir(path)
	}
	return filepath.Join(dir, "system-defaults.json")
}

// readSettings reads a settings file of gemini: JSON with comments. One that is not there is empty.
func readSettings(path string) (map[string]any, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]any{}, nil
	}
	if err != nil {
		return nil, err
	}
	var settings map[string]any
	if err = json.Unmarshal(withoutComments(data), &settings); err == nil && settings == nil {
		err = errors.New("null is no object")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return settings, nil
}

// jsonc has what a JSON text with comments may have beside JSON, and strings, in which is none.
var jsonc = lazy.Regexp(`"(?:[^"\\]|\\.)*"|//[^\n]*|(?s:/\*.*?(?:\*/|\z))`)

// withoutComments returns a JSON text with a blank in place of each comment.
func withoutComments(data []byte) []byte {
	return jsonc().ReplaceAllFunc(data, func(part []byte) []byte {
		if part[0] == '"' {
			return part
		}
		return []byte(" ")
	})
}

// policyFile is the file in a run's directory with the rules of its turn.
const policyFile = "gemini-policy.toml"

// policies returns the arguments that add the rules of a turn to the user's own policies,
// which --policy would replace. gemini takes each for several where it has a comma.
func (g *Agent) policies(turn task.Turn) ([]string, error) {
	if len(turn.Allow) == 0 {
		return nil, nil
	}
	settings, err := g.settings()
	if err != nil {
		return nil, err
	}
	paths, _ := settings["policyPaths"].([]any)
	if len(paths) == 0 {
		paths = []any{filepath.Join(g.home(), "policies")}
	}
	var args []string
	for _, path := range append(paths, filepath.Join(turn.RunDir, policyFile)) {
		text := fmt.Sprint(path)
		if strings.Contains(text, ",") {
			return nil, fmt.Errorf("gemini cannot be told of the policies in %s, whose name has a comma", text)
		}
		args = append(args, "--policy", text)
	}
	return args, nil
}

// writePolicy writes the rules of a turn. Any rule of the user's own goes before them.
func (g *Agent) writePolicy(turn task.Turn) error {
	if len(turn.Allow) == 0 {
		return nil
	}
	var b strings.Builder
	for _, s := range turn.Allow {
		rule, err := task.ParseRule(s)
		if err != nil {
			return err
		}
		tool := rule.Tool
		if tool == "Bash" {
			tool = "run_shell_command"
		}
		fmt.Fprintf(&b, "[[rule]]\ntoolName = %q\ndecision = \"allow\"\npriority = 0\n", tool)
		if rule.Text != "" {
			fmt.Fprintf(&b, "argsPattern = %s\n", strconv.Quote(argsPattern(rule)))
		}
	}
	return durable.PutFile(filepath.Join(turn.RunDir, policyFile), []byte(b.String()))
}

// notPlain has what may make more of a command than a program and its arguments.
const notPlain = ";&|<>$`"

// argsPattern returns the expression for the arguments of the shell tool, which gemini writes as
// JSON with a NUL around each. It permits one plain command: in auto_edit gemini would let any
// that is permitted write to any file with a >.
func argsPattern(rule task.Rule) string {
	end := `"`
	if rule.Prefix {
		end = `(?:"| [^` + notPlain + `\\]*")`
	}
	text := strconv.Quote(rule.Text) // as JSON has it: a rule has no odd characters
	return `\x00"command":` + regexp.QuoteMeta(text[:len(text)-1]) + end + `\x00`
}
