package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// The agent has its three streams and the lock, and nothing else of ours or of
// whoever started us.
func TestAgentInheritsNothing(t *testing.T) {
	b := newBench(t)
	leak, err := os.Open("/dev/null")
	must(t, err)
	clearCloexec(t, leak)
	turn := b.turn("")
	e := b.shell(t.Context(), turn, "ls -l /proc/$$/fd; cat /proc/$$/stat; env")
	must(t, leak.Close())
	if e.end.Exit != 0 {
		t.Fatalf("ended: %+v", e)
	}
	data, err := os.ReadFile(filepath.Join(turn.RunDir, stdoutName))
	must(t, err)
	out := string(data)
	for fd, want := range []string{"prompt.md", "stdout", "stderr", "lock"} {
		if !strings.Contains(out, " "+strconv.Itoa(fd)+" -> "+filepath.Join(turn.RunDir, want)) {
			t.Errorf("descriptor %d is not %s:\n%s", fd, want, out)
		}
	}
	if n := strings.Count(out, " -> "); n != 4 {
		t.Errorf("%d descriptors:\n%s", n, out)
	}
	if !strings.Contains(out, EnvRunID+"="+turn.RunID) || strings.Contains(out, "HOME=") {
		t.Errorf("environment:\n%s", out)
	}
}

// TestPromise8NothingIsLeftBehind: when a run ends, no descendant of it remains,
// however it hides.
func TestPromise8NothingIsLeftBehind(t *testing.T) {
	for name, script := range map[string]string{
		"background":         "sleep 1000 & exit 0",
		"nohup":              "nohup sleep 1000 >/dev/null 2>&1 & exit 0",
		"setsid":             "setsid sleep 1000 & exit 0",
		"double fork":        "(setsid bash -c 'sleep 1000 & sleep 1000' &) ; exit 0",
		"no environment":     "env -i setsid sleep 1000 & exit 0",
		"no descriptors":     "setsid bash -c 'exec 0<&- 1>&- 2>&- 3>&-; env -i sleep 1000' & exit 0",
		"ignores all":        "setsid bash -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' & exit 0",
		"stopped":            "setsid bash -c 'kill -STOP $$' & sleep 0.1; exit 0",
		"respawns":           "f() { setsid bash -c 'sleep 0.05; exec bash -c \"sleep 1000 & sleep 1000\"' & }; f; f; f; exit 0",
		"many":               "for i in $(seq 40); do setsid sleep 1000 & done; exit 0",
		"killed by itself":   "setsid sleep 1000 & kill -KILL $$",
		"holds the output":   "setsid bash -c 'while :; do echo x; sleep 0.01; done' & exit 0",
		"asks the gate":      "setsid sleep 1000 & kill -TERM $PPID; sleep 1000",
		"ignored by a shell": "trap '' TERM; setsid sleep 1000 & kill -TERM $PPID; sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			turn := b.turn("")
			turn.Limits.Grace = 200 * time.Millisecond
			before := orphans(t)
			e := b.shell(t.Context(), turn, "exec 8>&1; "+script)
			if e.err != nil || e.cause != nil || e.held {
				t.Errorf("ended: %+v", e)
			}
			wantGone(t, turn)
			for pid, cmd := range orphans(t) {
				if _, old := before[pid]; !old && strings.Contains(cmd, "sleep\x001000") && holdsDir(pid, turn.Workspace) {
					t.Errorf("process %d is left: %q", pid, cmd)
				}
			}
		})
	}
}

func TestStopReasons(t *testing.T) {
	cause := errors.New("something else")
	for _, c := range []struct {
		name, prompt string
		cause        error // the context ends with it once the session is known
		limits       task.RunLimits
		class        state.Class
	}{
		{"canceled", "do:orphan do:hang", task.ErrCanceled, task.RunLimits{}, state.ClassCanceled},
		{"canceled though over", "do:hang-after", task.ErrCanceled, task.RunLimits{}, state.ClassCanceled},
		{"timeout", "do:hang", task.ErrTimeout, task.RunLimits{}, state.ClassTimeout},
		{"deadline", "do:hang", context.DeadlineExceeded, task.RunLimits{}, state.ClassTimeout},
		{"shutdown", "do:hang", task.ErrShutdown, task.RunLimits{}, state.ClassInterrupted},
		{"other cause", "do:hang", cause, task.RunLimits{}, state.ClassInterrupted},
		{"idle", "do:orphan do:hang", nil, task.RunLimits{Idle: 150 * time.Millisecond}, state.ClassStalled},
		{"ignores term", "do:ignore-term do:orphan do:hang", task.ErrCanceled, task.RunLimits{Grace: 100 * time.Millisecond}, state.ClassCanceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			turn := b.turn(c.prompt)
			turn.Limits = c.limits
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			out := b.agent.Run(ctx, turn, func(e task.Event) {
				if c.cause != nil && (e.Text != "" || e.Session != "" && !strings.Contains(c.prompt, "after")) {
					cancel(c.cause)
				}
			})
			if out.Class != c.class || out.ExitCode != -1 || out.Error == "" || out.Session == "" {
				t.Errorf("outcome: %+v", out)
			}
			wantGone(t, turn)
		})
	}
}

// A person's word counts, also while the run is being stopped for another reason.
func TestCanceledWhileStopped(t *testing.T) {
	b := newBench(t)
	turn := b.turn("")
	turn.Limits = task.RunLimits{Idle: 100 * time.Millisecond, Grace: 300 * time.Millisecond}
	b.agent.Program = []string{"/bin/bash", "-c", `trap 'echo "{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"no\"}}"' TERM
		echo '{"type":"turn.started"}'; while :; do sleep 1000; done`}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	out := b.agent.Run(ctx, turn, func(e task.Event) {
		if e.Text != "" {
			cancel(task.ErrCanceled)
		}
	})
	if out.Class != state.ClassCanceled || out.Result != "no" {
		t.Errorf("outcome: %+v", out)
	}
}

// Who kills the gate does not get rid of the supervision.
func TestGateKilled(t *testing.T) {
	b := newBench(t)
	turn := b.turn("")
	e := b.shell(t.Context(), turn, "setsid sleep 1000 & kill -KILL $PPID; sleep 1000")
	if !e.lost {
		t.Errorf("ended: %+v", e)
	}
	wantGone(t, turn)
	if v := classify(e, testEars(), time.Now()); v.Class != state.ClassInterrupted {
		t.Errorf("verdict: %+v", v)
	}
}

// A gate for which there is no thread ends before it has started anything, and Go's runtime
// says why.
func TestNoThreadsLeft(t *testing.T) {
	for said, want := range map[string]syscall.Errno{
		"runtime/cgo: pthread_create failed: Resource temporarily unavailable":    syscall.EAGAIN,
		"runtime: failed to create new OS thread (have 2 already; errno=11)":      syscall.EAGAIN,
		"fatal error: runtime: cannot allocate memory":                            syscall.ENOMEM,
		"panic: runtime error: invalid memory address or nil pointer dereference": 0,
	} {
		b := newBench(t)
		b.agent.Self = []string{"/bin/sh", "-c", "echo '" + said + "' >&2; kill -ABRT $$"}
		if out, _ := b.run(t.Context(), "hello"); out.Class != state.ClassInterrupted || out.Shortage != want {
			t.Errorf("%s: %+v", said, out)
		}
	}
}

// A gate that gets no more files says that this passes.
func TestNoFilesLeft(t *testing.T) {
	b := newBench(t)
	self, err := os.Executable()
	must(t, err)
	b.agent.Self = []string{"/bin/sh", "-c", "ulimit -n 6; exec " + self + " gate"}
	out, _ := b.run(t.Context(), "hello")
	if out.Class != state.ClassInterrupted || out.Shortage != syscall.EMFILE || !strings.Contains(out.Error, "too many open files") || len(b.log()) != 0 {
		t.Errorf("outcome: %+v", out)
	}
}
