// Package coordinator runs tasks: it accepts them, decides which may run,
// starts agents for them, and writes every step into the ledger.
//
// One goroutine owns the fold and the files: the log's. Everything that changes something (a submit, a cancel, the start or end
// of a run) is a function that runs there, looks at the state and appends records; many that wait at the same moment share one
// write and one fdatasync. What was appended is applied to the state by the same code that replays the journal after a restart,
// and only then answered. So the order of events is the order of the records, and nothing is ever told that is not on the disk.
//
// Around it are: the dispatcher, which asks the state what is ready whenever something changed or a time has
// come; one goroutine for each run; and the heartbeat. All end before [Coordinator.Close] returns.
//
// The tasks themselves are in queue, over the fold of the ledger in store; dispatch decides what runs next,
// attempt runs it, query answers readers. Agents, HTTP and the mirror in PostgreSQL (agent, api, postgres)
// lie in the same folder, but beside them: this package gets them as small interfaces and imports none.
package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/dispatch"
	"stint/coordinator/query"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/ledger/journal"
	"stint/state"
	"stint/state/fold"
)

// A Coordinator is the master of one state directory. Its methods may be called by any goroutine.
type Coordinator struct {
	*queue.Store
	*admission.Admission
	*dispatch.Dispatcher
	*query.Query
	start time.Time

	mu      sync.Mutex // guards what follows
	http    string     // where the master can be called by HTTP; "": nowhere
	httpErr error      // why it cannot, though it should
}

// Open locks the state directory, replays the journal and takes over what was edited meanwhile. Nothing is
// started or ended before Run. The error is an *task.Error where a user can do something about it.
func Open(cfg queue.Config) (*Coordinator, error) {
	s, err := queue.Open(cfg)
	if err != nil {
		return nil, err
	}
	d := dispatch.New(s)
	c := &Coordinator{Store: s, Admission: d.Admission, Dispatcher: d, Query: query.New(s, d.Admission, d.Attempts, d), start: s.Config.Now()}
	s.Listen(c.hooks())
	return c, nil
}

// hooks are what the store calls.
func (c *Coordinator) hooks() queue.Hooks {
	return queue.Hooks{
		Changed: func(before, after *state.Task) {
			c.Counters.Change(before, after)
			c.Spend(before, after)
		},
		Committed: func(w *journal.Commit) {
			c.Counters.Commit(w, c.Config.Now())
			c.Attempts.Shortages.Written(w.Err)
		},
		Taken: c.EndTaken, Wake: c.Dispatcher.Wake,
	}
}

// Run recovers what was running, then dispatches until ctx ends, a handover was asked for and the
// runs have ended, or nothing was to be done for IdleExit. The error is not nil if the disk failed.
func (c *Coordinator) Run(ctx context.Context) error {
	besideCtx, stop := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	defer func() {
		stop()
		beside.Wait()
	}()
	beside.Go(func() { c.heartbeat(besideCtx) })
	proving, stopProving := context.WithCancel(ctx)
	defer stopProving()
	c.Recover(proving)
	c.Attempts.CleanTemp()
	beside.Go(func() { c.CompactWhenLarge(besideCtx) })
	beside.Go(func() { c.LookForMissing(besideCtx) })
	beside.Go(func() { c.PruneByTime(besideCtx) })
	c.DispatchUntil(ctx)
	stopProving()
	c.Shutdown()
	return c.Err()
}

// IsBusy reports whether a task runs, or may start within that time.
func (c *Coordinator) IsBusy(within time.Duration) (busy bool) {
	now := c.Config.Now()
	c.View(func(st *fold.State) {
		next := st.NextWake(now)
		busy = len(st.Running()) > 0 || !next.IsZero() && next.Sub(now) <= within
	})
	return busy
}

// Close ends what Open began. Run must have returned.
func (c *Coordinator) Close() error {
	return c.Store.Close(func() {
		if !c.IsGone() {
			_ = os.Remove(c.Config.HeartbeatPath) // it would say that we live
		}
	})
}

// Health returns how the master is.
func (c *Coordinator) Health() task.Health {
	h := task.Health{
		PID: os.Getpid(), Start: c.start.UTC(), Version: c.Config.Version, Socket: c.Config.Socket,
		StateDir: c.Config.StateDir, Background: c.Config.Background, Status: c.status(), Postgres: c.Mirror(),
	}
	for _, f := range c.Findings() {
		h.Findings = append(h.Findings, f.String())
	}
	h.Findings = append(h.Findings, c.Rejected()...)
	h.Shortage, h.LastError = c.Shortage(), c.LastError()
	c.View(func(st *fold.State) {
		h.Paused, h.PauseWhy = st.Paused()
		h.Counts, h.Running = st.Counts(), st.Running()
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	h.HTTP, h.APIEnabled = c.http, c.http != ""
	if c.httpErr != nil {
		h.HTTPError = c.httpErr.Error()
	}
	return h
}

// ServesHTTP notes at which address, such as 127.0.0.1:7433, the master can be called by HTTP, for
// Health and the heartbeat; "" is none. err says why there is none though there should be.
func (c *Coordinator) ServesHTTP(addr string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.http, c.httpErr = addr, err
}

// status returns in one word how the master is.
func (c *Coordinator) status() task.HealthStatus {
	paused, _ := c.Paused()
	switch {
	case c.diskTrouble() != nil:
		return task.HealthFailing
	case c.IsLeaving():
		return task.HealthEnding
	case paused:
		return task.HealthPaused
	}
	return task.HealthOK
}

// diskTrouble says, as an *Error, why the journal cannot be written; nil if it can, or nobody knows.
func (c *Coordinator) diskTrouble() error {
	at, err := c.Counters.LastWrite()
	switch {
	case c.Err() != nil:
		return c.StoppedError()
	case err == nil || c.Config.Now().Sub(at) >= queue.FailedFor:
		return nil
	case errors.Is(err, journal.ErrFull):
		return c.FullError()
	}
	return &task.Error{Code: task.CodeStopped, Message: fmt.Sprintf("the journal could not be written: %v", err), Hint: "check the disk"}
}

// Unready says, as an *Error, why no task is accepted; nil if tasks are, also while dispatch is paused.
func (c *Coordinator) Unready() error {
	if err := c.diskTrouble(); err != nil {
		return err
	}
	if c.IsLeaving() {
		return &task.Error{Code: task.CodeStopped, Message: "the master is stopping: it starts nothing more, and exits when its runs have ended", Hint: "try again"}
	}
	return nil
}

// A beat is the content of heartbeat.json.
type beat struct {
	task.Health
	Time time.Time `json:"time"` // when it was written: older than three intervals means dead
	Seq  int       `json:"seq"`  // counts up while the master lives
}

// heartbeat writes heartbeat.json at once and in each interval until ctx ends: information, never a truth.
func (c *Coordinator) heartbeat(ctx context.Context) {
	for seq, on := 1, true; on; seq, on = seq+1, task.Sleep(ctx, c.Config.HeartbeatInterval) == nil {
		data, err := json.MarshalIndent(beat{c.Health(), c.Config.Now().UTC(), seq}, "", "  ")
		if err == nil && !c.IsGone() {
			err = durable.WriteFile(durable.OS, c.Config.HeartbeatPath, append(data, '\n'))
		}
		if err != nil {
			c.Trouble("the heartbeat could not be written", err)
		}
	}
}

// Shortage returns what the machine lacks while tasks wait for it; nil if nothing.
func (c *Coordinator) Shortage() *task.Shortage {
	s, ok := c.Attempts.Shortages.Present()
	if !ok || queue.Read(c.Store, (*fold.State).Queued) == 0 {
		return nil
	}
	s.Next = c.Limits().Again
	return &s
}
