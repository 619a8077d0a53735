// Package dispatch decides who runs next. Its [Dispatcher] asks the fold what is ready whenever
// something has changed or a time has come, and appends `running` before anything is spawned. It
// hands tasks of a rate-limited account to their fallback agents, ends those that can never run,
// puts back what was running when the last master ended, and stops starting anything where
// masters die one after the other.
//
// The runs at work are a list with a lock of its own; nobody holds that and the fold's.
package dispatch

import (
	"sync"
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/attempt"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/state"
)

// A Dispatcher starts what is ready, and looks after what an earlier master has left. Its
// exported methods may be called by any goroutine.
type Dispatcher struct {
	Admission *admission.Admission
	Attempts  *attempt.Attempts
	Shortages *attempt.Shortages
	tasks     *queue.Store
	runs      *runs
	wake      chan struct{}  // capacity 1: the dispatcher must look
	running   sync.WaitGroup // the runs' goroutines
	noted     bool           // that this master has started a run; the goroutine of Run has it
}

// New returns the dispatcher of a store, with its admission and its attempts.
func New(s *queue.Store) *Dispatcher {
	d := &Dispatcher{
		tasks: s, Shortages: attempt.NewShortages(s), wake: make(chan struct{}, 1),
		runs: &runs{ended: make(chan struct{}, 1), byTask: map[string]*attempt.Run{}, leftovers: map[string]state.Task{}},
	}
	d.Admission = admission.New(s, d.runs)
	d.Attempts = attempt.New(s, d.Admission, d.Shortages)
	return d
}

// EndChanged ends the runs of tasks that are no longer running: a person has edited them.
func (d *Dispatcher) EndChanged(ids []string) {
	for _, id := range ids {
		r := d.runs.get(id)
		if r == nil || !r.Recorded {
			continue
		}
		if t, err := d.tasks.Peek(id); err == nil && t.Status != state.Running {
			r.Cancel(task.ErrCanceled)
		}
	}
}

// Wake makes the dispatcher look for what is ready. It never blocks.
func (d *Dispatcher) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Shutdown ends what the dispatcher has started, once DispatchUntil has returned. It leaves the
// runs the grace time to end by themselves, then ends them; they are recorded as interrupted
// and run again under the next master. One that does not end even so (the kernel does not let a
// process go, or a disk stays full) is left to the next master as a kill -9 would leave it.
func (d *Dispatcher) Shutdown() {
	defer func() {
		if d.tasks.Err() == nil {
			d.forgetStarts()
		}
	}()
	d.tasks.Shut()
	grace, last := time.NewTimer(d.tasks.Config.Grace), time.NewTimer(queue.EndLimit(d.tasks.Config.Grace))
	defer grace.Stop()
	defer last.Stop()
	failed := d.tasks.Done()
	for len(d.runs.ids()) > 0 {
		select {
		case <-d.runs.ended:
		case <-grace.C:
			d.runs.cancelAll(task.ErrShutdown)
		case <-failed:
			failed = nil
			d.runs.cancelAll(task.ErrShutdown)
		case <-last.C:
			d.tasks.Config.Log.Error("some runs cannot be ended: the next master looks after them", "tasks", d.runs.ids())
			return
		}
	}
	d.running.Wait()
}

// StopNow ends all runs at once, without the grace time of a shutdown.
func (d *Dispatcher) StopNow() { d.runs.cancelAll(task.ErrShutdown) }

// RunOf returns the run of a task, which may be just being started or ended; nil if it has none.
func (d *Dispatcher) RunOf(id string) *attempt.Run { return d.runs.get(id) }
