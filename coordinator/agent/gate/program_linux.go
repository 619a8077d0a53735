package gate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"stint/coordinator/agent/gate/hold"
)

// A program is a gate of its own, kept open since it was looked at: what gets its name later is another one.
type program struct {
	file *os.File
	was  fs.FileInfo
}

// own looks for it once, so that nothing that a run of this process leaves there is ever used.
var own = sync.OnceValues(func() (*program, error) {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	return findProgram(filepath.Join(filepath.Dir(self), "stint-gate"), hold.Build())
})

// FindProgram looks for the program stint-gate beside this one, and returns why one that is there is not used.
func FindProgram() error {
	_, err := own()
	return err
}

// gatePath returns what starts a gate: the program beside this one, or this one.
func gatePath() (string, error) {
	if p, _ := own(); p != nil && p.unchanged() {
		return p.path(), nil
	}
	return hold.SelfPath()
}

// findProgram opens a gate that nobody but the user and root can have written, and asks what it is made of. That
// there is none is no error.
func findProgram(path, build string) (*program, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p := &program{file: f}
	if err := p.examine(build); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is not used: %w; go install ./cmd/... makes it anew", path, err), f.Close())
	}
	return p, nil
}

func (p *program) examine(build string) (err error) {
	if p.was, err = p.file.Stat(); err != nil {
		return err
	}
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return err
	}
	is, own := p.was.Sys().(*syscall.Stat_t), self.Sys().(*syscall.Stat_t) // whom this program is entrusted to, that may be as well
	more := p.was.Mode() &^ self.Mode() & 0o022
	if is.Gid != own.Gid {
		more |= p.was.Mode() & 0o020
	}
	if is.Uid != 0 && is.Uid != own.Uid && int(is.Uid) != os.Geteuid() || !p.was.Mode().IsRegular() || more != 0 || p.was.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		return errors.New("it must be a file that nobody can write who cannot write this program, without the set-user-ID bit")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	ask := exec.CommandContext(ctx, p.path(), "build")
	ask.Env, ask.Dir, ask.WaitDelay = []string{}, "/", time.Second
	if said, err := ask.Output(); err != nil || string(said) != build || !p.unchanged() {
		return errors.Join(errors.New("it is of another build than this program"), err)
	}
	return nil
}

// path names the open file for every process.
func (p *program) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.file.Fd()) }

// unchanged reports whether nobody has written to the file since it was looked at.
func (p *program) unchanged() bool {
	now, err := p.file.Stat()
	return err == nil && now.Size() == p.was.Size() && now.ModTime().Equal(p.was.ModTime()) && now.Mode() == p.was.Mode()
}
