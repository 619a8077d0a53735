package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger/lazy"
	"stint/state"
)

func (a *app) logsCommand() *cobra.Command {
	var follow, raw, stderr bool
	var run string
	c := command("logs [OPTIONS] ID", "print what a task's agent and its verify command did", cobra.ExactArgs(1), func(c *cobra.Command, args []string) error {
		ctx, ref := c.Context(), args[0]
		out := &logWriter{w: a.stdout, note: a.stderr, json: a.json, color: isColoured(a.stdout), now: time.Now}
		stream := "events"
		switch {
		case stderr:
			stream = "stderr"
		case raw:
			stream = "stdout"
		case terminalWidth(a.stdout) > 0:
			out.width = lineWidth(a.stdout)
		}
		if stream != "events" {
			out.raw = terminalSafe(a.stdout)
		}
		if follow {
			one := a.another()
			defer inBackground(ctx, func(ctx context.Context) { one.look(ctx, ref, firstProgress, time.Second, out.look) })()
			defer a.warnSilence(ctx)()
		}
		err := a.call(ctx, func(cl *client.Client) error {
			err := cl.Logs(ctx, ref, run, stream, follow, out)
			if out.wrote && isGone(err) { // to begin again would repeat what was printed
				return &cliError{code: exitNoMaster, message: "the master has exited", try: "stint logs " + ref}
			}
			return err
		})
		if len(out.open) > 0 && ctx.Err() == nil {
			if view, _ := a.task(ctx, ref); view.Status != state.Running || view.RunID != out.open[0].Run { // it was cut off
				out.open = nil
			}
		}
		err = cmp.Or(err, out.flush())
		if isDetached(ctx) {
			return &cliError{code: exitInterrupted}
		}
		return err
	}, a.completeIDs())
	f := c.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "follow the log until the task has ended")
	f.BoolVar(&raw, "raw", false, "what the agent and the verify command wrote, as it is")
	f.BoolVar(&stderr, "stderr", false, "what the agent wrote to stderr, as it is")
	f.BoolVar(&a.json, "json", false, "print each event as JSON")
	f.StringVar(&run, "run", "", "only this `run`, by id or number of the agent's from 1; else all of the last attempt")
	exclusive(c, "raw", "stderr", "json")
	exclusive(c, "follow", "run")
	return c
}

// countdown is what changes in a reason to wait with each second.
var countdown = lazy.Regexp(`,? in [0-9][0-9dhms]*`)

// announceAfter is how long a step may take until it is printed that it runs.
const announceAfter = 5 * time.Second

// A logWriter prints events, which come as JSON, one a line. Several goroutines may call its methods.
type logWriter struct {
	w     io.Writer
	note  io.Writer   // for what is no event
	raw   *runeWriter // not nil: what comes are no events
	json  bool
	color bool
	width int // columns of a line that must not wrap; 0: any
	now   func() time.Time

	mu    sync.Mutex
	rest  []byte // of a line that has no end yet
	day   string // of the last event, if it is not today
	open  task.OpenEvents
	told  string    // why the task waits
	since time.Time // when the last step began of which it is printed that it runs
	wrote bool
}

// Write implements [io.Writer].
func (l *logWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrote = true
	if l.raw != nil {
		return l.raw.Write(p)
	}
	out := ""
	for line := range bytes.Lines(append(l.rest, p...)) {
		if l.rest = nil; line[len(line)-1] != '\n' {
			l.rest = bytes.Clone(line)
			break
		}
		var e task.LogEvent
		switch err := json.Unmarshal(line, &e); {
		case err != nil: // whatever it is, stint did not write it
			continue
		case l.json:
			out += escapeJSON(strings.ToValidUTF8(string(line), "\uFFFD"))
			continue
		}
		if l.open.Note(&e); e.State == task.LogStarted {
			continue
		}
		if day := e.Time.Local().Format("2006-01-02"); day != cmp.Or(l.day, l.now().Format("2006-01-02")) {
			l.day = day
			out += day + "\n"
		}
		out += l.lines(&e)
	}
	_, err := io.WriteString(l.w, out)
	return len(p), err
}

// lines returns an event as it is shown. The ending of a line that is cut stays.
func (l *logWriter) lines(e *task.LogEvent) (text string) {
	now, width, ending := l.now(), l.width, e.Ending(l.now())
	if width == 0 || slices.Contains([]string{task.LogMessage, task.LogWarning, task.LogEnd}, e.Kind) {
		width = math.MaxInt
	}
	color := "2" // nothing is said by it alone
	switch {
	case e.Failed || e.ExitCode != nil && *e.ExitCode != 0:
		color = "31"
	case e.Kind == task.LogRetry || e.Kind == task.LogWarning:
		color = "33"
	case e.Kind == task.LogMessage:
		color = ""
	}
	for i, line := range e.Lines(now) {
		if line = escapeText(line); i > 0 {
			ending = ""
		}
		line = clip(strings.TrimSuffix(line, ending), max(len(task.LogClock)+8, width-textWidth(ending))) + ending
		if strings.TrimSpace(line) == "" { // of an answer
			text += "\n"
			continue
		}
		text += l.paint("2", line[:len(task.LogClock)]) + l.paint(color, line[len(task.LogClock):]) + "\n"
	}
	return text
}

func (l *logWriter) paint(code, text string) string {
	if !l.color || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// look prints what has been running for a while, and why a task waits, when that changes.
func (l *logWriter) look(v *wire.TaskView, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out, why := "", ""
	for _, e := range l.open {
		if e.Time.After(l.since) && l.now().Sub(e.Time) >= announceAfter {
			l.since = e.Time
			out += l.lines(&e)
		}
	}
	_, _ = io.WriteString(l.w, out) // Write reports what is wrong with it
	if err == nil && !v.Status.Terminal() && (v.Status != state.Running || v.Settling) {
		why = v.Why
	}
	bare := countdown().ReplaceAllString(why, "")
	if err != nil || bare == l.told {
		return
	}
	if l.told = bare; why != "" { // nothing is left to do about a broken stderr
		_, _ = fmt.Fprintf(l.note, "%swaiting: %s\n", l.now().Local().Format(task.LogClock), escapeText(oneLine(strings.TrimPrefix(why, "waits "))))
	}
}

// flush prints what still goes on, and what has no line end.
func (l *logWriter) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.raw != nil {
		return l.raw.flush()
	}
	out := ""
	for _, e := range l.open {
		out += l.lines(&e)
	}
	l.open = nil
	_, err := io.WriteString(l.w, out)
	return err
}
