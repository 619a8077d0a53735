package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"stint/coordinator"
	"stint/state"
)

const defaultPatience = time.Minute

// Causes that stop an agent which does nothing any more but try again.
var (
	errUnreachable = errors.New("the agent cannot reach its provider")
	errLimited     = errors.New("the agent waits for a rate limit")
)

// runEvents runs a program whose events d reads, and says what came of it.
func (r *Runner) runEvents(ctx context.Context, s spec, d decoder, report func(coordinator.Event)) coordinator.Outcome {
	st := newStream(d, report)
	st.patience = r.Patience
	e := r.supervise(ctx, s, st)
	st.end()
	h, v := d.said(), classify(e, d, r.now())
	if s.cli && v.class == state.ClassExit && h.end == noTerminal && e.started && e.cause == nil {
		v.msg += r.unfinished(ctx, s.argv[0], h)
	}
	out := coordinator.Outcome{
		Class: v.class, Error: cutText(v.msg, maxError), RetryAt: v.retryAt, Result: h.answer, ExitCode: e.end.Exit,
		Session: h.session, Forked: h.session != "" && h.forked(), Usage: h.usage, Thread: h.thread, Kept: v.class != "" && h.kept && h.session != "",
		Env: envNames(s.env), Note: cutText(note(e, st, s.turn), maxError), Findings: h.denied,
		Shortage: e.end.Shortage,
	}
	if !e.started || e.lost || v.class == "" && e.end.Exit != 0 {
		out.ExitCode = -1
	}
	return out
}

// unfinished tells of a CLI whose turn has ended in a way that is not known.
func (r *Runner) unfinished(ctx context.Context, path string, h *heard) string {
	about := h.version
	if about == "" {
		about, _ = r.version(ctx, path) // without an answer it is not said
		if about != "" && !strings.Contains(about, " ") {
			about = filepath.Base(path) + " " + about
		}
	}
	if len(h.unknown) > 0 {
		about = strings.TrimPrefix(about+"; "+"events that stint does not know: "+strings.Join(h.unknown, ", "), "; ")
	}
	if about == "" {
		return ""
	}
	return " (" + about + ")"
}

// note says what the user should know although the run went on.
func note(e ended, st *stream, turn coordinator.Turn) string {
	h := st.decoder.said()
	notes := h.remarks
	if turn.Session != "" && h.session != "" && !h.forked() && !strings.EqualFold(turn.Session, h.session) {
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
	asides   lines // of stderr
	decoder  decoder
	report   func(coordinator.Event)
	patience time.Duration // see Runner.Patience
	failing  time.Time     // since when the agent only reports errors; zero: it does not
}

func newStream(d decoder, report func(coordinator.Event)) *stream {
	return &stream{
		lines: lines{line: d.line, keep: d.keep}, asides: lines{line: d.aside, keep: func([]byte) bool { return false }},
		decoder: d, report: report,
	}
}

func (st *stream) feed(p []byte)  { st.lines.feed(p) }
func (st *stream) aside(p []byte) { st.asides.feed(p) }

// end takes the last line, which may lack its line end.
func (st *stream) end() {
	st.lines.end()
	st.decoder.close()
}

func (st *stream) finished() bool   { return st.decoder.said().end != noTerminal }
func (st *stream) began()           { st.report(coordinator.Event{Started: true}) }
func (st *stream) progress(n int64) { st.report(coordinator.Event{Bytes: n}) }

// stuck returns an error when the agent has done nothing for too long but report errors:
// that there is no network, for the patience, or a rate limit, for twice as long. After
// one of those the next request may have been accepted and the model may be thinking,
// of which an agent does not always tell. After other errors CLIs try again soon.
func (st *stream) stuck(now time.Time) error {
	patience := st.patience
	if patience <= 0 {
		patience = defaultPatience
	}
	h := st.decoder.said()
	switch {
	case !h.failing:
		st.failing = time.Time{}
	case st.failing.IsZero():
		st.failing = now
	case h.offline && now.Sub(st.failing) >= patience:
		return fmt.Errorf("%w: it has waited for the network for %v", errUnreachable, patience)
	case now.Sub(st.failing) >= 2*patience && st.decoder.complaint(ended{}, now).class == state.ClassRateLimited:
		return fmt.Errorf("%w: it has reported nothing else for %v", errLimited, 2*patience)
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
