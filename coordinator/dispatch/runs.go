package dispatch

import (
	"maps"
	"slices"
	"sync"
	"time"

	"stint/coordinator/attempt"
	"stint/coordinator/task"
	"stint/state"
	"stint/state/lanes"
)

// runs are the runs at work, and those that are being started or ended. Its lock is its own: nobody who holds it asks for the fold.
type runs struct {
	ended chan struct{} // capacity 1: a run has come off the list

	mu     sync.Mutex              // guards what follows, also in inUse
	byTask map[string]*attempt.Run // by task id
}

// get returns the run of a task; nil if it has none.
func (l *runs) get(id string) *attempt.Run {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byTask[id]
}

// put registers a run in the place of the one before it in its attempt.
func (l *runs) put(r *attempt.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byTask[r.Task.ID] = r
}

// remove takes a run off the list.
func (l *runs) remove(r *attempt.Run) {
	r.Cancel(nil)
	l.mu.Lock()
	delete(l.byTask, r.Task.ID)
	l.mu.Unlock()
	task.Wake(l.ended)
}

// ids returns what is on the list, sorted.
func (l *runs) ids() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.byTask))
}

// ifNone calls f and reports so if nothing is on the list, to which nothing comes meanwhile.
func (l *runs) ifNone(f func() bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.byTask) == 0 && f()
}

// cancelAll ends all runs.
func (l *runs) cancelAll(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.byTask {
		r.Cancel(cause)
	}
}

// TaskOf implements [admission.Live].
func (l *runs) TaskOf(id string) *state.Task {
	if r := l.get(id); r != nil {
		return r.AsTask()
	}
	return nil
}

// Cancel implements [admission.Live].
func (l *runs) Cancel(id string, cause error) {
	if r := l.get(id); r != nil {
		r.Cancel(cause)
	}
}

// reserve registers runs for tasks that are ready, most with the others: so a cancel that comes right behind the
// record of a start finds its run, and nothing else takes the lane meanwhile.
func (l *runs) reserve(most int, ready []state.Task, newRun func(*state.Task) *attempt.Run) map[string]*attempt.Run {
	reserved := map[string]*attempt.Run{}
	l.mu.Lock()
	defer l.mu.Unlock()
	busy := len(l.byTask)
	for i := range ready {
		if busy+len(reserved) >= most {
			break
		}
		r := newRun(&ready[i])
		if l.inUse(r) {
			r.Cancel(nil)
			continue
		}
		l.byTask[r.Task.ID], reserved[r.Task.ID] = r, r
	}
	return reserved
}

// replace puts the runs that were started into the places that were reserved, and gives the others back.
func (l *runs) replace(reserved map[string]*attempt.Run, started []*attempt.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range started {
		l.byTask[r.Task.ID] = r
		delete(reserved, r.Task.ID)
	}
	for id, r := range reserved {
		r.Cancel(nil)
		delete(l.byTask, id)
	}
}

// bound adds to limits which runs wait for a save of tasks.md to settle, and whether one finds out whether a shortage is over.
func (l *runs) bound(lim *lanes.Limits) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lim.Settling = map[string]bool{}
	for id, r := range l.byTask {
		if lim.Settling[id] = r.Settling.Load(); r.Probe {
			lim.Again = time.Time{}
		}
	}
}

// inUse reports whether a run that is still being ended holds the task, its lane or its session.
func (l *runs) inUse(r *attempt.Run) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(l.byTask)), r.InWayOf)
}
