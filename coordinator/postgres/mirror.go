package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"stint/coordinator/postgres/server"
	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
	"stint/ledger/follow"
	"stint/state"
)

// Bounds of how a mirror behaves when its database cannot be used.
const (
	firstWait   = 200 * time.Millisecond // before the second try; doubled each time
	longestWait = 5 * time.Second
	openTimeout = 15 * time.Second // to connect and to read how far the mirror goes
	lastTimeout = 3 * time.Second  // to hand over what is new when the master ends
	mostSkipped = 10
)

// A Mirror keeps the mirror of one ledger true, for as long as its Run runs. Status may be called by any goroutine, at any time.
type Mirror struct {
	o Options

	lasts    bool // it tries again: what is wrong may pass
	patience int  // how many times the usual time a batch gets; the goroutine's that writes

	src atomic.Pointer[Source] // of Run; nil: there is none yet

	mu      sync.Mutex // guards what follows
	status  task.MirrorStatus
	waiting time.Time      // since when the oldest record waits that is not in the mirror; zero: none was seen
	failing map[string]int // how often in a row a task could not be read here
}

// New returns a mirror that has not begun.
func New(o Options) *Mirror {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Mirror{o: o, patience: 1, status: task.MirrorStatus{State: task.MirrorConnecting}, failing: map[string]int{}}
}

// Run keeps the mirror of src true until ctx ends, through every failure of the database.
// Then it takes a moment to hand over what is new.
func (m *Mirror) Run(ctx context.Context, src Source) {
	m.lasts = true
	m.src.Store(&src)
	var moves []time.Time // when the mirror was found moved on by another writer
	for wait := firstWait; ctx.Err() == nil; {
		err := m.session(ctx, func() (Source, error) { return src, nil }, func(s *session) error { return s.run(ctx, forever) })
		if ctx.Err() != nil || errors.Is(err, follow.ErrClosed) {
			break
		}
		if errors.Is(err, errMoved) {
			moves = append(moves, m.o.Now())
			moves = moves[max(0, len(moves)-manyMoves):]
			if len(moves) == manyMoves && m.o.Now().Sub(moves[0]) < movesTime {
				err = task.Conflict("give each machine a name of its own (host in [postgres])",
					"another process writes the mirror under the name %s all the time, it seems for another ledger in a directory of the same name", m.o.Host)
			}
		}
		if isAgain(err) {
			_ = task.Sleep(ctx, firstWait)
			continue // the next session reads where it is
		}
		m.failed(err)
		_ = task.Sleep(ctx, wait/2+rand.N(wait/2)) // not all hosts at the same moment
		wait = min(2*wait, longestWait)
	}
	m.handOver(src)
}

// manyMoves within movesTime are more than stint sync makes.
const (
	manyMoves = 5
	movesTime = 10 * time.Minute
)

// handOver is the last thing that a mirror does: its master ends, and the mirror should
// have what came last, if the database can be used.
func (m *Mirror) handOver(src Source) {
	if m.Status().State != task.MirrorFollowing {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastTimeout)
	defer cancel()
	err := m.session(ctx, func() (Source, error) { return src, nil }, func(s *session) (err error) {
		if end := src.Seq(); s.at.seq < end {
			err = s.run(ctx, end)
		}
		_, _ = s.db.Exec(ctx, "DELETE FROM worker_registry WHERE worker_id = $1", [16]byte(m.o.Worker)) // any other master does it too, later
		return err
	})
	if err != nil {
		m.o.Log.Info("the mirror in PostgreSQL does not have the last records; the next master hands them over", "error", err)
	}
}

// Status returns how far the mirror is.
func (m *Mirror) Status() task.MirrorStatus {
	seq := m.newestSeq()
	m.mu.Lock()
	st, waiting := m.status, m.waiting
	m.mu.Unlock()
	if seq > st.Seq {
		st.LagRecords = seq - st.Seq
	}
	if st.LagRecords > 0 && !waiting.IsZero() {
		st.LagSeconds = max(0, m.o.Now().Sub(waiting).Seconds())
	}
	return st
}

// connected notes a connection, and what is to be said of it.
func (m *Mirror) connected(t server.Target, warning string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if warning != "" && warning != m.status.Warning {
		m.o.Log.Warn(warning)
	}
	m.status.Target, m.status.Warning = t.String(), warning
}

// is notes what the mirror does now.
func (m *Mirror) is(now task.MirrorState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.status.State != now {
		m.o.Log.Info("the mirror in PostgreSQL: "+string(now), "database", m.status.Target)
	}
	if m.status.State = now; now == task.MirrorRebuilding {
		m.status.Skipped = nil
		if m.waiting.IsZero() {
			m.waiting = m.o.Now()
		}
	}
}

// newestSeq returns the number of the source's newest record. The lock is not held: the source has one of its own.
func (m *Mirror) newestSeq() uint64 {
	if src := m.src.Load(); src != nil {
		return (*src).Seq()
	}
	return 0
}

// failed notes why a session has ended. The same trouble again is not logged again.
func (m *Mirror) failed(err error) {
	newest := m.newestSeq()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.status.State != task.MirrorFailing || m.status.LastError != err.Error() {
		m.o.Log.Warn("the mirror in PostgreSQL waits: " + err.Error())
	}
	m.status.State, m.status.LastError, m.status.ErrorAt = task.MirrorFailing, err.Error(), m.o.Now().UTC()
	m.status.Failures++
	if m.waiting.IsZero() && newest > m.status.Seq {
		m.waiting = m.o.Now()
	}
}

// pending notes since when the oldest record of a batch waits that is written now.
func (m *Mirror) pending(since time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = since
}

// wrote notes a batch that is in the mirror, which goes to seq now.
func (m *Mirror) wrote(b *batch, seq uint64) {
	newest := m.newestSeq()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range b.tasks {
		m.status.Rows += uint64(1 + len(t.Runs) + len(t.Files))
	}
	if m.status.Seq = seq; seq >= newest {
		m.waiting = time.Time{}
	}
}

// unreadable notes that a task could not be read, and reports whether the mirror is to go on without it.
func (m *Mirror) unreadable(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing[id]++
	return m.failing[id] >= 3 || !m.lasts
}

// skipped notes a task that is not in the mirror as it should be.
func (m *Mirror) skipped(id string, why error) {
	m.o.Log.Error("a task is not in the mirror in PostgreSQL", "task", id, "error", why)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.status.Skipped) < mostSkipped {
		m.status.Skipped = append(m.status.Skipped, fmt.Sprintf("task %s: %v", id, why))
	}
}

// Options say where a mirror is and what it holds.
type Options struct {
	tables.Maker                          // without RunDir, which the source knows
	URL            func() (string, error) // asked before each connect, as a file that has it may change; its error is shown
	Hostname       string                 // this machine's name, for worker_registry
	StateDir       string                 // absolute path
	PoolSize       int                    // connections at most
	MaxConcurrency int                    // runs that an account may have at the same time
	Version        string                 // of the program
	Worker         uuid.UUID              // names this process in worker_registry
	PID            int
	Figures        func(table string, since time.Time) (rows []any, err error) // see putFigures; nil: there are none
	Anew           bool                                                        // the mirror is made anew, also in place of that of another state directory

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
	// TaskRecord returns a task as it is now. The error is task.CodeNotFound where there is none of that id.
	TaskRecord(id string) (task.TaskRecord, error)
	// Accounts returns the accounts that are known.
	Accounts() []state.AccountUse
	// RunDir returns the path of a run's files.
	RunDir(runID string) string
}
