package agent

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The agent and its tools have the limits; its gate has not the one of memory, and the
// priority in that thread alone which starts the agent. That may be the first one, for
// which ps stands without -L.
func TestResources(t *testing.T) {
	b := newBench(t)
	turn := b.turn("")
	limits := Resources{CPU: 90500 * time.Millisecond, Files: 100, FileSize: 1 << 20, Memory: 4 << 30, Nice: 3}
	const ask = `for i in $(seq 200); do [ $(ulimit -H -v) = 4194304 ] && break; sleep 0.01; done; bash -c 'for o in t n f; do ulimit -S -$o; ulimit -H -$o; done; ulimit -S -v; nice'; cat /proc/$PPID/limits; ps -L -o ni= -p $PPID`
	e, out := b.script(turn, ask, func(r *Runner) { r.Resources = limits })
	now, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	must(t, err)
	own := 20 - now // the system call counts from 40 down to 1
	nice := min(own+3, 19)
	want := fmt.Sprintf("91\n92\n100\n100\n1024\n1024\n4194304\n%d\n", nice)
	if e.end.Exit != 0 || !strings.HasPrefix(out, want) {
		t.Errorf("%+v:\n%s\nwant\n%s", e, out, want)
	}
	gate := strings.Join(strings.Fields(out), " ")
	_, threads, found := strings.Cut(gate, "Max address space unlimited")
	if !found {
		t.Errorf("the gate itself has too little memory:\n%s", out)
	}
	_, threads, _ = strings.Cut(threads, "realtime timeout unlimited unlimited us ")
	if all := strings.Fields(threads); len(all) < 2 || count(all, own) < len(all)-1 {
		t.Errorf("the gate is nice, in its threads %q:\n%s", all, out)
	}
}

// count returns how many of these numbers are n.
func count(numbers []string, n int) (found int) {
	for _, s := range numbers {
		if s == strconv.Itoa(n) {
			found++
		}
	}
	return found
}

// The limit of memory cannot be raised again.
func TestMemoryIsHard(t *testing.T) {
	b := newBench(t)
	_, out := b.script(b.turn(""), "for i in $(seq 200); do h=$(ulimit -H -v); [ $h = 4194304 ] && break; sleep 0.01; done; echo $h", func(r *Runner) { r.Resources.Memory = 4 << 30 })
	if out != "4194304\n" {
		t.Errorf("the hard limit is %q", out)
	}
}

// Without limits the agent has what the master has.
func TestNoResources(t *testing.T) {
	b := newBench(t)
	e, out := b.script(b.turn(""), "cat /proc/self/limits", func(*Runner) {})
	own, err := os.ReadFile("/proc/self/limits")
	must(t, err)
	var files syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	for line := range strings.Lines(string(own)) {
		// Go raises the soft limit of descriptors for itself alone.
		if !strings.HasPrefix(line, "Max open files") && !strings.Contains(out, line) {
			t.Errorf("%+v: the agent has not %q:\n%s", e, line, out)
		}
	}
}

// Each limit ends what goes beyond it, and only that.
func TestResourcesAct(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, c := range []struct {
		name   string
		limits Resources
		script string
		signal syscall.Signal
		exit   int
	}{
		{"CPU", Resources{CPU: time.Second}, "while :; do :; done", syscall.SIGXCPU, -1},
		{"CPU, ignored", Resources{CPU: time.Second}, "trap '' XCPU; while :; do :; done", syscall.SIGKILL, -1},
		{"FileSize", Resources{FileSize: 4096}, "exec head -c 5000 /dev/zero >file", syscall.SIGXFSZ, -1},
		{"FileSize, its output", Resources{FileSize: 4096}, "exec head -c 5000 /dev/zero", syscall.SIGXFSZ, -1},
		{"Files", Resources{Files: 20}, "exec 25</dev/null || exit 7", 0, 7},
		{"Memory", Resources{Memory: 64 << 20}, "x=$(head -c 100000000 /dev/zero | tr '\\0' x) || exit 7", 0, 2},
		{"none too small", Resources{Memory: 8 << 30, Files: 64, FileSize: 1 << 20, CPU: time.Hour}, "echo yes >file", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			turn := b.turn("")
			e, out := b.script(turn, c.script, func(r *Runner) { r.Resources = c.limits })
			if e.lost || e.end.Signal != int(c.signal) || e.end.Exit != c.exit {
				t.Errorf("ended: %+v, %q", e, out)
			}
			wantGone(t, turn)
		})
	}
}

// A limit with which nothing can be started is no shortage that passes.
func TestTooFewFiles(t *testing.T) {
	b := newBench(t)
	e, _ := b.script(b.turn(""), "exit 0", func(r *Runner) { r.Resources.Files = 6 })
	if !strings.Contains(e.end.Err, "too many open files") || e.end.Shortage != 0 {
		t.Errorf("ended: %+v", e)
	}
}

// When memory runs out the agent is to die, and not its gate or its master.
func TestAgentIsTheVictim(t *testing.T) {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	must(t, err)
	own, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	b := newBench(t)
	e, out := b.script(b.turn(""), "sleep 0.1; cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj", func(*Runner) {})
	if want := fmt.Sprintf("%d\n%d\n", min(own+500, 1000), own); out != want {
		t.Errorf("%+v: %q, not %q", e, out, want)
	}
}

// A limit that cannot be set is said, and nothing runs without it.
func TestResourcesCannotBeSet(t *testing.T) {
	b := newBench(t)
	if os.Getuid() == 0 {
		t.Log("root can set all limits")
		return
	}
	turn := b.turn("")
	e, out := b.script(turn, "echo started", func(r *Runner) { r.Resources.Nice = -10 })
	if !strings.Contains(e.end.Err, "Nice (-10)") || e.end.Missing || out != "" {
		t.Errorf("ended: %+v, %q", e, out)
	}
}
