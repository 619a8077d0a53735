package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"stint/coordinator/agent/gate"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state"
)

const defaultPatience = time.Minute

// Causes that stop an agent which does nothing any more but try again.
var (
	errUnreachable = errors.New("the agent cannot reach its provider")
	errLimited     = errors.New("the agent waits for a rate limit")
)

// RunEvents runs a program whose events d reads, and says what came of it.
func (r *Runner) RunEvents(ctx context.Context, s gate.Spec, d Decoder, report func(task.Event)) task.Outcome {
	st, h := newStream(d, report), d.State()
	h.report = func(e task.Event) { // in the stream, where most are masked, JSON has many spellings of a secret
		if e.Text = r.Redact.String(e.Text); e.Log != nil {
			for _, text := range []*string{&e.Log.ID, &e.Log.Tool, &e.Log.Text, &e.Log.Output} {
				*text = r.Redact.String(*text)
			}
		}
		report(e)
	}
	st.patience = r.Patience
	e := r.Supervise(ctx, s, st)
	st.end()
	v := classify(e, d, r.Time())
	if v.Class == state.ClassExit && h.End == NoTerminal && e.Started && e.Cause == nil {
		v.Msg += r.unfinished(ctx, s.Argv[0], h)
	}
	out := task.Outcome{
		Class: v.Class, Error: CutText(v.Msg, MaxError), RetryAt: v.RetryAt, Result: h.Answer, ExitCode: e.End.Exit,
		Session: h.Session, Forked: h.Session != "" && h.forked(), Usage: h.Used(), Thread: h.Thread, Quota: h.Quota, Kept: v.Class != "" && h.PromptInHistory && h.Session != "",
		Env: gate.EnvNames(s.Env), Note: CutText(note(e, st, s.Turn), MaxError), Findings: h.Denied,
		Shortage: e.End.Shortage, Signal: syscall.Signal(e.End.Signal),
	}
	if !e.Started || e.Lost || v.Class == "" && e.End.Exit != 0 {
		out.ExitCode = -1
	}
	for _, text := range []*string{&out.Error, &out.Result, &out.Note} {
		*text = r.Redact.String(*text)
	}
	for i := range out.Findings {
		out.Findings[i].Message = r.Redact.String(out.Findings[i].Message)
	}
	return out
}

// unfinished returns the error of a program whose turn has ended in a way that is not known:
// its version may be one that is not known either.
func (r *Runner) unfinished(ctx context.Context, path string, h *TurnState) string {
	about := h.Version
	if about == "" {
		about, _ = r.Version(ctx, path) // without an answer it is not said
		if about != "" && !strings.Contains(about, " ") {
			about = filepath.Base(path) + " " + about
		}
	}
	if len(h.NotKnown) > 0 {
		about = strings.TrimPrefix(about+"; "+"events that stint does not know: "+strings.Join(h.NotKnown, ", "), "; ")
	}
	if about == "" {
		return ""
	}
	return " (" + about + ")"
}

// note returns what the user should know although the run went on.
func note(e gate.Result, st *stream, turn task.Turn) string {
	h := st.decoder.State()
	notes := h.Remarks
	if turn.Session != "" && h.Session != "" && !h.forked() && !strings.EqualFold(turn.Session, h.Session) {
		notes = append(notes, fmt.Sprintf("session %s was not resumed: the agent began %s instead", turn.Session, h.Session))
	}
	if errors.Is(e.Cause, gate.ErrHung) {
		notes = append(notes, "the agent did not end after its turn was over and was stopped")
	}
	if h.cut {
		notes = append(notes, fmt.Sprintf("the answer was cut at %d MiB; the run's stdout has all of it", MaxAnswer>>20))
	}
	if st.lines.skipped > 0 {
		notes = append(notes, fmt.Sprintf("%d events were too long to be read", st.lines.skipped))
	}
	if e.Lost {
		notes = append(notes, "the gate of the run was killed; processes of it may be left")
	}
	if e.Cut {
		notes = append(notes, "the run's stdout does not have all that the agent has written")
	}
	if e.Held {
		notes = append(notes, "a process outside the run holds its lock")
	}
	return strings.Join(notes, "; ")
}

// A stream turns the output of an agent into events for the coordinator. It
// belongs to the goroutine that supervises the run.
type stream struct {
	lines    lines
	asides   lines // of stderr
	decoder  Decoder
	report   func(task.Event)
	patience time.Duration // see Runner.Patience
	failing  time.Time     // since when the agent only reports errors; zero: it does not
}

func newStream(d Decoder, report func(task.Event)) *stream {
	return &stream{
		lines: lines{line: d.Line, keep: d.Keep}, asides: lines{line: d.Aside, keep: func([]byte) bool { return false }},
		decoder: d, report: report,
	}
}

func (st *stream) Feed(p []byte)  { st.lines.feed(p) }
func (st *stream) Aside(p []byte) { st.asides.feed(p) }

// end takes the last line, which may lack its line end.
func (st *stream) end() {
	st.lines.end()
	st.decoder.Close()
}

func (st *stream) Finished() bool   { return st.decoder.State().End != NoTerminal }
func (st *stream) Began()           { st.report(task.Event{Started: true}) }
func (st *stream) Progress(n int64) { st.report(task.Event{Bytes: n}) }

// Stuck returns an error when the agent has done nothing for too long but report errors:
// that there is no network, for the patience, or a rate limit, for twice as long. After
// one of those the next request may have been accepted and the model may be thinking,
// of which an agent does not always tell. After other errors CLIs try again soon.
func (st *stream) Stuck(now time.Time) error {
	patience := cmp.Or(st.patience, defaultPatience)
	h := st.decoder.State()
	switch {
	case !h.Retrying:
		st.failing = time.Time{}
	case st.failing.IsZero():
		st.failing = now
	case h.Offline && now.Sub(st.failing) >= patience:
		return fmt.Errorf("%w: it has waited for the network for %v", errUnreachable, patience)
	case now.Sub(st.failing) >= 2*patience && st.decoder.Complaint(0, nil, now).Class == state.ClassRateLimited:
		return fmt.Errorf("%w: it has reported nothing else for %v", errLimited, 2*patience)
	}
	return nil
}

// Judge returns what a run came to by what it has left: its two outputs, which it reads into
// d, and its exit code, which is the negative number of the signal that has ended it.
func Judge(d Decoder, stdout, stderr []byte, exit int, now time.Time) Verdict {
	st := newStream(d, func(task.Event) {})
	st.Feed(stdout)
	st.Aside(stderr)
	st.end()
	end := gate.EndReport{Exit: max(exit, -1), Signal: max(-exit, 0)}
	return classify(gate.Result{Started: true, Stderr: stderr, End: end}, d, now)
}

// FindSession returns the native session id that the run in runDir began or resumed, as the
// beginning of its output tells, and "" if it got no further; kept reports whether the session
// has the run's prompt in its history. It is for a master that died between the first event and
// its record.
func FindSession(runDir string, newDecoder NewDecoder) (session string, kept bool) {
	f, err := rundir.OpenOutput(runDir, "stdout")
	if err != nil {
		return "", false
	}
	st := newStream(newDecoder(task.Turn{}, func(task.Event) {}), nil)
	data, _ := io.ReadAll(io.LimitReader(f, 1<<20)) // what could be read is enough
	_ = f.Close()                                   // only read from
	st.Feed(data)
	st.decoder.Close()
	h := st.decoder.State()
	return h.Session, h.PromptInHistory && h.Session != ""
}
