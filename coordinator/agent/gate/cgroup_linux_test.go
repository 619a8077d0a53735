package gate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

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
	for _, b.NoCgroup = range []bool{false, true} {
		turn := b.Turn("")
		r, out := b.run(turn, "grep ^0:: /proc/self/cgroup")
		rec, err := readRecord(turn.RunDir)
		must(t, err)
		if in := strings.HasSuffix(out, "/"+cgroupName(turn.RunID)+"\n"); r.End.Exit != 0 || in == b.NoCgroup || (rec.Cgroup == "") != b.NoCgroup {
			t.Errorf("without %v: %+v, %q, run.json says %q", b.NoCgroup, r, out, rec.Cgroup)
		}
		if _, err := os.Stat(string(planCgroup(turn.RunID))); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("without %v: the cgroup: %v", b.NoCgroup, err)
		}
	}
}

// Where no cgroup can be made, an agent runs without, and is held all the same.
func TestCgroupCannotBeMade(t *testing.T) {
	b := newBench(t)
	b.NoCgroup = true                          // it would choose one that can be made
	plain := filepath.Join(b.Dir, "no-cgroup") // a directory, but no cgroup
	file := filepath.Join(b.Dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []cgroup{"/proc/no/such", cgroup(plain), cgroup(b.Dir), cgroup(file), ""} {
		turn := b.Turn("")
		s := script(turn, "setsid sleep 1000 & exit 5")
		s.cgroup = dir
		if r := b.Supervise(t.Context(), s, &ears{}); r.End.Exit != 5 || r.Lost {
			t.Errorf("%s: %+v", dir, r)
		}
		wantGone(t, turn)
	}
	if _, err := os.Stat(plain); err == nil {
		t.Error("what is no cgroup stays")
	}
	for _, old := range []string{b.Dir, file} {
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
	// It has no mark, no group of the run and no lock.
	lost := b.sleeper(&syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())})
	must(t, dir.Close())
	must(t, recoverSoon(t, turn))
	wantAlive(t, stranger, true)
	wantAlive(t, lost, false)
	if _, err := os.Stat(string(cg)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cgroup: %v", err)
	}
}

// A cgroup of another name is not ours, whatever run.json says.
func TestRecoverSparesCgroups(t *testing.T) {
	needCgroup(t)
	b := newBench(t)
	other := planCgroup(b.Turn("").RunID)
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
	b.run(b.Turn(""), "exit 0") // what is opened once stays open
	before := count()
	for i := range 8 {
		b.NoCgroup = i%2 == 0
		b.run(b.Turn(""), "exit 0")
		b.run(b.Turn(""), "kill -KILL $PPID; sleep 1000")
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors, then %d", before, after)
	}
}
