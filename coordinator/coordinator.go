package coordinator

import (
	"context"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// A Coordinator is the master of one state directory. Its methods may be called
// by any goroutine.
type Coordinator struct {
	*task.Store
	*admission.Admission
	start    time.Time
	counters *counters // see Metrics
	noted    bool      // that this master has started a run; the dispatcher's

	mu      sync.Mutex // guards the fields up to the next blank line
	http    string     // where the master can be called by HTTP; "": nowhere
	httpErr error      // why it cannot, though it should

	runsMu    sync.Mutex            // guards the fields up to the next blank line
	runs      map[string]*run       // by task id: being started, at work, or being ended
	leftovers map[string]state.Task // verify commands of the last master that may still be alive, by run: task and lane
	short     *lacking              // what the machine lacks; nil: nothing
	wasShort  *lacking              // the one before, or nil, and when that was over
	shortOver time.Time

	wake    chan struct{}  // capacity 1: the dispatcher must look
	ended   chan struct{}  // capacity 1: a run has ended
	running sync.WaitGroup // the runs' goroutines
}

// Open locks the state directory, replays the journal and takes over what was
// edited meanwhile. Nothing is started or ended before Run. The error is an *task.Error
// where a user can do something about it.
func Open(cfg task.Config) (*Coordinator, error) {
	c := &Coordinator{
		runs: map[string]*run{}, leftovers: map[string]state.Task{},
		wake: make(chan struct{}, 1), ended: make(chan struct{}, 1), counters: newCounters(cfg.Agents),
	}
	var err error
	if c.Store, err = task.Open(cfg); err != nil {
		return nil, err
	}
	c.start, c.Admission = c.Config.Now(), admission.New(c.Store, liveRuns{c})
	c.Listen(task.Hooks{Committed: c.committed, Applied: c.endChanged, Changed: c.counters.change, Wake: c.poke})
	return c, nil
}

func (c *Coordinator) committed(w *ledger.Commit) {
	c.counters.commit(w, c.Config.Now())
	c.journalWritten(w.Err)
}

// endChanged ends the runs of tasks that are no longer running: a person has edited them.
func (c *Coordinator) endChanged(ids []string) {
	for _, id := range ids {
		c.runsMu.Lock()
		r := c.runs[id]
		c.runsMu.Unlock()
		if r == nil || !r.recorded {
			continue
		}
		if t, err := c.Peek(id); err == nil && t.Status != state.Running {
			r.cancel(task.ErrCanceled)
		}
	}
}

func (c *Coordinator) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run recovers what was running, then dispatches until ctx ends, a handover was
// asked for and the runs have ended, or nothing was to be done for IdleExit. The
// error is not nil if the disk failed.
func (c *Coordinator) Run(ctx context.Context) error {
	beat := make(chan struct{})
	beatCtx, stopBeat := context.WithCancel(context.Background())
	go func() {
		defer close(beat)
		c.heartbeat(beatCtx)
	}()
	defer func() {
		stopBeat()
		<-beat
	}()
	c.enterSafeMode(ctx)
	proving, stopProving := context.WithCancel(ctx)
	c.recover(proving)
	c.recoverChecks(proving)
	var beside sync.WaitGroup
	beside.Go(func() { c.compactWhenLarge(beatCtx) })
	beside.Go(func() { c.lookForMissing(beatCtx) })
	defer func() {
		stopBeat()
		beside.Wait()
	}()
	c.dispatchUntil(ctx)
	stopProving()
	c.shutdown()
	if c.Err() == nil {
		c.forgetStarts()
	}
	return c.Err()
}

// shutdown gives runs the grace time to end by themselves, then ends them; they
// are recorded as interrupted and run again under the next master. One that does not
// end even so (the kernel does not let a process go, or a disk stays full) is left to
// the next master as a kill -9 would leave it.
func (c *Coordinator) shutdown() {
	c.Shut()
	grace, last := time.NewTimer(c.Config.Grace), time.NewTimer(task.EndLimit(c.Config.Grace))
	defer grace.Stop()
	defer last.Stop()
	failed := c.Done()
	for c.isBusy() {
		select {
		case <-c.ended:
		case <-grace.C:
			c.cancelRuns(task.ErrShutdown)
		case <-failed:
			failed = nil
			c.cancelRuns(task.ErrShutdown)
		case <-last.C:
			c.Config.Log.Error("some runs cannot be ended: the next master looks after them", "tasks", c.busyTasks())
			return
		}
	}
	c.running.Wait()
}

// StopNow ends all runs at once, without the grace time of a shutdown.
func (c *Coordinator) StopNow() { c.cancelRuns(task.ErrShutdown) }

func (c *Coordinator) cancelRuns(cause error) {
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	for _, r := range c.runs {
		r.cancel(cause)
	}
}

func (c *Coordinator) isBusy() bool { return len(c.busyTasks()) > 0 }

// busyTasks gives the ids of the tasks that have a run.
func (c *Coordinator) busyTasks() []string {
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	return slices.Sorted(maps.Keys(c.runs))
}

// Close ends what Open began. Run must have returned.
func (c *Coordinator) Close() error {
	if !c.IsGone() {
		_ = os.Remove(c.Config.HeartbeatPath) // it would say that we live
	}
	return c.Store.Close()
}

// liveRuns is the [Live] of a coordinator.
type liveRuns struct{ c *Coordinator }

func (l liveRuns) TaskOf(id string) *state.Task {
	l.c.runsMu.Lock()
	defer l.c.runsMu.Unlock()
	r := l.c.runs[id]
	if r == nil {
		return nil
	}
	t := r.task
	t.Workspace = r.home
	return &t
}

func (l liveRuns) Cancel(id string, cause error) {
	l.c.runsMu.Lock()
	defer l.c.runsMu.Unlock()
	if r := l.c.runs[id]; r != nil {
		r.cancel(cause)
	}
}
