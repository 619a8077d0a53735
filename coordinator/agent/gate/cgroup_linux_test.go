package gate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/agent/gate/hold"
)

// The agent is born in a cgroup that its record names, and it goes with the run.
func TestBornInACgroup(t *testing.T) {
	needCgroup(t)
	b := newBench(t)
	for _, b.NoCgroup = range []bool{false, true} {
		turn := b.Turn("")
		r, out := b.run(turn, "grep ^0:: /proc/self/cgroup")
		rec, err := readRecord(turn.RunDir)
		must(t, err)
		if in := strings.HasSuffix(out, "/"+hold.CgroupName(turn.RunID)+"\n"); r.End.Exit != 0 || in == b.NoCgroup || (rec.Cgroup == "") != b.NoCgroup {
			t.Errorf("without %v: %+v, %q, the record says %q", b.NoCgroup, r, out, rec.Cgroup)
		}
		if _, err := os.Stat(string(hold.PlanCgroup(turn.RunID))); !errors.Is(err, os.ErrNotExist) {
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
	for _, dir := range []hold.Cgroup{"/proc/no/such", hold.Cgroup(plain), hold.Cgroup(b.Dir), hold.Cgroup(file), ""} {
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
		r.GatePID, r.GateStart, r.Cgroup = 1<<30, "1", hold.PlanCgroup(r.RunID)
	})
	cg := hold.PlanCgroup(turn.RunID)
	dir, err := cg.Make()
	must(t, err)
	t.Cleanup(func() { _ = cg.Remove() }) // for a failure half way
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

// What is no longer in the run's cgroup when that is killed is found below the gate, which ends the run by itself.
func TestLeftItsCgroup(t *testing.T) {
	needCgroup(t)
	b := newBench(t)
	turn := b.Turn("")
	turn.Limits.Idle, turn.Limits.Startup, turn.Limits.Grace = 5*time.Second, 5*time.Second, time.Millisecond
	r, _ := b.run(turn, fmt.Sprintf("echo $$ >%s/cgroup.procs || exit 9; for i in 1 2 3; do env -i setsid sleep 1000 & done", hold.OwnCgroup()))
	if r.Cause != nil || r.Lost || r.End.Exit != 0 {
		t.Errorf("ended: %+v", r)
	}
	wantGone(t, turn)
}

// A cgroup of another name is not ours, whatever the record says.
func TestRecoverSparesCgroups(t *testing.T) {
	needCgroup(t)
	b := newBench(t)
	other := hold.PlanCgroup(b.Turn("").RunID)
	dir, err := other.Make()
	must(t, err)
	t.Cleanup(func() { _ = other.Remove() })
	must(t, dir.Close())
	turn, _ := b.fakeRun(func(r *runRecord) { r.GatePID, r.GateStart, r.Cgroup = 1<<30, "1", other })
	must(t, recoverSoon(t, turn))
	if _, err := os.Stat(string(other)); err != nil {
		t.Errorf("the other cgroup: %v", err)
	}
	must(t, other.Remove())
	if !hold.Cgroup(hold.OwnCgroup()).HoldsSelf() || other.HoldsSelf() {
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
	before := count()           // or more: what a test before this one had open may close now
	for i := range 8 {
		b.NoCgroup = i%2 == 0
		b.run(b.Turn(""), "exit 0")
		b.run(b.Turn(""), "kill -KILL $PPID; sleep 1000")
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors, then %d", before, after)
	}
}
