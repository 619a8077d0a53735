package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator/agent"
	"stint/coordinator/agent/demo"
	"stint/coordinator/agent/gate"
	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state"
)

// UUID is the id of some session.
const UUID = "01a1fbfd-004f-7b52-a66b-d51066fa7872"

// Now is when all recorded runs end.
var Now = time.Date(2026, 11, 21, 3, 12, 0, 0, time.UTC)

// TestMain lets the test binary be the gate, an MCP server and the demo agent.
func TestMain(m *testing.M) {
	agent.Main(m, func() int { return hold.Main(os.Stdin, os.Stdout) }, map[string]func() int{
		"mcp-server": func() int { mcpServer(os.Args[2]); return 0 },
		demo.Command: func() int { return demo.Main(os.Args[2:], os.Stdin, os.Stdout, os.Stderr, os.Getenv) },
	})
}

var must, quiet = agent.Must, Quiet

// A Bench is the surroundings of runs: directories and a clean environment.
type Bench struct {
	*agent.Bench
	Runner agent.Runner
}

// NewBench returns a bench in a directory of its own.
func NewBench(t testing.TB) *Bench {
	return &Bench{agent.NewBench(t), agent.Runner{Env: []string{"PATH=" + os.Getenv("PATH")}, Supervisor: gate.Supervisor{Poll: 5 * time.Millisecond}}}
}

// Quiet takes events that nobody wants.
func Quiet(task.Event) {}

// Play returns what a decoder and the table make of some lines and an exit code.
func Play(d agent.Decoder, exit int, lines ...string) agent.Verdict {
	var all strings.Builder
	for _, l := range lines {
		all.WriteString(strings.ReplaceAll(l, "\n", " ") + "\n")
	}
	return agent.Judge(d, []byte(all.String()), nil, exit, Now)
}

// A New makes a decoder of a CLI.
type New = func(task.Turn, func(task.Event)) agent.Decoder

// A Recording is a recorded run of a real CLI, in testdata, and what it came to.
type Recording struct {
	Name    string
	Class   state.Class
	Session string // "" when none can be resumed; "*" for any
	Answer  string // part of it
	Msg     string // part of it
	Input   int64  // tokens of the run, or of the thread with codex
	Kept    bool
	Denied  string // what the agent was denied
}

// Replay plays a recorded run of a CLI through a decoder and the table.
func Replay(t testing.TB, cli, name string, newDecoder New) (*agent.TurnState, agent.Verdict) {
	t.Helper()
	var texts [3][]byte
	for i, ext := range []string{".jsonl", ".stderr", ".exit"} {
		var err error
		texts[i], err = os.ReadFile(filepath.Join(cli, "testdata", name+ext))
		agent.Must(t, err)
	}
	var end struct {
		Exit   *int
		Signal string
	}
	agent.Must(t, json.Unmarshal(texts[2], &end))
	exit := -1
	if end.Signal == "SIGTERM" {
		exit = -int(syscall.SIGTERM)
	} else if end.Exit != nil {
		exit = *end.Exit
	}
	turn := task.Turn{}
	if strings.HasPrefix(name, "resume") {
		turn.Session = UUID
	}
	d := newDecoder(turn, Quiet)
	v := agent.Judge(d, texts[0], texts[1], exit, Now)
	return d.State(), v
}

// CheckRecordings compares all recorded runs with what they came to.
func CheckRecordings(t *testing.T, cli string, newDecoder New, rows []Recording) {
	for _, c := range rows {
		h, v := Replay(t, cli, c.Name, newDecoder)
		if v.Class != c.Class || !strings.Contains(v.Msg, c.Msg) || !strings.Contains(h.Answer, c.Answer) || h.Usage.InputTokens+h.Thread.InputTokens != c.Input || h.PromptInHistory != c.Kept {
			t.Errorf("%s: %+v, answer %q, usage %+v, thread %+v, kept %v", c.Name, v, h.Answer, h.Usage, h.Thread, h.PromptInHistory)
		}
		if c.Session == "*" && !agent.IsUUID(h.Session) || c.Session != "*" && h.Session != c.Session {
			t.Errorf("%s: session %q", c.Name, h.Session)
		}
		if h.Bad != 0 || len(h.NotKnown) > 0 {
			t.Errorf("%s: %d lines were not understood, and events %q are not known", c.Name, h.Bad, h.NotKnown)
		}
		if got := Denied(h); got != c.Denied {
			t.Errorf("%s: denied %s\nwant %s", c.Name, got, c.Denied)
		}
	}
	if names, err := filepath.Glob(cli + "/testdata/*.jsonl"); err != nil || len(names) != len(rows) {
		t.Errorf("%d recorded streams, %v: name each in the table", len(names), err)
	}
}

// Denied returns what an agent was denied, a line each.
func Denied(h *agent.TurnState) string {
	var all []string
	for _, f := range h.Denied {
		all = append(all, f.Message)
	}
	return strings.Join(all, "\n")
}

// A Silence is what an agent has reported before it fell silent.
type Silence struct {
	Lines, Stderr string
	Class         state.Class // of the error after which it tries again; "": it has got on since
	Offline       bool        // that error is that there is no network
}

// CheckSilences compares what decoders make of the last thing that an agent has reported.
func CheckSilences(t *testing.T, newDecoder New, rows []Silence) {
	for i, c := range rows {
		d := newDecoder(task.Turn{}, Quiet)
		agent.Judge(d, []byte(c.Lines), []byte(c.Stderr), -1, Now)
		h := d.State()
		if h.Retrying != (c.Class != "") || h.Retrying && h.Offline != c.Offline {
			t.Errorf("row %d: retrying %v, offline %v", i, h.Retrying, h.Offline)
		}
		if v := d.Complaint(-1, nil, Now); h.Retrying && (v.Class != c.Class || v.Msg == "") {
			t.Errorf("row %d: %+v", i, v)
		}
	}
}

// CheckFork checks when a decoder reports a fork: with a line that shows that it got
// anywhere, and not before. One that resumed after all has forked nothing.
func CheckFork(t *testing.T, newDecoder New, begin []string, lines map[string]bool) {
	const parent = "01a1fbfd-004f-7b52-a66b-d51066fa7873" // UUID is the fork
	for line, forked := range lines {
		for _, from := range []string{parent, UUID} {
			var got []task.Event
			d := newDecoder(task.Turn{Session: from, Fork: true}, func(e task.Event) {
				if e.Session != "" {
					got = append(got, e)
				}
			})
			Play(d, 0, append(begin, line)...)
			want := from != parent || forked
			if len(got) > 1 || (len(got) == 1) != want || want && !reflect.DeepEqual(got[0], task.Event{Session: UUID, Forked: from == parent}) || (d.State().Session != "") != want {
				t.Errorf("from %s: %s reported %v", from, line, got)
			}
		}
	}
}

// fuzzEvents checks what must hold for whatever a CLI writes, beginning with what the real one has written.
func fuzzEvents(f *testing.F, cli string, newDecoder New) {
	names, err := filepath.Glob(cli + "/testdata/*.jsonl")
	agent.Must(f, err)
	for _, name := range names {
		data, err := os.ReadFile(name)
		agent.Must(f, err)
		f.Add(data, 0, "Error: no rollout found\n")
		f.Add(data[:len(data)*2/3], 1, "")
	}
	f.Fuzz(func(t *testing.T, data []byte, exit int, stderr string) {
		exit &= 127 // what is above, or negative, is a signal: it makes no failure of a turn that was complete
		d := newDecoder(task.Turn{}, func(e task.Event) {
			if l := e.Log; l != nil && (len(l.Text) > 17<<10 || len(l.Output) > 2<<10 || len(l.ID)+len(l.Tool) > 1<<10 || len(l.Lines(Now)) == 0 || l.Tokens < 0) {
				t.Fatalf("event %+v", l)
			}
		})
		v := agent.Judge(d, data, []byte(stderr), exit, Now)
		h := d.State()
		if h.Session != "" && !agent.IsUUID(h.Session) {
			t.Fatalf("session %q", h.Session)
		}
		if u := h.Usage; u.InputTokens < 0 || u.OutputTokens < 0 || !(u.CostUSD >= 0) {
			t.Fatalf("usage %+v", u)
		}
		if _, err := state.ParseQuota(state.FormatQuota(h.Quota)); err != nil {
			t.Fatal(err)
		}
		success := exit == 0 && h.End == agent.TurnCompleted && strings.TrimSpace(h.Answer) != ""
		if (v.Class == "") != success || v.Class != "" && v.Msg == "" {
			t.Fatalf("%+v with exit %d, %v, answer %q", v, exit, h.End, h.Answer)
		}
		if !v.RetryAt.IsZero() && v.Class != state.ClassRateLimited {
			t.Fatalf("retry at %v for %q", v.RetryAt, v.Class)
		}
	})
}

// CheckRefusals checks that turns end with a class before anything is begun.
func CheckRefusals(t *testing.T, b *Bench, rows []Refusal) {
	for _, c := range rows {
		if out := c.Agent.Run(context.Background(), c.Turn, Quiet); out.Class != c.Class || out.Error == "" || out.ExitCode != -1 {
			t.Errorf("%+v came to %+v", c, out)
		}
		if plan := c.Agent.Plan(c.Turn); plan.Class != c.Class || plan.Argv != nil || plan.Error == "" {
			t.Errorf("%+v is planned as %+v", c, plan)
		}
	}
	if names, err := filepath.Glob(filepath.Join(b.Dir, "*")); err != nil || len(names) != 0 {
		t.Errorf("something was begun: %v, %v", names, err)
	}
}

// A Refusal is a turn that must not start.
type Refusal struct {
	Agent agent.Adapter
	Turn  task.Turn
	Class state.Class
}

// CheckPlan checks that a plan has the arguments and variables of the run, and that it
// starts nothing and writes nothing. The agent's program may touch the file started.
func CheckPlan(t *testing.T, b *Bench, a agent.Adapter) {
	t.Helper()
	turn := b.Turn("hello")
	turn.Session, turn.Model, turn.Files = UUID, "m-1", filepath.Join(turn.RunDir, "files")
	agent.Must(t, os.RemoveAll(turn.RunDir))
	plan := a.Plan(turn)
	for _, path := range []string{turn.RunDir, filepath.Join(turn.Workspace, "started")} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("the plan has made %s", path)
		}
	}
	agent.Must(t, os.MkdirAll(turn.RunDir, 0o700))
	agent.Must(t, os.WriteFile(turn.Prompt, []byte("hello"), 0o600))
	a.Run(t.Context(), turn, Quiet)
	data, err := os.ReadFile(filepath.Join(turn.RunDir, "lock"))
	agent.Must(t, err)
	var run task.Plan
	agent.Must(t, json.NewDecoder(bytes.NewReader(data)).Decode(&run))
	if fmt.Sprint(plan) != fmt.Sprint(task.Plan{Argv: run.Argv, Env: run.Env}) {
		t.Errorf("the plan is %+v\nthe run %+v", plan, run)
	}
}

// examine looks closer at a CLI, as stint doctor does.
func examine(t *testing.T, a agent.Adapter) []agent.Problem {
	c := a.CLI()
	return c.Examine(t.Context(), c.Probe(t.Context()))
}

// Home makes the home of a real CLI. It lies below the package, because codex dislikes one
// below the temp directory, and where the go command does not look for packages.
func Home(t *testing.T) string {
	t.Helper()
	home, err := os.MkdirTemp(".", "_home-")
	agent.Must(t, err)
	home, err = filepath.Abs(home)
	agent.Must(t, err)
	t.Cleanup(func() { agent.Must(t, os.RemoveAll(home)) })
	return home
}

// RootDir makes a directory that only root can change, as all above it.
func RootDir(t *testing.T) string {
	t.Helper()
	if dir := Home(t); agent.RootOwned(dir) {
		return dir
	}
	home, err := os.UserHomeDir()
	agent.Must(t, err)
	dir, err := os.MkdirTemp(home, "stint-test-")
	agent.Must(t, err)
	t.Cleanup(func() { agent.Must(t, os.RemoveAll(dir)) })
	if !agent.RootOwned(dir) {
		agent.Missing(t, dir+" can be changed by others than root")
	}
	return dir
}

// CheckLog compares with want what people are shown of a stream whose workspace is /w, if one second passes with each event.
func CheckLog(t *testing.T, newDecoder New, stream, stderr, want string) {
	t.Helper()
	dir, now := t.TempDir(), Now
	l := rundir.NewEventLog(dir, "")
	agent.Judge(newDecoder(task.Turn{}, func(e task.Event) {
		if now = now.Add(time.Second); e.Log != nil {
			e.Log.Time = now
			l.Add(*e.Log, "/w")
		}
	}), []byte(stream), []byte(stderr), 0, Now)
	l.Close(now)
	data, err := rundir.ReadOutput(dir, rundir.EventsName)
	agent.Must(t, err)
	got := "\n"
	for line := range bytes.Lines(data) {
		var e task.LogEvent
		if agent.Must(t, json.Unmarshal(line, &e)); e.State != task.LogStarted {
			for _, line := range e.Lines(now) {
				got += line[len(task.LogClock):] + "\n"
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the log differs (-want +got):\n%s", diff)
	}
}
