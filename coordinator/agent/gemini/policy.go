package gemini

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"stint/coordinator/task"
	"stint/ledger/durable"
)

// policyFile is the file in a run's directory with the rules of its turn.
const policyFile = "gemini-policy.toml"

// cannotAllow is [agent.Kind.CannotAllow].
func cannotAllow(rule task.Rule) string {
	if rule.Tool != "Bash" && rule.Text != "" {
		return "gemini takes commands of Bash, and else a tool by its own name, such as web_fetch"
	}
	return ""
}

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
