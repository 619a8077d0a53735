package query

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/journal"
	"stint/state"
	"stint/state/fold"
)

var (
	secondsBounds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	recordsBounds = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)

// Counters count for a master. Their methods may be called by any goroutine.
type Counters struct {
	agents map[string]task.Agent // that are known

	mu     sync.Mutex // guards what follows
	n      task.Counted
	models map[string]bool

	lastErr error // of the last write to the journal
	lastAt  time.Time
}

// newCounters returns counters that tell these agents apart.
func newCounters(agents map[string]task.Agent) *Counters {
	c := &Counters{agents: agents, models: map[string]bool{"": true}}
	c.n = task.Counted{
		Outcomes: map[task.Ending]uint64{}, Retries: map[task.Retry]uint64{}, RateLimits: map[string]uint64{}, Usage: map[task.Spender]state.Usage{},
		Commits: task.NewHistogram(recordsBounds), Sync: task.NewHistogram(secondsBounds), Append: task.NewHistogram(secondsBounds),
	}
	return c
}

// Commit counts a write to the journal, which ended at that time.
func (c *Counters) Commit(w *journal.Commit, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastErr, c.lastAt = w.Err, at; w.Err != nil {
		c.n.Failures++
		return
	}
	c.n.Commits.Observe(float64(w.Records))
	c.n.Sync.Observe(w.Sync.Seconds())
	for _, d := range w.Waits {
		c.n.Append.Observe(d.Seconds())
	}
}

// LastWrite returns when the journal was last written, and why nothing of that was kept; nil if it was.
func (c *Counters) LastWrite() (at time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lastAt, c.lastErr
}

// Change counts what the record of a task has changed.
func (c *Counters) Change(before, after *state.Task) {
	const maxModels = 50 // that are told apart
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case before.Status == "" && !after.Status.Terminal():
		c.n.Added++
	case before.Status == "" || before.Status.Terminal(): // it was brought back from the archive, or is queued anew
	case after.Status.Terminal():
		c.n.Outcomes[endingOf(after)]++
	case before.Status == state.Running && after.Status == state.Queued:
		if kind := retryOf(after); kind != "" {
			c.n.Retries[kind]++
		}
	}
	if before.Status == state.Running && after.Status != state.Running && after.Reason == state.ClassRateLimited {
		c.n.RateLimits[c.name(before.AccountName())]++
	}
	if before.Status == "" || after.By == ledger.ByHand || before.Usage == after.Usage {
		return // it comes back from the archive, or a person wrote what it has used
	}
	model := after.Model
	switch {
	case c.models[model]:
	case len(c.models) > maxModels || !task.IsArgument(model): // a person may have written anything
		model = task.Other
	default:
		c.models[model] = true
	}
	who := task.Spender{Agent: c.name(cmp.Or(before.Agent, after.Agent)), Model: model}
	c.n.Usage[who] = c.n.Usage[who].Plus(after.Usage.Grown(before.Usage))
}

// endingOf returns how a task ended.
func endingOf(t *state.Task) task.Ending {
	reason := string(t.Reason)
	switch {
	case reason == "" && t.Status == state.Canceled: // by a person who wrote no more than the status
		reason = string(state.ClassCanceled)
	case reason != "" && !t.Reason.Known():
		reason = task.Other
	}
	return task.Ending{Status: t.Status, Reason: reason}
}

// retryOf returns why a task is queued again after a run; "" if that is none of a retry: a
// person did it, the next step waits for its turn, or the account for a rate limit.
func retryOf(t *state.Task) task.Retry {
	switch t.Reason {
	case "", state.ClassRateLimited:
		return ""
	case state.ClassInterrupted, state.ClassOrphaned:
		return task.RetryInterrupted
	case state.ClassSessionLost, state.ClassContextFull:
		return task.RetrySession
	}
	return task.RetryAttempt
}

// name returns the name of an agent or account as it is shown.
func (c *Counters) name(name string) string {
	if c.agents[name] == nil {
		return task.Other
	}
	return name
}

// Metrics returns the master's metrics. It costs about the same however many tasks there are.
func (q *Query) Metrics() task.Metrics {
	now := q.tasks.Config.Now()
	m := task.Metrics{
		Start: q.start, Version: q.tasks.Config.Version, MaxWorkers: q.tasks.Config.MaxWorkers, MaxQueued: q.tasks.Config.MaxQueued,
		Findings: len(q.tasks.Findings()) + len(q.tasks.Rejected()), JournalSize: q.tasks.Size(), Mirror: q.tasks.Mirror(),
	}
	q.Counters.mu.Lock()
	n := q.Counters.n
	n.Outcomes, n.Retries, n.RateLimits, n.Usage = maps.Clone(n.Outcomes), maps.Clone(n.Retries), maps.Clone(n.RateLimits), maps.Clone(n.Usage)
	n.Commits, n.Sync, n.Append = n.Commits.Clone(), n.Sync.Clone(), n.Append.Clone()
	q.Counters.mu.Unlock()
	m.Counted = n
	q.tasks.View(func(st *fold.State) {
		m.Tasks, m.Held = st.Counts(), st.Held()
		m.Paused, _ = st.Paused()
		if since, ok := st.WaitingSince(now); ok {
			m.OldestWait = now.Sub(since)
		}
		for _, name := range slices.Sorted(maps.Keys(q.Counters.agents)) {
			a := st.Account(name)
			m.Accounts = append(m.Accounts, task.AccountMetrics{Name: name, Held: a.Hold, Cooling: a.CoolUntil.After(now)})
		}
	})
	return m
}
