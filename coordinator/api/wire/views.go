package wire

import (
	"encoding/json"
	"io"
	"strings"
	"time"

	"stint/session"
	"stint/state"
)

// A TaskView is a task as the API shows it: its fields, and what is around it.
type TaskView struct {
	state.Task
	Why        string            `json:"why,omitempty" doc:"Why the task is not running, or what it does, if it has not ended" example:"waits until 03:20:00, in 4m51s (attempt 2 of 3): exit"`
	Env        []string          `json:"env,omitempty" doc:"Names of the variables that the last run was given. Only in answers about one task" example:"HOME,PATH"`
	RunDir     string            `json:"runDir,omitempty" doc:"Absolute path of the files of the last run" example:"/home/ana/.local/state/stint/runs/019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee"`
	Iterations []state.Iteration `json:"iterations,omitempty" doc:"Iterations of the verify loop whose command has ended. Only in answers about one task"`
	BeganAt    time.Time         `json:"beganAt,omitzero" doc:"The same as startedAt. Only in answers about one task" example:"2026-11-21T03:12:45.131Z"`
	TaskID     string            `json:"task_id,omitempty" doc:"The id once more, as the first of these interfaces called it. Only in the answer to a submit" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	LastOutput time.Time         `json:"lastOutput,omitzero" doc:"Of a running task: when its agent last wrote anything, or its run began" example:"2026-11-21T03:15:09.482Z"`
	Settling   bool              `json:"settling,omitempty" doc:"Of a running task: its run has ended, and the result waits until a save of tasks.md is settled" example:"true"`
}

// A SessionView is a session with its tasks, newest first, those of its lane that
// wait, in the order in which they will run, and its transcript.
type SessionView struct {
	state.Session
	Queue      []TaskView        `json:"queue" doc:"Tasks of its lane that wait, in the order in which they will run"`
	Tasks      []TaskView        `json:"tasks" doc:"Tasks of the session, newest first"`
	Transcript []session.Message `json:"transcript" doc:"Messages, oldest first"`
	Older      string            `json:"older,omitempty" doc:"Cursor for the messages before these; left out: there are none" example:"2s"`
}

// A PageAddress lets one browser in, once.
type PageAddress struct {
	URL       string    `json:"url" doc:"Address of the page, under a host name for this browser alone, with a one-time code behind its #, which no browser sends to a server" example:"http://qm3dxw7c.localhost:7433/#code=UqvYqjzVfNa4dQZ3RNh2bA"`
	ExpiresAt time.Time `json:"expiresAt" doc:"When the code counts no more" example:"2026-11-21T03:15:09.482Z"`
}

// A listBody is a list of tasks.
type ListBody struct {
	Tasks []TaskView `json:"tasks" doc:"The tasks: of a list newest first, of a submit in the order in which they were sent"`
	Next  string     `json:"next,omitempty" doc:"Cursor for the next page; left out on the last one" example:"2s"`
}

// A pauseBody is the request to pause dispatch.
type PauseBody struct {
	Reason string `json:"reason,omitempty" doc:"Free text that is shown with what waits" example:"release day"`
}

// A reconcileBody is the request to adopt what people changed in tasks.md.
type ReconcileBody struct {
	Accept bool `json:"accept,omitempty" doc:"Also adopt what is held because a formatter may have made it" example:"false"`
}

// A compactBody is the request to compact the ledger.
type CompactBody struct {
	OlderThan string `json:"olderThan" doc:"Tasks that ended longer ago go to the archive: a Go duration such as 720h; 0s: all that have ended" example:"720h"`
	DryRun    bool   `json:"dryRun,omitempty" doc:"Only say what would be done" example:"true"`
}

// Sizes of a body, in bytes.
const (
	// maxBody fits a prompt of 1 MiB in which JSON has to write every byte as
	// six (control characters), and the other fields.
	MaxBody = 8 << 20
	// maxList is the largest body with a list of tasks.
	MaxList = 64 << 20
)

// runHeader is the header with the run that a client says that it is part of.
const RunHeader = "Stint-Run"

// jsonLines is the content type of a list with one JSON object a line.
const JSONLines = "application/jsonl"

// writeJSON writes v in one piece. The client may be gone, which is no fault of
// the answer, so an error of w is not reported.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(deaf{w})
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// deaf is a writer whose errors nobody hears of.
type deaf struct{ w io.Writer }

// Write implements io.Writer.
func (d deaf) Write(p []byte) (int, error) {
	_, _ = d.w.Write(p)
	return len(p), nil
}

// clip shortens a name that a client made up.
func Clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
