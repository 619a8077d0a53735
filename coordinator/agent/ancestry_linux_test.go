package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestRunOf: whatever a run starts is found by its gate: children, orphans in sessions
// of their own, programs without any environment. What a run did not start is not.
func TestRunOf(t *testing.T) {
	b := newBench(t)
	turn := b.turn("")
	pids := filepath.Join(turn.Workspace, "pids")
	script := `echo $$ >>pids
sh -c 'echo $$ >>pids; sleep 1000' &
(setsid env -i /bin/sh -c 'echo $$ >>pids; sleep 1000' >/dev/null 2>&1 &)
sh -c 'env -i setsid /bin/sh -c "echo \$\$ >>pids; sleep 1000" &'
wait`
	ended := make(chan runResult, 1)
	ctx, stop := t.Context(), make(chan struct{})
	go func() { ended <- b.shell(ctx, turn, script); close(stop) }()
	var list []string
	eventually(t, "four processes", func() bool {
		data, _ := os.ReadFile(pids)
		list = strings.Fields(string(data))
		return len(list) == 4
	})
	for _, text := range list {
		pid, err := strconv.Atoi(text)
		must(t, err)
		if run, err := RunOf(pid)(); run != turn.RunID || err != nil {
			t.Errorf("process %d is part of %q, %v", pid, run, err)
		}
	}
	for _, pid := range []int{os.Getpid(), os.Getppid(), 1} {
		if run, err := RunOf(pid)(); run != "" || err != nil {
			t.Errorf("process %d is part of %q, %v", pid, run, err)
		}
	}
	if run, err := RunOf(1 << 30)(); run != "" || err == nil {
		t.Errorf("a process that has ended is part of %q, %v", run, err)
	}
	pid, err := strconv.Atoi(list[0])
	must(t, err)
	late := RunOf(pid)
	must(t, signalProc(proc{pid: pid, start: startOf(t, pid)}, 9))
	<-stop
	wantGone(t, turn)
	if len(gateRuns()) > 0 {
		t.Error("a gate that has ended is still known")
	}
	if run, err := late(); run != "" || !errors.Is(err, errGone) {
		t.Errorf("a process that has ended since is part of %q, %v", run, err)
	}
}

// TestRunOfHidden: where /proc does not show the processes of others, what is below
// one of them is no run's. One that ends meanwhile leaves its child to another.
func TestRunOfHidden(t *testing.T) {
	noteGate(40, "r-1")
	defer forgetGate(40)
	for _, tc := range []struct {
		name    string
		parents map[int]int // by pid; those of others cannot be seen
		hidden  error
		want    string
		known   bool
	}{
		{"all are seen", map[int]int{50: 45, 45: 40}, errGone, "r-1", true},
		{"the pid is another's by now", map[int]int{50: 30}, errGone, "", false},
		{"a shell of the user's", map[int]int{50: 45, 45: 30}, errGone, "", true},
		{"likewise, and the kernel says no", map[int]int{50: 45, 45: 30}, syscall.EACCES, "", true},
		{"the caller has ended", map[int]int{45: 40}, errGone, "", false},
		{"an ancestor ends", map[int]int{50: 45, 51: 40}, errGone, "r-1", true},
	} {
		read := func(pid int) (proc, error) {
			if tc.name == "an ancestor ends" && pid == 45 {
				tc.parents[50] = 51
			}
			if ppid := tc.parents[pid]; ppid != 0 {
				return proc{pid: pid, ppid: ppid, start: "100"}, nil
			}
			return proc{}, tc.hidden
		}
		start := "100"
		if tc.name == "the pid is another's by now" {
			start = "99"
		}
		if run, err := runOf(50, start, read); run != tc.want || (err == nil) != tc.known {
			t.Errorf("%s: %q, %v", tc.name, run, err)
		}
	}
}

// TestRunOfNobodysProcess: also while no run lives, who has ended is not taken for the user:
// it may have been part of the last one.
func TestRunOfNobodysProcess(t *testing.T) {
	for _, tc := range []struct {
		name  string
		now   proc
		err   error
		known bool
	}{
		{"it is there", proc{pid: 50, ppid: 30, start: "100"}, nil, true},
		{"it has ended", proc{}, errGone, false},
		{"the pid is another's by now", proc{pid: 50, ppid: 30, start: "101"}, nil, false},
		{"it has ended and was not reaped", proc{pid: 50, ppid: 1, start: "100", dead: true}, nil, false},
	} {
		read := func(int) (proc, error) { return tc.now, tc.err }
		if run, err := runOf(50, "100", read); run != "" || (err == nil) != tc.known {
			t.Errorf("%s: %q, %v", tc.name, run, err)
		}
	}
}

// TestRunOfSaysWhy: where a caller could not be noted, nobody can tell later who it was, and
// the reason is said.
func TestRunOfSaysWhy(t *testing.T) {
	looks := 0
	find := noted(os.Getpid(), func(pid int) (proc, error) {
		if looks++; looks == 1 {
			return proc{}, syscall.EMFILE
		}
		return readProc(pid)
	})
	for range 2 {
		if run, err := find(); run != "" || !errors.Is(err, syscall.EMFILE) {
			t.Errorf("%q, %v", run, err)
		}
	}
}

// TestRunOfShortOfFiles: an agent is not taken for the user because an ancestor could not be
// looked at for want of a descriptor.
func TestRunOfShortOfFiles(t *testing.T) {
	noteGate(40, "r-1")
	defer forgetGate(40)
	parents := map[int]int{50: 45, 45: 40, 40: 30, 30: 1}
	for fails := 2; fails <= 3; fails++ {
		looks := 0
		read := func(pid int) (proc, error) {
			if looks++; looks >= 2 && looks <= fails {
				return proc{}, syscall.EMFILE
			}
			return proc{pid: pid, ppid: parents[pid], start: "100"}, nil
		}
		if run, err := runOf(50, "100", read); run != "" || !errors.Is(err, syscall.EMFILE) {
			t.Errorf("%q, %v", run, err)
		}
	}
}

// TestRunOfEndsMeanwhile: a run whose gate ends while its caller is looked for is not
// taken for the user.
func TestRunOfEndsMeanwhile(t *testing.T) {
	noteGate(40, "r-1")
	defer forgetGate(40)
	parents := map[int]int{50: 40, 40: 30, 30: 1}
	read := func(pid int) (proc, error) {
		forgetGate(40)
		return proc{pid: pid, ppid: parents[pid], start: "100"}, nil
	}
	if run, err := runOf(50, "100", read); run != "r-1" || err != nil {
		t.Errorf("%q, %v", run, err)
	}
}

func startOf(t *testing.T, pid int) string {
	t.Helper()
	p, err := readProc(pid)
	must(t, err)
	return p.start
}
