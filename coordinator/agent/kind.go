package agent

import (
	"slices"

	"stint/coordinator/task"
)

// A Kind is one agent as its folder offers it: all that the rest of the program has to know
// of it. cmd/stint has the list of them, and nothing else names an agent.
type Kind struct {
	Name   string
	Tested Versions // of its CLI; none: it is built in, and always ready
	// Env names the variables of the master's environment that only this agent gets: its home, its credentials, and the
	// settings that its CLI documents for users; a star stands for anything. What a CLI tells its own children, such as the id
	// of the session that it is in, is not among them: stint may itself have been called by an agent.
	Env []string
	// HomeEnv is the variable that names the home of its CLI, with its login and its sessions, CredFile
	// the file of a login in that home, and KeyEnv the variable for a key; "": there is none.
	HomeEnv, CredFile, KeyEnv string
	// Max is how many tasks run with one account at the same time where that is not configured; 0: any number.
	Max int
	// EnvIf names what it gets besides where a variable is switched on (1, true, yes, on): all of it, the switch too, or nothing.
	EnvIf    map[string][]string
	Settings []Setting
	Decoder  NewDecoder
	// CannotAllow returns why the agent cannot be told of a rule of what it may use besides; ""
	// if it can. nil: it can be told of any.
	CannotAllow func(rule task.Rule) string
	New         func(Config) Adapter
}

// Own returns patterns of all variables that only this agent gets.
func (k *Kind) Own() []string {
	own := slices.Clone(k.Env)
	for name, more := range k.EnvIf {
		own = append(append(own, name), more...)
	}
	return own
}

// A Setting is one key of the configuration: NAME_bin for the setting bin of the agent NAME.
type Setting struct {
	Name      string
	Default   any // a string, bool, int or []string: its type is that of the setting
	Help      string
	Choices   []string // of a string, if not any will do
	Most      int      // of an int, from 0 on
	Workspace bool     // it may stand in the section of a workspace
	Danger    string   // the choice with which the agent can do whatever the user can
	Instead   string   // the choice to take instead
}

// A Config is what an adapter is made of.
type Config struct {
	Runner Runner
	Dir    string                // for what the adapter itself keeps; it need not exist
	Value  func(name string) any // of a setting, of its type
}

// Text returns the value of a setting that is a string.
func (c Config) Text(name string) string {
	s, _ := c.Value(name).(string)
	return s
}

// An Adapter is an agent with its program.
type Adapter interface {
	task.Agent
	task.Planner
	CLI() *CLI
}
