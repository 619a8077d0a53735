package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// holdEnv makes the test binary a process that takes the lock "<dir>\n<id>",
// says "held" or why not, and keeps it until its input ends.
const holdEnv = "STINT_TEST_HOLD_LOCK"

func TestMain(m *testing.M) {
	if job, ok := os.LookupEnv(holdEnv); ok {
		holdLock(job)
		return
	}
	goleak.VerifyTestMain(m)
}

func holdLock(job string) {
	dir, id, _ := strings.Cut(job, "\n")
	unlock, err := Lock(context.Background(), dir, id, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin) // the end of input is the signal, in whatever way it comes
	if err := unlock(); err != nil {
		fmt.Println(err)
	}
}

// A holder is another process that has tried to take a lock.
type holder struct {
	cmd  *exec.Cmd
	in   io.Closer
	said string // its first line
}

func startHolder(t *testing.T, dir, id string) *holder {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), holdEnv+"="+dir+"\n"+id)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	h := &holder{cmd: cmd, in: in}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // may have ended
		_ = cmd.Wait()         // its error says that it was killed
	})
	said, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	h.said = strings.TrimSpace(said)
	return h
}

// leave lets the process release its lock and waits for its end.
func (h *holder) leave(t *testing.T) {
	t.Helper()
	must(t, errors.Join(h.in.Close(), h.cmd.Wait()))
}

// kill ends the process without giving it a chance to release anything.
func (h *holder) kill(t *testing.T) {
	t.Helper()
	must(t, h.cmd.Process.Kill())
	if err := h.cmd.Wait(); err == nil {
		t.Fatal("the killed process ended well")
	}
}

// checkModes holds everything below dir to be for its owner alone.
func checkModes(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		fi, err := d.Info()
		if err == nil && fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, fi.Mode())
		}
		return err
	})
	must(t, err)
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
