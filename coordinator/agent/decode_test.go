package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/agent/gate"
	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
	"stint/state"
)

func TestLookPath(t *testing.T) {
	b := newBench(t)
	bin := filepath.Join(b.Dir, "codex")
	must(t, os.WriteFile(bin, nil, 0o700))
	planted := filepath.Join(b.Dir, "ws", "bin")
	must(t, os.MkdirAll(planted, 0o700))
	must(t, os.WriteFile(filepath.Join(planted, "codex"), nil, 0o700))
	must(t, os.Symlink(planted, filepath.Join(b.Dir, "link")))
	for path, want := range map[string]string{
		"/no/such:relative::" + b.Dir:                 bin,
		planted + ":" + b.Dir + "/link:" + b.Dir:      bin,
		"/no/such:" + planted:                         filepath.Join(planted, "codex"), // nowhere else
		b.Dir + "/wsx:" + planted + "/../..:/no/such": bin,
	} {
		r := Runner{Env: []string{"PATH=" + path}, Root: filepath.Join(b.Dir, "ws")}
		if got, err := r.LookPath("codex"); err != nil || got != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	// A question without a turn does not start what a run may have written: in any checkout or virtual
	// environment. Those of package managers are none of its.
	for at, used := range map[string]bool{"src/shop/.venv/bin": false, "home/src/x/bin": false, "venv/bin": false, "home/.nvm/bin": true, "home/bin": true, "opt/bin": true} {
		dir := filepath.Join(b.Dir, at)
		must(t, os.MkdirAll(dir, 0o700))
		must(t, os.WriteFile(filepath.Join(dir, "codex"), nil, 0o700))
		for _, top := range []string{"src/shop", "home", "home/.nvm", "home/src/x"} {
			must(t, os.MkdirAll(filepath.Join(b.Dir, top, ".git"), 0o700))
			must(t, os.WriteFile(filepath.Join(b.Dir, top, ".git", "HEAD"), nil, 0o600))
		}
		link := filepath.Join(b.Dir, "to-"+filepath.Base(filepath.Dir(dir)))
		_ = os.Symlink(dir, link)
		for _, path := range []string{dir, link} {
			r := Runner{Env: []string{"HOME=" + b.Dir + "/home", "VIRTUAL_ENV=" + b.Dir + "/venv", "PATH=" + path}}
			if got, err := r.LookPath("codex"); (err == nil) != used || used && got != filepath.Join(path, "codex") {
				t.Errorf("%s: %q, %v", path, got, err)
			}
			r.Root = filepath.Join(b.Dir, "ws")
			if got, err := r.LookPath("codex"); err != nil || got != filepath.Join(path, "codex") {
				t.Errorf("a turn, %s: %q, %v", path, got, err)
			}
		}
	}
	r := Runner{Env: []string{"PATH=relative:" + b.Dir}}
	for _, name := range []string{"codex2", b.Dir, ""} {
		if got, err := r.LookPath(name); err == nil {
			t.Errorf("%q gives %q", name, got)
		}
	}
}

// What a program says of its end is its reason, not the usage that follows it.
func TestErrorTextKeepsTheReason(t *testing.T) {
	for text, want := range map[string]string{
		"error: unexpected argument '--nope' found\n\n  tip: to pass '--nope' as a value, use '-- --nope'\n\nUsage: codex exec\n\nFor more information, try '--help'.\n": "unexpected argument '--nope' found",
		"Error loading config.toml:\n/home/u/.codex/config.toml:11:9: extra `=`, expected nothing\n   |\n11 | model = = 3\n   |         ^\n":                             "Error loading config.toml: /home/u/.codex/config.toml:11:9: extra `=`, expected nothing",
		"Error loading config.toml: invalid type: integer `3`, expected a string\nin `model`\n":                                                                          "Error loading config.toml: invalid type: integer `3`, expected a string",
		"Error: first\nError: last\n\nStack backtrace:\n   0: <unknown>\n":                                                                                               "last",
		"something odd\nFor more information, try '--help'.\n":                                                                                                           "something odd",
		"one\ntwo\n": "two",
		"":           "",
	} {
		if got, _ := LastError([]byte(text)); got != want {
			t.Errorf("%q\ngave %q, want %q", text, got, want)
		}
	}
}

// What happened to a run that went well all the same is in its note.
func TestNote(t *testing.T) {
	got := note(gate.Result{Started: true, Lost: true, Cut: true}, newStream(testEars(), quiet), task.Turn{})
	if got != "the gate of the run was killed; processes of it may be left; the run's stdout does not have all that the agent has written" {
		t.Errorf("the note is %q", got)
	}
	if got := note(gate.Result{Started: true}, newStream(testEars(), quiet), task.Turn{}); got != "" {
		t.Errorf("the note of any other run is %q", got)
	}
}

// Long lines arrive whole wherever the pieces are cut, and those that do not matter are not kept.
func TestLongLines(t *testing.T) {
	t.Parallel()
	answer := strings.Repeat("é", 3<<19) // 3 MiB
	line := fmt.Sprintf(`{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":%q}}`+"\n", answer)
	noise := `{"type":"item.completed","item":{"id":"item_1","type":"command_execution","aggregated_output":"` + strings.Repeat("x", 70<<20) + `"}}` + "\n"
	tooLong := `{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"` + strings.Repeat("x", 16<<20) + `"}}` + "\n"
	end := `{"type":"turn.completed","usage":{}}`
	for _, size := range []int{1000, 64 << 10, 80 << 20} {
		st := newStream(testEars(), quiet)
		data := []byte(line + noise + tooLong + end)
		for len(data) > 0 {
			n := min(size, len(data))
			st.Feed(data[:n])
			data = data[n:]
		}
		st.end()
		if st.decoder.State().Answer != answer || st.decoder.State().End != TurnCompleted || st.lines.skipped != 1 {
			t.Errorf("pieces of %d: answer %d bytes, %v, %d skipped", size, len(st.decoder.State().Answer), st.decoder.State().End, st.lines.skipped)
		}
	}
}

// Of other long lines only the texts are cut, between characters, so that what follows them is read.
func TestLongTextsAreCut(t *testing.T) {
	for _, char := range []string{"x", "é", `\"`, `\u00e9`, `\\`} {
		line := `{"item":{"type":"command_execution","aggregated_output":"` + strings.Repeat(char, longLine) + `","exit_code":3}}`
		for _, size := range []int{1001, longLine + 1} {
			var got struct {
				Item struct {
					Output string `json:"aggregated_output"`
					Exit   int    `json:"exit_code"`
				} `json:"item"`
			}
			l := lines{line: func(b []byte) { must(t, json.Unmarshal(b, &got)) }, keep: (&testDecoder{}).Keep}
			for p := range slices.Chunk([]byte(line+"\n"), size) {
				l.feed(p)
			}
			if n := len(got.Item.Output); got.Item.Exit != 3 || n == 0 || n > maxText+1 {
				t.Errorf("%s in pieces of %d: exit code %d, a text of %d bytes", char, size, got.Item.Exit, n)
			}
		}
	}
}

// An agent that does nothing but wait is stopped: for the network after a minute, for a rate
// limit after two. One that tries again after other errors, or gets on in between, is not.
func TestStuck(t *testing.T) {
	at := func(s int) time.Time { return testNow.Add(time.Duration(s) * time.Second) }
	waits := func(class state.Class) string {
		return `{"type":"error","message":"it waits","class":"` + string(class) + `"}` + "\n"
	}
	const on = `{"type":"item.started"}` + "\n"
	type step struct {
		said string
		at   int
		want error
	}
	offline, limited := waits(state.ClassNetwork), waits(state.ClassRateLimited)
	for i, steps := range [][]step{
		{{"", 0, nil}, {offline, 10, nil}, {"", 69, nil}, {offline, 70, errUnreachable}, {on, 80, nil}, {offline, 200, nil}, {"", 259, nil}, {"", 260, errUnreachable}},
		{{limited, 0, nil}, {limited, 119, nil}, {"", 120, errLimited}},
		{{limited, 0, nil}, {on, 60, nil}, {"", 600, nil}},
		{{limited, 0, nil}, {waits(state.ClassAuth), 60, nil}, {"", 600, nil}},
	} {
		st := newStream(testEars(), quiet)
		for _, c := range steps {
			st.Feed([]byte(c.said))
			if err := st.Stuck(at(c.at)); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("row %d at %d: %v", i, c.at, err)
			}
		}
	}
	st := newStream(testEars(), quiet)
	st.patience = time.Second
	st.Feed([]byte(offline))
	if err := errors.Join(st.Stuck(at(0)), st.Stuck(at(1))); err == nil {
		t.Error("patience is not heeded")
	}
}

func TestLongAnswerIsCut(t *testing.T) {
	d := TurnState{report: quiet}
	d.Message(strings.Repeat("é", MaxAnswer))
	if !d.cut || len(d.Answer) != MaxAnswer || strings.HasSuffix(d.Answer, "\xc3") {
		t.Errorf("%d bytes, cut %v", len(d.Answer), d.cut)
	}
}

// TestPromise8EightBigOutputs: eight agents that write 100 MiB each at the same
// time do not make the master big.
func TestPromise8EightBigOutputs(t *testing.T) {
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	const big, atOnce = "head -c 104857600 /dev/zero | tr '\\0' x", 8
	const begin, end = `echo '{"type":"turn.started"}'; `, `; echo '{"type":"item.completed","item":{"type":"agent_message","text":"ok"}}'; echo '{"type":"turn.completed"}'`
	scripts := []string{
		big + "| fold -w 4096; echo", big + " >&2", big + "; echo",
		`printf '{"type":"item.completed","item":{"type":"command_execution","aggregated_output":"'; ` + big + `; echo '"}}'`,
	}
	fromSystem := func() int { // in KiB the most that was ever had, but for the race detector's own part
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.Sys >> 10)
	}
	b := newBench(t)
	b.run(t.Context(), b.Turn(""), begin+end, quiet) // what is made once is there
	var runs sync.WaitGroup
	before := fromSystem()
	for i := range atOnce {
		turn := b.Turn("")
		runs.Go(func() {
			if out := b.run(t.Context(), turn, begin+scripts[i%len(scripts)]+end, quiet); out.Class != "" || out.Result != "ok" {
				t.Errorf("%s: %+v", scripts[i%len(scripts)], out)
			}
		})
	}
	runs.Wait()
	growth := (fromSystem() - before) / atOnce
	t.Logf("outputs: agents=%d mib=100 growth=%dKiB", atOnce, growth)
	if growth > 10<<10 { // a tenth of what each writes: the race detector multiplies what little there is
		t.Error("the master grows with what its agents write")
	}
}

// The rows of the table that no recording has.
func TestClassify(t *testing.T) {
	exit := func(n int) gate.Result { return gate.Result{Started: true, End: hold.EndReport{Exit: n}} }
	killed := func(s syscall.Signal) gate.Result {
		return gate.Result{Started: true, End: hold.EndReport{Exit: -1, Signal: int(s)}}
	}
	stop := func(err error) gate.Result {
		return gate.Result{Started: true, Cause: err, End: hold.EndReport{Exit: -1, Signal: 15}}
	}
	done := func(d *testDecoder) { d.Events, d.End, d.Answer = 3, TurnCompleted, "42" }
	fails := func(class state.Class) func(*testDecoder) {
		return func(d *testDecoder) { d.Events, d.End, d.fails = 3, TurnFailed, Verdict{Class: class, Msg: "it says"} }
	}
	complains := func(class state.Class) func(*testDecoder) {
		return func(d *testDecoder) { d.Events, d.Retrying, d.fails = 1, true, Verdict{Class: class, Msg: "it says"} }
	}
	none := func(*testDecoder) {}
	stderr := func(n int, text string) gate.Result {
		e := exit(n)
		e.Stderr = []byte(text)
		return e
	}
	for i, c := range []struct {
		e     gate.Result
		d     func(*testDecoder)
		class state.Class
	}{
		{exit(0), done, ""},
		{exit(3), done, state.ClassExit},
		{killed(syscall.SIGKILL), done, ""},
		{killed(syscall.SIGKILL), none, state.ClassStalled},
		{killed(syscall.SIGSEGV), func(d *testDecoder) { d.Events = 2 }, state.ClassStalled},
		{killed(syscall.SIGILL), func(d *testDecoder) { d.Events = 2 }, state.ClassStalled},
		{killed(syscall.SIGXCPU), none, state.ClassExit}, // the run's own limit
		{exit(137), none, state.ClassStalled},            // a shell in front of it says so
		{exit(143), func(d *testDecoder) { d.Events = 2 }, state.ClassStalled},
		{exit(130), none, state.ClassExit},
		{exit(0), none, state.ClassExit},
		{exit(0), func(d *testDecoder) { d.End, d.Answer = TurnCompleted, " \n" }, state.ClassOutputMissing},
		{stop(gate.ErrHung), done, ""},
		{stop(gate.ErrHung), func(d *testDecoder) { d.End = TurnCompleted }, state.ClassOutputMissing},
		{stop(task.ErrTimeout), done, ""},
		{stop(task.ErrShutdown), done, ""},
		{stop(task.ErrShutdown), none, state.ClassInterrupted},
		{stop(errors.New("another cause")), none, state.ClassInterrupted},
		{stop(task.ErrTimeout), none, state.ClassTimeout},
		{stop(context.DeadlineExceeded), none, state.ClassTimeout},
		{stop(task.ErrCanceled), done, state.ClassCanceled},
		{stop(gate.ErrIdle), none, state.ClassStalled},
		{stop(gate.ErrStartup), none, state.ClassStalled},
		{gate.Result{Err: errors.New("no gate")}, none, state.ClassInterrupted},
		{gate.Result{End: hold.EndReport{Exit: -1, Err: "no such file", Missing: true}}, none, state.ClassAgentMissing},
		{gate.Result{End: hold.EndReport{Exit: -1, Err: "too many open files", Shortage: syscall.EMFILE}}, none, state.ClassInterrupted},
		{gate.Result{End: hold.EndReport{Exit: -1, Err: "no workspace"}}, none, state.ClassExit},
		{gate.Result{Lost: true}, done, ""},
		{gate.Result{Lost: true}, none, state.ClassInterrupted},
		{stderr(127, "/usr/bin/env: 'node': No such file or directory\n"), none, state.ClassAgentMissing},
		{stderr(126, "/usr/bin/env: 'node': Permission denied\n"), none, state.ClassAgentMissing},
		{killed(syscall.SIGKILL), fails(state.ClassAuth), state.ClassAuth},
		{exit(0), fails(state.ClassNetwork), state.ClassNetwork},
		{exit(1), func(d *testDecoder) { d.End = TurnFailed }, state.ClassExit}, // without a message
		{exit(1), complains(state.ClassRateLimited), state.ClassRateLimited},
		{stop(gate.ErrHung), fails(state.ClassAuth), state.ClassAuth},
		{stop(task.ErrTimeout), complains(state.ClassRateLimited), state.ClassTimeout},
		{stop(gate.ErrIdle), complains(state.ClassRateLimited), state.ClassRateLimited},
		{stop(errUnreachable), complains(state.ClassNetwork), state.ClassNetwork},
		{stderr(1, "Error: x\n"), func(d *testDecoder) { d.Events = 2 }, state.ClassExit},
		{stderr(2, "error: unexpected argument '-a' found\n\nUsage: codex exec\n"), none, state.ClassExit},
	} {
		d := testEars().(*testDecoder)
		c.d(d)
		if v := Classify(c.e, d, testNow); v.Class != c.class || v.Msg == "" && v.Class != "" {
			t.Errorf("row %d: %+v, want %q", i, v, c.class)
		}
	}
}

// What an agent reports as an error may be the page of a stranger's server.
func TestLongErrorIsCut(t *testing.T) {
	b := newBench(t)
	const script = `printf '{"type":"turn.failed","class":"exit","message":"'; head -c 600000 /dev/zero | tr '\0' x; echo '"}'; exit 1`
	if out := b.run(t.Context(), b.Turn(""), script, quiet); out.Class != state.ClassExit || len(out.Error) != MaxError {
		t.Errorf("class %q, %d bytes", out.Class, len(out.Error))
	}
}

// What does not answer a question about itself is ended with all that it started, and is
// not taken for an answer.
func TestOutputHangs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Env = append(b.Env, EnvRunID+"=probe-"+b.Dir)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if out, err := b.Output(ctx, "/bin/bash", "-c", "echo yes; sleep 1000 & setsid sleep 1000 & wait"); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("%q, %v", out, err)
	}
	Eventually(t, "nothing of it is left", func() bool { return len(Marked(t, "probe-"+b.Dir)) == 0 })
}

// What comes of a run beside its class, which is that of the table: also when the turn was over
// and the program hangs, or there is no interpreter for it.
func TestOutcomes(t *testing.T) {
	const id = "01a1fbfd-004f-7b52-a66b-d51066fa7872"
	begin := `echo '{"type":"thread.started","thread_id":"` + id + `"}'; echo '{"type":"turn.started"}'; `
	over := `echo '{"type":"item.completed","item":{"type":"agent_message","text":"done"}}'; echo '{"type":"turn.completed"}'; `
	for _, c := range []struct {
		name, script string
		class        state.Class
		exit         int
		note         string
	}{
		{"ends well", begin + over, "", 0, ""},
		{"hangs after its turn", begin + over + "sleep 1000", "", -1, "did not end"},
		{"is canceled though over", begin + over + "echo; sleep 1000", state.ClassCanceled, -1, ""},
		{"is canceled", begin + "sleep 1000", state.ClassCanceled, -1, ""},
		{"no interpreter", "echo '#!/usr/bin/env no-such-node' >wrapper; chmod +x wrapper; exec ./wrapper", state.ClassAgentMissing, 127, ""},
	} {
		b := newBench(t)
		turn := b.Turn("")
		ctx, cancel := context.WithCancelCause(t.Context())
		b.HangGrace = time.Hour // which no slow machine takes
		if c.note != "" {
			b.HangGrace = 50 * time.Millisecond
		}
		out := b.run(ctx, turn, c.script, func(e task.Event) {
			if c.class == state.ClassCanceled && (e.Text != "" || e.Session != "" && !strings.Contains(c.script, "done")) {
				cancel(task.ErrCanceled)
			}
		})
		cancel(nil)
		if c.exit == 127 && out.ExitCode == 126 {
			out.ExitCode = 127 // what env(1) says where a directory of PATH may not be searched
		}
		if out.Class != c.class || out.ExitCode != c.exit || (out.Error == "") != (c.class == "") || !strings.Contains(out.Note, c.note) || (out.Note == "") != (c.note == "") {
			t.Errorf("%s: %+v", c.name, out)
		}
		if found, kept := FindSession(turn.RunDir, newTestDecoder); found != out.Session || kept || (found == "") != (c.exit == 127) {
			t.Errorf("%s: FindSession gives %q, %v", c.name, found, kept)
		}
	}
	b := newBench(t)
	b.Self = []string{"/bin/sh", "-c", `read start; echo {} >&4; sleep 0.2; echo '{"started":1}'; echo '{"end":{}}'`}
	var events []task.Event
	b.run(t.Context(), b.Turn(""), begin, func(e task.Event) { events = append(events, e) })
	if len(events) < 2 || len(events[0].Env) == 0 || slices.ContainsFunc(events[1:], func(e task.Event) bool { return e.Env != nil }) {
		t.Errorf("the agent was seen before its start was: %+v", events)
	}
	b = newBench(t)
	b.Self = []string{"/no/such/gate"}
	if out := b.run(t.Context(), b.Turn(""), begin, quiet); out.Class != state.ClassInterrupted || out.ExitCode != -1 || !strings.Contains(out.Error, "gate") {
		t.Errorf("no gate: %+v", out)
	}
}
