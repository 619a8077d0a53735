package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

func TestContextEndedBefore(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(task.ErrCanceled)
	if out, _ := b.run(ctx, "x"); out.Class != state.ClassCanceled || len(b.log()) != 0 {
		t.Errorf("outcome: %+v, log %v", out, b.log())
	}
}

func TestHangAfterIsSuccess(t *testing.T) {
	b := newBench(t)
	b.agent.HangGrace = 50 * time.Millisecond
	out, turn := b.run(t.Context(), "do:hang-after")
	if out.Class != "" || out.Result != "done" || out.Note == "" {
		t.Errorf("outcome: %+v", out)
	}
	wantGone(t, turn)
}

// An agent that begins another turn after the first one was over does not hang.
func TestAnotherTurn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.agent.HangGrace = time.Second
	const turn = `echo '{"type":"turn.started"}'; sleep 1.5; echo '{"type":"item.completed","item":{"type":"agent_message","text":"x"}}'; echo '{"type":"turn.completed"}'; `
	if e := b.shell(t.Context(), b.turn(""), turn+"sleep 0.1; "+turn); e.cause != nil || e.end.Exit != 0 {
		t.Errorf("ended: %+v", e)
	}
}

func TestStartupLimit(t *testing.T) {
	b := newBench(t)
	turn := b.turn("")
	turn.Limits = task.RunLimits{Startup: 100 * time.Millisecond, Idle: time.Hour}
	e := b.shell(t.Context(), turn, "sleep 100")
	if !errors.Is(e.cause, errStartup) || classify(e, testEars(), time.Now()).Class != state.ClassStalled {
		t.Errorf("ended: %+v", e)
	}
	wantGone(t, turn)
}

// A sign of life on stderr alone keeps a run going.
func TestStderrIsASignOfLife(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	turn := b.turn("")
	turn.Limits = task.RunLimits{Startup: 2 * time.Second, Idle: 500 * time.Millisecond}
	e := b.shell(t.Context(), turn, "for i in $(seq 12); do echo tick >&2; sleep 0.1; done; echo Error: over >&2; exit 4")
	if e.cause != nil || e.end.Exit != 4 || !strings.HasSuffix(string(e.stderr), "Error: over\n") {
		t.Errorf("ended: %+v", e)
	}
}

func TestAgentCannotStart(t *testing.T) {
	b := newBench(t)
	run := func(argv0 string, change func(*task.Turn)) Verdict {
		turn := b.turn("")
		change(&turn)
		s := Spec{Turn: turn, Argv: []string{argv0}, Env: nil}
		return classify(b.agent.supervise(t.Context(), s, newStream(testEars(), quiet)), testEars(), time.Now())
	}
	same := func(*task.Turn) {}
	plain := filepath.Join(b.dir, "plain")
	must(t, os.WriteFile(plain, []byte("x"), 0o600))
	for _, c := range []struct {
		name  string
		got   Verdict
		class state.Class
		msg   string
	}{
		{"missing", run("/no/such/program", same), state.ClassAgentMissing, "no such file"},
		{"not executable", run(plain, same), state.ClassAgentMissing, "permission denied"},
		{"no workspace", run("/bin/true", func(t *task.Turn) { t.Workspace = "/no/such/dir" }), state.ClassExit, "/no/such/dir"},
		{"workspace is a file", run("/bin/true", func(t *task.Turn) { t.Workspace = plain }), state.ClassExit, "not a directory"},
		{"no prompt", run("/bin/true", func(t *task.Turn) { t.Prompt = "/no/prompt.md" }), state.ClassExit, "/no/prompt.md"},
		{"no run directory", run("/bin/true", func(t *task.Turn) { t.RunDir = "/no/run" }), state.ClassInterrupted, "/no/run"},
	} {
		if c.got.Class != c.class || !strings.Contains(c.got.Msg, c.msg) {
			t.Errorf("%s: %+v", c.name, c.got)
		}
	}
}

func TestRunDirServesTwice(t *testing.T) {
	b := newBench(t)
	turn := b.turn("one")
	for range 2 {
		if out := b.agent.Run(t.Context(), turn, quiet); out.Class != "" || out.Result != "done" {
			t.Errorf("outcome: %+v", out)
		}
	}
}

// failFS cannot write run.json.
type failFS struct{ durable.FS }

func (failFS) Rename(string, string) error { return errors.New("no space left on device") }

func TestNoAgentWithoutRecord(t *testing.T) {
	b := newBench(t)
	b.agent.FS = failFS{durable.OS}
	out, turn := b.run(t.Context(), "hello")
	if out.Class != state.ClassInterrupted || !strings.Contains(out.Error, "no space left") || out.ExitCode != -1 {
		t.Errorf("outcome: %+v", out)
	}
	if len(b.log()) != 0 {
		t.Errorf("an agent ran: %v", b.log())
	}
	wantGone(t, turn)
}

func TestGateCannotStart(t *testing.T) {
	b := newBench(t)
	b.agent.Self = []string{"/no/such/gate"}
	if out, _ := b.run(t.Context(), "hello"); out.Class != state.ClassInterrupted || !strings.Contains(out.Error, "gate") {
		t.Errorf("outcome: %+v", out)
	}
}

// One run directory cannot hold two runs at once.
func TestLockedRun(t *testing.T) {
	b := newBench(t)
	turn := b.turn("hello")
	lock, err := takeLock(filepath.Join(turn.RunDir, lockName))
	must(t, err)
	out := b.agent.Run(t.Context(), turn, func(task.Event) {})
	must(t, lock.Close())
	if out.Class != state.ClassInterrupted || len(b.log()) != 0 {
		t.Errorf("outcome: %+v, log %v", out, b.log())
	}
}
