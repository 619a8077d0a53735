package task

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kinds of a [LogEvent].
const (
	LogMessage   = "message"   // what the agent says
	LogReasoning = "reasoning" // what it thinks, as far as it shows that
	LogCommand   = "command"   // a shell command
	LogEdit      = "edit"      // a change of a file
	LogRead      = "read"      // a look at a file or a page
	LogSearch    = "search"    // a search
	LogPlan      = "plan"      // the agent's list of steps
	LogTool      = "tool"      // any other tool
	LogRetry     = "retry"     // a request failed, and the agent tries again
	LogWarning   = "warning"   // what the agent reports as wrong
	LogVerify    = "verify"    // the verify command
	LogRun       = "run"       // what a run begins with
	LogEnd       = "end"       // how a run ended
)

// States of a [LogEvent] that takes time.
const (
	LogStarted   = "started"
	LogCompleted = "completed"
)

// A LogEvent is one thing that happened in a run, in the same words for every agent. A master
// writes them to the run's directory, one a line; logs, progress and the page show them.
type LogEvent struct {
	Time       time.Time `json:"time" doc:"When it happened, or ended" example:"2026-11-21T03:15:09.482Z"`
	Run        string    `json:"runId" doc:"The run" example:"019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee"`
	Task       string    `json:"taskId,omitempty" doc:"Of the first event: the task" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	Kind       string    `json:"kind" enum:"message,reasoning,command,edit,read,search,plan,tool,retry,warning,verify,run,end" doc:"What it is: the agent's words or its reasoning, a shell command, a change of a file, a look at one, a search, a list of steps, another tool, a request that is tried again, what the agent reports as wrong, the verify command, the beginning of a run, or the end of its attempt" example:"command"`
	State      string    `json:"state,omitempty" enum:"started,completed" doc:"Of what takes time: each comes twice. What did not end before the run is completed without a duration" example:"completed"`
	ID         string    `json:"id,omitempty" doc:"The same when something starts and when it is completed" example:"item_4"`
	Tool       string    `json:"tool,omitempty" doc:"Name of another tool" example:"mcp__docs__find"`
	Text       string    `json:"text,omitempty" doc:"The words, the command line, the path or what is searched, cut after 2 KiB, or 16 KiB of a message" example:"go test ./..."`
	Output     string    `json:"output,omitempty" doc:"The last 1 KiB of what came out of it" example:"FAIL\tshop/login\t0.4s\n"`
	ExitCode   *int      `json:"exitCode,omitempty" doc:"Of a command, if the agent reports it, or of the whole attempt" example:"1"`
	Failed     bool      `json:"failed,omitempty" doc:"It went wrong, or was denied" example:"true"`
	Status     string    `json:"status,omitempty" doc:"Of the end: what the task is now, which is queued if it will be tried again" example:"done"`
	DurationMS int64     `json:"durationMs,omitempty" doc:"Milliseconds from its start to its end; of the end, those of the attempt" example:"3200"`
	Added      int       `json:"added,omitempty" doc:"Lines that an edit has added, if the agent reports them" example:"3"`
	Removed    int       `json:"removed,omitempty" doc:"Lines that it has removed" example:"1"`
	Env        []string  `json:"env,omitempty" doc:"Of the beginning of an agent's turn: the names of its variables" example:"[\"HOME\",\"PATH\"]"`
	Tokens     int64     `json:"tokens,omitempty" doc:"Tokens of input and output that the run has used so far, if the agent reports them before its end; of the end, those of all runs of the task" example:"48213"`
}

// Bounds of a LogEvent in bytes.
const (
	maxLogMessage = 16 << 10
	maxLogText    = 2 << 10
	maxLogOutput  = 1 << 10
)

// Bound cuts the texts of an event that are too long; of an output it leaves the end.
func (e *LogEvent) Bound() {
	most := maxLogText
	if e.Kind == LogMessage {
		most = maxLogMessage
	}
	if len(e.Text) > most {
		e.Text = strings.ToValidUTF8(e.Text[:most], "") + "…"
	}
	if cut := len(e.Output) - maxLogOutput; cut > 0 {
		e.Output = "…" + strings.ToValidUTF8(e.Output[cut:], "")
	}
	e.ID, e.Tool = e.ID[:min(len(e.ID), 100)], e.Tool[:min(len(e.Tool), 100)]
}

// logPrefix is what stands before the text of an event, by its kind; else it is the kind.
var logPrefix = map[string]string{
	LogMessage: "", LogRun: "", LogEnd: "", LogTool: "", LogReasoning: "… ", LogCommand: "$ ", LogVerify: "verify $ ",
	LogPlan: "plan: ", LogRetry: "retry: ", LogWarning: "warning: ",
}

// Title returns what happens in an event on one line, such as "$ go test ./...". It is not escaped.
func (e *LogEvent) Title() string {
	prefix, known := logPrefix[e.Kind]
	if !known {
		prefix = e.Kind + " "
	}
	text := prefix + strings.Join(strings.Fields(e.Tool+" "+e.Text), " ")
	if e.Added > 0 {
		text += fmt.Sprintf(" +%d", e.Added)
	}
	if e.Removed > 0 {
		text += fmt.Sprintf(" −%d", e.Removed)
	}
	return text
}

// Ending returns how an event went, such as "  exit 1 · 3.2s", or for how long it runs; "" if that says nothing.
func (e *LogEvent) Ending(now time.Time) string {
	var ends []string
	switch {
	case e.State == LogStarted:
		return "  running " + FormatElapsed(now.Sub(e.Time).Truncate(time.Second))
	case e.Kind == LogEnd:
	case e.ExitCode != nil && *e.ExitCode > 0:
		ends = append(ends, "exit "+strconv.Itoa(*e.ExitCode))
	case e.Failed:
		ends = append(ends, "failed")
	}
	if e.DurationMS >= 100 {
		ends = append(ends, FormatElapsed(time.Duration(e.DurationMS)*time.Millisecond))
	}
	if e.Kind == LogEnd && e.Tokens > 0 {
		ends = append(ends, FormatTokens(e.Tokens))
	}
	if len(ends) == 0 {
		return ""
	}
	return "  " + strings.Join(ends, " · ")
}

// LogClock is the layout of the time with which an event is shown.
const LogClock = "15:04:05 "

// Lines returns an event as people read it, unescaped: time, title and ending, and indented what is below them.
func (e *LogEvent) Lines(now time.Time) []string {
	lines := []string{e.Title() + e.Ending(now)}
	if e.Kind == LogMessage {
		lines = strings.Split(strings.Trim(e.Text, "\r\n"), "\n")
	}
	if output := strings.TrimSpace(e.Output); output != "" && (e.Failed || e.ExitCode != nil && *e.ExitCode != 0) {
		const most = 5
		printed := strings.Split(output, "\n")
		for _, l := range printed[max(0, len(printed)-most):] {
			lines = append(lines, "  "+strings.TrimRight(l, " \t\r"))
		}
	}
	clock := e.Time.Local().Format(LogClock)
	for i := range lines {
		lines[i] = clock + lines[i]
		clock = strings.Repeat(" ", len(LogClock))
	}
	return lines
}

// OpenEvents are the events of a run that have started and are not completed.
type OpenEvents []LogEvent

// Note takes an event. If it completes another, it returns that.
func (g *OpenEvents) Note(e *LogEvent) (started LogEvent) {
	const maxOpenEvents = 1000
	if len(*g) > 0 && (*g)[0].Run != e.Run { // that run was cut off
		*g = nil
	}
	switch e.State {
	case LogStarted:
		if len(*g) < maxOpenEvents {
			*g = append(*g, *e)
		}
	case LogCompleted:
		i := slices.IndexFunc(*g, func(s LogEvent) bool { return s.ID == e.ID && (e.Kind == "" || e.Kind == s.Kind) })
		if i >= 0 {
			started = (*g)[i]
			*g = slices.Delete(*g, i, i+1)
		}
	}
	return started
}
