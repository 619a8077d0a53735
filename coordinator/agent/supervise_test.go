package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/coordinator"
	"stint/ledger/durable"
	"stint/state"
)

func TestDemoSuccess(t *testing.T) {
	b := newBench(t)
	turn := b.turn("Say hello\nand more")
	var rec recorder
	out := b.demo.Run(t.Context(), turn, rec.report)
	if out.Class != "" || out.Result != "turn 1; you said: Say hello" || out.ExitCode != 0 || out.Note != "" {
		t.Fatalf("outcome: %+v", out)
	}
	if !isUUID(out.Session) || out.Thread.InputTokens != 110 {
		t.Errorf("session %q, usage %+v", out.Session, out.Thread)
	}
	if got := strings.Join(out.Env, " "); got != "PATH STINT_ATTEMPT STINT_DEMO_HOME STINT_RUN_ID STINT_TASK_ID" {
		t.Errorf("names of the environment: %s", got)
	}
	var session, text string
	var bytes int64
	for _, e := range rec.events {
		session, text, bytes = or(e.Session, session), or(e.Text, text), max(e.Bytes, bytes)
	}
	fi, err := os.Stat(filepath.Join(turn.RunDir, stdoutName))
	must(t, err)
	if session != out.Session || text != out.Result || bytes != fi.Size() {
		t.Errorf("events say %q %q %d of %d", session, text, bytes, fi.Size())
	}
	if got, _ := b.demo.FindSession(turn.RunDir); got != out.Session {
		t.Errorf("FindSession gives %q", got)
	}
	wantGone(t, turn)

	next := b.turn("And now?")
	next.Session = out.Session
	out = b.demo.Run(t.Context(), next, rec.report)
	if out.Result != "turn 2; earlier: Say hello; you said: And now?" || out.Session != session {
		t.Errorf("second turn: %+v", out)
	}
}

func TestDemoOutcomes(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		prompt string
		class  state.Class
		exit   int
		result string // part of it
		msg    string // part of it
	}{
		{"demo:say=one two demo:fail", "", 0, "one two demo:fail", ""},
		{"demo:fail", state.ClassExit, 1, "", "told to fail"},
		{"demo:crash", state.ClassExit, 3, "", "exit code 3"},
		{"demo:empty", state.ClassOutputMissing, 0, "", "without an answer"},
		{"demo:429", state.ClassRateLimited, 1, "", "429"},
		{"demo:401", state.ClassAuth, 1, "", "401"},
		{"demo:500", state.ClassNetwork, 1, "", "high demand"},
		{"demo:lines=2000 demo:sleep=0.01", "", 0, "turn 1", ""},
		{"demo:sleep=soon", state.ClassExit, 1, "", "is no time"},
		{"demo:write=../out|x", state.ClassExit, 1, "", "escapes"},
		{"demo:write=a/b.txt|some text", "", 0, "turn 1", ""},
	} {
		out, turn := b.run(t.Context(), c.prompt)
		if out.Class != c.class || out.ExitCode != c.exit || !strings.Contains(out.Result, c.result) || !strings.Contains(out.Error, c.msg) {
			t.Errorf("%s: %+v", c.prompt, out)
		}
		wantGone(t, turn)
	}
	if data, err := os.ReadFile(filepath.Join(b.dir, "work/a/b.txt")); err != nil || string(data) != "some text\n" {
		t.Errorf("the file that the agent wrote: %q, %v", data, err)
	}
}

func TestDemoFirstTryOnly(t *testing.T) {
	b := newBench(t)
	turn := b.turn("demo:429-first=90s")
	before := time.Now()
	out := b.demo.Run(t.Context(), turn, func(coordinator.Event) {})
	if out.Class != state.ClassRateLimited || out.RetryAt.Before(before.Add(85*time.Second)) {
		t.Fatalf("first try: %+v", out)
	}
	again := b.turn("demo:429-first=90s")
	again.TaskID = turn.TaskID
	if out = b.demo.Run(t.Context(), again, func(coordinator.Event) {}); out.Class != "" {
		t.Fatalf("second try: %+v", out)
	}
}

func TestDemoSessionLost(t *testing.T) {
	b := newBench(t)
	turn := b.turn("hello")
	turn.Session = "00000000-0000-7000-8000-000000000000"
	if out := b.demo.Run(t.Context(), turn, func(coordinator.Event) {}); out.Class != state.ClassSessionLost {
		t.Errorf("unknown session: %+v", out)
	}
	turn = b.turn("hello")
	turn.Session = "--last"
	if out := b.demo.Run(t.Context(), turn, func(coordinator.Event) {}); out.Class != state.ClassSessionLost || len(b.log()) != 2 {
		t.Errorf("no session id: %+v, log %v", out, b.log())
	}
}

func TestDemoSessionBusy(t *testing.T) {
	b := newBench(t)
	first, _ := b.run(t.Context(), "hello")
	f, err := os.OpenFile(filepath.Join(b.demo.Home, "threads", first.Session+".jsonl"), os.O_RDWR, 0)
	must(t, err)
	mustLock(t, f)
	turn := b.turn("more")
	turn.Session = first.Session
	if out := b.demo.Run(t.Context(), turn, func(coordinator.Event) {}); out.Class != state.ClassSessionBusy {
		t.Errorf("outcome: %+v", out)
	}
	must(t, f.Close())
}

func TestContextEndedBefore(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(coordinator.ErrCanceled)
	if out, _ := b.run(ctx, "x"); out.Class != state.ClassCanceled || len(b.log()) != 0 {
		t.Errorf("outcome: %+v, log %v", out, b.log())
	}
}

func TestHangAfterIsSuccess(t *testing.T) {
	b := newBench(t)
	b.demo.HangGrace = 50 * time.Millisecond
	out, turn := b.run(t.Context(), "demo:hang-after demo:say=done")
	if out.Class != "" || out.Result != "done" || out.Note == "" {
		t.Errorf("outcome: %+v", out)
	}
	wantGone(t, turn)
}

// An agent that begins another turn after the first one was over does not hang.
func TestAnotherTurn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.demo.HangGrace = time.Second
	const turn = `echo '{"type":"turn.started"}'; sleep 1.5; echo '{"type":"item.completed","item":{"type":"agent_message","text":"x"}}'; echo '{"type":"turn.completed"}'; `
	if e := b.shell(t.Context(), b.turn(""), turn+"sleep 0.1; "+turn); e.cause != nil || e.end.Exit != 0 {
		t.Errorf("ended: %+v", e)
	}
}

func TestStartupLimit(t *testing.T) {
	b := newBench(t)
	turn := b.turn("")
	turn.Limits = coordinator.RunLimits{Startup: 100 * time.Millisecond, Idle: time.Hour}
	e := b.shell(t.Context(), turn, "sleep 100")
	if !errors.Is(e.cause, errStartup) || classify(e, codexEars(), time.Now()).class != state.ClassStalled {
		t.Errorf("ended: %+v", e)
	}
	wantGone(t, turn)
}

// A sign of life on stderr alone keeps a run going.
func TestStderrIsASignOfLife(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	turn := b.turn("")
	turn.Limits = coordinator.RunLimits{Startup: 2 * time.Second, Idle: 500 * time.Millisecond}
	e := b.shell(t.Context(), turn, "for i in $(seq 12); do echo tick >&2; sleep 0.1; done; echo Error: over >&2; exit 4")
	if e.cause != nil || e.end.Exit != 4 || !strings.HasSuffix(string(e.stderr), "Error: over\n") {
		t.Errorf("ended: %+v", e)
	}
}

func TestAgentCannotStart(t *testing.T) {
	b := newBench(t)
	run := func(argv0 string, change func(*coordinator.Turn)) verdict {
		turn := b.turn("")
		change(&turn)
		s := spec{turn: turn, argv: []string{argv0}, env: nil}
		return classify(b.demo.supervise(t.Context(), s, newStream(codexEars(), quiet)), codexEars(), time.Now())
	}
	same := func(*coordinator.Turn) {}
	plain := filepath.Join(b.dir, "plain")
	must(t, os.WriteFile(plain, []byte("x"), 0o600))
	for _, c := range []struct {
		name  string
		got   verdict
		class state.Class
		msg   string
	}{
		{"missing", run("/no/such/program", same), state.ClassAgentMissing, "no such file"},
		{"not executable", run(plain, same), state.ClassAgentMissing, "permission denied"},
		{"no workspace", run("/bin/true", func(t *coordinator.Turn) { t.Workspace = "/no/such/dir" }), state.ClassExit, "/no/such/dir"},
		{"workspace is a file", run("/bin/true", func(t *coordinator.Turn) { t.Workspace = plain }), state.ClassExit, "not a directory"},
		{"no prompt", run("/bin/true", func(t *coordinator.Turn) { t.Prompt = "/no/prompt.md" }), state.ClassExit, "/no/prompt.md"},
		{"no run directory", run("/bin/true", func(t *coordinator.Turn) { t.RunDir = "/no/run" }), state.ClassInterrupted, "/no/run"},
	} {
		if c.got.class != c.class || !strings.Contains(c.got.msg, c.msg) {
			t.Errorf("%s: %+v", c.name, c.got)
		}
	}
}

func TestRunDirServesTwice(t *testing.T) {
	b := newBench(t)
	turn := b.turn("one")
	first := b.demo.Run(t.Context(), turn, func(coordinator.Event) {})
	turn.Session = first.Session
	second := b.demo.Run(t.Context(), turn, func(coordinator.Event) {})
	if second.Class != "" || second.Result != "turn 2; earlier: one; you said: one" {
		t.Errorf("outcome: %+v", second)
	}
}

// failFS cannot write run.json.
type failFS struct{ durable.FS }

func (failFS) Rename(string, string) error { return errors.New("no space left on device") }

func TestNoAgentWithoutRecord(t *testing.T) {
	b := newBench(t)
	b.demo.FS = failFS{durable.OS}
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
	b.demo.Self = []string{"/no/such/gate"}
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
	out := b.demo.Run(t.Context(), turn, func(coordinator.Event) {})
	must(t, lock.Close())
	if out.Class != state.ClassInterrupted || len(b.log()) != 0 {
		t.Errorf("outcome: %+v, log %v", out, b.log())
	}
}
