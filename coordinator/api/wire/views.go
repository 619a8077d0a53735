// Package wire has what the server and its client send each other: views of tasks and sessions, bodies of
// requests, errors ([Problem]), the headers of a [Notice], cursors and sizes. Types of the coordinator that
// travel as they are, such as a TaskSpec, are in coordinator/task.
package wire

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/session"
	"stint/state"
	"stint/state/jobs"
)

// A TaskView is a task as the API shows it: its fields, and what is around it.
type TaskView struct {
	state.Task
	Why        string            `json:"why,omitempty" doc:"Why the task is not running, or what it does, if it has not ended" example:"waits until 03:20:00, in 4m51s (attempt 2 of 3): exit"`
	Waits      string            `json:"waitsFor,omitempty" doc:"What the task waits for, in a few words; left out: nothing" example:"limit until 21:15"`
	Env        []string          `json:"env,omitempty" doc:"Names of the variables that the last run was given. Only in answers about one task" example:"HOME,PATH"`
	RunDir     string            `json:"runDir,omitempty" doc:"Absolute path of the files of the last run" example:"/home/ana/.local/state/stint/runs/019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee"`
	Iterations []state.Iteration `json:"iterations,omitempty" doc:"Iterations of the verify loop whose command has ended. Only in answers about one task"`
	BeganAt    time.Time         `json:"beganAt,omitzero" doc:"The same as startedAt. Only in answers about one task" example:"2026-11-21T03:12:45.131Z"`
	TaskID     string            `json:"task_id,omitempty" doc:"The id once more, as the first of these interfaces called it. Only in the answer to a submit" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
	LastOutput time.Time         `json:"lastOutput,omitzero" doc:"Of a running task: when its agent last wrote anything, or its run began" example:"2026-11-21T03:15:09.482Z"`
	Event      *task.LogEvent    `json:"event,omitempty" doc:"Of a running task: what its run does now, or did last"`
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

// Answers with a list of something, or with one thing.
type (
	// FindingsBody has what is wrong in the ledger.
	FindingsBody struct {
		Findings []task.Finding `json:"findings" doc:"What is wrong, by file and line"`
	}

	// RunsBody has the runs of a task.
	RunsBody struct {
		Runs []task.TaskRun `json:"runs" doc:"The runs, oldest first"`
	}

	// SessionsBody has the sessions.
	SessionsBody struct {
		Sessions []state.Session `json:"sessions" doc:"The sessions"`
	}

	// WorkersBody has the workers of the shared queue.
	WorkersBody struct {
		Workers []task.WorkerRow `json:"workers" doc:"The workers, by host"`
	}

	// AccountsBody has the accounts.
	AccountsBody struct {
		Accounts []state.AccountUse `json:"accounts" doc:"The accounts, by name"`
	}

	// SchedulesBody has the schedules.
	SchedulesBody struct {
		Schedules []task.Schedule `json:"schedules" doc:"The schedules, in the order of the configuration"`
		Finding   string          `json:"finding,omitempty" doc:"What is wrong in schedules.toml, and where; until it is corrected, the list is of what stood there before, or of the other schedules" example:"schedules.toml:3: schedule nightly: unknown field \"promt\"; did you mean prompt?"`
	}

	// JobRunsBody has firings of a schedule.
	JobRunsBody struct {
		Runs []task.JobRun `json:"runs" doc:"The firings, the newest first"`
	}

	// InstancesBody has instances, ServersBody servers, MetricsBody samples of one, and UsageDailyBody days of instances.
	InstancesBody struct {
		Instances []task.Instance `json:"instances" doc:"In the order of the configuration"`
	}
	ServersBody struct {
		Servers []task.Server `json:"servers" doc:"In the order of the configuration"`
	}
	MetricsBody struct {
		Metrics []task.ServerMetric `json:"metrics" doc:"The samples"`
	}
	UsageDailyBody struct {
		Days []task.UsageDay `json:"days" doc:"The days"`
	}

	// A ClaimBody claims an instance.
	ClaimBody struct {
		Instance string `json:"instance_id" doc:"Id of the instance" example:"shop"`
		User     string `json:"user_id" doc:"Who claims it" example:"ana"`
		TgUser   string `json:"tg_user_id,omitempty" doc:"Id of that user at Telegram, a number: with it, the bot answers nobody else" example:"123456789"`
	}

	// A DetailBody says what came of something.
	DetailBody struct {
		Detail string `json:"detail" doc:"In one sentence" example:"0 of 1 differ"`
	}

	// An AdminRun is a [task.JobRun] as document 004's table job_runs has it, and a QueueRow a job as task_queue has it.
	AdminRun struct {
		Name     string    `json:"job_name" doc:"Name of the schedule" example:"health_check"`
		Status   string    `json:"status" enum:"ok,error,skipped" doc:"How it went" example:"ok"`
		Duration int64     `json:"duration_ms" doc:"How long it took, in milliseconds" example:"420"`
		Detail   string    `json:"detail" doc:"What was done, or what went wrong, in one sentence" example:"200 run"`
		RanAt    time.Time `json:"ran_at" doc:"When it had ended" example:"2026-11-29T09:05:00Z"`
	}
	QueueRow struct {
		ID        string            `json:"id" doc:"Id of the job" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"`
		Type      string            `json:"type" doc:"What is to be done" example:"init_instance"`
		Payload   map[string]string `json:"payload" doc:"What it is about: instance_id, user_id and tg_user_id, or object_type and object_id" example:"{\"instance_id\":\"shop\",\"user_id\":\"ana\",\"tg_user_id\":\"123456789\"}"`
		Status    string            `json:"status" enum:"pending,running,done,failed" doc:"What has become of it" example:"pending"`
		Attempts  int               `json:"attempts" doc:"Attempts that failed" example:"0"`
		Error     *string           `json:"error" doc:"Why the last attempt failed; null: none has" example:"server s1 cannot be reached"`
		CreatedAt time.Time         `json:"created_at" doc:"When it was queued" example:"2026-11-29T09:00:00Z"`
		UpdatedAt time.Time         `json:"updated_at" doc:"When it changed last" example:"2026-11-29T09:00:01Z"`
	}
	AdminRunsBody struct {
		Runs []AdminRun `json:"runs" doc:"The runs"`
	}
	QueueBody struct {
		Tasks []QueueRow `json:"tasks" doc:"The jobs"`
	}

	// JobsBody has due jobs.
	JobsBody struct {
		Jobs []jobs.Job `json:"jobs" doc:"The jobs, those that are due first before the others"`
	}

	// PreviewBody has what would be run for tasks.
	PreviewBody struct {
		Previews []task.TaskPreview `json:"previews" doc:"A preview of each task, in the order in which they were sent"`
	}

	// WhyBody has why a task does not run.
	WhyBody struct {
		Why string `json:"why" doc:"One sentence" example:"behind 019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11 in session web"`
	}
)

// A PauseBody is the request to pause dispatch.
type PauseBody struct {
	Reason string `json:"reason,omitempty" doc:"Free text that is shown with what waits" example:"release day"`
}

// A MomentBody is the request to fire, pause or resume a schedule.
type MomentBody struct {
	At time.Time `json:"at,omitzero" doc:"The present time. A firing is named by it: a request that is sent again is the same firing. Left out: that of the master" example:"2026-11-30T10:12:45.123Z"`
}

// A ReconcileBody is the request to adopt what people changed in tasks.md.
type ReconcileBody struct {
	Accept bool `json:"accept,omitempty" doc:"Also adopt what is quarantined because a formatter may have made it" example:"false"`
}

// A CompactBody is the request to compact the ledger.
type CompactBody struct {
	OlderThan  string `json:"olderThan" doc:"Tasks that ended longer ago go to the archive: a Go duration such as 720h; 0s: all that have ended" example:"720h"`
	DryRun     bool   `json:"dryRun,omitempty" doc:"Only say what would be done" example:"true"`
	KeepFailed bool   `json:"keepFailed,omitempty" doc:"Failed and dead tasks stay" example:"true"`
	KeepJobs   bool   `json:"keepJobs,omitempty" doc:"jobs.md stays as it is" example:"true"`
}

// A Compacted says what was done with the ledger of tasks, and with that of due jobs.
type Compacted struct {
	ledger.CompactReport
	Jobs *ledger.CompactReport `json:"jobs,omitempty" doc:"The same of jobs.md; left out: there was nothing to do"`
}

// A PruneBody is the request to remove files of tasks that have ended.
type PruneBody struct {
	OlderThan string `json:"olderThan" doc:"Those of tasks that ended longer ago: a Go duration such as 720h; 0s: of all that have ended" example:"720h"`
	DryRun    bool   `json:"dryRun,omitempty" doc:"Only say what would be removed" example:"true"`
}

// Sizes of a body, in bytes.
const (
	// MaxBody fits a prompt of 1 MiB in which JSON has to write every byte as six (control characters), and the other fields.
	MaxBody = 8 << 20
	// MaxList is the largest body with a list of tasks.
	MaxList = 64 << 20
)

// RunHeader is the header with the run that a client says that it is part of.
const RunHeader = "Stint-Run"

// An AgentView is an agent as the master would run it.
type AgentView struct {
	Name      string   `json:"name" doc:"Name of the agent" example:"claude"`
	Variables []string `json:"variables" doc:"Names of the environment variables that it gets from the master" example:"ANTHROPIC_API_KEY"`
	Found     bool     `json:"found,omitempty" doc:"Its program was found. Only with probe" example:"true"`
	LoggedIn  bool     `json:"loggedIn,omitempty" doc:"It has credentials. Only with probe" example:"true"`
	Path      string   `json:"path,omitempty" doc:"The program. Only with probe" example:"/usr/local/bin/claude"`
	Version   string   `json:"version,omitempty" doc:"What the program says of its version. Only with probe" example:"2.1.329 (Claude Code)"`
	Detail    string   `json:"detail,omitempty" doc:"Where its credentials come from, or what is wrong. Only with probe" example:"logged in by claude.ai"`
}

// An AgentsQuery asks for the agents.
type AgentsQuery struct {
	Probe       bool     `json:"probe,omitempty" doc:"Ask their programs, which takes a second or more" example:"false"`
	Environment []string `json:"environment,omitempty" doc:"Environment of the user's call, KEY=VALUE, as in a task" example:"PATH=/usr/bin:/bin"`
}

// An AgentsBody is a list of agents, and what to end for another environment.
type AgentsBody struct {
	Agents     []AgentView `json:"agents" doc:"The agents, in the order in which a task that names none gets the first that is ready"`
	PID        int         `json:"pid" doc:"Process of the master" example:"4711"`
	Background bool        `json:"background,omitempty" doc:"It was started in the background" example:"true"`
}

// JSONLines is the content type of a list with one JSON object a line.
const JSONLines = "application/jsonl"

// A Look says for whom a list is written.
type Look struct {
	Width  int       `query:"width" minimum:"0" doc:"At most so many columns; 0: any number" example:"80"`
	Colour bool      `query:"colour" doc:"With colours, as terminals have them" example:"false"`
	Zone   string    `query:"location" default:"UTC" doc:"The zone of its times, of the IANA database" example:"Europe/Berlin"`
	Now    time.Time // in that zone
}

// ListHeader is the header with the number of tasks in a list that is no JSON array, and the accounts of those that are queued.
const ListHeader = "Stint-List"

// MustJSON returns an answer as it goes over the wire, with a line end. All of them marshal.
func MustJSON(v any) []byte {
	data, err := durable.JSONLine(v)
	if err != nil {
		panic("api: an answer does not marshal: " + err.Error())
	}
	return data
}

// Clip shortens a name that a client made up.
func Clip(s string) string { return state.Cut(strings.ToValidUTF8(s, "\uFFFD"), 100) }

// A Topic is a part of the manual, which the page shows too.
type Topic struct {
	Name     string // as in stint help NAME
	Title    string // what it is about
	Markdown []byte
}

// FormatCursor returns the cursor of a place in a list, which is not 0: of tasks it is a [state.Row.First], of messages
// a [session.Page.Begin]. In base 36 it is short, and does not look like a number that a client could reckon with.
func FormatCursor(place uint64) string { return strconv.FormatUint(place, 36) }

// ParseCursor is the inverse of FormatCursor; "" is 0.
func ParseCursor(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	place, err := strconv.ParseUint(s, 36, 64)
	if err != nil || place == 0 || FormatCursor(place) != s {
		return 0, task.BadCursor("it is none")
	}
	return place, nil
}

// ListPath returns the path and query of a list that f filters.
func ListPath(f state.Filter) string {
	q := url.Values{
		"limit": {strconv.Itoa(f.Limit)}, "session": {f.Session}, "label": {f.Label}, "tenant": {f.TenantID}, "queue": {f.Queue}, "agent": {f.Agent},
		"status": {strings.ReplaceAll(strings.Trim(fmt.Sprint(f.Status), "[]"), " ", ",")}, "prompts": {state.Flag(f.Prompts)},
	}
	path := "/v1/tasks?"
	if f.Text {
		path = "/v1/table?"
	}
	if f.Before != 0 {
		q.Set("cursor", FormatCursor(f.Before))
	}
	maps.DeleteFunc(q, func(_ string, v []string) bool { return v[0] == "" })
	return path + q.Encode()
}

// AdminRunOf returns a firing as document 004 has it.
func AdminRunOf(r *task.JobRun) AdminRun {
	return AdminRun{Name: r.Schedule, Status: r.Outcome, Duration: int64(1000 * r.Duration), Detail: cmp.Or(r.Detail, r.Reason), RanAt: r.Ended}
}

// QueueRowOf returns a due job as document 004 has it; instance returns what is known of an instance.
func QueueRowOf(j *jobs.Job, instance func(id string) (task.Instance, error)) QueueRow {
	row := QueueRow{ID: j.ID, Type: j.Action, Payload: map[string]string{"object_type": j.ObjectType, "object_id": j.ObjectID}, Attempts: j.Attempt, Error: j.LastError, CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt}
	row.Status = cmp.Or(map[string]string{jobs.Queued: "pending", jobs.Running: "running", jobs.Succeeded: "done"}[j.Status], "failed")
	if in, err := instance(j.ObjectID); err == nil && j.ObjectType == jobs.Instance {
		row.Payload = map[string]string{"instance_id": in.ID, "user_id": in.User, "tg_user_id": in.TgUser}
	}
	return row
}
