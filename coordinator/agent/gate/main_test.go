package gate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
)

// TestMain lets the test binary be the gate and a master.
func TestMain(m *testing.M) {
	Main(m, func() int { return hold.Main(os.Stdin, os.Stdout) }, map[string]func() int{"test-master": masterMain})
}

var must, eventually, wantGone, marked = Must, Eventually, WantGone, Marked

// A bench runs scripts for bash in the place of agents.
type bench struct {
	*Bench
	Supervisor
}

func newBench(t testing.TB) *bench {
	return &bench{NewBench(t), Supervisor{Poll: 5 * time.Millisecond}}
}

// script is the spec of a script.
func script(turn task.Turn, text string) Spec {
	return Spec{Turn: turn, Argv: []string{"/bin/bash", "-c", text, "bash"}, Env: []string{"PATH=" + os.Getenv("PATH"), hold.EnvRunID + "=" + turn.RunID}}
}

// run supervises a script and returns what it has printed too.
func (b *bench) run(turn task.Turn, text string) (Result, string) {
	b.T.Helper()
	r := b.Supervise(b.T.Context(), script(turn, text), &ears{})
	return r, Read(b.T, turn.RunDir, stdoutName)
}

// ears are a sink. The line "over" says that the turn is over.
type ears struct {
	heard func(said []byte) // may be nil
	last  []byte            // up to five bytes
	over  bool              // of the lines over and begin, over was heard last; others of the run may print behind it
	bytes int
}

func (e *ears) Feed(p []byte) {
	e.bytes += len(p)
	for _, part := range [][]byte{append(e.last, p[:min(5, len(p))]...), p} {
		if over, begin := bytes.LastIndex(part, []byte("over\n")), bytes.LastIndex(part, []byte("begin\n")); over != begin {
			e.over = over > begin
		}
	}
	e.last = append(e.last, p[max(0, len(p)-5):]...)
	e.last = e.last[max(0, len(e.last)-5):]
	if e.heard != nil {
		e.heard(p)
	}
}

func (e *ears) Aside([]byte)          {}
func (e *ears) Finished() bool        { return e.over }
func (e *ears) Began()                {}
func (e *ears) Progress(int64)        {}
func (e *ears) Stuck(time.Time) error { return nil }

// A masterJob is what a master in a process of its own is told.
type masterJob struct {
	Turn     task.Turn
	Script   string
	Before   bool // stop in front of the record
	After    bool // stop after the record, before the agent is let go
	NoCgroup bool
}

// masterMain runs one script and prints what happens, to be killed at it.
func masterMain() int {
	var job masterJob
	if err := json.Unmarshal([]byte(os.Args[2]), &job); err != nil {
		fmt.Println(err)
		return 1
	}
	v := Supervisor{Poll: 5 * time.Millisecond, write: job.write, NoCgroup: job.NoCgroup}
	r := v.Supervise(context.Background(), script(job.Turn, job.Script), &ears{heard: func([]byte) { fmt.Println("it prints") }})
	fmt.Printf("end %+v\n", r)
	return 0
}

// write writes a record, or stops for ever before or after that.
func (j *masterJob) write(f *os.File, record []byte) (n int, err error) {
	if !j.Before {
		n, err = f.Write(record)
	}
	if j.Before || j.After {
		fmt.Println("at the point")
		select {}
	}
	return n, err
}

// startMaster starts a master and returns its lines of output, which end with it.
func (b *bench) startMaster(job masterJob) (*exec.Cmd, <-chan string) {
	b.T.Helper()
	data, err := json.Marshal(job)
	must(b.T, err)
	cmd := exec.Command(os.Args[0], "test-master", string(data))
	out, err := cmd.StdoutPipe()
	must(b.T, err)
	must(b.T, cmd.Start())
	lines := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(lines)
		for sc := bufio.NewScanner(out); sc.Scan(); {
			lines <- sc.Text()
		}
	}()
	b.T.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be dead already
		<-done
		_ = cmd.Wait()
		_ = Recover(context.Background(), job.Turn.RunDir, job.Turn.RunID) // for a test that failed half way
	})
	return cmd, lines
}

// await reads a master's lines up to one that begins so.
func await(t testing.TB, lines <-chan string, prefix string) {
	t.Helper()
	timeout := time.After(time.Minute)
	for {
		select {
		case l, ok := <-lines:
			if !ok {
				t.Fatalf("the master ended before it said %q", prefix)
			}
			if strings.HasPrefix(l, prefix) {
				return
			}
		case <-timeout:
			t.Fatalf("the master never said %q", prefix)
		}
	}
}

// starting begins a script that notes in a file that it was started.
const starting = "echo $STINT_RUN_ID >>started; "

// started returns the runs of scripts that were started, in their order.
func (b *bench) started() []string {
	b.T.Helper()
	data, err := os.ReadFile(filepath.Join(b.Dir, "work", "started"))
	if !errors.Is(err, os.ErrNotExist) {
		must(b.T, err)
	}
	return strings.Fields(string(data))
}

// starts returns how often the script of a run was started.
func (b *bench) starts(turn task.Turn) int {
	return len(slices.DeleteFunc(b.started(), func(run string) bool { return run != turn.RunID }))
}

// atoi returns -1 for what is no number.
func atoi(s string) int {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return -1
}
