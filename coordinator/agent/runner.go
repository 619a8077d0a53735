package agent

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/agent/gate"
	"stint/coordinator/task"
)

// Variables that every agent gets.
const (
	EnvRunID   = gate.EnvRunID
	EnvTaskID  = "STINT_TASK_ID"
	EnvAttempt = "STINT_ATTEMPT"
)

// A Runner is what all adapters need to run a program under the gate; its clock is also that for
// "try again at 3:47 AM", which is read in its zone. The zero value works, with an empty
// environment for the agents. It may be used by several goroutines at once.
type Runner struct {
	gate.Supervisor
	// Env is the environment of the agents, KEY=VALUE, already filtered. The
	// variables of the run itself are added.
	Env []string
	// Captured are patterns of variables: see [Runner.Use].
	Captured []string
	// Root is what the run of a turn can write, "" without a turn: see [Runner.LookPath].
	Root string
	// Own are patterns of the variables that belong to the agent alone; see [Kind].
	Own []string
	// Account has the variables of the turn's account, which take the place of all others.
	Account []string
	// Patience is how long an agent may do nothing but wait for the network before its
	// run is stopped, and half of how long it may do nothing but wait for a rate limit;
	// the default is one minute.
	Patience time.Duration
}

// Use prepares the runner, which is the caller's own copy, for a turn. If the turn has an
// environment, that replaces all captured variables, also those that it does not have.
func (r *Runner) Use(turn task.Turn) {
	r.Root, r.Account = turn.Root, turn.Account.Env
	if turn.Env != nil {
		own := slices.DeleteFunc(slices.Clone(r.Env), func(kv string) bool { return task.IsCaptured(kv, r.Captured) })
		r.Env = append(own, task.CaptureEnvironment(turn.Env, r.Captured)...)
	}
	if turn.Account.IsWhole {
		r.Env = slices.DeleteFunc(slices.Clone(r.Env), func(kv string) bool { return task.IsNamed(kv, r.Own) })
	}
	r.Env = append(slices.Clone(r.Env), r.Account...) // what asks for a home finds that of the account
}

// AgentEnv is the whole environment of the agent of a run: the filtered one,
// what the adapter adds, and the variables of the run. A later entry replaces
// an earlier one of the same name.
func (r *Runner) AgentEnv(turn task.Turn, extra ...string) []string {
	all := slices.Concat(r.Env, extra, r.Account, []string{
		EnvRunID + "=" + turn.RunID,
		EnvTaskID + "=" + turn.TaskID,
		EnvAttempt + "=" + strconv.Itoa(turn.Attempt),
	})
	env := make(map[string]string, len(all))
	for _, kv := range all {
		if name, _, ok := strings.Cut(kv, "="); ok && name != "" && !strings.ContainsRune(kv, 0) { // else no program can be given it
			env[name] = kv
		}
	}
	return slices.Sorted(maps.Values(env))
}

// HomeOf returns where a CLI keeps its settings and sessions: the directory that a variable of
// its environment names, or else that name in the user's home.
func HomeOf(env []string, variable, name string) string {
	return cmp.Or(task.LookupEnv(env, variable), filepath.Join(task.LookupEnv(env, "HOME"), name))
}

// HasEnv reports whether an environment has a variable, be it an empty one.
func HasEnv(env []string, name string) bool {
	return slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
}
