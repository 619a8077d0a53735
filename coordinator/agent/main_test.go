package agent

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"stint/coordinator/agent/gate"
	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
	"stint/state"
)

var must, wantGone = Must, WantGone

// A bench runs scripts for bash in the place of agents.
type bench struct {
	*Bench
	Runner
}

func newBench(t testing.TB) *bench {
	return &bench{NewBench(t), Runner{Supervisor: gate.Supervisor{Poll: 5 * time.Millisecond}, Env: []string{"PATH=" + os.Getenv("PATH")}}}
}

// run carries out a turn with a script that speaks the events of a testDecoder.
func (b *bench) run(ctx context.Context, turn task.Turn, script string, report func(task.Event)) task.Outcome {
	s := gate.Spec{Turn: turn, Argv: []string{"/bin/bash", "-c", script}, Env: b.AgentEnv(turn)}
	return b.RunEvents(ctx, s, newTestDecoder(turn, report), report)
}

// quiet takes events that nobody wants.
func quiet(task.Event) {}

// testEars returns a decoder that tells nobody.
func testEars() Decoder { return newTestDecoder(task.Turn{}, quiet) }

var testNow = time.Date(2026, 11, 21, 3, 12, 0, 0, time.UTC)

// A testDecoder reads events that resemble codex's.
type testDecoder struct {
	TurnState
	fails Verdict
}

func newTestDecoder(turn task.Turn, report func(task.Event)) Decoder {
	d := &testDecoder{TurnState: NewTurnState(turn, report)}
	return d
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
	return !bytes.Contains(head[:min(len(head), 100)], []byte(`"type":"command_execution"`))
}

func (d *testDecoder) Complaint(_ int, stderr []byte, _ time.Time) Verdict {
	if said, own := LastError(stderr); own && d.Events == 0 {
		return Verdict{Class: state.ClassExit, Msg: said}
	}
	return d.fails
}

// Judge returns what a run came to by what it has left: its two outputs, which it reads into
// d, and its exit code, which is the negative number of the signal that has ended it.
func Judge(d Decoder, stdout, stderr []byte, exit int, now time.Time) Verdict {
	st := newStream(d, func(task.Event) {})
	st.Feed(stdout)
	st.Aside(stderr)
	st.end()
	end := hold.EndReport{Exit: max(exit, -1), Signal: max(-exit, 0)}
	return Classify(gate.Result{Started: true, Stderr: stderr, End: end}, d, now)
}
