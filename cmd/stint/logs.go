package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"stint/coordinator/api/client"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// logsOptions are the options of `stint logs`.
type logsOptions struct {
	follow, raw, stderr, json bool

	run string // --run
}

func (a *app) logsCommand() *cobra.Command {
	o := &logsOptions{}
	c := &cobra.Command{
		Use:   "logs [OPTIONS] ID",
		Short: "print what a task's agent and its verify command did",
		Long: `Print what a task's agent and its verify command did, in their order: what the
agent says, the commands that it runs and how they end, the files that it reads and
changes. It looks the same for all agents. While the agent works on, -f also says why
the task waits, if it does.

With --json each line is an event: time, runId, kind (message, reasoning, command, edit,
read, search, plan, tool, retry, warning, verify, run or end), and as they apply state
(started, completed), id, tool, text, output, exitCode, failed, durationMs, added,
removed and tokens. What takes time comes twice, with the same id.`,
		Example: `  stint logs @last
  stint logs -f 2b4f6c8e            # until the task has ended
  stint logs --raw 2b4f6c8e         # what the agent wrote to stdout, as it is
  stint logs --stderr 2b4f6c8e      # and to stderr
  stint logs --run 5d1c 2b4f6c8e    # of one run; stint show lists the verify runs
  stint logs --json @last | grep '"kind":"command"'`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.runLogs(c.Context(), o, args[0]) },
	}
	f := c.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until the task has ended")
	f.BoolVar(&o.raw, "raw", false, "what the agent and the verify command wrote, as it is")
	f.BoolVar(&o.stderr, "stderr", false, "what the agent wrote to stderr, as it is")
	f.BoolVar(&o.json, "json", false, "print each event as JSON")
	f.StringVar(&o.run, "run", "", "only this `run`, by id or number of the agent's from 1; else all of the last attempt")
	exclusive(c, "raw", "stderr", "json")
	exclusive(c, "follow", "run")
	c.ValidArgsFunction = a.completeIDs
	return c
}

func (a *app) runLogs(ctx context.Context, o *logsOptions, ref string) error {
	out := &logWriter{w: a.stdout, note: a.stderr, json: o.json, now: time.Now}
	out.color = isColoured(a.stdout)
	stream := "events"
	switch {
	case o.stderr:
		stream = "stderr"
	case o.raw:
		stream = "stdout"
	case isTTY(a.stdout):
		if out.width = lineWidth(a.stdout); o.follow && os.Getenv("TERM") != "dumb" {
			out.redraw = true
		}
	}
	if stream != "events" {
		out.raw = terminalSafe(a.stdout)
	}
	if o.follow {
		defer a.whileWaiting(ctx, ref, out.tell)()
	}
	err := a.call(ctx, func(cl *client.Client) (err error) {
		if o.run != "" {
			err = cl.RunLogs(ctx, ref, o.run, stream, out)
		} else {
			err = cl.Logs(ctx, ref, stream, o.follow, out)
		}
		if out.wrote && isGone(err) { // to begin again would repeat what was printed
			return &cliError{code: exitNoMaster, message: "the master has exited", try: "stint logs " + ref}
		}
		return err
	})
	err = cmp.Or(err, out.flush())
	if isDetached(ctx) {
		return &cliError{code: exitInterrupted}
	}
	return err
}

// whileWaiting calls tell with why a task waits, and again when that changes, until the
// function that it returns is called.
func (a *app) whileWaiting(ctx context.Context, ref string, tell func(string)) (stop func()) {
	one := a.another()
	return inBackground(ctx, func(ctx context.Context) {
		told := ""
		for next := firstProgress; pause(ctx, next) == nil; next = time.Second {
			var view wire.TaskView
			err := one.callRunning(func(c *client.Client) (err error) { view, err = c.Task(ctx, ref); return err })
			if err != nil || ctx.Err() != nil {
				continue
			}
			why := waitsFor(&view)
			if bare := countdown.ReplaceAllString(why, ""); bare != told {
				if told = bare; why != "" {
					tell(why)
				}
			}
		}
	})
}

// countdown is what changes in a reason to wait with each second.
var countdown = regexp.MustCompile(`,? in [0-9][0-9dhms]*`)

// waitsFor returns why a task that has not ended does not run; "" if it does.
func waitsFor(v *wire.TaskView) string {
	if v.Status.Terminal() || v.Status == state.Running && !v.Settling {
		return ""
	}
	return v.Why
}

// A logWriter prints events, which come as JSON, one a line. Its methods may be called by
// several goroutines.
type logWriter struct {
	w      io.Writer
	note   io.Writer   // for what is no event
	raw    *runeWriter // not nil: what comes are no events
	json   bool
	color  bool
	redraw bool // what has started and goes on is drawn, and replaced by what follows
	width  int  // columns of a line that must not wrap; 0: any
	now    func() time.Time

	mu    sync.Mutex
	rest  []byte // of a line that has no end yet
	day   string // of the last event, if it is not today
	drawn bool
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
	l.rest = append(l.rest, p...)
	var out strings.Builder
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			break
		}
		l.add(&out, line)
		l.rest = rest
	}
	l.rest = bytes.Clone(l.rest)
	if _, err := io.WriteString(l.w, out.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// add adds the lines of one event.
func (l *logWriter) add(out *strings.Builder, line []byte) {
	var e task.LogEvent
	if json.Unmarshal(line, &e) != nil {
		return // whatever it is, stint did not write it
	}
	if l.json {
		out.WriteString(escapeJSON(strings.ToValidUTF8(string(line), "\uFFFD")) + "\n")
		return
	}
	if l.drawn {
		out.WriteString("\r\x1b[K")
		l.drawn = false
	}
	at := e.Time.Local()
	clock := at.Format("15:04:05 ")
	if e.State == task.LogStarted {
		if l.redraw {
			out.WriteString(clip(clock+escapeText(oneLine(e.Title()))+" …", l.width))
			l.drawn = true
		}
		return
	}
	if day := at.Format("2006-01-02"); day != cmp.Or(l.day, l.now().Format("2006-01-02")) {
		l.day = day
		out.WriteString(day + "\n")
	}
	isWhole := l.width == 0 || slices.Contains([]string{task.LogMessage, task.LogWarning, task.LogEnd}, e.Kind)
	for i, text := range e.Lines() {
		if text = escapeText(text); i > 0 {
			clock = strings.Repeat(" ", len(clock))
		}
		if ending := e.Ending(); !isWhole && i == 0 {
			text = clip(strings.TrimSuffix(text, ending), max(8, l.width-len(clock)-textWidth(ending))) + ending
		} else if !isWhole {
			text = clip(text, l.width-len(clock))
		}
		out.WriteString(l.paint("2", clock) + l.paint(eventColor(&e), text) + "\n")
	}
}

func (l *logWriter) paint(code, text string) string {
	if !l.color || code == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// eventColor returns the SGR code of an event; nothing is said by colour alone.
func eventColor(e *task.LogEvent) string {
	switch {
	case e.Failed || e.ExitCode != nil && *e.ExitCode != 0:
		return "31"
	case e.Kind == task.LogRetry || e.Kind == task.LogWarning:
		return "33"
	case e.Kind == task.LogMessage:
		return ""
	}
	return "2"
}

// tell prints why nothing happens.
func (l *logWriter) tell(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = fmt.Fprintf(l.note, "%s waiting: %s\n", l.now().Local().Format("15:04:05"), escapeText(oneLine(strings.TrimPrefix(why, "waits ")))) // nothing is left to do about a broken stderr
}

// flush ends what is drawn and prints what has no line end.
func (l *logWriter) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.raw != nil:
		return l.raw.flush()
	case l.drawn:
		_, err := io.WriteString(l.w, "\n")
		return err
	}
	return nil
}
