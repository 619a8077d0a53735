package task

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Rule permits an agent more than its mode does. It has claude's form: Tool for all uses of a
// tool, Tool(text) for one use, or Bash(command *) for a command with any arguments.
type Rule struct {
	Tool   string
	Text   string // "": all uses of the tool
	Prefix bool   // any arguments may follow Text
}

const (
	maxRules = 32  // of a task
	maxRule  = 200 // bytes
	alnum    = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
)

// ParseRule reads a rule. A star is permitted only at the end of a command, after a blank: its
// meaning elsewhere differs from agent to agent.
func ParseRule(s string) (r Rule, err error) {
	tool, text, hasText := strings.Cut(s, "(")
	text, closed := strings.CutSuffix(text, ")")
	r.Tool = tool
	if r.Text = text; tool == "Bash" {
		r.Text, r.Prefix = strings.CutSuffix(text, " *")
	}
	isName := tool != "" && strings.Trim(tool, alnum+"_-") == ""
	isPrinted := utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
	if len(s) > maxRule || !isName || hasText != closed || hasText && r.Text == "" || !isPrinted || strings.ContainsAny(r.Text, `*()\`) || strings.TrimSpace(r.Text) != r.Text {
		return Rule{}, Wrong("allow", `write for example "Bash(go test *)", "Bash(make)" or "WebFetch"`,
			`allow: a rule has the form TOOL, TOOL(TEXT) or "Bash(COMMAND *)", and at most %[2]d printed characters; a * is permitted only at the end of a command, after a blank; %.60[1]q is none`, s, maxRule)
	}
	return r, nil
}

// Covers reports whether a rule permits all that another one does. Arguments in the other one
// must be plain words: with a ; or a $ it may be more than one command.
func (r Rule) Covers(other Rule) bool {
	if r.Tool != other.Tool {
		return false
	}
	if r.Text == "" || r == other {
		return true
	}
	behind, found := strings.CutPrefix(other.Text, r.Text)
	isPlain := strings.Trim(behind, alnum+" ._/=:,@+%-") == ""
	return r.Prefix && found && isPlain && (behind == "" || behind[0] == ' ')
}

// Beyond returns the rules that no permitted one covers. What is no rule neither covers nor is covered.
func Beyond(rules, permitted []string) []string {
	return slices.DeleteFunc(slices.Clone(rules), func(s string) bool {
		rule, err := ParseRule(s)
		return err == nil && slices.ContainsFunc(permitted, func(p string) bool {
			by, err := ParseRule(p)
			return err == nil && by.Covers(rule)
		})
	})
}

// CheckAllow checks the form of a spec's rules.
func CheckAllow(s *TaskSpec) error {
	if len(s.Allow) > maxRules {
		return Wrong("allow", "allow the commands of one program with one rule", "allow has %d rules; a task has at most %d", len(s.Allow), maxRules)
	}
	for _, rule := range s.Allow {
		if _, err := ParseRule(rule); err != nil {
			return err
		}
	}
	return nil
}
