package gate

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
)

// A gate of its own is used only if nobody but the user and root can have written it, if it is of this build,
// and as long as it is the file that was looked at.
func TestFindProgram(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "stint-gate")
	write := func(text string, mode fs.FileMode) {
		t.Helper()
		must(t, os.RemoveAll(path))
		must(t, os.WriteFile(path, []byte(text), 0o700))
		must(t, os.Chmod(path, mode))
	}
	const good, marker = "#!/bin/sh\necho asked $1 >>%/asked; echo the build\n", "the build\n"
	text := strings.ReplaceAll(good, "%", dir)
	for _, c := range []struct {
		name  string
		place func()
		why   string // "": it is used
		asked bool
	}{
		{"nothing", func() {}, "", false},
		{"of this build", func() { write(text, 0o755) }, "", true},
		{"of another build", func() { write(strings.ReplaceAll(text, "the build", "the old build"), 0o755) }, "another build", true},
		{"fails", func() { write(text+"exit 1\n", 0o755) }, "another build", true},
		{"cannot be executed", func() { write(text, 0o600) }, "permission denied", false},
		{"writable by the group", func() { write(text, 0o775) }, "nobody can write who", false},
		{"writable by all", func() { write(text, 0o757) }, "nobody can write who", false},
		{"with the rights of its owner", func() { write(text, 0o755|fs.ModeSetuid) }, "nobody can write who", false},
		{"a link", func() {
			write(text, 0o755)
			must(t, os.Rename(path, path+".to"))
			must(t, os.Symlink(path+".to", path))
		}, "too many levels", false},
		{"a FIFO", func() { must(t, os.RemoveAll(path)); must(t, syscall.Mkfifo(path, 0o700)) }, "nobody can write who", false},
		{"a directory", func() { must(t, os.RemoveAll(path)); must(t, os.Mkdir(path, 0o700)) }, "nobody can write who", false},
		{"another user's", func() {
			write(text, 0o755)
			if os.Geteuid() == 0 {
				must(t, os.Chown(path, 65534, 65534))
			} else {
				must(t, os.Chmod(path, 0o777)) // only root can give a file away
			}
		}, "nobody can write who", false},
	} {
		must(t, os.RemoveAll(filepath.Join(dir, "asked")))
		c.place()
		p, err := findProgram(path, marker)
		if (err == nil) != (c.why == "") || err != nil && (p != nil || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s: %v, %v", c.name, p, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "asked")); (err == nil) != c.asked {
			t.Errorf("%s: asked %v", c.name, err == nil)
		}
	}

	write(text, 0o755)
	p, err := findProgram(path, marker)
	must(t, err)
	must(t, os.Rename(path, path+".old"))
	write("#!/bin/sh\necho planted\n", 0o755)
	if said, err := exec.Command(p.path(), "x").Output(); string(said) != marker || !p.unchanged() {
		t.Errorf("what was put in its place was started: %q, %v", said, err)
	}
	must(t, os.WriteFile(path+".old", []byte("#!/bin/sh\necho overwritten\n"), 0o755))
	if p.unchanged() {
		t.Error("it was written to, and would be started")
	}
	must(t, p.file.Close())
}

// TestSpareGate: a run takes the gate that was started before it, which has its mark from then on, whatever the length of its id,
// and its files as any gate has. One that has ended, or cannot have the id, is not taken.
func TestSpareGate(t *testing.T) {
	defer preparing.Unlock()
	preparing.Lock() // so that no test beside this one takes it
	b := &bench{NewBench(t), Supervisor{}}
	for _, c := range []struct {
		name    string
		harm    func(h *gateProc, turn *task.Turn)
		isTaken bool
	}{
		{"as it is", func(*gateProc, *task.Turn) {}, true},
		{"a short id", func(_ *gateProc, turn *task.Turn) { turn.RunID = "r" }, true},
		{"the longest id", func(_ *gateProc, turn *task.Turn) { turn.RunID = strings.Repeat("r", len(hold.NoRun)-1) }, true},
		{"a longer id", func(_ *gateProc, turn *task.Turn) { turn.RunID = strings.Repeat("r", len(hold.NoRun)) }, false},
		{"killed", func(h *gateProc, _ *task.Turn) { must(t, h.cmd.Process.Kill()); <-h.reader }, false},
	} {
		must(t, Prepare())
		h := spare.Load()
		must(t, Prepare())
		if spare.Load() != h {
			t.Error("there are two")
		}
		turn := b.Turn("the prompt")
		c.harm(h, &turn)
		r, said := b.run(turn, `tr '\0' '\n' <"/proc/$PPID/environ" | grep ^STINT_RUN_ID; echo $PPID; echo err >&2; cat; ls /proc/$$/fd | tail -n +1 | tr '\n' ' '`)
		lines := strings.Split(said, "\n")
		if r.End.Exit != 0 || lines[0] != EnvRunID+"="+turn.RunID || (lines[1] == strconv.Itoa(h.cmd.Process.Pid)) != c.isTaken || !strings.Contains(said, "the prompt") ||
			Read(t, turn.RunDir, stderrName) != "err\n" {
			t.Errorf("%s: %+v\n%s", c.name, r, said)
		}
		if spare.Load() != nil || h.cmd.ProcessState == nil {
			t.Errorf("%s: it is still there", c.name)
		}
		wantGone(t, turn)
	}
}
