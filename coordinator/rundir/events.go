package rundir

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"stint/coordinator/task"
	"stint/ledger/durable"
)

const maxEvents = 8 << 20 // bytes of the file of events, the last one not counted

// An EventLog writes what happens in one run. Nothing depends on it: what cannot be written is
// left out. Its methods are for one goroutine at a time, but for Current.
type EventLog struct {
	dir     string // of the run
	task    string // whose run it is, as the first event says
	file    *os.File
	size    int64
	closed  bool
	Done    chan struct{} // closed by Close
	open    task.OpenEvents
	current atomic.Pointer[task.LogEvent]
}

// NewEventLog returns the log of the run of a task in runDir, whose file is made with the first event.
func NewEventLog(runDir, task string) *EventLog {
	return &EventLog{dir: runDir, task: task, Done: make(chan struct{})}
}

// ReadFirst returns what the first event of a run tells of it: its task, and the environment of an agent. Before that
// its lock does, and of an earlier version a file of its own. A run without all of these names no task.
func ReadFirst(runDir string) (first task.LogEvent) {
	for _, name := range []string{EventsName, "lock", "run.json"} {
		if first.Task != "" {
			break
		}
		if f, err := OpenOutput(runDir, name); err == nil {
			_ = json.NewDecoder(io.LimitReader(f, 1<<20)).Decode(&first) // a run may have written what it likes
			_ = f.Close()                                                // only read from
		}
	}
	return first
}

// Current returns the newest event: what the run does now; nil before the first.
func (l *EventLog) Current() *task.LogEvent { return l.current.Load() }

// Add writes an event. What completes another has its texts, unless it brings its own, and
// the time that passed. Paths below the workspace are shortened.
func (l *EventLog) Add(e task.LogEvent, workspace string) {
	e.Run = filepath.Base(l.dir)
	if workspace != "" && (e.Kind == task.LogEdit || e.Kind == task.LogRead) {
		e.Text = strings.ReplaceAll(" "+e.Text, " "+workspace+"/", " ")[1:]
	}
	if e.Kind == task.LogMessage || e.Kind == task.LogEnd { // an end that was too long to be read is not waited for
		l.endStarted(e.Time)
	}
	if s := l.open.Note(&e); s.State != "" {
		if e.Text == "" {
			e.Kind, e.Text, e.Tool, e.Added, e.Removed = s.Kind, s.Text, s.Tool, s.Added, s.Removed
		}
		e.DurationMS = max(0, e.Time.Sub(s.Time).Milliseconds())
	}
	if e.Kind == "" {
		return
	}
	e.Bound()
	l.write(&e)
	if e.State == task.LogCompleted && len(l.open) > 0 { // of several at once one goes on
		e = l.open[len(l.open)-1]
	}
	l.current.Store(&e)
}

func (l *EventLog) write(e *task.LogEvent) {
	if l.closed {
		return
	}
	if l.file == nil {
		f, err := durable.Open(filepath.Join(l.dir, EventsName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, durable.FileMode)
		if err != nil {
			l.closed = !errors.Is(err, os.ErrNotExist) // else the directory is not made yet
			return
		}
		l.file, e.Task = f, l.task
	}
	isFull := l.size > maxEvents
	if isFull {
		e = &task.LogEvent{Time: e.Time, Run: e.Run, Kind: task.LogWarning, Text: "this log is full; what follows is in stint logs --raw"}
	}
	line, err := durable.JSONLine(e)
	if err == nil {
		_, err = l.file.Write(line)
		l.size += int64(len(line))
	}
	if err != nil || isFull { // half a line was written, perhaps: it ends here
		l.close()
	}
}

// endStarted completes what has started; when and how it ended is not known.
func (l *EventLog) endStarted(now time.Time) {
	for _, e := range l.open {
		e.Time, e.State = now, task.LogCompleted
		l.write(&e)
	}
	l.open = nil
}

// Close ends the log: what has not been completed by then ended with the run.
func (l *EventLog) Close(now time.Time) {
	l.endStarted(now)
	l.close()
	close(l.Done)
}

func (l *EventLog) close() {
	if l.closed = true; l.file != nil {
		_ = l.file.Close() // it is not synced either
		l.file = nil
	}
}
