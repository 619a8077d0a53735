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

	"stint/coordinator"
	"stint/state"
)

// A value is one that becomes an argument of a command.
type value struct{ what, text string }

// refuse gives the outcome of a turn whose session or values must not reach a
// command line, nil if all is well: no text may become an option.
func refuse(agent string, turn coordinator.Turn, values ...value) *coordinator.Outcome {
	if turn.Session != "" && !isUUID(turn.Session) {
		return refused(state.ClassSessionLost, fmt.Sprintf("session %q cannot be resumed: the sessions of %s are named by UUIDs", turn.Session, agent))
	}
	for _, v := range values {
		if strings.HasPrefix(v.text, "-") || strings.ContainsAny(v.text, "\x00\n\r") {
			return refused(state.ClassExit, fmt.Sprintf("%q is no name of a %s", v.text, v.what))
		}
	}
	return nil
}

// refused is the outcome of a run that was not begun.
func refused(class state.Class, msg string) *coordinator.Outcome {
	return &coordinator.Outcome{Class: class, Error: msg, ExitCode: -1}
}

// planOf tells of a spec, or of the outcome that a turn without one has.
func planOf(s spec, out *coordinator.Outcome) coordinator.Plan {
	if out != nil {
		return coordinator.Plan{Class: out.Class, Error: out.Error}
	}
	return coordinator.Plan{Argv: s.argv, Env: envNames(s.env)}
}

// CommandLine gives words as a person types them to a shell.
func CommandLine(words ...string) string { return resumeCommand("", words...) }

// resumeCommand is a line for a person's shell.
func resumeCommand(workspace string, argv ...string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		words[i] = quote(w)
	}
	line := strings.Join(words, " ")
	if workspace != "" {
		line = "cd " + quote(workspace) + " && " + line
	}
	return line
}

// quote makes a word safe for a shell.
func quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+,=", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// lookPath finds a program as a shell with that environment would.
func lookPath(name string, env []string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		if err := executable(name); err != nil {
			return "", err
		}
		return filepath.Abs(name)
	}
	for _, dir := range filepath.SplitList(lookupEnv(env, "PATH")) {
		path := filepath.Join(dir, name)
		if filepath.IsAbs(path) && executable(path) == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: not found in PATH: %w", name, fs.ErrNotExist)
}

func executable(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	if fi.IsDir() || fi.Mode()&0o111 == 0 {
		return fmt.Errorf("%s: %w", path, fs.ErrPermission)
	}
	return nil
}

// output runs a program for a question about itself, with the agents'
// environment. It gives all that the program wrote. One that does not answer
// within 10 s is killed with what it has started.
func (r *Runner) output(ctx context.Context, path string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append([]string{}, r.Env...) // never nil, which would be our own
	cmd.Cancel = func() error { return killTree(cmd.Process) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("no answer: %w", ctx.Err())
	}
	return bytes.TrimSpace(out), err
}

// killTree kills a child and what is below it.
func killTree(child *os.Process) error {
	all, _ := listProcs() // without a list the child alone
	if err := child.Kill(); err != nil {
		return err // it was reaped: its number may have been another's
	}
	return killAll(descendants(all, child.Pid))
}

// lastLine is where an answer stands that may have warnings above it.
func lastLine(out []byte) string { return string(out[bytes.LastIndexByte(out, '\n')+1:]) }
