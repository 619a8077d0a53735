package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// TestMain lets the test binary be the gate, an agent and a master.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "gate":
			// os.Exit would wait for a second under the race detector.
			syscall.Exit(GateMain(os.Stdin, os.Stdout))
		case "test-agent":
			os.Exit(agentMain(os.Args[2]))
		case "test-master":
			os.Exit(masterMain())
		}
	}
	goleak.VerifyTestMain(m)
}

// A testAgent runs a program that speaks the events of a testDecoder.
type testAgent struct {
	Runner
	Home    string
	Program []string // the default is agentMain
}

func (a *testAgent) Run(ctx context.Context, turn task.Turn, report func(task.Event)) task.Outcome {
	argv := a.Program
	if argv == nil {
		argv = []string{"/proc/self/exe", "test-agent", a.Home}
	}
	return a.RunEvents(ctx, Spec{Turn: turn, Argv: argv, Env: a.AgentEnv(turn)}, newTestDecoder(turn, report), report)
}

// agentMain writes its start and its end to a log, and does what the words of its prompt say.
func agentMain(home string) int {
	prompt, _ := io.ReadAll(os.Stdin)
	does := func(word string) bool { return strings.Contains(string(prompt), "do:"+word) }
	note := func(event string) {
		line, _ := json.Marshal(logEntry{event, os.Getenv(EnvTaskID), os.Getenv(EnvRunID), os.Getpid(), time.Now().UnixNano()})
		_ = os.MkdirAll(home, 0o700)
		f, err := os.OpenFile(filepath.Join(home, "log.jsonl"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err == nil {
			_, _ = f.Write(append(line, '\n'))
			_ = f.Close()
		}
	}
	note("start")
	defer note("stop")
	if does("orphan") {
		cmd := exec.Command("/bin/sleep", "3600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		_ = cmd.Start()
	}
	if does("ignore-term") {
		signal.Ignore(syscall.SIGTERM)
	}
	fmt.Println(`{"type":"thread.started","thread_id":"` + uuid.NewString() + `"}` + "\n" + `{"type":"turn.started"}`)
	if does("hang") && !does("hang-after") {
		select {}
	}
	fmt.Println(`{"type":"item.completed","item":{"type":"agent_message","text":"done"}}` + "\n" + `{"type":"turn.completed"}`)
	if does("hang-after") {
		select {}
	}
	return 0
}

// A testDecoder reads events that resemble codex's.
type testDecoder struct {
	TurnState
	fails Verdict
}

func newTestDecoder(turn task.Turn, report func(task.Event)) Decoder {
	return &testDecoder{TurnState: NewTurnState(turn, report)}
}

func (d *testDecoder) Line(b []byte) {
	var e struct {
		Type    string
		Thread  string `json:"thread_id"`
		Message string
		Class   state.Class
		Item    struct{ Type, Text string }
	}
	if !d.Read(b, &e, &e.Type) {
		return
	}
	switch e.Type {
	case "thread.started":
		d.NameSession(e.Thread)
	case "turn.started":
		d.Resumable()
		d.End = NoTerminal
	case "item.started", "item.completed":
		d.Acted()
		if e.Item.Type == "agent_message" {
			d.Message(e.Item.Text)
		}
	case "error":
		d.Retrying, d.Offline = true, e.Class == state.ClassNetwork
		d.fails = Verdict{Class: e.Class, Msg: e.Message}
	case "turn.completed":
		d.Acted()
		d.End = TurnCompleted
	case "turn.failed":
		d.End, d.fails = TurnFailed, Verdict{Class: e.Class, Msg: e.Message}
	default:
		d.Unknown(e.Type)
	}
}

func (d *testDecoder) Keep(head []byte) bool {
	kind, ok := HeadValue(head, "item", "type")
	return !ok || kind == "agent_message"
}

func (d *testDecoder) Complaint(_ int, stderr []byte, _ time.Time) Verdict {
	if said, own := LastError(stderr); own && d.Events == 0 {
		return Verdict{Class: state.ClassExit, Msg: said}
	}
	return d.fails
}

var testNow = time.Date(2026, 11, 21, 3, 12, 0, 0, time.UTC)

// A bench is the surroundings of runs: directories and a clean environment.
type bench struct {
	t     testing.TB
	dir   string
	agent *testAgent
	tries int
}

func newBench(t testing.TB) *bench {
	dir := t.TempDir()
	b := &bench{t: t, dir: dir}
	b.agent = &testAgent{Home: filepath.Join(dir, "agent"), Runner: Runner{Env: []string{"PATH=" + os.Getenv("PATH")}, Poll: 5 * time.Millisecond}}
	return b
}

// turn makes the directory and the prompt of a new run.
func (b *bench) turn(prompt string) task.Turn {
	b.t.Helper()
	b.tries++
	id := fmt.Sprintf("run-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), b.tries)
	turn := task.Turn{
		TaskID: "task-" + id, RunID: id, Attempt: 1, RunDir: filepath.Join(b.dir, "runs", id),
		Workspace: filepath.Join(b.dir, "work"), Limits: task.RunLimits{Grace: 2 * time.Second},
	}
	turn.Prompt = filepath.Join(turn.RunDir, "prompt.md")
	for _, d := range []string{turn.RunDir, turn.Workspace} {
		must(b.t, os.MkdirAll(d, 0o700))
	}
	must(b.t, os.WriteFile(turn.Prompt, []byte("# Header\n\n## User message\n\n"+prompt+"\n"), 0o600))
	return turn
}

// run runs one turn of the test agent.
func (b *bench) run(ctx context.Context, prompt string) (task.Outcome, task.Turn) {
	b.t.Helper()
	turn := b.turn(prompt)
	return b.agent.Run(ctx, turn, func(task.Event) {}), turn
}

// shell supervises a script instead of an agent.
func (b *bench) shell(ctx context.Context, turn task.Turn, script string) runResult {
	b.t.Helper()
	s := Spec{Turn: turn, Argv: []string{"/bin/bash", "-c", script}, Env: b.agent.AgentEnv(turn)}
	return b.agent.supervise(ctx, s, newStream(testEars(), quiet))
}

// quiet takes events that nobody wants.
func quiet(task.Event) {}

// testEars returns a decoder of the test agent's events.
func testEars() Decoder { return newTestDecoder(task.Turn{}, quiet) }

// lives returns the processes that carry the run's marker.
func lives(t testing.TB, runID string) []proc {
	t.Helper()
	found, err := markedProcs(EnvRunID + "=" + runID)
	must(t, err)
	return found
}

// wantGone checks that nothing of a run lives and its lock is free.
func wantGone(t testing.TB, turn task.Turn) {
	t.Helper()
	if left := lives(t, turn.RunID); len(left) > 0 {
		t.Errorf("%d processes of the run are left: %v", len(left), left)
	}
	if !awaitFree(context.Background(), turn.RunDir, time.Second) {
		t.Error("the run's lock is held")
	}
}

// eventually polls a condition on real processes.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		<-tick.C
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustLock(t testing.TB, f *os.File) {
	t.Helper()
	if held, err := durable.TryLock(f); !held {
		t.Fatalf("%s is locked: %v", f.Name(), err)
	}
}

// masterJob is what a master in a process of its own is told.
type masterJob struct {
	Turn   task.Turn
	Home   string
	Env    []string
	Before bool // stop in front of run.json
	After  bool // stop after run.json, before the agent is let go

	NoCgroup bool
}

// masterMain runs one turn and prints what happens, to be killed at it.
func masterMain() int {
	var job masterJob
	if err := json.Unmarshal([]byte(os.Args[2]), &job); err != nil {
		fmt.Println(err)
		return 1
	}
	d := &testAgent{Home: job.Home, Runner: Runner{Env: job.Env, Poll: 5 * time.Millisecond}}
	d.FS, d.NoCgroup = haltFS{durable.OS, job}, job.NoCgroup
	out := d.Run(context.Background(), job.Turn, func(e task.Event) {
		if e.Session != "" {
			fmt.Println("session", e.Session)
		}
	})
	fmt.Printf("end %q %s\n", out.Class, out.Error)
	return 0
}

// haltFS stops for ever at a point of the protocol.
type haltFS struct {
	durable.FS
	job masterJob
}

func (h haltFS) Rename(from, to string) error {
	if h.job.Before {
		fmt.Println("at the point")
		select {}
	}
	err := h.FS.Rename(from, to)
	if h.job.After {
		fmt.Println("at the point")
		select {}
	}
	return err
}

// startMaster starts a master and gives its lines of output, which end with it.
func (b *bench) startMaster(job masterJob) (*exec.Cmd, <-chan string) {
	b.t.Helper()
	job.Home, job.Env = b.agent.Home, b.agent.Env
	data, err := json.Marshal(job)
	must(b.t, err)
	cmd := exec.Command(os.Args[0], "test-master", string(data))
	cmd.Env = b.agent.Env
	out, err := cmd.StdoutPipe()
	must(b.t, err)
	must(b.t, cmd.Start())
	lines := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(lines)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			lines <- sc.Text()
		}
	}()
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be dead already
		<-done
		_ = cmd.Wait()
		_ = Recover(context.Background(), job.Turn.RunDir, job.Turn.RunID) // for a test that failed half way
	})
	return cmd, lines
}

// await reads a master's lines up to one that begins so.
func await(t testing.TB, lines <-chan string, prefix string) string {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case l, ok := <-lines:
			if !ok {
				t.Fatalf("the master ended before it said %q", prefix)
			}
			if strings.HasPrefix(l, prefix) {
				return l
			}
		case <-timeout:
			t.Fatalf("the master never said %q", prefix)
		}
	}
}

// A logEntry is one line of the test agent's log.
type logEntry struct {
	Event, Task, Run string
	PID              int
	Time             int64
}

// log reads what the test agent has noted.
func (b *bench) log() []logEntry {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.agent.Home, "log.jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	must(b.t, err)
	var all []logEntry
	for line := range strings.Lines(string(data)) {
		var e logEntry
		must(b.t, json.Unmarshal([]byte(line), &e))
		all = append(all, e)
	}
	return all
}

// missing skips a test for want of something, which must not happen in CI.
func missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}
