package postgres

import (
	"log/slog"
	"time"

	"github.com/google/uuid"

	"stint/coordinator/redact"
	"stint/coordinator/task"
	"stint/ledger/follow"
	"stint/state"
)

// Options say where a mirror is and what it holds.
type Options struct {
	URL             func() (string, error) // asked before each connect, as a file that has it may change; its error is shown
	Host            string                 // whose rows are ours: this machine's name, or what is configured
	Hostname        string                 // this machine's name, for worker_registry
	StateDir        string                 // absolute path
	PoolSize        int                    // connections at most
	InlineThreshold int64                  // bytes; larger files are copied by path and hash
	OutputLimit     int                    // characters of stdout and of stderr that a run's row holds
	MaxAttempts     int                    // of tasks that do not say
	MaxConcurrency  int                    // runs that an account may have at the same time
	Version         string                 // of the program
	Worker          uuid.UUID              // names this process in worker_registry
	PID             int

	Redact *redact.Filter // masks secrets in the output of runs; nil: nothing is masked

	Log *slog.Logger     // nil: nothing is logged
	Now func() time.Time // nil: time.Now
}

// A Source is what is copied: a master, or a state directory as it was at some moment.
type Source interface {
	// Seq returns the number of the newest record.
	Seq() uint64
	// Follow returns the records of the journal after that seq.
	Follow(after uint64) *follow.Follower
	// TaskIDs returns the next ids, at most n, behind the first done ones of all tasks
	// that are known, in the order of age, those of the archive too.
	TaskIDs(done, n int) []string
	// TaskRecord returns a task as it is now. The error is task.CodeNotFound where
	// there is none of that id.
	TaskRecord(id string) (task.TaskRecord, error)
	// Accounts returns the accounts that are known.
	Accounts() []state.AccountUse
	// RunDir returns the path of a run's files.
	RunDir(runID string) string
}
