package agent

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"stint/coordinator/agent/gate"
	"stint/coordinator/task"
	"stint/state"
)

// Begin returns the program of a turn, or the outcome of a turn that cannot start: its
// session or a value must not reach a command line, where no text may become an option, or
// there is no program. values are names, each followed by its value.
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

// CommandLine returns words as a person types them to a shell.
func CommandLine(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = state.ShellQuote(w)
	}
	return strings.Join(quoted, " ")
}

// CommandIn returns a line for a person's shell that runs a command in a workspace; "": in
// any.
func CommandIn(workspace string, words ...string) string {
	if workspace == "" {
		return CommandLine(words...)
	}
	return "cd " + state.ShellQuote(workspace) + " && " + CommandLine(words...)
}

// LookPath finds the program of an agent as a shell with its environment would, but by absolute
// paths alone, and where runs can write only if it is nowhere else: an earlier run may have put one
// there, in front of the real one, which would run outside of any sandbox. Without a Root, for a
// question that is no task's, it does not look there at all.
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

// Output runs a program for a question about itself, with the agents'
// environment. It returns all that the program wrote. One that does not answer
// within 10 s is killed with what it has started.
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
