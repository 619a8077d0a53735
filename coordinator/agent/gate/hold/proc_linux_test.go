package hold

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestParseStat(t *testing.T) {
	line := "42 (a) b (c)) S 7 8 9 0 -1 4194304 102 0 0 0 0 0 0 0 20 0 1 0 130474 3133440 390\n"
	p, err := parseStat(42, []byte(line))
	if want := (Proc{PID: 42, PPID: 7, PGID: 8, Start: "130474"}); err != nil || p != want {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", "42", "42 (x) S 1", strings.Replace(line, "S 7", "S x", 1)} {
		if _, err := parseStat(42, []byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if p, err := ReadProc(os.Getpid()); err != nil || p.PPID != os.Getppid() {
		t.Errorf("myself: %+v, %v", p, err)
	}
	if _, err := ReadProc(1 << 30); err != ErrGone {
		t.Errorf("nobody: %v", err)
	}
}

// A process is signalled only if it is the one that is meant.
func TestSignalIsForOneProcess(t *testing.T) {
	cmd := exec.Command("/bin/sleep", "1000")
	must(t, cmd.Start())
	p, err := ReadProc(cmd.Process.Pid)
	must(t, err)
	stranger := p
	stranger.Start += "1"
	must(t, SignalProc(stranger, syscall.SIGKILL))
	must(t, SignalProc(p, 0))
	if now, err := ReadProc(p.PID); err != nil || now.Dead {
		t.Fatalf("the stranger was killed: %+v, %v", now, err)
	}
	must(t, SignalProc(p, syscall.SIGKILL))
	_ = cmd.Wait() // killed
	must(t, SignalProc(p, syscall.SIGKILL))
}
