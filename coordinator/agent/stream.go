package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
func (r *Runner) RunEvents(ctx context.Context, s gate.Spec, d Decoder, tell func(task.Event)) task.Outcome {
	env := gate.EnvNames(s.Env)
	report := func(e task.Event) { // the first one is not always the start: what the agent writes may be seen before
		e.Env, env = env, nil
		tell(e)
	}
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
	v := Classify(e, d, time.Now())
	if v.Class == state.ClassExit && h.End == NoTerminal && e.Started && e.Cause == nil {
		v.Msg += r.unfinished(ctx, s.Argv[0], h)
	}
	out := task.Outcome{
		Class: v.Class, Error: CutText(v.Msg, MaxError), RetryAt: v.RetryAt, Result: h.Answer, ExitCode: e.End.Exit,
		Session: h.Session, Forked: h.Session != "" && h.forked(), Usage: h.Used(), Thread: h.Thread, Quota: h.Quota, Kept: v.Class != "" && h.PromptInHistory && h.Session != "",
		Note: CutText(note(e, st, s.Turn), MaxError), Findings: h.Denied,
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

// unfinished returns the version of a program whose turn has ended in a way that is not known, since that may be one that is not
// known either, and the events that are not.
func (r *Runner) unfinished(ctx context.Context, path string, h *TurnState) string {
	about, _ := r.Version(ctx, path) // without an answer it is not said
	if len(h.NotKnown) > 0 {
		about = strings.TrimPrefix(about+"; events that stint does not know: "+strings.Join(h.NotKnown, ", "), "; ")
	}
	return strings.TrimSuffix(" ("+about+")", " ()")
}

// note returns what the user should know although the run went on.
func note(e gate.Result, st *stream, turn task.Turn) string {
	h := st.decoder.State()
	notes := h.Remarks
	another := turn.Session != "" && h.Session != "" && !h.forked() && !strings.EqualFold(turn.Session, h.Session)
	for _, n := range []struct {
		is   bool
		text string
	}{
		{another, fmt.Sprintf("session %s was not resumed: the agent began %s instead", turn.Session, h.Session)},
		{errors.Is(e.Cause, gate.ErrHung), "the agent did not end after its turn was over and was stopped"},
		{h.cut, fmt.Sprintf("the answer was cut at %d MiB; the run's stdout has all of it", MaxAnswer>>20)},
		{st.lines.skipped > 0, fmt.Sprintf("%d events were too long to be read", st.lines.skipped)},
		{e.Lost, "the gate of the run was killed; processes of it may be left"},
		{e.Cut, "the run's stdout does not have all that the agent has written"},
		{e.Polled != nil, fmt.Sprintf("the agent's output was only looked at from time to time, because nobody tells of it: %v (see fs.inotify in sysctl)", e.Polled)},
		{e.Held, "a process outside the run holds its lock"},
	} {
		if n.is {
			notes = append(notes, n.text)
		}
	}
	return strings.Join(notes, "; ")
}

// A stream turns the output of an agent into events for the coordinator. It belongs to the goroutine that supervises the run.
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

// Stuck returns an error when the agent has done nothing for too long but report errors: that there is no network, for the
// patience, or a rate limit, for twice as long. After one of those the next request may have been accepted and the model may be
// thinking, of which an agent does not always tell. After other errors CLIs try again soon.
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

// FindSession returns the native session id that the run in runDir began or resumed, as the beginning of its
// output tells, and "" if it got no further; kept reports whether the session has the run's prompt in its
// history. It is for a master that died between the first event and its record.
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

const (
	maxLine  = 2 * MaxAnswer // a longer line is passed over; half of it may be what JSON adds to a text
	longLine = 256 << 10     // from here on only lines that matter are kept whole
	maxText  = 4 << 10       // of a text of other lines
)

// lines cuts a stream into lines. Agents write one event a line, however long: a command that prints 50 MB is one line of 50 MB
// with codex. The texts of such a line are cut, unless keep says, by its first part, that it matters.
type lines struct {
	line func(b []byte) // gets each whole line without its end; b is reused
	keep func(b []byte) bool

	buf     []byte
	decided bool // keep was asked about this line
	skip    bool // the rest of this line is passed over
	cut     bool // the texts of this line are cut
	scan
	skipped int // lines passed over because they are too long to be read
}

// A scan is where in a line with cut texts the next byte is.
type scan struct {
	inText  bool
	text    int  // bytes since the last quote
	escaped int  // bytes that are still to come of an escape
	drop    bool // the last byte was left out
}

func (l *lines) feed(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			l.add(p)
			return
		}
		if len(l.buf) == 0 && !l.skip {
			l.line(p[:i]) // whole: no need to copy it
		} else {
			l.add(p[:i])
			l.end()
		}
		p = p[i+1:]
	}
}

// end takes the last line of a stream, which may lack its line end.
func (l *lines) end() {
	if !l.skip && len(l.buf) > 0 {
		l.line(l.buf)
	}
	l.decided, l.skip, l.cut, l.scan = false, false, false, scan{}
	if l.buf = l.buf[:0]; cap(l.buf) > longLine {
		l.buf = nil
	}
}

func (l *lines) add(p []byte) {
	if l.skip {
		return
	}
	if !l.decided && len(l.buf)+len(p) > longLine {
		l.decided = true
		head := l.buf
		if len(head) == 0 {
			head = p
		}
		l.skip = !bytes.HasPrefix(head, []byte("{")) // no event begins otherwise
		if l.cut = !l.skip && !l.keep(head); l.cut {
			before := l.buf
			l.buf = nil
			l.shorten(before)
		}
	}
	if l.cut {
		l.shorten(p)
		p = nil
	}
	if len(l.buf)+len(p) > maxLine {
		l.skip = true
		l.skipped++
	}
	if l.skip {
		l.buf = nil
		return
	}
	l.buf = append(l.buf, p...)
}

// shorten adds to the line what comes next of it, without what its texts have beyond maxText.
func (l *lines) shorten(p []byte) {
	for _, c := range p {
		switch {
		case l.escaped > 0:
			if l.escaped--; c == 'u' {
				l.escaped = 4
			}
		case c == '"':
			l.inText, l.drop, l.text = !l.inText, false, 0
		default: // only here, since an escape stays whole
			l.drop = l.inText && l.text >= maxText
			if l.inText && c == '\\' {
				l.escaped = 1
			}
		}
		if l.text++; !l.drop {
			l.buf = append(l.buf, c)
		}
	}
}
