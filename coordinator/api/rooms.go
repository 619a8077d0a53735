package api

import (
	"context"
	"io"
	"time"

	"stint/coordinator/api/logs"
	"stint/coordinator/api/web"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/session"
	"stint/state"
)

// Rooms are what a server needs of a master. Their methods may be called by any goroutine. An error that a client should be
// able to act on is, or wraps, a [*task.Error]. The argument by of a method names who asked for the change, for the ledger.
type Rooms struct {
	Master
	Schedules Schedules
	Jobs      Jobs
	Fleet     Fleet
	Shared    Shared // nil: no database is configured
}

// Master is what a coordinator does for a server, beside what others ask of it as well.
type Master interface {
	submitter
	logs.Master
	web.Master

	// Tasks are accepted, shown and changed. A ref is an id, a unique piece of it, or @last.

	// Preview returns what would be accepted and run for specs, and keeps nothing.
	Preview(ctx context.Context, specs []task.TaskSpec, isList bool) ([]task.TaskPreview, error)
	// Rows is List for who writes the tasks down: encode is called for those that have ended, and what it
	// makes is kept. It depends on the task alone, and must not call the master.
	Rows(f state.Filter, encode func(*state.Task) ([]byte, error)) ([]state.Row, error)
	// Queue returns the tasks that wait in a lane, in the order in which they will run.
	Queue(key string) []state.Task
	// Why says in one sentence why a task is not running, or how it ended.
	Why(ref string) (string, error)
	// Waits returns what the task of that id waits for in a few words, "" if for nothing, and what Why returns.
	Waits(id string) (short, why string)
	// BeginWait notes that a run waits for a task, until done is called, or returns why it may not.
	BeginWait(run, ref string) (done func(), err error)
	// Wait returns when the task has ended, or ctx has.
	Wait(ctx context.Context, ref string) (state.Task, error)
	// Raw returns the ledger's sections of a task.
	Raw(ctx context.Context, ref string) ([]byte, error)
	// Live returns when the agent of a running task last wrote anything, or when its run began if it has not yet; what the run
	// does now, nil if that is not known; and whether it has ended, and its result waits until a save of tasks.md is settled.
	Live(id string) (last time.Time, event *task.LogEvent, settling bool)
	// Edit changes fields of a task that waits.
	Edit(ctx context.Context, ref string, p task.Patch, by string) (state.Task, error)
	// Cancel ends a task.
	Cancel(ctx context.Context, ref, by string) (state.Task, error)
	// Remove takes a task that does not run out of all lists.
	Remove(ctx context.Context, ref, by string) (state.Task, error)
	// Retry queues an ended task again.
	Retry(ctx context.Context, ref, by string) (state.Task, error)
	// Hold lets a queued task wait until it is released.
	Hold(ctx context.Context, ref, by string) (state.Task, error)
	// Release lets a held task run.
	Release(ctx context.Context, ref, by string) (state.Task, error)
	// Move changes a queued task's place in its lane.
	Move(ctx context.Context, ref string, to task.Place, by string) (state.Task, error)
	// SetAccount lets tasks use an account, or lets none start with it.
	SetAccount(ctx context.Context, id string, enabled bool, by string) (state.AccountUse, error)

	// What is kept of the runs of tasks. A run is named by its id, a unique piece of it, or the
	// number from 1 of one of the agent; "" is the last one.

	// Runs returns all runs of a task, the oldest first.
	Runs(ctx context.Context, ref string) ([]task.TaskRun, error)
	// SentPrompt returns what the agent was sent in a run of a task.
	SentPrompt(ctx context.Context, ref, run string) (task.SentPrompt, error)
	// Files returns the files of a task: those that were collected after its last run, or
	// with run what lies in the directory of that one.
	Files(ctx context.Context, ref, run string) (task.TaskFiles, error)
	// OpenFile returns what is in a file of a task.
	OpenFile(ctx context.Context, ref, run, name string) (task.Content, error)

	// What changes.

	// SubscribeAfter is Subscribe, and returns what was missed since a record; without changes where there is more of it.
	SubscribeAfter(after uint64, buffer int) (missed []*task.Change, changes <-chan *task.Change, cancel func())

	// Sessions, accounts, usage and notes. A session is named by its key or its id.

	Sessions() []state.Session
	// Session returns a session and the last n messages of its transcript, or of those before a place; 0: all of them.
	Session(ref string, before int64, n int) (state.Session, session.Page, error)
	// Usage adds up what runs have used.
	Usage(ctx context.Context, q task.UsageQuery) ([]task.UsageRow, error)
	// SearchMemory searches the notes of a workspace as for a task.
	SearchMemory(ctx context.Context, q task.MemoryQuery) (task.MemoryResult, error)

	// The start of tasks.

	// Pause makes the master start no more tasks, durably; those at work go on.
	Pause(ctx context.Context, reason, by string) error
	// Resume makes the master start tasks again.
	Resume(ctx context.Context, by string) error
	// Handover makes the master start nothing more, and end after its runs.
	Handover(ctx context.Context) error
	// Call keeps an idle master from ending, until end is called. A request is one call, unless it watches.
	Call() (end func())

	// The files that hold all tasks.

	// Dump writes the whole state as text, the same for the same state.
	Dump(w io.Writer) error
	// Reconcile takes over tasks.md now; with accept also what is quarantined as the work of a formatter.
	Reconcile(ctx context.Context, accept bool) (task.Reconciled, error)
	// Compact merges records and moves what ended more than olderThan ago to the archive.
	Compact(ctx context.Context, olderThan time.Duration, b wire.CompactBody) (wire.Compacted, error)
	// Prune removes files of tasks that ended more than olderThan ago, and those beyond retention_size;
	// with dryRun it only says which.
	Prune(ctx context.Context, olderThan time.Duration, dryRun bool) (task.Pruned, error)

	// How the master is. Health is about the process, and Unready about tasks.

	// Unready returns why no task is accepted just now; nil if tasks are.
	Unready() error
	Metrics() task.Metrics
	// Findings returns what is wrong in the ledger.
	Findings() []task.Finding
	// Paused reports whether dispatch is paused, and why.
	Paused() (paused bool, reason string)
	// Shortage returns what the machine lacks while tasks wait for it; nil if nothing.
	Shortage() *task.Shortage
}
