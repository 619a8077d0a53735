package shared

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// A Store is the queue as a worker uses it: a [Queue], or in a simulation a model of it.
type Store interface {
	Lease(ctx context.Context, h Holder, account string, most int, f Filter) ([]Task, error)
	Renew(ctx context.Context, h Holder, claims []Claim) ([]Claim, error)
	Start(ctx context.Context, h Holder, claims []Claim) error
	Wait(ctx context.Context, h Holder, c Claim, wait time.Duration, why string) error
	Finish(ctx context.Context, h Holder, ended []Ended) ([]Claim, error)
	GiveBack(ctx context.Context, h Holder, e Ended, begun bool, why string) error
	HeldBy(ctx context.Context, h Holder) (map[Claim]bool, error)
	Reclaim(ctx context.Context) error
	Cool(ctx context.Context, account string, wait time.Duration) error
	Beat(ctx context.Context, h Holder, w task.WorkerRow) error
}

// A Master is what a worker needs of the one that it is a part of.
type Master interface {
	// Submit enqueues a twin. The error says what is wrong with the task, or that the master takes none.
	Submit(ctx context.Context, s task.TaskSpec) (state.Task, error)
	// Cancel ends a twin, and returns when its agent has ended.
	Cancel(ctx context.Context, id, by string) (state.Task, error)
	// TaskRecord returns a twin with its runs.
	TaskRecord(id string) (task.TaskRecord, error)
	// TwinOf returns the twin with that idempotency key.
	TwinOf(key string) (t state.Task, ok bool)
	// Subscribe returns the changes of tasks from now on, until the reader lags too far behind.
	Subscribe(buffer int) (changes <-chan *task.Change, cancel func())
	// Room returns how many more tasks can begin with an account now, and until when it is rate-limited.
	Room(account string) (free int, cool time.Time)
	// IsLeaving reports that it begins nothing more, and ends once its runs have.
	IsLeaving() bool
}

// Options say how a worker works.
type Options struct {
	Holder
	Renew, Poll time.Duration // how often leases are renewed, and how often the queue is looked at though nothing tells of a task
	Processes   int           // tasks at the same time
	Margin      time.Duration // how long before its end a lease is given up: an agent needs that to end
	Filter      Filter
	Row         task.WorkerRow                               // what it says of itself
	Rows        func(*task.TaskRecord) (*tables.Rows, error) // makes the rows of a twin
	Accounts    func(ctx context.Context) ([]string, error)  // for which it leases; asked at each renewal
	SessionDir  func(key string) (string, error)             // makes the directory where the tasks of a session work

	Now func() time.Duration // a clock that counts the time that the machine sleeps, as that of gates
	Log *slog.Logger
}

// A lease is a task that the worker has.
type lease struct {
	Claim
	account string
	twin    string      // its id in the ledger
	until   *task.Lease // when it must have ended

	status  state.Status  // of the twin, by its newest change
	begun   bool          // its agent was started
	free    bool          // that it is given back is no attempt, though it has begun
	told    string        // what the database knows of it: that it runs, or why it waits
	failed  string        // what went wrong in its last run
	retry   time.Time     // when it is tried again
	waits   bool          // it has run and waits for another try: it has no slot
	unable  bool          // the machine lacks its program or login
	held    bool          // nobody knows whether its run has ended: it is nobody else's until the lease is over
	back    string        // why it is to be queued again by no fault of its own; "": it is not
	refused string        // why the master did not take it
	ending  atomic.Bool   // its twin is being canceled
	since   time.Duration // since when it could begin
}

// A Worker leases shared tasks and runs them by its master.
type Worker struct {
	o      Options
	store  Store
	master Master
	wake   <-chan struct{} // something was queued

	leases   map[string]*lease        // by twin; Run's goroutine's, as are these
	accounts []string                 // for which it leases
	cools    map[string]time.Time     // until when it has told that they are rate-limited
	dry      map[string]bool          // accounts for which the store had less than was asked for, and nothing has happened since
	rests    map[string]time.Duration // until when nothing is leased for accounts whose tasks the master did not take
	isEnding bool                     // its master has ended: nothing may take long
	troubles map[string]string        // what went wrong the last time, by what it did
	cancels  sync.WaitGroup

	until sync.Map // of [*task.Lease], by twin, for LeaseOf
}

// NewWorker returns a worker that has not begun.
func NewWorker(o Options, s Store, m Master, wake <-chan struct{}) *Worker {
	return &Worker{o: o, store: s, master: m, wake: wake, leases: map[string]*lease{}, cools: map[string]time.Time{}, dry: map[string]bool{}, rests: map[string]time.Duration{}, troubles: map[string]string{}}
}

// LeaseOf returns the lease under which a twin may run; nil if there is none any more. It may be called by any goroutine.
func (w *Worker) LeaseOf(twin string) *task.Lease {
	v, _ := w.until.Load(twin)
	lease, _ := v.(*task.Lease)
	if until, _ := lease.Until(); until <= w.o.Now() {
		w.until.Delete(twin) // it is canceled now, and given back
		return nil
	}
	return lease
}

// Run works until ctx ends, which is after the runs of the master have ended, or until that leaves and has no task any more.
func (w *Worker) Run(ctx context.Context) {
	defer w.cancels.Wait()
	changes, cancel := w.master.Subscribe(manyChanges)
	defer func() { cancel() }()
	renewed, polled := -w.o.Renew, -w.o.Poll
	for taken, isTold := false, false; ; {
		isLeaving := w.master.IsLeaving()
		if isLeaving && !isTold { // in its next beat
			renewed, isTold = -w.o.Renew, true
		}
		w.isEnding = ctx.Err() != nil
		if taken = taken || w.beat(isLeaving) && w.reconcileHeld(); taken {
			if w.isEnding {
				w.noteAll()
			}
			if w.isEnding || isLeaving {
				w.release(w.isEnding)
			}
			w.report()
			if w.isEnding || isLeaving && len(w.leases) == 0 {
				for _, l := range w.leases {
					w.o.Log.Warn("what became of a shared task could not be said to the database; a worker that is started here before its lease ends says so", "task", l.ID)
				}
				w.beat(true) // its row goes when it is three leases old: until then the conversations here wait for the next one
				return
			}
			isDue := w.o.Now()-polled >= w.o.Poll
			isUp := true // else no time is lost with more of it: its leases are to be renewed once it can be reached
			if w.o.Now()-renewed >= w.o.Renew {
				var all bool
				if isUp, all = w.renew(isLeaving); all {
					renewed = w.o.Now()
				} else if isUp {
					renewed += w.o.Poll // what somebody has locked is renewed soon
				}
			} else if isDue {
				isUp = w.reconcileHeld()
			}
			w.endLost()
			if isDue && isUp {
				isUp = w.try("reclaim leases that are over", w.store.Reclaim)
			}
			if isDue {
				clear(w.dry)
				polled = w.o.Now()
			}
			if isUp && !isLeaving {
				w.poll()
			}
		} else if w.isEnding {
			return
		}
		timer := time.NewTimer(min(w.o.Poll, w.o.Renew/4))
		select {
		case <-ctx.Done():
		case <-w.wake:
			clear(w.dry)
		case <-timer.C:
		case c, ok := <-changes:
			for ok && c != nil { // all that there are, so that they share what is written of them
				if l := w.leases[c.Task.ID]; c.Resync {
					w.noteAll()
				} else if l != nil {
					w.is(l, &c.Task)
				}
				select {
				case c, ok = <-changes:
				default:
					c = nil
				}
			}
			if !ok { // we lagged behind
				cancel()
				changes, cancel = w.master.Subscribe(manyChanges)
				w.noteAll()
			}
		}
		timer.Stop()
	}
}

const (
	manyChanges = 1 << 12         // how far a worker may lag behind its master
	manyBytes   = 4 << 20         // of results at once
	lastTimeout = 3 * time.Second // for what it says when that has ended
)

// try does something with the store, which gets a part of the time between two renewals, and reports whether it went well.
// The same trouble again is not logged again.
func (w *Worker) try(what string, do func(ctx context.Context) error) bool {
	limit := w.o.Renew / 2
	if w.isEnding {
		limit = min(limit, lastTimeout)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return w.noteTrouble(what, do(ctx))
}

func (w *Worker) noteTrouble(what string, err error) bool {
	if text := fmt.Sprint(err); err != nil && text != w.troubles[what] {
		w.o.Log.Warn("the worker could not "+what, "error", err)
		w.troubles[what] = text
	} else if err == nil {
		delete(w.troubles, what)
	}
	return err == nil
}

// poll takes what there is room for.
func (w *Worker) poll() {
	slots := w.o.Processes
	for _, l := range w.leases {
		if !l.waits {
			slots--
		}
	}
	for _, account := range w.accounts {
		room, cool := w.master.Room(account)
		if last := w.cools[account]; !cool.Equal(last) && (cool.After(time.Now()) || last.After(time.Now())) && w.try("say how long an account is rate-limited", func(ctx context.Context) error {
			return w.store.Cool(ctx, account, time.Until(cool))
		}) {
			w.cools[account] = cool
		}
		for _, l := range w.leases {
			if l.account == account && l.status == state.Queued && !l.waits { // it takes its place next
				room--
			}
		}
		most := min(slots, room)
		if most <= 0 || w.dry[account] || w.o.Now() < w.rests[account] {
			continue
		}
		until := w.o.Now() + w.o.TTL - w.o.Margin
		var list []Task
		var err error
		if !w.try("lease tasks", func(ctx context.Context) error {
			list, err = w.store.Lease(ctx, w.o.Holder, account, most, w.o.Filter)
			return err
		}) {
			if hasCode(err, locked) { // which is about this account
				continue
			}
			return
		}
		slots -= len(list)
		w.dry[account] = len(list) < most
		var all sync.WaitGroup
		for i := range list {
			l := &lease{Claim: Claim{list[i].ID, list[i].Attempt}, account: account, twin: newID(), until: task.NewLease(until), since: w.o.Now(), status: state.Queued}
			w.leases[l.twin] = l
			w.until.Store(l.twin, l.until)
			all.Go(func() { w.submit(l, &list[i]) })
		}
		all.Wait()
		for _, l := range w.leases {
			if l.account == account && l.back != "" && !l.begun {
				w.rest(l, 10*w.o.Poll)
			}
		}
	}
}

// rest leases nothing for the account of a lease that the master could not run, for a while.
func (w *Worker) rest(l *lease, d time.Duration) {
	w.rests[l.account] = w.o.Now() + d
	w.noteTrouble("run tasks of "+l.account, errors.New(l.back))
}

// submit makes the twin of a lease. What its master does not take has failed, for the reason that it says.
func (w *Worker) submit(l *lease, t *Task) {
	s := twinOf(t)
	s.ID, s.SharedID = l.twin, t.ID
	err := t.wrong
	if err == nil && s.SessionKey != "" { // its conversation may be found only where it began
		s.Isolation = ""
		s.Workspace, err = w.o.SessionDir(s.SessionKey)
	}
	if err == nil {
		var twin state.Task
		if twin, err = w.master.Submit(context.Background(), s); err == nil && twin.ID != s.ID {
			err = errors.New("the ledger has the twin of another lease with that number")
		}
	}
	var e *task.Error
	switch {
	case err == nil:
	case errors.As(err, &e) && e.Field != "account" && e.Field != "agent" && !slices.Contains([]task.Code{task.CodeBusy, task.CodeFull, task.CodeShortage, task.CodeStopped, task.CodeUnavailable}, e.Code):
		l.status, l.refused = state.Failed, e.Error()
	default: // it is full, or ends, or has no such account any more
		l.status, l.back = state.Canceled, "its worker could not take it: "+err.Error()
	}
}

// is takes over how a twin is now.
func (w *Worker) is(l *lease, t *state.Task) {
	l.status, l.begun, l.held = t.Status, l.begun || t.RunID != "", t.Orphaned()
	l.waits, l.failed, l.retry = t.Status == state.Queued && t.RunID != "", t.Error, t.NotBefore
	if _, mayRun := w.until.Load(l.twin); !mayRun && t.Status == state.Canceled { // as it was to begin
		l.back = cmp.Or(l.back, notRenewed)
	}
}

// due returns when a twin that waits can begin.
func (w *Worker) due(l *lease) time.Time {
	if _, cool := w.master.Room(l.account); cool.After(l.retry) {
		return cool
	}
	return l.retry
}

const notRenewed = "its worker could not renew the lease in time"

// noteAll looks at all twins.
func (w *Worker) noteAll() {
	for _, l := range w.leases {
		if r, err := w.master.TaskRecord(l.twin); err == nil {
			w.is(l, &r.Task)
		}
	}
}

const runs = "running"

// report writes to the store what has become of twins.
func (w *Worker) report() {
	var begun, back []*lease
	var ended []Ended
	for _, l := range w.leases {
		switch {
		case l.status == state.Canceled && l.back != "": // one that has ended well meanwhile is handed over
			back = append(back, l)
		case l.status.Terminal():
			if e, err := w.ended(l, l.refused == ""); l.unable {
				back = append(back, l)
			} else if task.ShortageOf(err) == 0 { // else it is tried again
				ended = append(ended, e)
			}
		case l.status == state.Running && l.told != runs:
			begun = append(begun, l)
		case l.waits && l.back == "" && l.told != l.failed:
			if w.try("say that a task waits", func(ctx context.Context) error {
				return w.store.Wait(ctx, w.o.Holder, l.Claim, time.Until(w.due(l)), tables.Storable(l.failed))
			}) {
				l.told = l.failed
			}
		}
	}
	if len(begun) > 0 && w.try("say that tasks have begun", func(ctx context.Context) error { return w.store.Start(ctx, w.o.Holder, claimsOf(begun)) }) {
		for _, l := range begun {
			l.told = runs
		}
	}
	for isUp := true; isUp && len(ended) > 0; { // large results one by one, as each has a time
		n, size := 0, 0
		for n < len(ended) && (n == 0 || size < manyBytes) {
			if n++; ended[n-1].Rows != nil {
				size += ended[n-1].Rows.Size
			}
		}
		var done []Claim
		isUp = w.try("hand over results", func(ctx context.Context) (err error) {
			done, err = w.store.Finish(ctx, w.o.Holder, ended[:n])
			return err
		})
		for _, l := range w.leases {
			if slices.Contains(done, l.Claim) {
				clear(w.dry) // a permit is free, and the next task of a session may begin
				w.forget(l)
			}
		}
		ended = ended[n:]
	}
	for _, l := range back {
		e, _ := w.ended(l, l.begun)
		var err error
		if w.try("give tasks back", func(ctx context.Context) error {
			err = w.store.GiveBack(ctx, w.o.Holder, e, l.begun && !l.free, l.back)
			return err
		}) {
			w.forget(l)
		} else if !hasCode(err, locked) {
			break // the store is away
		}
	}
}

// ended returns what is handed over of a lease, with its twin if there is one.
func (w *Worker) ended(l *lease, hasTwin bool) (e Ended, err error) {
	e.Claim, e.Refused = l.Claim, l.refused
	if !hasTwin {
		return e, nil
	}
	r, err := w.master.TaskRecord(l.twin)
	if t := &r.Task; t.Status == state.Failed && (t.Reason == state.ClassAgentMissing || t.Reason == state.ClassAuth) && !l.unable { // others may have program and login
		l.back, l.unable, l.free = "its worker could not run it: "+t.Error, true, true
		w.rest(l, w.o.TTL)
	}
	if err == nil {
		e.Rows, err = w.o.Rows(&r)
	}
	if err != nil {
		e.Refused = "its worker cannot read what has become of it: " + err.Error()
	}
	return e, err
}

func claimsOf(list []*lease) (claims []Claim) {
	for _, l := range list {
		claims = append(claims, l.Claim)
	}
	return claims
}

func (w *Worker) forget(l *lease) {
	delete(w.leases, cmp.Or(l.twin, l.ID))
	w.until.Delete(l.twin)
}

// renew prolongs all leases that it can, and says that the worker lives.
func (w *Worker) renew(isLeaving bool) (isUp, all bool) {
	until := w.o.Now() + w.o.TTL - w.o.Margin
	var kept []Claim
	isDone := len(w.leases) == 0 || w.try("renew its leases", func(ctx context.Context) (err error) {
		kept, err = w.store.Renew(ctx, w.o.Holder, claimsOf(slices.Collect(maps.Values(w.leases))))
		return err
	})
	for _, l := range w.leases {
		if l.back == "" && slices.Contains(kept, l.Claim) {
			l.until.Set(until)
		}
	}
	isUp = isDone && w.beat(isLeaving) && w.reconcileHeld()
	return isUp, isUp && len(kept) >= len(w.leases)
}

// beat says that the worker lives, or ends, and asks for its accounts.
func (w *Worker) beat(isLeaving bool) bool {
	return w.try("say that it lives", func(ctx context.Context) (err error) {
		if w.accounts, err = w.o.Accounts(ctx); err != nil {
			return err
		}
		row := w.o.Row
		row.Accounts, row.Draining = strings.Join(w.accounts, ","), isLeaving
		return w.store.Beat(ctx, w.o.Holder, row)
	})
}

// reconcileHeld finds out which leases it has lost, and which tasks are to be canceled. It ends leases that it does not know, as
// those that a master before this one had: their twins have ended, or are canceled now.
func (w *Worker) reconcileHeld() bool {
	var kept map[Claim]bool
	if !w.try("look at its leases", func(ctx context.Context) (err error) {
		kept, err = w.store.HeldBy(ctx, w.o.Holder)
		return err
	}) {
		return false
	}
	for _, l := range w.leases {
		if canceled, isKept := kept[l.Claim]; !isKept { // somebody else has it
			if l.until.Set(w.o.Now()); l.status.Terminal() {
				w.forget(l)
			}
		} else if canceled {
			w.end(l)
		}
		delete(kept, l.Claim)
	}
	for c := range kept { // those, or the answer to a lease was lost, or somebody has counted its attempts by hand
		if slices.ContainsFunc(slices.Collect(maps.Values(w.leases)), func(l *lease) bool { return l.ID == c.ID }) {
			continue // until the agent of the other one has ended
		}
		t, ok := w.master.TwinOf(twinKey(c.ID, c.Attempt))
		l := &lease{Claim: c, twin: t.ID, status: state.Canceled, back: "its worker was started anew, or did not receive it", until: task.NewLease(0)}
		if w.leases[cmp.Or(l.twin, c.ID)] = l; ok {
			if w.is(l, &t); t.Status.Terminal() && t.Status != state.Canceled {
				l.back = ""
			}
			w.end(l)
		}
	}
	return true
}

// endLost gives back what its master does not begin, and ends the twins of leases that are over: who has them now, or will have, is somebody else.
func (w *Worker) endLost() {
	for _, l := range w.leases {
		if until, _ := l.until.Until(); until > 0 && until <= w.o.Now() {
			l.back = cmp.Or(l.back, notRenewed)
			w.end(l)
		} else if l.status != state.Queued || l.held || w.due(l).After(time.Now()) {
			l.since = w.o.Now()
		} else if w.o.Now()-l.since >= w.o.TTL {
			l.back = cmp.Or(l.back, "its worker had no place for it")
			w.end(l)
		}
	}
}

// end cancels a twin, without waiting for that.
func (w *Worker) end(l *lease) {
	if l.status.Terminal() || l.ending.Swap(true) {
		return
	}
	w.cancels.Go(func() {
		if _, err := w.master.Cancel(context.Background(), l.twin, ledger.ByWorker); err != nil {
			w.o.Log.Warn("the twin of a shared task could not be canceled", "task", l.twin, "error", err)
			l.ending.Store(false) // it is tried again
		}
	})
}

// release gives back what has not begun, and if the runs of the master have ended, all that is left.
func (w *Worker) release(all bool) {
	for _, l := range w.leases {
		if l.status.Terminal() || l.status == state.Running || l.held || !all && l.back != "" { // what runs still could not be ended: its lease runs out
			continue
		}
		if l.back == "" { // what waits after a run is given back by no fault of its own; what begins just now was an attempt
			l.back, l.free = "its worker has ended", l.waits
		}
		if w.end(l); all { // nothing of it can begin any more
			l.status = state.Canceled
		}
	}
}
