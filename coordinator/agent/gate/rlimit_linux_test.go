package gate

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/agent/gate/hold"
)

// The agent and its tools have the limits, and cannot raise that of memory again; its gate has
// not the one of memory, and the priority in that thread alone which starts the agent. That may
// be the first one, for which ps stands without -L.
func TestResources(t *testing.T) {
	b := newBench(t)
	b.Resources = hold.Resources{CPU: 90500 * time.Millisecond, Files: 100, FileSize: 1 << 20, Memory: 4 << 30, Nice: 3}
	const ask = `for i in $(seq 200); do [ $(ulimit -H -v) = 4194304 ] && break; sleep 0.01; done; bash -c 'for o in t n f v; do ulimit -S -$o; ulimit -H -$o; done; nice'; cat /proc/$PPID/limits; ps -L -o ni= -p $PPID`
	r, out := b.run(b.Turn(""), ask)
	now, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	must(t, err)
	own := 20 - now // the system call counts from 40 down to 1
	want := fmt.Sprintf("91\n92\n100\n100\n1024\n1024\n4194304\n4194304\n%d\n", min(own+3, 19))
	if r.End.Exit != 0 || !strings.HasPrefix(out, want) {
		t.Errorf("%+v:\n%s\nwant\n%s", r, out, want)
	}
	gate := strings.Join(strings.Fields(out), " ")
	_, threads, found := strings.Cut(gate, "Max address space unlimited")
	if !found {
		t.Errorf("the gate itself has too little memory:\n%s", out)
	}
	_, threads, _ = strings.Cut(threads, "realtime timeout unlimited unlimited us ")
	all := strings.Fields(threads)
	others := slices.DeleteFunc(slices.Clone(all), func(nice string) bool { return nice == strconv.Itoa(own) })
	if len(all) < 2 || len(others) > 1 {
		t.Errorf("the gate is nice, in its threads %q:\n%s", all, out)
	}
}

// Without limits the agent has what the master has.
func TestNoResources(t *testing.T) {
	b := newBench(t)
	e, out := b.run(b.Turn(""), "cat /proc/self/limits")
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
	t.Parallel()
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	for _, c := range []struct {
		name   string
		limits hold.Resources
		script string
		signal syscall.Signal
		exit   int
	}{
		{"CPU", hold.Resources{CPU: time.Second}, "while :; do :; done", syscall.SIGXCPU, -1},
		{"CPU, ignored", hold.Resources{CPU: time.Second}, "trap '' XCPU; while :; do :; done", syscall.SIGKILL, -1},
		{"FileSize", hold.Resources{FileSize: 4096}, "exec head -c 5000 /dev/zero >file", syscall.SIGXFSZ, -1},
		{"FileSize, its output", hold.Resources{FileSize: 4096}, "exec head -c 5000 /dev/zero", syscall.SIGXFSZ, -1},
		{"Files", hold.Resources{Files: 20}, "exec 25</dev/null || exit 7", 0, 7},
		{"Memory", hold.Resources{Memory: 64 << 20}, "x=$(head -c 100000000 /dev/zero | tr '\\0' x) || exit 7", 0, 2},
		{"none too small", hold.Resources{Memory: 8 << 30, Files: 64, FileSize: 1 << 20, CPU: time.Hour}, "echo yes >file", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.Resources = c.limits
			turn := b.Turn("")
			r, out := b.run(turn, c.script)
			if r.Lost || r.End.Signal != int(c.signal) || r.End.Exit != c.exit {
				t.Errorf("ended: %+v, %q", r, out)
			}
			wantGone(t, turn)
		})
	}
}

// A limit with which nothing can be started is no shortage that passes. One that cannot be set
// is said, and nothing runs without it; root can set all.
func TestLimitsThatStopTheStart(t *testing.T) {
	for said, limits := range map[string]hold.Resources{"too many open files": {Files: 6}, "Nice (-10)": {Nice: -10}} {
		if os.Getuid() == 0 && limits.Nice < 0 {
			continue
		}
		b := newBench(t)
		b.Resources = limits
		r, out := b.run(b.Turn(""), "echo started")
		if !strings.Contains(r.End.Err, said) || r.End.Shortage != 0 || r.End.Missing || out != "" {
			t.Errorf("ended: %+v, %q", r, out)
		}
	}
}

// When memory runs out the agent is to die, and not its gate or its master.
func TestAgentIsTheVictim(t *testing.T) {
	text, err := os.ReadFile("/proc/self/oom_score_adj")
	must(t, err)
	own, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	b := newBench(t)
	e, out := b.run(b.Turn(""), "sleep 0.1; cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj")
	if want := fmt.Sprintf("%d\n%d\n", min(own+500, 1000), own); out != want {
		t.Errorf("%+v: %q, not %q", e, out, want)
	}
}
