package agent

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// needCgroup skips a test where no cgroup can be made; CI must be able to.
func needCgroup(t testing.TB) {
	t.Helper()
	if !canCgroup(t) {
		missing(t, "no cgroup can be made here")
	}
}

// deaf is a sink that looks at nothing.
type deaf struct{}

func (deaf) feed([]byte)           {}
func (deaf) aside([]byte)          {}
func (deaf) finished() bool        { return false }
func (deaf) began()                {}
func (deaf) progress(int64)        {}
func (deaf) stuck(time.Time) error { return nil }

// script supervises a shell script under a runner that differs from the bench's.
func (b *bench) script(turn task.Turn, text string, change func(*Runner)) (runResult, string) {
	b.t.Helper()
	r := b.agent.Runner
	change(&r)
	e := r.supervise(b.t.Context(), Spec{Turn: turn, Argv: []string{"/bin/bash", "-c", text}, Env: r.AgentEnv(turn)}, deaf{})
	out, err := os.ReadFile(filepath.Join(turn.RunDir, stdoutName))
	must(b.t, err)
	return e, string(out)
}

// A table that could not be read once is not missing for ever.
func TestReadOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "table")
	read := readOnce(name)
	if _, err := read(); err == nil {
		t.Error("there is nothing to read")
	}
	must(t, os.WriteFile(name, []byte("one"), 0o600))
	for range 2 {
		if text, err := read(); string(text) != "one" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		must(t, os.WriteFile(name, []byte("two"), 0o600))
	}
}

func TestFindCgroup(t *testing.T) {
	const hybrid = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw\n" +
		"32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n" +
		"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:7 master:1 - cgroup2 cgroup2 rw\n"
	const unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
	const container = "30 23 0:26 /docker/abc /sys/fs/my\\040group rw - cgroup2 cgroup2 rw\n"
	for _, c := range []struct{ name, mounts, self, want string }{
		{"root of a hybrid", hybrid, "9:name=systemd:/\n0::/\n", "/sys/fs/cgroup/unified"},
		{"below", hybrid, "4:memory:/x\n0::/user.slice/a b\n", "/sys/fs/cgroup/unified/user.slice/a b"},
		{"unified", unified, "0::/system.slice/stint.service\n", "/sys/fs/cgroup/system.slice/stint.service"},
		{"only a part is mounted", container, "0::/docker/abc/x\n", "/sys/fs/my group/x"},
		{"all that is mounted", container, "0::/docker/abc\n", "/sys/fs/my group"},
		{"another part is mounted", container, "0::/docker/abcd\n", ""},
		{"outside the namespace", unified, "0::/../x\n", ""},
		{"not mounted", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", "0::/\n", ""},
		{"version 1 only", hybrid, "9:name=systemd:/\n", ""},
		{"nothing", "", "", ""},
	} {
		if got := findCgroup(c.mounts, c.self); got != c.want {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
	if cg := planCgroup("a/../b"); cg != "" {
		t.Errorf("a run may choose its cgroup: %s", cg)
	}
}

// The agent is born in a cgroup that run.json names, and it goes with the run.
func TestBornInACgroup(t *testing.T) {
	needCgroup(t)
	b := newBench(t)
	for _, without := range []bool{false, true} {
		turn := b.turn("")
		e, out := b.script(turn, "grep ^0:: /proc/self/cgroup", func(r *Runner) { r.NoCgroup = without })
		rec, err := readRecord(turn.RunDir)
		must(t, err)
		if in := strings.HasSuffix(out, "/"+cgroupName(turn.RunID)+"\n"); e.end.Exit != 0 || in == without || (rec.Cgroup == "") != without {
			t.Errorf("without %v: %+v, %q, run.json says %q", without, e, out, rec.Cgroup)
		}
		if _, err := os.Stat(string(planCgroup(turn.RunID))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without %v: the cgroup: %v", without, err)
		}
	}
}

// Where no cgroup can be made, an agent runs without, and is held all the same.
func TestCgroupCannotBeMade(t *testing.T) {
	b := newBench(t)
	plain := filepath.Join(b.dir, "no-cgroup") // a directory, but no cgroup
	file := filepath.Join(b.dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []cgroup{"/proc/no/such", cgroup(plain), cgroup(b.dir), cgroup(file), ""} {
		turn := b.turn("")
		lock, err := takeLock(filepath.Join(turn.RunDir, lockName))
		must(t, err)
		s := Spec{Turn: turn, Argv: []string{"/bin/bash", "-c", "setsid sleep 1000 & exit 5"}, Env: b.agent.AgentEnv(turn), cgroup: dir}
		h, err := b.agent.startGate(s, lock)
		must(t, err)
		must(t, h.send(command{Start: s.start()}))
		var end *endReport
		for rep := range h.reports {
			end = rep.End
		}
		h.release()
		h.wait()
		if end == nil || end.Exit != 5 {
			t.Errorf("%s: %+v", dir, end)
		}
		wantGone(t, turn)
	}
	if _, err := os.Stat(plain); err == nil {
		t.Error("what is no cgroup stays")
	}
	for _, old := range []string{b.dir, file} {
		if _, err := os.Stat(old); err != nil {
			t.Errorf("what was there before: %v", err)
		}
	}
}

// After a crash the cgroup gives what nothing else would find, and is removed.
func TestRecoverByCgroup(t *testing.T) {
	needCgroup(t)
	b := newBench(t)
	turn, stranger := b.fakeRun(func(r *runRecord) {
		r.GatePID, r.GateStart, r.Cgroup = 1<<30, "1", planCgroup(r.RunID)
	})
	cg := planCgroup(turn.RunID)
	dir, err := cg.make()
	must(t, err)
	t.Cleanup(func() { _ = cg.remove() }) // for a failure half way
	must(t, os.Mkdir(filepath.Join(string(cg), "below"), 0o755))
	cmd := exec.Command("/bin/sleep", "1000") // has no mark, no group of the run and no lock
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	must(t, cmd.Start())
	must(t, dir.Close())
	died := make(chan struct{})
	go func() {
		_ = cmd.Wait() // killed
		close(died)
	}()
	must(t, recoverSoon(t, turn))
	<-died
	wantAlive(t, stranger)
	if _, err := os.Stat(string(cg)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cgroup: %v", err)
	}
}

// A cgroup of another name is not ours, whatever run.json says.
func TestRecoverSparesCgroups(t *testing.T) {
	needCgroup(t)
	b := newBench(t)
	other := planCgroup(b.turn("").RunID)
	dir, err := other.make()
	must(t, err)
	t.Cleanup(func() { _ = other.remove() })
	must(t, dir.Close())
	turn, _ := b.fakeRun(func(r *runRecord) { r.GatePID, r.GateStart, r.Cgroup = 1<<30, "1", other })
	must(t, recoverSoon(t, turn))
	if _, err := os.Stat(string(other)); err != nil {
		t.Errorf("the other cgroup: %v", err)
	}
	must(t, other.remove())
	if !cgroup(ownCgroup()).holdsSelf() || other.holdsSelf() {
		t.Error("which cgroup is our own?")
	}
}

// Neither way of holding a run costs the master a descriptor.
func TestMasterKeepsNoDescriptor(t *testing.T) {
	b := newBench(t)
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(names)
	}
	run := func(without bool, script string) {
		b.script(b.turn(""), script, func(r *Runner) { r.NoCgroup = without })
	}
	run(false, "exit 0") // what is opened once stays open
	before := count()
	for i := range 8 {
		run(i%2 == 0, "exit 0")
		run(i%2 == 0, "kill -KILL $PPID; sleep 1000")
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors, then %d", before, after)
	}
}

// Cancel ends the whole tree within the grace and a second, whatever it does.
func TestCancelIsQuick(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, script := range map[string]string{
		"ignores SIGTERM": "trap '' TERM; setsid sleep 1000 & sleep 1000 & wait",
		"stops the gate":  "kill -STOP $PPID; setsid sleep 1000 & sleep 1000 & wait",
	} {
		for _, without := range []bool{false, true} {
			turn := b.turn("")
			turn.Limits.Grace = 500 * time.Millisecond
			a := *b.agent
			a.NoCgroup, a.Program = without, []string{"/bin/bash", "-c", script}
			took := b.cancelTime(&a, turn)
			if took > turn.Limits.Grace+time.Second {
				t.Errorf("%s, without a cgroup %v: %v", name, without, took)
			}
			wantGone(t, turn)
		}
	}
}

// cancelTime returns the time from a cancel in the middle of a run to its end.
func (b *bench) cancelTime(a *testAgent, turn task.Turn) time.Duration {
	b.t.Helper()
	ctx, cancel := context.WithCancelCause(b.t.Context())
	ended := make(chan task.Outcome, 1)
	go func() { ended <- a.Run(ctx, turn, func(task.Event) {}) }()
	eventually(b.t, "the gate, the agent and its two children", func() bool { return len(lives(b.t, turn.RunID)) == 4 })
	began := time.Now()
	cancel(task.ErrCanceled)
	out := <-ended
	took := time.Since(began)
	if out.Class != state.ClassCanceled {
		b.t.Errorf("outcome: %+v", out)
	}
	return took
}
