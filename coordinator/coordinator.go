package coordinator

import (
	"context"
	"os"
	"sync"
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/dispatch"
	"stint/coordinator/query"
	"stint/coordinator/queue"
	"stint/ledger/journal"
	"stint/state"
	"stint/state/fold"
)

// A Coordinator is the master of one state directory. Its methods may be called
// by any goroutine.
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

// Open locks the state directory, replays the journal and takes over what was
// edited meanwhile. Nothing is started or ended before Run. The error is an *task.Error
// where a user can do something about it.
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
			c.Shortages.Written(w.Err)
		},
		Applied: c.EndChanged, Wake: c.Dispatcher.Wake,
	}
}

// Run recovers what was running, then dispatches until ctx ends, a handover was
// asked for and the runs have ended, or nothing was to be done for IdleExit. The
// error is not nil if the disk failed.
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
