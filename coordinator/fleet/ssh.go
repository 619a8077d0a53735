package fleet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
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
)

// Scripts for the sh of a server. They are constant: what they are about is read from their input, line by line, before what
// a file is to have.
const (
	// asOwner runs the script in $1 as the owner of the directory of a file, if we are root there: others may write in
	// that directory, and could let root write where they may not. Of those above it, the highest that is not root's counts:
	// its owner can put a link in place of what is below.
	asOwner = `set -eu; IFS= read -r file; dir=$(dirname -- "$file"); as=
if [ "$(id -u)" = 0 ]; then
up=$dir; while [ "$up" != / ]; do if [ "$(stat -c %u -- "$up")" != 0 ]; then dir=$up; fi; up=$(dirname -- "$up"); done
as="setpriv --reuid $(stat -c %u -- "$dir") --regid $(stat -c %g -- "$dir") --clear-groups"; fi
exec $as sh -c "$1" sh "$file"`

	readFile = `set -eu; if [ -e "$1" ]; then echo there; cat -- "$1"; else echo missing; fi`

	// writeFile writes a new file, checks it and puts it into the place of a file that is still as it was read.
	writeFile = `set -eu; IFS= read -r was; IFS= read -r want; umask 077
sum() { sha256sum <"$1" | cut -d" " -f1; }
if [ -L "$1" ]; then echo "$1 is a link" >&2; exit 1; fi
new=$(mktemp -- "$1.XXXXXX"); trap "rm -f -- \"\$new\"" EXIT
if [ -e "$1" ]; then cp -p -- "$1" "$new"; fi
cat >"$new"
if [ "$(sum "$new")" != "$want" ]; then echo "$1 was cut off on its way, and is as it was" >&2; exit 1; fi
if [ "$was" != any ]; then
now=missing; if [ -e "$1" ]; then now=$(sum "$1"); fi
if [ "$now" != "$was" ]; then echo "$1 has changed meanwhile, and is as it is" >&2; exit 1; fi
fi
sync -- "$new"; mv -f -- "$new" "$1"`

	restart = `set -eu; IFS= read -r service
if [ "$(id -u)" = 0 ]; then exec systemctl restart -- "$service"; fi
exec sudo -n systemctl restart -- "$service"`

	sample = `set -eu; cat /proc/loadavg; head -n 1 /proc/stat; sleep 1; head -n 1 /proc/stat
grep -E "^Mem(Total|Available):" /proc/meminfo; df -Pk / | tail -n 1`
)

// Bounds of a command on a server.
const (
	sshTimeout  = time.Minute
	maxAnswer   = 4 << 20 // bytes that it prints
	maxComplain = 300     // of its errors
)

// An unreachableError says that ssh did not get as far as to run a command.
type unreachableError struct{ text string }

func (e *unreachableError) Error() string { return e.text }

// quote returns a constant script as one word for a shell.
func quote(script string) string { return "'" + strings.ReplaceAll(script, "'", `'\''`) + "'" }

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
	command := "exec sh -c " + quote(script) + " sh " + quote(inner)
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
	out, complaint := &bounded{most: maxAnswer}, &bounded{most: maxAnswer}
	cmd.Stdout, cmd.Stderr = out, complaint
	err := cmd.Run()
	text := task.OneSentence(complaint.String(), maxComplain)
	exit, _ := errors.AsType[*exec.ExitError](err)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer of server %s: %w", server, ctx.Err())
	case exit != nil && exit.ExitCode() == 255:
		return nil, &unreachableError{"server " + server + " cannot be reached: " + cmp.Or(text, "ssh says nothing about it")}
	case err != nil:
		return nil, fmt.Errorf("server %s: %s (%w)", server, cmp.Or(text, "no word about it"), err)
	case out.Len() > maxAnswer:
		return nil, fmt.Errorf("server %s has answered more than %d bytes", server, maxAnswer)
	}
	return out.Bytes(), nil
}

// A bounded keeps the first bytes that are written to it, and one more if there are others.
type bounded struct {
	bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	_, _ = b.Buffer.Write(p[:min(len(p), b.most+1-b.Len())]) // it cannot fail
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
