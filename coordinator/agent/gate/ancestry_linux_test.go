package gate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"stint/coordinator/agent/gate/hold"
)

// TestRunOf: whatever a run starts is found by its gate: children, orphans in sessions
// of their own, programs without any environment. What a run did not start is not.
func TestRunOf(t *testing.T) {
	b := newBench(t)
	turn := b.Turn("")
	const text = `echo $$ >>pids
sh -c 'echo $$ >>pids; sleep 1000' &
(setsid env -i /bin/sh -c 'echo $$ >>pids; sleep 1000' >/dev/null 2>&1 &)
sh -c 'env -i setsid /bin/sh -c "echo \$\$ >>pids; sleep 1000" &'
wait`
	ended := make(chan Result, 1)
	go func() { ended <- b.Supervise(t.Context(), script(turn, text), &ears{}) }()
	var list []string
	eventually(t, "four processes", func() bool {
		data, _ := os.ReadFile(filepath.Join(turn.Workspace, "pids"))
		list = strings.Fields(string(data))
		return len(list) == 4
	})
	wants := map[int]string{os.Getpid(): "", os.Getppid(): "", 1: ""}
	for _, text := range list {
		wants[atoi(text)] = turn.RunID
	}
	isOurs := func(run string) bool { return run == turn.RunID }
	for _, master := range []string{"its own", "the next"} {
		for pid, want := range wants {
			if run, err := RunOf(pid, isOurs)(); run != want || err != nil {
				t.Errorf("process %d is part of %q, %v for %s master", pid, run, err, master)
			}
		}
		liveGates.Clear() // the next master has not started this gate
	}
	for pid := range wants {
		if run, err := RunOf(pid, func(string) bool { return false })(); run != "" || err != nil {
			t.Errorf("process %d is part of %q, %v for the master of another state directory", pid, run, err)
		}
	}
	if run, err := RunOf(1<<30, isOurs)(); run != "" || err == nil {
		t.Errorf("a process that has ended is part of %q, %v", run, err)
	}
	first, err := hold.ReadProc(atoi(list[0]))
	must(t, err)
	late := RunOf(first.PID, isOurs)
	must(t, hold.SignalProc(first, syscall.SIGKILL))
	<-ended
	wantGone(t, turn)
	liveGates.Range(func(pid, _ any) bool {
		t.Errorf("a gate that has ended is still known: %v", pid)
		return true
	})
	if run, err := late(); run != "" || !errors.Is(err, hold.ErrGone) {
		t.Errorf("a process that has ended since is part of %q, %v", run, err)
	}
}

// TestRunOfWhatIsSeen: what is below a process of somebody else, which /proc may hide, is no
// run's. Where a process has ended or could not be looked at, nobody can tell, also while no
// run lives, and the reason is said. Process 40 is a gate.
func TestRunOfWhatIsSeen(t *testing.T) {
	const first, always = 1, 1000
	below := map[int]int{50: 45, 45: 40, 40: 30, 30: 1}
	for _, c := range []struct {
		name    string
		parents map[int]int // by pid; others cannot be seen
		hidden  error       // what is said of those
		fails   [2]int      // the looks from and to which all fail for want of files
		change  func(look int, parents map[int]int)
		marks   map[int]string // in environments
		want    string
		err     error
	}{
		{name: "all are seen", parents: below, want: "r-1"},
		{name: "a shell of the user's", parents: map[int]int{50: 45, 45: 30}, hidden: hold.ErrGone},
		{name: "the same, and the kernel says no", parents: map[int]int{50: 45, 45: 30}, hidden: syscall.EACCES},
		{name: "it has ended", parents: map[int]int{45: 40}, hidden: hold.ErrGone, err: hold.ErrGone},
		{name: "an ancestor ends", parents: map[int]int{50: 45, 51: 40, 40: 30}, hidden: hold.ErrGone, change: func(_ int, parents map[int]int) { parents[50] = 51 }, want: "r-1"},
		{name: "its gate ends", parents: below, change: func(int, map[int]int) { liveGates.Delete(40) }, want: "r-1"},
		{name: "the gate of an earlier master", parents: map[int]int{50: 45, 45: 30, 30: 1}, marks: map[int]string{30: "r-0"}, want: "r-0"},
		{name: "the same, and the user's shell is hidden", parents: map[int]int{50: 45, 45: 30}, hidden: syscall.EACCES, marks: map[int]string{45: "r-0"}, want: "r-0"},
		{name: "a mark that the agent has made", parents: map[int]int{50: 45, 45: 30, 30: 1}, marks: map[int]string{30: "r-0", 45: "r-00"}, want: "r-0"},
		{name: "the run of another state directory", parents: map[int]int{50: 45, 45: 30, 30: 1}, marks: map[int]string{30: "x"}},
		{name: "no files for the first look", parents: below, fails: [2]int{first, first}, err: syscall.EMFILE},
		{name: "no files for the second", parents: below, fails: [2]int{2, 2}, err: syscall.EMFILE},
		{name: "no files for an ancestor", parents: below, fails: [2]int{3, always}, err: syscall.EMFILE},
	} {
		liveGates.Store(40, "r-1")
		looks := 0
		isOurs := func(run string) bool { return strings.HasPrefix(run, "r-") }
		mark := func(pid int) (string, error) { return c.marks[pid], nil }
		find := runOf(50, isOurs, procReader{mark: mark, read: func(pid int) (hold.Proc, error) {
			if looks++; looks >= max(1, c.fails[0]) && looks <= c.fails[1] {
				return hold.Proc{}, syscall.EMFILE
			}
			if looks > first && c.change != nil {
				c.change(looks, c.parents)
			}
			if ppid := c.parents[pid]; ppid != 0 {
				return hold.Proc{PID: pid, PPID: ppid, Start: "100"}, nil
			}
			return hold.Proc{}, c.hidden
		}})
		if run, err := find(); run != c.want || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: %q, %v", c.name, run, err)
		}
		liveGates.Delete(40)
	}
}

// TestRunOfAnother: also while no run lives, who has ended since is not taken for the user: it
// may have been part of the last one.
func TestRunOfAnother(t *testing.T) {
	for i, now := range []hold.Proc{
		{PID: 50, PPID: 30, Start: "100"},
		{PID: 50, PPID: 30, Start: "101"},
		{PID: 50, PPID: 1, Start: "100", Dead: true},
	} {
		looks := 0
		find := runOf(50, nil, procReader{mark: func(int) (string, error) { return "", nil }, read: func(pid int) (hold.Proc, error) {
			if looks++; looks == 1 {
				return hold.Proc{PID: 50, Start: "100"}, nil
			}
			if pid != 50 {
				return hold.Proc{}, syscall.EACCES
			}
			return now, nil
		}})
		if run, err := find(); run != "" || (err == nil) != (i == 0) {
			t.Errorf("%d: %q, %v", i, run, err)
		}
	}
}
