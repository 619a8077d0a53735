package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"stint/coordinator"
)

const defaultPatience = time.Minute

// errUnreachable stops an agent that waits for the network and would for ever.
var errUnreachable = errors.New("the agent cannot reach its provider")

// runEvents runs a program whose events d reads, and says what came of it.
func (r *Runner) runEvents(ctx context.Context, s spec, d decoder, report func(coordinator.Event)) coordinator.Outcome {
	st := newStream(d, report)
	st.patience = r.NetworkPatience
	e := r.supervise(ctx, s, st)
	st.end()
	h, v := d.said(), classify(e, d, r.now())
	out := coordinator.Outcome{
		Class: v.class, Error: cutText(v.msg, maxError), RetryAt: v.retryAt, Result: h.answer, ExitCode: e.end.Exit,
		Session: h.session, Usage: h.usage, Thread: h.thread, Kept: v.class != "" && h.kept && h.session != "",
		Env: envNames(s.env), Note: cutText(note(e, st, s.turn), maxError),
		Shortage: e.end.Shortage || coordinator.IsShortage(e.err),
	}
	if !e.started || e.lost || v.class == "" && e.end.Exit != 0 {
		out.ExitCode = -1
	}
	return out
}

// note says what the user should know although the run went on.
func note(e ended, st *stream, turn coordinator.Turn) string {
	h := st.decoder.said()
	notes := h.remarks
	if turn.Session != "" && h.session != "" && !strings.EqualFold(turn.Session, h.session) {
		notes = append(notes, fmt.Sprintf("session %s was not resumed: the agent began %s instead", turn.Session, h.session))
	}
	if errors.Is(e.cause, errHung) {
		notes = append(notes, "the agent did not end after its turn was over and was stopped")
	}
	if h.cut {
		notes = append(notes, fmt.Sprintf("the answer was cut at %d MiB; the run's stdout has all of it", maxAnswer>>20))
	}
	if st.lines.skipped > 0 {
		notes = append(notes, fmt.Sprintf("%d events were too long to be read", st.lines.skipped))
	}
	if e.held {
		notes = append(notes, "a process outside the run holds its lock")
	}
	return strings.Join(notes, "; ")
}

// A stream turns the output of an agent into events for the coordinator. It
// belongs to the goroutine that supervises the run.
type stream struct {
	lines    lines
	decoder  decoder
	report   func(coordinator.Event)
	patience time.Duration // with an agent that waits for the network; 0: the default
	waiting  time.Time     // since when it does; zero: it does not
}

func newStream(d decoder, report func(coordinator.Event)) *stream {
	return &stream{lines: lines{line: d.line, keep: d.keep}, decoder: d, report: report}
}

func (st *stream) feed(p []byte) { st.lines.feed(p) }

// end takes the last line, which may lack its line end.
func (st *stream) end() {
	st.lines.end()
	st.decoder.close()
}

func (st *stream) finished() bool   { return st.decoder.said().end != noTerminal }
func (st *stream) progress(n int64) { st.report(coordinator.Event{Bytes: n}) }

// stuck gives an error when the agent has done nothing but wait for the network
// for too long.
func (st *stream) stuck(now time.Time) error {
	patience := st.patience
	if patience <= 0 {
		patience = defaultPatience
	}
	switch {
	case !st.decoder.said().waiting:
		st.waiting = time.Time{}
	case st.waiting.IsZero():
		st.waiting = now
	case now.Sub(st.waiting) >= patience:
		return fmt.Errorf("%w: it has waited for the network for %v", errUnreachable, patience)
	}
	return nil
}

// findSession reads the beginning of a run's output, where the session is named
// and the turn begins.
func findSession(runDir string, newDecoder func(coordinator.Turn, func(coordinator.Event)) decoder) (session string, kept bool) {
	f, err := coordinator.OpenOutput(runDir, stdoutName)
	if err != nil {
		return "", false
	}
	st := newStream(newDecoder(coordinator.Turn{}, func(coordinator.Event) {}), nil)
	data, _ := io.ReadAll(io.LimitReader(f, 1<<20)) // what could be read is enough
	_ = f.Close()                                   // only read from
	st.feed(data)
	st.decoder.close()
	h := st.decoder.said()
	return h.session, h.kept && h.session != ""
}
