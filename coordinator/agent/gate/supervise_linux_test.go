package gate

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
)

// The agent has its three streams and the lock, and nothing else of ours or of whoever started us.
func TestAgentInheritsNothing(t *testing.T) {
	b := newBench(t)
	leak, err := os.Open("/dev/null")
	must(t, err)
	_, err = unix.FcntlInt(leak.Fd(), unix.F_SETFD, 0)
	must(t, err)
	turn := b.Turn("")
	r, out := b.run(turn, "ls -l /proc/$$/fd; cat /proc/$$/stat; env")
	must(t, leak.Close())
	if r.End.Exit != 0 {
		t.Fatalf("ended: %+v", r)
	}
	for fd, want := range []string{"prompt.md", "stdout", "stderr", "lock"} {
		if !strings.Contains(out, " "+strconv.Itoa(fd)+" -> "+filepath.Join(turn.RunDir, want)) {
			t.Errorf("descriptor %d is not %s:\n%s", fd, want, out)
		}
	}
	if n := strings.Count(out, "l-wx"); n != 2 { // its own: what it sets on them counts for nobody else
		t.Errorf("%d descriptors are for writing alone:\n%s", n, out)
	}
	if n := strings.Count(out, " -> "); n != 4 {
		t.Errorf("%d descriptors:\n%s", n, out)
	}
	if !strings.Contains(out, hold.EnvRunID+"="+turn.RunID) || strings.Contains(out, "HOME=") {
		t.Errorf("environment:\n%s", out)
	}
}

// Why a run was stopped, with a cgroup and without. What is stopped from outside ends with its
// whole tree within the grace and a second, whatever it does.
func TestStopReasons(t *testing.T) {
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	cause := errors.New("something else")
	for _, c := range []struct {
		name, text string
		stop       error // the context ends with it when something was printed
		limits     task.RunLimits
		want       error
	}{
		{"canceled", orphan, task.ErrCanceled, task.RunLimits{}, task.ErrCanceled},
		{"canceled though over", overNotUp, task.ErrCanceled, task.RunLimits{}, task.ErrCanceled},
		{"timeout", orphan, task.ErrTimeout, task.RunLimits{}, task.ErrTimeout},
		{"other cause", orphan, cause, task.RunLimits{}, cause},
		{"idle", orphan, nil, task.RunLimits{Idle: 150 * time.Millisecond}, ErrIdle},
		{"says nothing", "sleep 1000", nil, task.RunLimits{Startup: 100 * time.Millisecond, Idle: time.Hour}, ErrStartup},
		{"ignores term", stubborn, task.ErrCanceled, task.RunLimits{Grace: 100 * time.Millisecond}, task.ErrCanceled},
		{"stops the gate", "setsid sleep 1000 & sleep 1000 & kill -STOP $PPID; echo; wait", task.ErrCanceled, task.RunLimits{Grace: 500 * time.Millisecond}, task.ErrCanceled},
		{"hangs after its turn", overNotUp, nil, task.RunLimits{}, ErrHung},
		// A person's word counts, also while the run is being stopped for another reason.
		{"canceled while stopped", "trap 'echo no' TERM; while :; do sleep 1000; done", task.ErrCanceled, task.RunLimits{Startup: time.Second, Grace: time.Second}, task.ErrCanceled},
		{"kills the gate", "setsid sleep 1000 & kill -KILL $PPID; sleep 1000", nil, task.RunLimits{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, without := range []bool{false, true} {
				b := newBench(t)
				b.HangGrace, b.NoCgroup = 50*time.Millisecond, without
				turn := b.Turn("")
				turn.Limits = c.limits
				ctx, cancel := context.WithCancelCause(t.Context())
				stopped := time.Now()
				r := b.Supervise(ctx, script(turn, c.text), &ears{heard: func([]byte) {
					if c.stop != nil && ctx.Err() == nil {
						stopped = time.Now()
						cancel(c.stop)
					}
				}})
				cancel(nil)
				if took := time.Since(stopped); c.stop != nil && took > cmp.Or(c.limits.Grace, defaultGrace)+time.Second {
					t.Errorf("it took %v", took)
				}
				if !errors.Is(r.Cause, c.want) || r.Lost != (c.want == nil) || !r.Started && !r.Lost || r.Held || r.Cut {
					t.Errorf("ended: %+v", r)
				}
				wantGone(t, turn)
			}
		})
	}
}

// A gate for which there is no thread, or there are no files, ends before it has started
// anything, and says what passes again.
func TestShortages(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	said := func(text string) string { return "echo '" + text + "' >&2; kill -ABRT $$" }
	for gate, want := range map[string]syscall.Errno{
		said("runtime/cgo: pthread_create failed: Resource temporarily unavailable"):    syscall.EAGAIN,
		said("runtime: failed to create new OS thread (have 2 already; errno=11)"):      syscall.EAGAIN,
		said("fatal error: runtime: cannot allocate memory"):                            syscall.ENOMEM,
		said("panic: runtime error: invalid memory address or nil pointer dereference"): 0,
		said("fatal error: runtime: netpollinit failed"):                                syscall.EMFILE,
		"ulimit -n 9; exec " + self + " gate":                                           syscall.EMFILE,
	} {
		b := newBench(t)
		b.Self = []string{"/bin/sh", "-c", gate}
		turn := b.Turn("")
		if r := b.Supervise(t.Context(), script(turn, starting), &ears{}); r.End.Shortage != want || r.Started || b.starts(turn) != 0 {
			t.Errorf("%s: %+v", gate, r)
		}
	}
}

// The system tells of what an agent prints, and nobody has to look. Where it cannot tell, the run says so, and
// the output is looked at all the same.
func TestOutputIsFollowed(t *testing.T) {
	before := outputs
	defer func() { outputs = before }()
	for _, c := range []struct {
		name string
		poll time.Duration
	}{
		{"told", time.Hour},
		{"not told", 0},
	} {
		b := newBench(t)
		if b.Poll = c.poll; c.poll == 0 {
			outputs = &follower{fd: -1, runs: map[int]chan struct{}{}}
		}
		turn, out := b.Turn(""), &ears{}
		out.heard = func(p []byte) { must(t, os.WriteFile(filepath.Join(turn.Workspace, string(p[:1])), nil, 0o600)) }
		wait := func(name string) string { return "until [ -e " + name + " ]; do sleep 0.01; done; " }
		r := b.Supervise(t.Context(), script(turn, "echo 1; "+wait("1")+"sleep 0.1; echo 2; "+wait("2")), out)
		if r.End.Exit != 0 || (r.Polled != nil) != (c.poll == 0) {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

// What is printed in one go is read to its end, though nobody tells of it again.
func TestBurstIsReadWhole(t *testing.T) {
	b := newBench(t)
	b.Poll = time.Hour
	turn, out := b.Turn(""), &ears{}
	turn.Limits.Idle = 20 * time.Second
	out.heard = func([]byte) {
		if out.bytes == 3*readBurst {
			must(t, os.WriteFile(filepath.Join(turn.Workspace, "all"), nil, 0o600))
		}
	}
	r := b.Supervise(t.Context(), script(turn, fmt.Sprintf("head -c %d /dev/zero; until [ -e all ]; do sleep 0.01; done", 3*readBurst)), out)
	if r.End.Exit != 0 || r.Cause != nil {
		t.Errorf("%d bytes were read: %+v", out.bytes, r)
	}
}

// A run is told when the kernel could not keep what it had to tell of others.
func TestOverflowIsToldToAll(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	f := &follower{runs: map[int]chan struct{}{1: make(chan struct{}, 1), 2: make(chan struct{}, 1)}}
	ended := make(chan struct{})
	go func() { defer close(ended); f.read(r) }()
	event := binary.NativeEndian.AppendUint32(nil, math.MaxUint32) // no watch
	event = binary.NativeEndian.AppendUint32(event, unix.IN_Q_OVERFLOW)
	_, err = w.Write(append(event, make([]byte, 8)...))
	must(t, err)
	for _, told := range f.runs {
		<-told
	}
	must(t, errors.Join(w.Close(), r.Close()))
	<-ended
}
