package agent_test

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/coordinator/agent"
	"stint/coordinator/agent/demo"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// A demoBench has a demo agent.
type demoBench struct {
	*Bench
	agent *demo.Agent
}

func newDemoBench(t *testing.T) *demoBench {
	b := NewBench(t)
	return &demoBench{b, &demo.Agent{Home: filepath.Join(b.Dir, "demo"), Runner: b.Runner}}
}

// run carries out a turn of a session, or of a new one.
func (b *demoBench) run(session, prompt string) (task.Outcome, task.Turn) {
	b.T.Helper()
	turn := b.Turn(prompt)
	turn.Session = session
	return b.agent.Run(b.T.Context(), turn, quiet), turn
}

// The demo agent counts as codex does: over the session, without failed turns.
func TestDemoUsage(t *testing.T) {
	b := newDemoBench(t)
	first, _ := b.run("", "one")
	for _, c := range []struct {
		prompt string
		thread state.Usage
		fails  bool
	}{
		{"demo:fail", state.Usage{}, true},
		{"demo:usage=500/20 demo:empty", state.Usage{InputTokens: 610, CachedInputTokens: 40, OutputTokens: 41, ReasoningTokens: 5}, true},
		{"two", state.Usage{InputTokens: 720, CachedInputTokens: 80, OutputTokens: 62, ReasoningTokens: 10}, false},
		{"demo:usage=many", state.Usage{}, true},
	} {
		if out, _ := b.run(first.Session, c.prompt); out.Thread != c.thread || (out.Class != "") != c.fails || out.Usage != (state.Usage{}) {
			t.Errorf("%s: %+v", c.prompt, out)
		}
	}
}

// A turn that failed leaves its message in the session: sent again it is there twice, and with GoOn once.
func TestDemoKeepsFailedTurn(t *testing.T) {
	b := newDemoBench(t)
	for _, c := range []struct{ again, want string }{
		{"demo:429-first hello", "turn 3; earlier: begin | demo:429-first hello; you said: demo:429-first hello"},
		{task.GoOn, "turn 2; earlier: begin; you said: demo:429-first hello"},
	} {
		begun, _ := b.run("", "begin")
		failed, turn := b.run(begun.Session, "demo:429-first hello")
		if failed.Class != state.ClassRateLimited || !failed.Kept || failed.Session != begun.Session {
			t.Fatalf("%+v", failed)
		}
		if found, kept := agent.FindSession(turn.RunDir, demo.Kind.Decoder); found != begun.Session || !kept {
			t.Errorf("found %q, kept %v", found, kept)
		}
		again := b.Turn(c.again)
		again.TaskID, again.Session = turn.TaskID, begun.Session
		if out := b.agent.Run(t.Context(), again, quiet); out.Result != c.want || out.Kept {
			t.Errorf("%+v\nwant %s", out, c.want)
		}
	}
}

// What becomes of a session: it is another one, busy, unknown, or has no id.
func TestDemoSessions(t *testing.T) {
	b := newDemoBench(t)
	first, _ := b.run("", "one")
	out, _ := b.run(first.Session, "demo:newthread two")
	if out.Class != "" || out.Session == first.Session || !strings.Contains(out.Note, "was not resumed") || !strings.HasPrefix(out.Result, "turn 1;") {
		t.Errorf("%+v", out)
	}
	f, err := os.OpenFile(filepath.Join(b.agent.Home, "threads", first.Session+".jsonl"), os.O_RDWR, 0)
	must(t, err)
	if held, err := durable.TryLock(f); !held {
		t.Fatal(err)
	}
	for session, class := range map[string]state.Class{
		first.Session: state.ClassSessionBusy, "00000000-0000-7000-8000-000000000000": state.ClassSessionLost, "--last": state.ClassSessionLost,
	} {
		if out, _ := b.run(session, "more"); out.Class != class {
			t.Errorf("%s: %+v", session, out)
		}
	}
	must(t, f.Close())
	if log := agent.Read(t, b.agent.Home, "log.jsonl"); strings.Count(log, `"event":"start"`) != 4 {
		t.Errorf("the one without an id was started too:\n%s", log)
	}
}

// A turn with a schema has an answer that follows it, and what is quoted tells the demo agent nothing.
func TestDemoJudges(t *testing.T) {
	b := newDemoBench(t)
	for _, c := range []struct{ prompt, want string }{
		{"Judge it.\n\n> demo:fail\n> demo:say=no\n", `{"findings":[],"lessons":[]}`},
		{"Judge it. demo:say={\"findings\":[]}\n\n> demo:say=no\n", `{"findings":[]}`},
	} {
		turn := b.Turn(c.prompt)
		turn.Schema, turn.ReadOnly = "/runs/r/schema.json", true
		if out := b.agent.Run(t.Context(), turn, quiet); out.Class != "" || out.Result != c.want {
			t.Errorf("%+v\nwant %s", out, c.want)
		}
	}
}

func TestDemoSuccess(t *testing.T) {
	b := newDemoBench(t)
	turn := b.Turn("Say hello\nand more")
	var events []task.Event
	report := func(e task.Event) { events = append(events, e) }
	out := b.agent.Run(t.Context(), turn, report)
	if out.Class != "" || !strings.HasSuffix(out.Result, " lines.\nturn 1; you said: Say hello") || out.ExitCode != 0 || out.Note != "" {
		t.Fatalf("outcome: %+v", out)
	}
	if !agent.IsUUID(out.Session) || out.Thread.InputTokens != 110 {
		t.Errorf("session %q, usage %+v", out.Session, out.Thread)
	}
	if got := strings.Join(events[0].Env, " "); got != "PATH STINT_ATTEMPT STINT_DEMO_HOME STINT_RUN_ID STINT_TASK_ID" {
		t.Errorf("names of the environment: %s", got)
	}
	var session, text string
	var bytes int64
	for _, e := range events {
		session, text, bytes = cmp.Or(e.Session, session), cmp.Or(e.Text, text), max(e.Bytes, bytes)
	}
	fi, err := os.Stat(filepath.Join(turn.RunDir, "stdout"))
	must(t, err)
	if session != out.Session || text != out.Result || bytes != fi.Size() {
		t.Errorf("events say %q %q %d of %d", session, text, bytes, fi.Size())
	}
	if got, _ := agent.FindSession(turn.RunDir, demo.Kind.Decoder); got != out.Session {
		t.Errorf("FindSession gives %q", got)
	}
	agent.WantGone(t, turn)

	next := b.Turn("And now?")
	next.Session = out.Session
	out = b.agent.Run(t.Context(), next, report)
	if out.Result != "turn 2; earlier: Say hello; you said: And now?" || out.Session != session {
		t.Errorf("second turn: %+v", out)
	}
}

func TestDemoOutcomes(t *testing.T) {
	b := newDemoBench(t)
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
		out, turn := b.run("", c.prompt)
		if out.Class != c.class || out.ExitCode != c.exit || !strings.Contains(out.Result, c.result) || !strings.Contains(out.Error, c.msg) {
			t.Errorf("%s: %+v", c.prompt, out)
		}
		agent.WantGone(t, turn)
	}
	if data, err := os.ReadFile(filepath.Join(b.Dir, "work/a/b.txt")); err != nil || string(data) != "some text\n" {
		t.Errorf("the file that the agent wrote: %q, %v", data, err)
	}
}

func TestDemoFirstTryOnly(t *testing.T) {
	b := newDemoBench(t)
	before := time.Now()
	out, turn := b.run("", "demo:429-first=90s")
	if out.Class != state.ClassRateLimited || out.RetryAt.Before(before.Add(85*time.Second)) {
		t.Fatalf("first try: %+v", out)
	}
	again := b.Turn("demo:429-first=90s")
	again.TaskID = turn.TaskID
	if out = b.agent.Run(t.Context(), again, quiet); out.Class != "" {
		t.Fatalf("second try: %+v", out)
	}
}

func TestDemoPlan(t *testing.T) {
	b := newDemoBench(t)
	CheckPlan(t, b.Bench, b.agent)
	if got := b.agent.CLI().Resume; got != "" {
		t.Errorf("a command for a person: %s", got)
	}
}
