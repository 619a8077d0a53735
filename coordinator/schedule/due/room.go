// Package due keeps the queue of due jobs: who wants something done with an object of memory at
// some time enqueues a job, and workers pull those that are due.
//
// The jobs are records of jobs.md, which is kept as tasks.md is. A worker has a job until its lease
// ends; then the job returns, and an attempt is spent. Each end of a job is a line of audit.jsonl.
package due

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"stint/coordinator/store"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/archive"
	"stint/ledger/durable"
	"stint/ledger/journal"
	"stint/ledger/reconcile"
	"stint/state"
	"stint/state/jobs"
)

// Options are what a [Room] needs. Dir, Now and NewID must be set.
type Options struct {
	Dir   string                        // the state directory, whose lock the caller holds
	Watch bool                          // jobs.md is watched for what people write
	Keep  time.Duration                 // how long jobs that ended stay in jobs.md; 0: 30 days
	Now   func() time.Time              // the clock
	NewID func() string                 // a new id each time
	Tell  func(kind, name, text string) // hears of dead letters: job-dead-letter; nil: nobody does
	Log   *slog.Logger                  // nil: none
	Hide  func(text string) string      // masks known secrets in what workers report; nil: none is known
}

// A Room keeps the due jobs of a state directory. Its methods may be called by any goroutine. Their
// errors are those of package task where a client can do something about it.
type Room struct {
	*store.Store[*jobs.State]
	opts  Options
	limit int64      // the size of the journal from which on it is compacted
	tell  sync.Mutex // held while ends are told of in audit.jsonl, each once
}

const (
	lease        = 5 * time.Minute // how long a worker has a job
	lookEvery    = 5 * time.Second
	compactQuiet = 10 * time.Minute // how long nobody must have saved jobs.md by hand
	compactSize  = 8 << 20
)

// Open reads jobs.md and takes over what was edited meanwhile.
func Open(opts Options) (*Room, error) {
	opts.Keep = cmp.Or(opts.Keep, 30*24*time.Hour)
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	if opts.Hide == nil {
		opts.Hide = func(text string) string { return text }
	}
	r := &Room{opts: opts, limit: compactSize}
	r.Store = store.New(store.Options[*jobs.State]{
		Ledger: journal.Options{
			Dir: opts.Dir, Files: ledger.JobFiles, Watch: opts.Watch, Now: opts.Now,
			Rules: EditRules(func(f func(*jobs.State)) { r.View(f) }),
			OnDelete: func(gone map[string]bool) []ledger.Record {
				return store.Read(r.Store, func(st *jobs.State) []ledger.Record { return st.Deleted(gone, r.now()) })
			},
			Notify: func(n ledger.Notice) {
				level := slog.LevelInfo
				if n.Damage || n.Finding != nil {
					level = slog.LevelWarn
				}
				opts.Log.Log(context.Background(), level, n.Text)
			},
		},
		New: func(journal.Reader) *jobs.State { return jobs.New() },
		Apply: func(st *jobs.State, s *ledger.Section, isNews bool) error {
			err := st.Apply(s)
			if err != nil && isNews {
				opts.Log.Warn("a record of jobs.md was not folded", "record", s.Seq, "error", err)
			}
			return err
		},
	})
	return r, r.Store.Open()
}

// Reconcile takes over what people changed in jobs.md now.
func (r *Room) Reconcile(ctx context.Context, accept bool) (report reconcile.Report, err error) {
	report, err = r.Store.Reconcile(ctx, accept)
	return report, r.errorOf(err)
}

// EditRules decide about what a person has written in jobs.md. view calls its argument with the fold.
func EditRules(view func(func(*jobs.State))) reconcile.Rules {
	return reconcile.Rules{
		Begin: func() (check func(*ledger.Section) error, implied func(*ledger.Record) []ledger.Pair) {
			var save *jobs.Save
			view(func(st *jobs.State) { save = st.NewSave() })
			return func(sec *ledger.Section) (err error) {
				view(func(*jobs.State) { err = save.Check(sec) })
				return err
			}, nil
		},
		KeepOnCopy: jobs.Copied,
	}
}

// now returns the time as it stands in the ledger.
func (r *Room) now() time.Time { return r.opts.Now().UTC().Truncate(time.Millisecond) }

// change makes a change durable.
func (r *Room) change(ctx context.Context, f func(*jobs.State, *ledger.Tx) error) error {
	return r.errorOf(r.Update(ctx, f))
}

// errorOf returns the error of package task for what the ledger has refused, or could not keep, and any other as it is.
func (r *Room) errorOf(err error) error {
	refused, isRefused := errors.AsType[*journal.RefusedError](err)
	switch {
	case isRefused:
		return &task.Error{Code: task.CodeConflict, Message: "jobs.md was left as it is: " + refused.Why, Hint: cmp.Or(refused.Hint, "try again")}
	case errors.Is(err, journal.ErrFull), errors.Is(err, syscall.ENOSPC):
		return &task.Error{Code: task.CodeFull, Message: fmt.Sprintf("the disk of %s is full; nothing was kept", r.opts.Dir), Hint: "make room and try again"}
	case errors.Is(err, journal.ErrClosed):
		return &task.Error{Code: task.CodeStopped, Message: "the queue of due jobs takes no more changes: " + err.Error(), Hint: "try again; stint doctor says more"}
	}
	return err
}

// wrong returns the error for a field that [jobs] has checked; nil where nothing is wrong.
func wrong(field string, err error) error {
	if err == nil {
		return nil
	}
	return task.Wrong(field, "stint help jobs", "%v", err)
}

// Enqueue adds a job. Where a job has its key already, that one is the answer and isNew false, or a
// conflict if it asks for something else.
func (r *Room) Enqueue(ctx context.Context, spec jobs.Spec) (job jobs.Job, isNew bool, err error) {
	if err := wrong(spec.Check()); err != nil {
		return job, false, err
	}
	newID := r.opts.NewID()
	err = r.change(ctx, func(st *jobs.State, tx *ledger.Tx) (err error) {
		job, isNew, err = r.enqueue(st, tx, spec, newID, r.now())
		return err
	})
	return job, isNew, err
}

func (r *Room) enqueue(st *jobs.State, tx *ledger.Tx, spec jobs.Spec, newID string, now time.Time) (job jobs.Job, isNew bool, err error) {
	tx.Claim("key " + spec.IdempotencyKey)
	if id := st.ByKey(spec.IdempotencyKey); id != "" {
		job, err = r.find(st, id)
		was := job.Spec
		if !job.CreatedAt.Equal(job.UpdatedAt) {
			was.RunAt = spec.RunAt // it may have another one by now
		}
		if err == nil && was != spec {
			err = task.Conflict("stint job show "+id, "job %s has the idempotency key %s and asks for something else", id, spec.IdempotencyKey)
		}
		return job, false, err
	}
	if err := wrong("run_at", jobs.CheckTime(spec.RunAt, now)); err != nil {
		return job, false, err
	}
	job = jobs.Job{ID: newID, Spec: spec, Status: jobs.Queued, CreatedAt: now, UpdatedAt: now}
	_, isThere := st.Job(job.ID)
	if _, isArchived := st.Archived(job.ID); isThere || isArchived {
		return jobs.Job{}, false, fmt.Errorf("the new id %s is that of another job, which stays as it is; try again", job.ID)
	}
	tx.Append(jobs.Record(nil, &job))
	return job, true, nil
}

// Pull hands out jobs that are due to a worker, who has them until their lease ends: by run_at, then priority.
func (r *Room) Pull(ctx context.Context, p jobs.Pull) (list []jobs.Job, err error) {
	if err := wrong(p.Check(r.now())); err != nil {
		return nil, err
	}
	err = r.change(ctx, func(st *jobs.State, tx *ledger.Tx) error {
		now := r.now()
		list = st.Due(p)
		for i := range list {
			was := list[i]
			j := &list[i]
			j.Status, j.WorkerID, j.LeaseUntil, j.UpdatedAt = jobs.Running, p.WorkerID, now.Add(lease), now
			tx.Append(jobs.Record(&was, j))
		}
		return nil
	})
	return list, err
}

// act makes a change to one job, and returns the job behind it. Where f changes nothing, nothing is kept.
func (r *Room) act(ctx context.Context, id string, f func(st *jobs.State, tx *ledger.Tx, j *jobs.Job) error) (job jobs.Job, err error) {
	err = r.change(ctx, func(st *jobs.State, tx *ledger.Tx) error {
		was, err := r.find(st, id)
		if job = was; err == nil {
			err = f(st, tx, &job)
		}
		if err != nil || job == was {
			return err
		}
		if _, isArchived := st.Archived(job.ID); isArchived {
			tx.Append(jobs.Record(nil, &job)) // all of it brings it back
		} else {
			tx.Append(jobs.Record(&was, &job))
		}
		return nil
	})
	return job, err
}

// Ack ends a job that was done, and queues the next one if the worker names a time for it.
//
// Its line of audit.jsonl is written before the job ends, as that of a dead letter is before it is
// marked: a crash in between can leave a line too many, but no end without a line.
func (r *Room) Ack(ctx context.Context, id string, a jobs.Ack) (job jobs.Job, err error) {
	if err := wrong(a.Check()); err != nil {
		return job, err
	}
	r.tell.Lock()
	defer r.tell.Unlock()
	now := r.now()
	if job, err = r.Job(id); err != nil {
		return job, err
	}
	if isAgain, err := acknowledge(&job, &a, now); err != nil || isAgain {
		return job, err
	}
	if err := r.audit(&job, r.opts.Hide(a.Before), r.opts.Hide(a.After), r.opts.Hide(a.Evidence)); err != nil {
		return job, err
	}
	return r.act(ctx, job.ID, func(st *jobs.State, tx *ledger.Tx, j *jobs.Job) error {
		isAgain, err := acknowledge(j, &a, now)
		if err != nil || isAgain || a.NextActionAt.IsZero() || a.NoNext {
			return err
		}
		next := j.Spec
		next.RunAt, next.IdempotencyKey = a.NextActionAt, ""
		err = wrong(next.Check())
		id := st.ByKey(next.IdempotencyKey)
		if old, _ := st.Job(id); id != "" && (id == j.ID || old.Status != jobs.Queued && old.Status != jobs.Running) { // that one is over
			next.IdempotencyKey += ":" + state.ExactTime(now)
		}
		if err == nil {
			_, _, err = r.enqueue(st, tx, next, r.opts.NewID(), now)
		}
		if errors.Is(err, &task.Error{Code: task.CodeConflict}) {
			err = nil // such a job is queued, with another priority
		}
		return err
	})
}

// acknowledge makes a job that was done of j. isAgain says that it is one already, because the
// answer to the first request was lost.
func acknowledge(j *jobs.Job, a *jobs.Ack, now time.Time) (isAgain bool, err error) {
	if j.Status == jobs.Succeeded && (a.WorkerID == "" || a.WorkerID == j.WorkerID) && a.AuditEventID == j.AuditEventID && a.NextActionAt.Equal(j.NextActionAt) {
		return true, nil
	}
	if err := checkOwner(j, a.WorkerID, now); err != nil {
		return false, err
	}
	if !a.NextActionAt.IsZero() && !a.NoNext {
		if err := wrong("next_action_at", jobs.CheckTime(a.NextActionAt, now)); err != nil {
			return false, err
		}
	}
	j.Status, j.NextActionAt, j.AuditEventID, j.LeaseUntil, j.UpdatedAt = jobs.Succeeded, a.NextActionAt, a.AuditEventID, time.Time{}, now
	return false, nil
}

// Fail ends an attempt: the job is queued again a while later, or is a dead letter, of which Run tells.
func (r *Room) Fail(ctx context.Context, id string, f jobs.Fail) (job jobs.Job, err error) {
	if err := wrong(f.Check()); err != nil {
		return job, err
	}
	f.Error = r.opts.Hide(f.Error)
	return r.act(ctx, id, func(_ *jobs.State, _ *ledger.Tx, j *jobs.Job) error {
		now, delay := r.now(), time.Duration(j.RetryDelaySec)*time.Second
		if f.RetryDelaySec != nil {
			delay = time.Duration(*f.RetryDelaySec) * time.Second
		}
		isRequeued := j.Status == jobs.Queued && j.RunAt.Equal(j.UpdatedAt.Add(delay))
		if (isRequeued || j.Status == jobs.DeadLetter) && j.Reason() == f.Error && (f.WorkerID == "" || f.WorkerID == j.WorkerID) {
			return nil // the answer to the first request was lost
		}
		err := checkOwner(j, f.WorkerID, now)
		if err == nil {
			spend(j, f.Error, now, now.Add(delay))
		}
		return err
	})
}

// Wait notes what a queued job waits for; "": for nothing but its time.
func (r *Room) Wait(ctx context.Context, id, why string) error {
	_, err := r.act(ctx, id, func(_ *jobs.State, _ *ledger.Tx, j *jobs.Job) error {
		if j.Status == jobs.Queued && j.WaitsFor != why {
			j.WaitsFor, j.UpdatedAt = why, r.now()
		}
		return nil
	})
	return err
}

// spend takes an attempt that has failed or was lost from a job; again is when the next one may be.
func spend(j *jobs.Job, why string, now, again time.Time) {
	j.Attempt++
	j.Status, j.LastError, j.LeaseUntil, j.UpdatedAt = jobs.DeadLetter, &why, time.Time{}, now
	if j.Attempt < j.MaxAttempts {
		j.Status, j.RunAt = jobs.Queued, again
		if j.ObjectType == jobs.Instance {
			j.Status = jobs.Failed
		}
	}
}

// RetryFailed queues the jobs about instances again that have failed and have attempts left, and returns how many.
func (r *Room) RetryFailed(ctx context.Context) (n int, err error) {
	err = r.change(ctx, func(st *jobs.State, tx *ledger.Tx) error {
		n = 0
		for _, was := range st.List(jobs.Filter{Status: jobs.Failed}) {
			if j := was; j.ObjectType == jobs.Instance && j.Attempt > 0 && j.Attempt < j.MaxAttempts { // else a person has ended it
				j.Status, j.RunAt, j.UpdatedAt = jobs.Queued, r.now(), r.now()
				tx.Append(jobs.Record(&was, &j))
				n++
			}
		}
		return nil
	})
	return n, err
}

// checkOwner returns why a worker may not end an attempt at a job.
func checkOwner(j *jobs.Job, worker string, now time.Time) error {
	hint := "stint job show " + j.ID
	switch {
	case j.Status != jobs.Running:
		return task.Conflict(hint, "%s", state.Because(fmt.Sprintf("job %s is not running, it is %s", j.ID, j.Status), j.Reason()))
	case worker != "" && worker != j.WorkerID:
		return task.Conflict(hint, "job %s is not yours: %s has it until %s", j.ID, j.WorkerID, state.FormatTime(j.LeaseUntil))
	case !now.Before(j.LeaseUntil):
		return task.Conflict(hint, "the lease of job %s ended at %s, and another worker may have it soon", j.ID, state.FormatTime(j.LeaseUntil))
	}
	return nil
}

// Retry queues a job that has ended otherwise than well again, now and with all its attempts.
func (r *Room) Retry(ctx context.Context, id string) (jobs.Job, error) {
	return r.act(ctx, id, func(_ *jobs.State, _ *ledger.Tx, j *jobs.Job) error {
		if j.Status != jobs.DeadLetter && j.Status != jobs.Failed {
			return task.Conflict("stint job ls --status "+jobs.DeadLetter, "job %s is %s; only a dead letter is queued again", j.ID, j.Status)
		}
		now := r.now()
		j.Status, j.RunAt, j.UpdatedAt, j.Attempt, j.AuditEventID = jobs.Queued, now, now, 0, ""
		return nil
	})
}

// Job returns a job by its id, or a unique piece of it.
func (r *Room) Job(id string) (job jobs.Job, err error) {
	r.View(func(st *jobs.State) { job, err = r.find(st, id) })
	return job, err
}

// find returns the job that ref stands for, also an archived one.
func (r *Room) find(st *jobs.State, ref string) (job jobs.Job, err error) {
	ids := st.Find(ref)
	switch len(ids) {
	case 0:
		return job, &task.Error{Code: task.CodeNotFound, Message: fmt.Sprintf("there is no job %q", ref), Hint: "stint job ls"}
	case 1:
	default:
		return job, task.Ambiguous("jobs", ref, ids)
	}
	e, isArchived := st.Archived(ids[0])
	if !isArchived {
		job, _ = st.Job(ids[0])
		return job, nil
	}
	s, err := archive.ReadRecord(nil, r.opts.Dir, e)
	if err != nil {
		return job, err
	}
	return jobs.ReadArchived(s)
}

// List returns jobs that are in jobs.md, those first that are due first.
func (r *Room) List(f jobs.Filter) []jobs.Job {
	f.Limit = min(cmp.Or(max(f.Limit, 0), jobs.DefaultLimit), jobs.MaxLimit)
	return store.Read(r.Store, func(st *jobs.State) []jobs.Job { return st.List(f) })
}

// HasKey reports whether a job has an idempotency key, also one in the archive.
func (r *Room) HasKey(key string) bool {
	return store.Read(r.Store, func(st *jobs.State) bool { return st.ByKey(key) != "" })
}

// Where returns the jobs for which is holds, those first that are due first.
func (r *Room) Where(is func(*jobs.Job) bool) []jobs.Job {
	return store.Read(r.Store, func(st *jobs.State) []jobs.Job { return st.Where(jobs.Filter{}, is) })
}

// Metrics returns the figures of now.
func (r *Room) Metrics() jobs.Metrics {
	return store.Read(r.Store, func(st *jobs.State) jobs.Metrics { return st.Metrics(r.now()) })
}

// Run takes jobs from workers whose lease has ended, tells of dead letters and keeps jobs.md short, until ctx ends.
func (r *Room) Run(ctx context.Context) {
	for on := true; on; on = task.Sleep(ctx, lookEvery) == nil && r.Err() == nil {
		if err := errors.Join(r.reclaim(ctx), r.bury(ctx), r.shorten(ctx)); err != nil && ctx.Err() == nil {
			r.opts.Log.Warn("cannot process due jobs, trying again", "error", err)
		}
	}
}

// reclaim takes back what was lost.
func (r *Room) reclaim(ctx context.Context) error {
	return r.change(ctx, func(st *jobs.State, tx *ledger.Tx) error {
		now := r.now()
		for _, was := range st.List(jobs.Filter{Status: jobs.Running}) {
			if was.LeaseUntil.After(now) && !was.LeaseUntil.After(now.Add(2*lease)) { // else a clock was wrong when it was pulled
				continue
			}
			j := was
			spend(&j, fmt.Sprintf("the lease of worker %s ended at %s without an answer", was.WorkerID, state.FormatTime(was.LeaseUntil)), now, was.RunAt)
			tx.Append(jobs.Record(&was, &j))
		}
		return nil
	})
}

// shorten compacts when the journal has grown to twice its size.
func (r *Room) shorten(ctx context.Context) error {
	if r.Size() < r.limit {
		return nil
	}
	_, err := r.Compact(ctx, r.opts.Keep, false, compactQuiet)
	if r.limit = max(compactSize, 2*r.Size()); err != nil {
		r.limit = r.Size() + compactSize/8 // soon again
	}
	return err
}

// bury tells of dead letters that nobody was told of: each has a line of audit.jsonl, whose id is its audit event from then on.
func (r *Room) bury(ctx context.Context) error {
	r.tell.Lock()
	defer r.tell.Unlock()
	for _, j := range store.Read(r.Store, func(st *jobs.State) []jobs.Job { return st.List(jobs.Filter{Status: jobs.DeadLetter}) }) {
		if j.AuditEventID != "" {
			continue
		}
		if err := r.audit(&j, "", "", ""); err != nil {
			return err
		}
		if r.opts.Tell != nil {
			// The reason is a worker's or an agent's, of any length: it does not leave this machine.
			r.opts.Tell("job-dead-letter", j.ID, fmt.Sprintf("job %s (%s of %s) has used up its %s: stint job show %[1]s", state.ShortID(j.ID), j.Action, j.ObjectID, ledger.Plural(j.Attempt, "attempt", "attempts")))
		}
		if _, err := r.act(ctx, j.ID, func(_ *jobs.State, _ *ledger.Tx, now *jobs.Job) error {
			if now.UpdatedAt.Equal(j.UpdatedAt) {
				now.AuditEventID = auditID(&j)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// auditID names the end of a job: who reads a line twice, because a crash or a lost answer came in between, knows it by that.
func auditID(j *jobs.Job) string { return j.ID + "@" + state.ExactTime(j.UpdatedAt) }

// audit appends the line of a job that has ended to audit.jsonl.
func (r *Room) audit(j *jobs.Job, before, after, evidence string) error {
	err := durable.AppendLine(durable.OS, filepath.Join(r.opts.Dir, "audit.jsonl"), struct {
		ID   string    `json:"id"`
		Time time.Time `json:"time"`
		*jobs.Job
		Before   string `json:"before,omitempty"`
		After    string `json:"after,omitempty"`
		Evidence string `json:"evidence,omitempty"`
	}{auditID(j), j.UpdatedAt, j, before, after, evidence}, true)
	if err != nil {
		err = fmt.Errorf("audit.jsonl in %s could not be written, which comes before job %s is %s: %w", r.opts.Dir, j.ID, j.Status, err)
	}
	return r.errorOf(err)
}

// Compact merges the records of each job, and moves those that ended longer than olderThan ago, and a day at
// least, to the archive: those of a day count for its budgets. With dry it only says what it would do. It is refused if somebody has saved jobs.md by hand
// for less than quiet.
func (r *Room) Compact(ctx context.Context, olderThan time.Duration, dry bool, quiet time.Duration) (ledger.CompactReport, error) {
	before := r.now().Add(-max(olderThan, 24*time.Hour))
	report, err := r.Store.Compact(ctx, dry, quiet, func(st *jobs.State, out func(ledger.Moved) error) (ledger.Keep, error) {
		return st.Compact(before, out)
	})
	return report, r.errorOf(err)
}
