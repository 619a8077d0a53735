package fleet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// asOwner is the script that runs the one in $1 in the directory of a file, with its name, and as the owner of that directory if
// we are root there: others may write in it, and could let root write where they may not. It stays in the directory that it has
// looked at, whatever becomes of the path, and goes through no link to get there.
//
//go:embed asowner.sh
var asOwner string

// writeFile is the script that writes a new file, checks it and puts it into the place of a file that is still as it was read.
//
//go:embed writefile.sh
var writeFile string

// The other scripts for the sh of a server. All are constant: what they are about is read from their input, line by line, before
// what a file is to have.
const (
	readFile = `set -eu
if [ -L "$1" ] || { [ -e "$1" ] && [ ! -f "$1" ]; }; then echo "it is a link or no file, and stays as it is" >&2; exit 1; fi
if [ -e "$1" ]; then echo there; cat -- "$1"; else echo missing; fi`

	restart = `set -eu; IFS= read -r service
if [ "$(id -u)" = 0 ]; then exec systemctl restart -- "$service"; fi
exec sudo -n systemctl restart -- "$service"`

	sample = `set -eu; cat /proc/loadavg; head -n 1 /proc/stat; sleep 1; head -n 1 /proc/stat
grep -E "^Mem(Total|Available):" /proc/meminfo; df -Pk / | tail -n 1`
)

// Bounds of a command on a server.
const (
	sshTimeout  = time.Minute
	maxAnswer   = 1 << 20 // bytes that it prints
	maxComplain = 300     // of its errors
)

// An unreachableError says that ssh did not get as far as to run a command.
type unreachableError struct{ text string }

func (e *unreachableError) Error() string { return e.text }

// onFile runs a script for a file on a server, with these lines and then content as its input.
func (f *Fleet) onFile(ctx context.Context, server, file, script string, content []byte, lines ...string) ([]byte, error) {
	out, err := f.remote(ctx, server, asOwner, script, content, slices.Insert(lines, 0, file)...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Base(file), err)
	}
	return out, nil
}

// remote runs a script on a server, with inner as its $1, and returns what it prints.
func (f *Fleet) remote(ctx context.Context, server, script, inner string, content []byte, lines ...string) ([]byte, error) {
	i := slices.IndexFunc(f.opts.Servers, func(s Server) bool { return s.ID == server })
	command := "echo stint; exec sh -c " + state.ShellQuote(script) + " sh " + state.ShellQuote(inner)
	select {
	case f.ssh[server] <- struct{}{}:
		defer func() { <-f.ssh[server] }()
	case <-ctx.Done():
		return nil, fmt.Errorf("server %s has been busy: %w", server, ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, sshTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3",
		"--", f.opts.Servers[i].SSH, command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with what a ProxyCommand has started
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	cmd.Stdin = io.MultiReader(strings.NewReader(strings.Join(append(lines, ""), "\n")), bytes.NewReader(content))
	out, complaint := &bounded{}, &bounded{}
	cmd.Stdout, cmd.Stderr = out, complaint
	err := cmd.Run()
	answer, hasBegun := bytes.CutPrefix(out.buf.Bytes(), []byte("stint\n")) // else 255 is of ssh itself
	text := task.OneSentence(f.masked(complaint.buf.String()), maxComplain)
	exit, _ := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer of server %s: %w", server, ctx.Err())
	case exit != nil && exit.ExitCode() == 255 && !hasBegun:
		return nil, &unreachableError{"server " + server + " cannot be reached: " + cmp.Or(text, "ssh says nothing about it")}
	case out.buf.Len() > maxAnswer:
		return nil, fmt.Errorf("server %s has answered more than %d bytes", server, maxAnswer)
	case err != nil:
		return nil, fmt.Errorf("server %s: %s (%w)", server, cmp.Or(text, "no word about it"), err)
	}
	return answer, nil
}

// masked returns a text of a server without the tokens of bots, which it may have been sent.
func (f *Fleet) masked(text string) string {
	for _, c := range f.room.Controls(state.ControlInstance) {
		if token, err := f.opts.Secret(c.BotRef); c.BotRef != "" && err == nil && token != "" {
			text = strings.ReplaceAll(text, token, "***")
		}
	}
	return text
}

// A bounded keeps what is written to it, and fails beyond [maxAnswer]: then nothing more is read.
type bounded struct {
	buf bytes.Buffer // not embedded: it would read by itself
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.buf.Write(p); b.buf.Len() > maxAnswer {
		return 0, errors.New("too long")
	}
	return len(p), nil
}

// sumOf returns the SHA-256 of a text as the scripts write it.
func sumOf(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

// read returns what a file on a server has; isThere is false if there is none.
func (f *Fleet) read(ctx context.Context, server, file string) (text []byte, isThere bool, err error) {
	out, err := f.onFile(ctx, server, file, readFile, nil)
	text, isThere = bytes.CutPrefix(out, []byte("there\n"))
	return text, isThere, err
}

// write replaces a file on a server, unless it is no longer as was: the sum of its text, "missing" or "any".
func (f *Fleet) write(ctx context.Context, server, file string, text []byte, was string) error {
	_, err := f.onFile(ctx, server, file, writeFile, text, was, sumOf(text))
	return err
}
