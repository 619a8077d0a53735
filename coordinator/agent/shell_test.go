package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"stint/coordinator/agent/gate"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// verify runs a verify command as a coordinator would.
func (b *bench) verify(ctx context.Context, command string, change func(*task.VerifyRun)) (task.VerifyResult, task.Turn) {
	b.T.Helper()
	turn := b.Turn("")
	v := task.VerifyRun{
		TaskID: turn.TaskID, RunID: turn.RunID, Attempt: 1, Iteration: 2, RunDir: turn.RunDir, Workspace: turn.Workspace,
		Command: command, Timeout: time.Minute, Grace: 200 * time.Millisecond,
	}
	if change != nil {
		change(&v)
	}
	s := &Shell{Runner: b.Runner}
	return s.Verify(ctx, v), turn
}

// printed calls do when a command has printed something.
func printed(do func()) func(isStart bool) {
	return func(isStart bool) {
		if !isStart {
			do()
		}
	}
}

// TestVerifyCommand: how a command ends, what is told of it, and that nothing of it lives on.
func TestVerifyCommand(t *testing.T) {
	limit := func(v *task.VerifyRun) { v.Timeout = 300 * time.Millisecond }
	later := func(v *task.VerifyRun) { v.Timeout = 3 * time.Second } // time enough to begin
	for _, c := range []struct {
		name, command string
		change        func(*task.VerifyRun)
		class         state.Class
		exit          int
		output, error string
	}{
		{"passes", "echo fine", nil, "", 0, "fine\n", ""},
		{"fails", "echo out; echo err >&2; exit 3", nil, "", 3, "out\nerr\n", "ended with exit code 3"},
		{"is not found", "no-such-program --now", nil, "", 127, "", "the verify command cannot be run: exit code 127: a program of it was not found"},
		{"cannot be executed", "touch x; ./x", nil, "", 126, "", "exit code 126: a program of it cannot be executed"},
		{"is no shell's", "if", nil, "", 2, "", "exit code 2"},
		{"is killed", "echo so far; kill -SEGV $$", nil, "", -1, "so far\n[the verify command was ended by a signal: segmentation fault]\n", "by a signal: segmentation fault"},
		{"kills what it starts", "sh -c 'kill -9 $$'; exit $?", nil, "", 137, "", "exit code 137"},
		{"hangs", "echo begun; sleep 1000", later, state.ClassTimeout, -1, "begun\n[the verify command ran longer than its limit of 3s]\n", "longer than its limit of 3s"},
		{"does not listen", "trap '' TERM INT HUP; while :; do sleep 1; done", limit, state.ClassTimeout, -1, "", "longer than its limit"},
		{"ends well when told to", "trap 'exit 0' TERM; while :; do sleep 0.01; done", limit, state.ClassTimeout, -1, "", "longer than its limit"},
		{"reads", "cat; echo end", nil, "", 0, "end\n", ""},
		{"closes its output", "echo one; exec >&- 2>&-; sleep 0.1; exit 4", nil, "", 4, "one\n", "exit code 4"},
		{"leaves a daemon", "(setsid sleep 1000 >/dev/null 2>&1 &); echo ok", nil, "", 0, "ok\n", ""},
		{"leaves one that prints", "setsid sh -c 'while :; do echo x; sleep 0.01; done' & while ! [ -s ../runs/*/stdout ]; do sleep 0.01; done; exit 5", nil, "", 5, "x\n", "exit code 5"},
		{"knows its iteration", `echo "$STINT_ITERATION ${STINT_TASK_ID%%-*} ${HOME-none}"; pwd`, nil, "", 0, "2 task none\n", ""},
		{"has a safe PATH", `echo "$PATH"`, func(v *task.VerifyRun) { v.Safe = "/" }, "", 0, "/usr/bin:/bin\n", ""},
		{"has no directory", "true", func(v *task.VerifyRun) { v.Workspace += "/gone" }, state.ClassExit, -1, "", "could not be started"},
		{"is too long", "true " + strings.Repeat("x", 200<<10), nil, state.ClassExit, -1, "", "could not be started"},
		{"cannot have files", "true", func(v *task.VerifyRun) { v.RunDir += "/gone" }, state.ClassInterrupted, -1, "", "could not be started"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			r, turn := b.verify(t.Context(), c.command, c.change)
			if r.Class != c.class || r.ExitCode != c.exit || !strings.HasPrefix(r.Output, c.output) || !strings.Contains(r.Error, c.error) || (r.Error == "") != (c.error == "") {
				t.Errorf("%+v", r)
			}
			if r.Conclusive() && (r.Duration <= 0 || r.Duration > 30*time.Second) {
				t.Errorf("it took %v", r.Duration)
			}
			wantGone(t, turn)
		})
	}
}

// TestVerifyStopped: a person's cancel and a shutdown say nothing of the answer.
func TestVerifyStopped(t *testing.T) {
	for cause, class := range map[error]state.Class{task.ErrCanceled: state.ClassCanceled, task.ErrShutdown: state.ClassInterrupted} {
		b := newBench(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		r, turn := b.verify(ctx, "setsid sleep 1000 & echo begun; sleep 1000", func(v *task.VerifyRun) {
			v.Lives = printed(func() { cancel(cause) })
		})
		cancel(nil)
		if r.Class != class || r.ExitCode != -1 || r.Conclusive() || r.Passed() {
			t.Errorf("%v: %+v", cause, r)
		}
		wantGone(t, turn)
	}
}

// TestVerifyPrintsMuch: head and tail are told, and what is left out between them; the
// file keeps the end of what was too long. Memory never takes all of it.
func TestVerifyPrintsMuch(t *testing.T) {
	const first, last = "the first line\n", "xxx\nthe last line\n"
	for _, many := range []int{gate.MostOutput - 1000, gate.MostOutput + 1000, 100_000_000} {
		b := newBench(t)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, turn := b.verify(t.Context(), fmt.Sprintf(`echo "the first line"; head -c %d /dev/zero | tr '\0' 'x'; echo xxx; echo "the last line"; exit 1`, many), nil)
		runtime.ReadMemStats(&after)
		size := len(first) + many + len(last)
		note := fmt.Sprintf("\n[… %d bytes are left out here …]\n", size-outputHead-outputTail)
		if r.ExitCode != 1 || !strings.HasPrefix(r.Output, first+"xxx") || !strings.Contains(r.Output, note) || !strings.HasSuffix(r.Output, last) {
			t.Errorf("%d, %q", r.ExitCode, r.Output)
		}
		if len(r.Output) != outputHead+len(note)+outputTail {
			t.Errorf("%d bytes are told", len(r.Output))
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 16<<20 {
			t.Errorf("it took %d bytes of memory", grown)
		}
		want := fmt.Sprintf("[the first %d bytes of this output were not kept]\n", size-gate.KeptOutput)
		kept := Read(t, turn.RunDir, "stdout")
		isCut := strings.HasPrefix(kept, want) && len(kept) == len(want)+gate.KeptOutput && strings.HasSuffix(kept, last)
		if cut := size > gate.MostOutput; isCut != cut || !cut && len(kept) != size {
			t.Errorf("%d bytes: the file has %d: %.100q", size, len(kept), kept)
		}
		wantGone(t, turn)
	}
}

// TestVerifyOutputIsHeld: a process outside the run that holds its lock may print on. Its
// file stays the one that it has.
func TestVerifyOutputIsHeld(t *testing.T) {
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	t.Parallel()
	b := newBench(t)
	seen, lock := filepath.Join(t.TempDir(), "seen"), filepath.Join(t.TempDir(), "lock")
	f, err := os.Create(lock)
	must(t, err)
	defer func() { _ = f.Close() }()
	if locked, err := durable.TryLock(f); !locked {
		t.Fatal(err)
	}
	r, turn := b.verify(t.Context(), fmt.Sprintf(`head -c %d /dev/zero | tr '\0' 'x'; while ! [ -e %s ]; do sleep 0.01; done`, 2*gate.MostOutput, seen), func(v *task.VerifyRun) {
		v.Lives = printed(func() {
			if os.Rename(lock, filepath.Join(v.RunDir, "lock")) == nil {
				must(t, os.WriteFile(seen, nil, 0o600))
			}
		})
	})
	if fi, err := os.Stat(filepath.Join(turn.RunDir, "stdout")); err != nil || !r.Passed() || fi.Size() != 2*gate.MostOutput {
		t.Errorf("%v, %v, %+v", err, fi, r)
	}
}

// TestVerifyCutsItsOutput: a script that opens /dev/stderr anew empties the file that
// it is. What comes then is told, and what had come before.
func TestVerifyCutsItsOutput(t *testing.T) {
	b := newBench(t)
	seen := filepath.Join(t.TempDir(), "seen")
	r, _ := b.verify(t.Context(), `seq 200; while ! [ -e `+seen+` ]; do sleep 0.01; done; echo "the real error" > /dev/stderr; echo end; exit 1`, func(v *task.VerifyRun) {
		v.Lives = printed(func() {
			if err := os.WriteFile(seen, nil, 0o600); err != nil {
				t.Error(err)
			}
		})
	})
	if !strings.HasPrefix(r.Output, "1\n2\n") || !strings.HasSuffix(r.Output, "\n200\nthe real error\nend\n") {
		t.Errorf("%q", r.Output)
	}
}

// TestVerifyOutputIsText: whatever a command prints.
func TestVerifyOutputIsText(t *testing.T) {
	for printed, want := range map[string]string{
		"plain\n\ttext\n":                         "plain\n\ttext\n",
		"no end":                                  "no end",
		"10%\r50%\r100%\nok\r\n":                  "100%\nok\n",
		"bar 1\rbar 2\r":                          "bar 2",
		"\x1b[31;1mred\x1b[0m \x1b[2K\x1b[1Gend":  "red end",
		"\x1b]0;title\x07\x1b]8;;http://x\x1b\\a": "a",
		"nul \x00 bell \a esc \x1b":               "nul \ufffd bell \ufffd esc \ufffd",
		"bad \xff\xfe utf-8 \xc3":                 "bad \ufffd\ufffd utf-8 \ufffd",
		"grüße 日本":                                "grüße 日本",
		"\r\n\r\n":                                "\n\n",
	} {
		w := &window{}
		w.Feed([]byte(printed))
		if got := w.String(); got != want {
			t.Errorf("%q: %q, want %q", printed, got, want)
		}
	}
	w := &window{}
	for range 3000 {
		w.Feed([]byte("日本\x00\xff"))
	}
	if got := w.String(); !utf8.ValidString(got) || len(got) > 3*(outputHead+outputTail) {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

// TestWindow: fed in pieces of any size, it has the same head and tail.
func TestWindow(t *testing.T) {
	text := strings.Repeat("0123456789", 2000)
	whole := &window{}
	whole.Feed([]byte(text))
	for _, size := range []int{1, 7, 100, outputHead, outputHead + 1, 15000} {
		w := &window{}
		for rest := []byte(text); len(rest) > 0; {
			n := min(size, len(rest))
			w.Feed(rest[:n])
			rest = rest[n:]
		}
		if w.String() != whole.String() {
			t.Errorf("in pieces of %d bytes it is another one", size)
		}
	}
	if got := whole.String(); !strings.HasPrefix(got, text[:outputHead]+"\n[… 11808 bytes") || !strings.HasSuffix(got, "\n"+text[len(text)-outputTail:]) {
		t.Errorf("%q", got)
	}
}
