package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"stint/coordinator/agent"
	"stint/coordinator/api/guard"
	"stint/coordinator/attempt"
	"stint/coordinator/task"
	"stint/memory"
	"stint/state"
)

func splitNames(s string) ([]string, error) {
	list := words(s)
	for _, v := range list {
		if strings.ContainsAny(v, "=\x00\n") {
			return nil, fmt.Errorf("%q is not the name of an environment variable; values are taken from the master's environment", v)
		}
	}
	return list, nil
}

func splitAgents(s string) ([]string, error) {
	list := words(s)
	for i, v := range list {
		switch {
		case !slices.Contains(agentNames, v):
			return nil, fmt.Errorf("%q is not one of %s", v, strings.Join(agentNames, ", "))
		case slices.Contains(list[:i], v):
			return nil, fmt.Errorf("%s stands there twice", v)
		}
	}
	return list, nil
}

// splitPaths reads paths of notes, which must lie below the workspace: those of the
// file end with a line break each, others have commas between them.
func splitPaths(s string) ([]string, error) {
	list, between := []string{}, ","
	if strings.Contains(s, "\n") {
		between = "\n"
	}
	for p := range strings.SplitSeq(s, between) {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		if !filepath.IsLocal(p) {
			return nil, fmt.Errorf("%q does not lie below the workspace; write for example docs/*.md", p)
		}
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("%q is no pattern: a [ is not closed", p)
		}
		list = append(list, p)
	}
	return list, nil
}

// words reads what stands between commas and blanks; none is an empty list.
func words(s string) []string {
	return append([]string{}, strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })...)
}

// splitRules reads permission rules such as "Edit,Bash(git log:*, git diff)": a
// comma in parentheses belongs to its rule. \( and \) are no parentheses.
func splitRules(s string) ([]string, error) {
	list := []string{}
	add := func(rule string) {
		if rule = strings.TrimSpace(rule); rule != "" {
			list = append(list, rule)
		}
	}
	depth, begin := 0, 0
	for i := 0; i < len(s) && depth >= 0; i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s) && strings.IndexByte(`()\`, s[i+1]) >= 0:
			i++
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			add(s[begin:i])
			begin = i + 1
		case c < ' ':
			return nil, fmt.Errorf("%q has a control character", s)
		}
	}
	if depth != 0 {
		return nil, fmt.Errorf("the parentheses of %q do not match; write a rule as \"Bash(go test *)\"", s)
	}
	add(s[begin:])
	return list, nil
}

func splitAllow(s string) ([]string, error) {
	list, err := splitRules(s)
	for _, rule := range list {
		if _, wrong := task.ParseRule(rule); err == nil && wrong != nil {
			err = wrong
		}
	}
	return list, err
}

func agentKeys() (list []key) {
	for _, kind := range agentKinds {
		for _, setting := range kind.Settings {
			list = append(list, agentKey(kind.Name+"_"+setting.Name, setting))
		}
	}
	return list
}

// agentKey returns the key of an agent's setting, whose value stands in Config.agents.
func agentKey(name string, s agent.Setting) (k key) {
	switch def := s.Default.(type) {
	case bool:
		k = boolKey(name, strconv.FormatBool(def), s.Help, func(c *Config) *bool { return &c.AutoStart })
	case int:
		k = numberKey(name, strconv.Itoa(def), 0, s.Most, s.Help, func(c *Config) *int { return &c.MaxWorkers })
	case []string:
		k = listKey(name, "", s.Help, func(c *Config) *[]string { return &c.Env }, splitRules)
	case string:
		k = textKey(name, def, s.Help, func(c *Config) *string { return &c.Agent })
		if len(s.Choices) > 0 {
			k = choiceKey(name, def, s.Help, func(c *Config) *string { return &c.Agent }, s.Choices...)
		}
	}
	set, get := k.set, k.get
	k.workspace = s.Workspace
	k.set = func(c *Config, text string) error {
		var scratch Config // it only takes the value for a moment
		if err := set(&scratch, text); err != nil {
			return err
		}
		values := maps.Clone(c.agents) // c may be a copy of a Config that is in use
		if values == nil {
			values = map[string]any{}
		}
		values[name] = get(&scratch)
		c.agents = values
		return nil
	}
	k.get = func(c *Config) any { return c.agents[name] }
	return k
}

// A danger is a setting with which an agent can do anything that the user can do.
type danger struct{ key, value, instead string }

func dangers() (list []danger) {
	for _, kind := range agentKinds {
		for _, s := range kind.Settings {
			if s.Danger != "" {
				list = append(list, danger{kind.Name + "_" + s.Name, s.Danger, s.Instead})
			}
		}
	}
	return list
}

func dangerous() (list []string) {
	for _, d := range dangers() {
		list = append(list, d.key+" "+d.value)
	}
	return list
}

// check returns what is wrong with settings that belong together.
func (c *Config) check() error {
	if c.BackoffBase > c.BackoffMax {
		return fmt.Errorf("backoff_base (%s) is longer than backoff_max (%s)", task.FormatLimit(c.BackoffBase), task.FormatLimit(c.BackoffMax))
	}
	if c.HeartbeatInterval <= 0 {
		return fmt.Errorf("heartbeat_interval must be longer than 0")
	}
	if c.PostgresURL != "" && c.PostgresURLFile != "" {
		return fmt.Errorf("%s: %s and %s (%s) exclude each other", c.origins["postgres_url"].where,
			findKey("postgres_url").inFile(), findKey("postgres_url_file").inFile(), c.origins["postgres_url_file"].where)
	}
	for _, d := range dangers() {
		if c.agents[d.key] == d.value && !c.AllowDangerous {
			return fmt.Errorf("%s: %s is %s, with which the agent can do whatever you can; use %s, or permit it with allow_dangerous = true",
				c.origins[d.key].where, d.key, d.value, d.instead)
		}
	}
	return nil
}

// maxDocument is the largest file that a setting may name, in bytes.
const maxDocument = 64 << 10

// documentKey is a text, a word that stands for one, or @FILE, which is read at once.
func documentKey[T any](name, def, help string, words map[string]string, parse func(text string) (T, error), field func(*Config) *T) key {
	k := valueKey(kindText, name, def, help+", or @FILE", field, func(value string) (v T, err error) {
		path, isFile := strings.CutPrefix(value, "@")
		text, isWord := words[value]
		if isFile {
			text, err = readDocument(path)
		} else if !isWord {
			text = value
		}
		if err != nil {
			return v, err
		}
		if v, err = parse(text); err != nil && isFile {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return v, err
	}, same)
	k.get = func(c *Config) any { return c.origins[name].text }
	return k
}

// checked returns a parser that takes a text as it is if it passes a check.
func checked(check func(string) error) func(string) (string, error) {
	return func(text string) (string, error) { return text, check(text) }
}

func asIs(text string) (string, error) { return text, nil }

func readDocument(path string) (string, error) {
	path, err := expandHome(path)
	if err != nil {
		return "", err
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%q is not an absolute path; write @/path/of/the/file", path)
	}
	if fi, err := os.Stat(path); err == nil && !fi.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a file", path)
	}
	data, err := readNamed(path, maxDocument)
	if err != nil {
		return "", err
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return "", fmt.Errorf("%s is no text in UTF-8", path)
	}
	return string(data), nil
}

// noFollowUp are the words for no follow-up.
var noFollowUp = map[string]string{"off": "", "none": "", "": ""}

// parseTrigger reads the name of a session, or a word for none.
func parseTrigger(s string) (string, error) {
	if _, isNone := noFollowUp[s]; isNone {
		return "", nil
	}
	return s, task.CheckSessionKey(s)
}

var evaluations = map[string]string{"off": "", "none": "", "": "", "default": attempt.DefaultEvaluation}

// valueKey is a setting whose text parse checks and reads, and show writes.
func valueKey[T, S any](kind kind, name, def, help string, field func(*Config) *T, parse func(string) (T, error), show func(T) S) key {
	return key{
		name: name, def: def, help: help, kind: kind,
		set: func(c *Config, s string) error {
			v, err := parse(s)
			if err == nil {
				*field(c) = v
			}
			return err
		},
		get: func(c *Config) any { return show(*field(c)) },
	}
}

func same[T any](v T) T { return v }

// checkedKey is a text that check returns as it is to be, or refuses.
func checkedKey(name, def, help string, field func(*Config) *string, check func(string) (string, error)) key {
	return valueKey(kindText, name, def, help, field, check, same)
}

func textKey(name, def, help string, field func(*Config) *string) key {
	return checkedKey(name, def, help, field, asIs)
}

// pathKey is a text that must be an absolute path or empty; ~/ is the home.
func pathKey(name, help string, field func(*Config) *string) key {
	return checkedKey(name, "", help, field, func(s string) (string, error) {
		s, err := expandHome(s)
		if err == nil && s != "" && !filepath.IsAbs(s) {
			err = fmt.Errorf("%q is not an absolute path", s)
		}
		return s, err
	})
}

// checkNote returns the path of a note below a workspace, or "".
func checkNote(s string) (string, error) {
	switch clean := filepath.Clean(s); {
	case s == "":
		return "", nil
	case filepath.IsAbs(s) || strings.HasPrefix(s, "~"):
		return "", fmt.Errorf("%q is not relative to the workspace; write a path such as %s", s, memory.DefaultLessons)
	case !filepath.IsLocal(s) || clean == "." || strings.HasSuffix(s, "/") || slices.Contains(strings.Split(clean, "/"), ".git"):
		return "", fmt.Errorf("%q is not the path of a note below the workspace; write one such as %s", s, memory.DefaultLessons)
	default:
		return clean, nil
	}
}

const httpOff = "off"

// checkHTTP returns an address of this machine alone, or off.
func checkHTTP(s string) (string, error) {
	if s == httpOff {
		return s, nil
	}
	return s, guard.CheckLoopback(s)
}

func choiceKey(name, def, help string, field func(*Config) *string, choices ...string) key {
	return checkedKey(name, def, help, field, func(s string) (string, error) {
		if slices.Contains(choices, s) {
			return s, nil
		}
		named := slices.DeleteFunc(slices.Clone(choices), func(s string) bool { return s == "" })
		return "", fmt.Errorf("%q is not one of %s", s, strings.Join(named, ", "))
	})
}

func numberKey(name, def string, low, high int, help string, field func(*Config) *int) key {
	return valueKey(kindNumber, name, def, help, field, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return 0, fmt.Errorf("%q is not a whole number from %d to %d", s, low, high)
		}
		return n, nil
	}, same)
}

func durationKey(name, def, help string, field func(*Config) *time.Duration) key {
	return valueKey(kindDuration, name, def, help, field, parseDuration, task.FormatLimit)
}

// budgetKey is what may be spent; without it any amount.
func budgetKey(name, help string, field func(*Config) *string) key {
	return checkedKey(name, "", help, field, checked(func(s string) error { _, err := state.ParseBudget(s); return err }))
}

// sizeKey is a number of bytes, with a unit or without.
func sizeKey(name, def string, most int64, help string, field func(*Config) *int64) key {
	return valueKey(kindSize, name, def, help, field, func(s string) (int64, error) {
		n, err := parseSize(s)
		if n > most {
			err = fmt.Errorf("%q is more than %s", s, shortSize(most))
		}
		return n, err
	}, shortSize)
}

const maxSize = 1 << 50

// sizeUnits are the units of sizes, the largest first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// parseSize reads a size such as 64MiB; without a unit it is in bytes.
func parseSize(s string) (int64, error) {
	number, unit := s, int64(1)
	for _, u := range sizeUnits {
		if n, ok := strings.CutSuffix(s, u.name); ok {
			number, unit = strings.TrimSpace(n), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > maxSize/unit {
		return 0, fmt.Errorf("%q is not a size such as 64MiB or 0", s)
	}
	return n * unit, nil
}

// shortSize returns a size with the largest unit that loses nothing.
func shortSize(n int64) string {
	for _, u := range sizeUnits {
		if n > 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return "0"
}

func boolKey(name, def, help string, field func(*Config) *bool) key {
	return valueKey(kindBool, name, def, help, field, func(s string) (bool, error) {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return false, fmt.Errorf("%q is not true or false", s)
		}
		return b, nil
	}, same)
}

// listKey is a list of texts; split takes them apart where commas stand between them, and checks them.
func listKey(name, def, help string, field func(*Config) *[]string, split func(string) ([]string, error)) key {
	return valueKey(kindList, name, def, help, field, split, same)
}
