package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/redact"
	"stint/coordinator/task"
	"stint/ledger/durable"
)

func TestContextEndedBefore(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(task.ErrCanceled)
	turn := b.Turn("")
	if r := b.Supervise(ctx, script(turn, starting), &ears{}); !errors.Is(r.Cause, task.ErrCanceled) || b.starts(turn) != 0 {
		t.Errorf("ended: %+v", r)
	}
}

// An agent that begins another turn after the first one was over does not hang. Its directory
// may have served before.
func TestAnotherTurn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.HangGrace = time.Second
	const text = "echo begin; sleep 1.5; echo over; "
	turn := b.Turn("")
	for _, after := range []string{"sleep 0.1; " + text, ""} {
		if r, out := b.run(turn, text+after); r.Cause != nil || r.End.Exit != 0 || r.Err != nil {
			t.Errorf("ended: %+v, %q", r, out)
		}
	}
}

// A sign of life on stderr alone keeps a run going.
func TestStderrIsASignOfLife(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	turn := b.Turn("")
	turn.Limits = task.RunLimits{Startup: 2 * time.Second, Idle: 500 * time.Millisecond}
	r, _ := b.run(turn, "for i in $(seq 12); do echo tick >&2; sleep 0.1; done; echo Error: over >&2; exit 4")
	if r.Cause != nil || r.End.Exit != 4 || !strings.HasSuffix(string(r.Stderr), "Error: over\n") {
		t.Errorf("ended: %+v", r)
	}
}

// A file with a hole, which costs an agent nothing, has more than anyone can read. Its first
// and last bytes are, and it keeps the last.
func TestSparseOutput(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	turn := b.Turn("")
	first, out := "", &ears{}
	out.heard = func(said []byte) { first += string(said[:min(len(said), max(0, 6-len(first)))]) }
	r := b.Supervise(t.Context(), script(turn, "echo first; truncate -s 1T /dev/stdout; echo over"), out)
	kept := Read(t, turn.RunDir, stdoutName)
	if r.End.Exit != 0 || !r.Cut || first != "first\n" || !out.over || len(kept) > KeptOutput+100 ||
		!strings.HasPrefix(kept, "[the first 1099511562245 bytes of this output were not kept]\n") || !strings.HasSuffix(kept, "\x00over\n") {
		t.Errorf("ended: %+v, read %q and over %v, kept %d bytes: %.100q", r, first, out.over, len(kept), kept)
	}
}

// What a run prints is masked for its sink and, when it has ended, in its files, which keep their
// size; what is cut off a long one does not begin with half a secret.
func TestRedact(t *testing.T) {
	t.Parallel()
	const secret, masked = "a-secret-of-the-run", "*******************"
	b := newBench(t)
	b.Redact = redact.New(func() []string { return []string{secret} })
	turn, out := b.Turn(""), &ears{}
	said := ""
	out.heard = func(p []byte) { said += string(p) }
	const print = "printf 'one a-secret-'; sleep 0.2; echo of-the-run; echo err a-secret-of-the-run a-sec >&2"
	r := b.Supervise(t.Context(), script(turn, print), out)
	if want := "one " + masked + "\n"; r.End.Exit != 0 || said != want || string(r.Stderr) != "err "+masked+" a-sec\n" || Read(t, turn.RunDir, stdoutName) != want || Read(t, turn.RunDir, stderrName) != string(r.Stderr) {
		t.Errorf("%+v: said %q, %q, files %q and %q", r, said, r.Stderr, Read(t, turn.RunDir, stdoutName), Read(t, turn.RunDir, stderrName))
	}
	before, err := os.Stat(filepath.Join(turn.RunDir, stdoutName))
	must(t, err)
	if before.Mode() != durable.FileMode {
		t.Error(before.Mode())
	}
	Redact(turn.RunDir, b.Redact)
	Redact(filepath.Join(b.Dir, "no-run"), b.Redact)
	if after, err := os.Stat(filepath.Join(turn.RunDir, stdoutName)); err != nil || !os.SameFile(before, after) {
		t.Errorf("a file without secrets was rewritten: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(turn.RunDir, "*.tmp")); len(left) > 0 || err != nil {
		t.Errorf("left: %q, %v", left, err)
	}

	turn = b.Turn("")
	s := script(turn, fmt.Sprintf("head -c %d /dev/zero; printf %s; head -c %d /dev/zero", MostOutput, secret, KeptOutput-5))
	s.Short = true
	b.Supervise(t.Context(), s, &ears{})
	_, kept, _ := strings.Cut(Read(t, turn.RunDir, stdoutName), "\n")
	if len(kept) != KeptOutput || !strings.HasPrefix(kept, "*****\x00") {
		t.Errorf("%d bytes: %.40q", len(kept), kept)
	}
}

// What cannot be started says why, and nothing of it is left.
func TestCannotStart(t *testing.T) {
	b := newBench(t)
	plain := filepath.Join(b.Dir, "plain")
	must(t, os.WriteFile(plain, []byte("x"), 0o600))
	var lock *os.File
	for _, c := range []struct {
		name    string
		change  func(*bench, *Spec)
		missing bool   // the program
		ended   string // part of what the gate says
		err     string // part of why there was no gate
	}{
		{"missing", func(_ *bench, s *Spec) { s.Argv[0] = "/no/such/program" }, true, "no such file", ""},
		{"not executable", func(_ *bench, s *Spec) { s.Argv[0] = plain }, true, "permission denied", ""},
		{"no workspace", func(_ *bench, s *Spec) { s.Turn.Workspace = "/no/such/dir" }, false, "/no/such/dir", ""},
		{"workspace is a file", func(_ *bench, s *Spec) { s.Turn.Workspace = plain }, false, "not a directory", ""},
		{"no prompt", func(_ *bench, s *Spec) { s.Turn.Prompt = "/no/prompt.md" }, false, "/no/prompt.md", ""},
		{"no run directory", func(_ *bench, s *Spec) { s.Turn.RunDir = "/no/run" }, false, "", "/no/run"},
		{"half a record", func(b *bench, _ *Spec) {
			b.write = func(f *os.File, record []byte) (int, error) {
				n, err := f.Write(record[:len(record)/2])
				return n, errors.Join(err, errors.New("no space left on device"))
			}
		}, false, "", "no space left"},
		{"no gate", func(b *bench, _ *Spec) { b.Self = []string{"/no/such/gate"} }, false, "", "gate could not be started"},
		{"the directory has a run", func(_ *bench, s *Spec) {
			var err error
			lock, _, err = takeLock(filepath.Join(s.Turn.RunDir, lockName))
			must(t, err)
		}, false, "", "is held"},
	} {
		b := newBench(t)
		turn := b.Turn("")
		s := script(turn, starting)
		c.change(b, &s)
		r := b.Supervise(t.Context(), s, &ears{})
		if r.End.Missing != c.missing || !strings.Contains(r.End.Err, c.ended) || (r.End.Err == "") != (c.ended == "") || (r.Err == nil) != (c.err == "") || r.Err != nil && !strings.Contains(r.Err.Error(), c.err) {
			t.Errorf("%s: %+v", c.name, r)
		}
		if lock != nil {
			must(t, lock.Close())
		}
		wantGone(t, turn)
		if n := b.starts(turn); n != 0 {
			t.Errorf("%s: %d agents were started", c.name, n)
		}
	}
}

// A run under a lease ends with it, by its gate, and goes on while it is prolonged; without one left it does not begin.
func TestLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	turn := b.Turn("")
	lease := task.NewLease(hold.Uptime() + time.Second)
	out := &ears{}
	out.heard = func(said []byte) {
		if strings.Contains(string(said), "half") {
			lease.Set(hold.Uptime() + 2*time.Second)
		}
	}
	r := b.Supervise(task.WithLease(t.Context(), lease), script(turn, "sleep 0.5; echo half; sleep 1.2; echo later; exec sleep 60"), out)
	if !errors.Is(r.Cause, task.ErrShutdown) || !r.Started || r.Lost || !strings.Contains(Read(t, turn.RunDir, stdoutName), "later") {
		t.Errorf("ended: %+v", r)
	}
	turn = b.Turn("")
	if r := b.Supervise(task.WithLease(t.Context(), lease), script(turn, starting), &ears{}); !errors.Is(r.Cause, task.ErrShutdown) || b.starts(turn) != 0 {
		t.Errorf("without a lease: %+v", r)
	}
}
