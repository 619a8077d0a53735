package agent

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/agent/gate"
	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
	"stint/state"
)

// Variables that every agent gets.
const (
	EnvRunID   = hold.EnvRunID
	EnvTaskID  = "STINT_TASK_ID"
	EnvAttempt = "STINT_ATTEMPT"
)

// A Runner is what all adapters need to run a program under the gate. The zero value works, with an empty environment for the
// agents. It may be used by several goroutines at once.
type Runner struct {
	gate.Supervisor
	// Env is the environment of the agents, KEY=VALUE, already filtered. The variables of the run itself are added.
	Env []string
	// Captured are patterns of variables: see [Runner.Use].
	Captured []string
	// Root is what the run of a turn can write, "" without a turn: see [Runner.LookPath].
	Root string
	// Own are patterns of the variables that belong to the agent alone; see [Kind].
	Own []string
	// Account has the variables of the turn's account, which take the place of all others.
	Account []string
	// Patience is how long an agent may do nothing but wait for the network before its run is stopped, and
	// half of how long it may do nothing but wait for a rate limit; the default is one minute.
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

// AgentEnv is the whole environment of the agent of a run: the filtered one, what the adapter adds, and the
// variables of the run. A later entry replaces an earlier one of the same name.
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

// Begin returns the program of a turn, or the outcome of a turn that cannot start: its session or a value must not reach a
// command line, where no text may become an option, or there is no program. values are names, each followed by its value.
func Begin(agent string, turn task.Turn, find func() (string, error), values ...string) (bin string, out *task.Outcome) {
	if turn.Session != "" && !IsUUID(turn.Session) {
		return "", Refused(state.ClassSessionLost, fmt.Sprintf("session %q cannot be resumed: the sessions of %s are named by UUIDs", turn.Session, agent))
	}
	for i := 1; i < len(values); i += 2 {
		if v := values[i]; strings.HasPrefix(v, "-") || strings.ContainsAny(v, "\x00\n\r") {
			return "", Refused(state.ClassExit, fmt.Sprintf("%q is no name of a %s", v, values[i-1]))
		}
	}
	bin, err := find()
	if err != nil {
		return "", Refused(state.ClassAgentMissing, err.Error())
	}
	return bin, nil
}

// Options appends to a command line each of some options with its value, unless that is "".
func Options(args []string, options ...string) []string {
	for option := range slices.Chunk(options, 2) {
		if option[1] != "" {
			args = append(args, option...)
		}
	}
	return args
}

// Refused is the outcome of a run that was not begun.
func Refused(class state.Class, msg string) *task.Outcome {
	return &task.Outcome{Class: class, Error: msg, ExitCode: -1}
}

// PlanOf returns the plan of a spec, or of the outcome that a turn without one has.
func PlanOf(s gate.Spec, out *task.Outcome) task.Plan {
	if out != nil {
		return task.Plan{Class: out.Class, Error: out.Error}
	}
	return task.Plan{Argv: s.Argv, Env: gate.EnvNames(s.Env)}
}

// LookPath finds the program of an agent as a shell with its environment would, but by absolute paths alone, and where runs can
// write only if it is nowhere else: an earlier run may have put one there, in front of the real one, which would run outside of
// any sandbox. Without a Root, for a question that is no task's, it does not look there at all.
func (r *Runner) LookPath(name string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		if err := Executable(name); err != nil {
			return "", err
		}
		return filepath.Abs(name)
	}
	within := ""
	for _, dir := range filepath.SplitList(task.LookupEnv(r.Env, "PATH")) {
		path := filepath.Join(dir, name)
		switch {
		case !filepath.IsAbs(path) || Executable(path) != nil:
		case !task.IsWritable(path, r.Env, r.Root):
			return path, nil
		case within == "":
			within = path
		}
	}
	switch {
	case within == "":
		return "", fmt.Errorf("%s: not found in PATH: %w", name, fs.ErrNotExist)
	case r.Root == "":
		return "", fmt.Errorf("%s is not used, as an agent may have written it: set %s_bin in the configuration: %w", within, name, fs.ErrPermission)
	}
	return within, nil
}

// Executable returns nil if path is a program that may be run, and else why it is none.
func Executable(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	if fi.IsDir() || fi.Mode()&0o111 == 0 {
		return fmt.Errorf("%s: %w", path, fs.ErrPermission)
	}
	return nil
}

// Output runs a program for a question about itself, with the agents' environment. It returns all that the
// program wrote. One that does not answer within 10 s is killed with what it has started.
func (r *Runner) Output(ctx context.Context, path string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append([]string{}, r.Env...) // never nil, which would be our own
	cmd.Cancel = func() error { return gate.KillTree(cmd.Process) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("no answer: %w", ctx.Err())
	}
	return bytes.TrimSpace(r.Redact.Bytes(out)), err
}

// LastLine is where an answer stands that may have warnings above it.
func LastLine(out []byte) string { return string(out[bytes.LastIndexByte(out, '\n')+1:]) }
