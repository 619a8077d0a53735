package task

import (
	"fmt"
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
	Kind       string    `json:"kind" enum:"message,reasoning,command,edit,read,search,plan,tool,retry,warning,verify,run,end" doc:"What it is: the agent's words or its reasoning, a shell command, a change of a file, a look at one, a search, a list of steps, another tool, a request that is tried again, what the agent reports as wrong, the verify command, the beginning of a run, or the end of its attempt" example:"command"`
	State      string    `json:"state,omitempty" enum:"started,completed" doc:"Of what takes time: each comes twice. What did not end before the run is completed without a duration" example:"completed"`
	ID         string    `json:"id,omitempty" doc:"The same when something starts and when it is completed" example:"item_4"`
	Tool       string    `json:"tool,omitempty" doc:"Name of another tool" example:"mcp__docs__find"`
	Text       string    `json:"text,omitempty" doc:"The words, the command line, the path or what is searched, cut after 2 KiB, or 16 KiB of a message" example:"go test ./..."`
	Output     string    `json:"output,omitempty" doc:"The last 1 KiB of what came out of it" example:"FAIL\tshop/login\t0.4s\n"`
	ExitCode   *int      `json:"exitCode,omitempty" doc:"Of a command, if the agent reports it" example:"1"`
	Failed     bool      `json:"failed,omitempty" doc:"It went wrong, or was denied" example:"true"`
	DurationMS int64     `json:"durationMs,omitempty" doc:"Milliseconds from its start to its end" example:"3200"`
	Added      int       `json:"added,omitempty" doc:"Lines that an edit has added, if the agent reports them" example:"3"`
	Removed    int       `json:"removed,omitempty" doc:"Lines that it has removed" example:"1"`
	Tokens     int64     `json:"tokens,omitempty" doc:"Tokens of input and output that the run has used so far, if the agent reports them before its end" example:"48213"`
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

// Title returns what happens in an event on one line, such as "$ go test ./..."; how that
// went is left out. It is not escaped.
func (e *LogEvent) Title() string {
	text := strings.Join(strings.Fields(e.Text), " ")
	switch e.Kind {
	case LogMessage, LogRun:
		return text
	case LogEnd:
		if !e.Failed {
			return "done"
		}
		return "failed: " + text
	case LogReasoning:
		return "… " + text
	case LogCommand:
		return "$ " + text
	case LogVerify:
		return "verify $ " + text
	case LogTool:
		return strings.TrimSpace(e.Tool + " " + text)
	case LogEdit:
		if e.Added > 0 {
			text += fmt.Sprintf(" +%d", e.Added)
		}
		if e.Removed > 0 {
			text += fmt.Sprintf(" −%d", e.Removed)
		}
	case LogPlan, LogRetry, LogWarning:
		return e.Kind + ": " + text
	}
	return e.Kind + " " + text
}

// Ending returns how what happened in an event went, such as "  exit 1 · 3.2s"; "" if there is
// nothing to say.
func (e *LogEvent) Ending() string {
	var ends []string
	switch {
	case e.ExitCode != nil && *e.ExitCode > 0:
		ends = append(ends, "exit "+strconv.Itoa(*e.ExitCode))
	case e.Failed && e.Kind != LogEnd:
		ends = append(ends, "failed")
	}
	if e.DurationMS >= 100 {
		ends = append(ends, FormatElapsed(time.Duration(e.DurationMS)*time.Millisecond))
	}
	if len(ends) == 0 {
		return ""
	}
	return "  " + strings.Join(ends, " · ")
}

// Lines returns an event as people read it: its title with its ending, and the lines that belong
// below it. They are not escaped.
func (e *LogEvent) Lines() []string {
	if e.Kind == LogMessage {
		return strings.Split(strings.Trim(e.Text, "\r\n"), "\n")
	}
	lines := []string{e.Title() + e.Ending()}
	if output := strings.TrimSpace(e.Output); output != "" && (e.Failed || e.ExitCode != nil && *e.ExitCode != 0) {
		const most = 5
		printed := strings.Split(output, "\n")
		for _, l := range printed[max(0, len(printed)-most):] {
			lines = append(lines, "  "+strings.TrimRight(l, " \t\r"))
		}
	}
	return lines
}

// FormatElapsed returns a time that something took: 3.2s, 2m14s, 1h05m.
func FormatElapsed(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
}
