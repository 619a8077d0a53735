package main

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"stint/coordinator/agent"
)

// splitNames reads names of environment variables.
func splitNames(s string) ([]string, error) {
	list := words(s)
	for _, v := range list {
		if strings.ContainsAny(v, "=\x00\n") {
			return nil, fmt.Errorf("%q is not the name of an environment variable; values are taken from the master's environment", v)
		}
	}
	return list, nil
}

// splitAgents reads names of agents, each at most once.
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
		return nil, fmt.Errorf("the parentheses of %q do not match; write a rule as \"Bash(go test:*)\"", s)
	}
	add(s[begin:])
	return list, nil
}

// agentKeys returns the settings of all agents.
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
		k = listKey(name, s.Help, func(c *Config) *[]string { return &c.Env }, splitRules)
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

// dangerous names the settings that need allow_dangerous.
func dangerous() (list []string) {
	for _, d := range dangers() {
		list = append(list, d.key+" "+d.value)
	}
	return list
}

// check looks at settings that only make sense together.
func (c *Config) check() error {
	if c.BackoffBase > c.BackoffMax {
		return fmt.Errorf("backoff_base (%s) is longer than backoff_max (%s)", shortDuration(c.BackoffBase), shortDuration(c.BackoffMax))
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
