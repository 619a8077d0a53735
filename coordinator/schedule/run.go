package schedule

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
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// A Room is what a Runner asks the master.
type Room interface {
	// Controls returns the control records with a prefix by their names.
	Controls(prefix string) map[string]state.Control
	// ChangeControl changes the control record with that prefix and name.
	ChangeControl(ctx context.Context, prefix, name string, change func(*state.Control)) error
	// Fire submits a task and changes the control record of a schedule, in one durable change.
	Fire(ctx context.Context, spec task.TaskSpec, name string, change func(*state.Control)) (state.Task, error)
	// Fired returns the task with that idempotency key; ok is false if there is none any more.
	Fired(key string) (t state.Task, ok bool)
	// Call keeps an idle master from ending, until end is called.
	Call() (end func())
	// IsLeaving reports whether the master starts nothing more.
	IsLeaving() bool
}

// A Job is something that the master itself does. detail says in one sentence what it has done.
type Job func(ctx context.Context) (detail string, err error)

// Options are what a Runner needs besides the master.
type Options struct {
	List func() ([]Schedule, error)    // what is configured now, each checked; with an error what was before
	Jobs map[string]Job                // by name
	Max  int                           // jobs that run at the same time
	Path string                        // of job_runs.jsonl
	Keep time.Duration                 // how long its lines stay; 0: for ever
	Tell func(kind, name, text string) // hears of what a person should know: schedule-missed, schedule-failed
	Now  func() time.Time
	Log  *slog.Logger
}

// A Runner fires schedules. Its methods may be called by any goroutine.
type Runner struct {
	room    Room
	opts    Options
	slots   chan struct{} // jobs at work
	wake    chan struct{}
	history history

	mu      sync.Mutex // guards what follows, and lets one pass or act be at work at a time
	jobs    sync.WaitGroup
	running map[string]bool      // jobs at work, by the keys of their firings
	paused  map[string]bool      // schedules, when they were looked at last
	gone    map[string]time.Time // since when schedules are not there that have a control record
	told    string               // the mistake in the configuration that was logged last
}

// New returns a runner. It does nothing before [Runner.Run].
func New(room Room, opts Options) *Runner {
	return &Runner{
		room: room, opts: opts, slots: make(chan struct{}, opts.Max), wake: make(chan struct{}, 1), history: history{path: opts.Path},
		running: map[string]bool{}, paused: map[string]bool{}, gone: map[string]time.Time{},
	}
}

const (
	lookEvery = 30 * time.Second // also where nothing is due: a clock may have been set, or the machine have slept
	onTime    = time.Minute      // how late a firing can be and was not missed
	goneMost  = time.Minute      // how long a schedule can be away, as an editor may save its file, and is the same
	mostOpen  = 100              // firings of a schedule that have not ended: each names those before it
	aheadMost = 24 * time.Hour   // what is settled further in the future than that, a clock was wrong
)

// Run fires schedules until ctx ends, and the jobs at work have returned.
func (r *Runner) Run(ctx context.Context) {
	stay := func() {}
	defer func() { stay() }()
	defer r.jobs.Wait()
	pruned := time.Time{}
	for {
		if now := r.opts.Now(); now.Sub(pruned).Abs() > 24*time.Hour {
			pruned = now
			if err := r.history.prune(r.opts.Keep, now); err != nil {
				r.opts.Log.Warn("the history of schedules could not be shortened", "error", err)
			}
		}
		next, isActive := r.look(ctx)
		left := stay
		if stay = func() {}; isActive { // a master in the background stays while any schedule is active
			stay = r.room.Call()
		}
		left()
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(lookEvery, next.Sub(r.opts.Now()))):
		case <-r.wake:
		}
	}
}

// look fires what is due, and returns when the next firing is, and whether any schedule is active.
func (r *Runner) look(ctx context.Context) (next time.Time, isActive bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next = r.opts.Now().Add(lookEvery)
	list, err := r.opts.List()
	if err != nil && err.Error() != r.told {
		r.told = err.Error()
		r.opts.Log.Warn("a mistake in the schedules", "error", err)
	}
	controls := r.room.Controls(state.ControlSchedule)
	for i := range list {
		s, c := &list[i], controls[list[i].Name]
		delete(controls, s.Name)
		if r.room.IsLeaving() || ctx.Err() != nil {
			continue // the next master fires it
		}
		if err := r.lookAt(ctx, s); err != nil {
			r.opts.Log.Warn("cannot process a schedule, trying again", "schedule", s.Name, "error", err)
			delete(r.paused, s.Name)         // as after a crash
			isActive = isActive || !c.Paused // or nobody would be there to look
			continue
		}
		for i, instant := range strings.Fields(r.room.Controls(state.ControlSchedule)[s.Name].OpenFirings) { // also what the end of a master has interrupted
			if at, err := time.Parse(time.RFC3339, instant); err == nil && s.Job != "" && !r.running[s.key(instant)] && (i == 0 || s.Overlap == "parallel") {
				r.start(ctx, s, at, instant)
			}
		}
		if !r.paused[s.Name] {
			isActive = true
			for _, at := range s.Next(r.room.Controls(state.ControlSchedule)[s.Name].FiredThrough, 1) {
				if due := s.due(at); due.Before(next) {
					next = due
				}
			}
		}
	}
	for name := range controls { // of schedules that are not there any more
		if r.gone[name].IsZero() {
			r.gone[name] = r.opts.Now()
		} else if err == nil && r.opts.Now().Sub(r.gone[name]).Abs() >= goneMost {
			_ = r.room.ChangeControl(ctx, state.ControlSchedule, name, func(c *state.Control) { *c = state.Control{} }) // it is tried again
			delete(r.paused, name)
			delete(controls, name)
		}
	}
	maps.DeleteFunc(r.gone, func(name string, _ time.Time) bool { _, is := controls[name]; return !is })
	return next, isActive || len(r.gone) > 0 // an idle master waits until they are settled
}

// lookAt does for one schedule what is to be done now.
func (r *Runner) lookAt(ctx context.Context, s *Schedule) error {
	now := r.opts.Now()
	c, err := r.settle(ctx, s)
	if err != nil {
		return err
	}
	text := strings.TrimSpace(s.Cron + " " + s.Zone)
	was, isKnown := r.paused[s.Name]
	if !isKnown { // a master that was killed may have written the line of what it did not fire, and no more
		line, err := r.history.last(s.Name, func(run *task.JobRun) bool { return run.Started.IsZero() && !run.Scheduled.After(now.Add(aheadMost)) })
		if err != nil {
			return err
		}
		if line != nil && line.Scheduled.After(c.FiredThrough) && c.Cron == text {
			if err := r.room.ChangeControl(ctx, state.ControlSchedule, s.Name, through(line.Scheduled)); err != nil {
				return err
			}
			c.FiredThrough = line.Scheduled
		}
	}
	r.paused[s.Name] = c.Paused
	switch {
	case c.Cron != text || c.FiredThrough.IsZero() || c.FiredThrough.After(now.Add(aheadMost)) || was && !c.Paused: // what was due before it was so was not missed
		return r.room.ChangeControl(ctx, state.ControlSchedule, s.Name, func(c *state.Control) { c.Cron, c.FiredThrough = text, now })
	case c.Paused:
		return nil
	}
	return r.fireDue(ctx, s, &c, now)
}

// fireDue fires what was due since the last firing, and makes up for what was missed as the schedule says.
func (r *Runner) fireDue(ctx context.Context, s *Schedule, c *state.Control, now time.Time) error {
	var missed, fired []time.Time // of missed the last ones alone
	count, from := 0, c.FiredThrough
	if most := now.AddDate(-1, 0, 0); from.Before(most) { // what was missed before that is not even counted
		from = most
	}
	latest := from // a firing waits for those before it, which may have a larger part of the jitter
	for at := s.expr.Next(from.Add(-s.jitter)); !at.IsZero() && !(at.After(from) && s.due(at).After(now)); at = s.expr.Next(at) {
		if due := s.due(at); due.After(latest) {
			latest = due
		}
		if !at.After(from) {
			continue // it is settled
		}
		if now.Sub(latest) <= onTime {
			fired = append(fired, at)
			continue
		}
		count++
		if missed = append(missed, at); len(missed) > s.Most+1 {
			missed = missed[1:]
		}
	}
	most := s.Most // of them that run now
	switch {
	case s.Missed == "skip" || s.Missed == "once" && len(fired) > 0:
		most = 0
	case s.Missed == "once":
		most = 1
	}
	lost, made, last, err := max(0, count-most), 0, time.Time{}, error(nil)
	if lost > 0 {
		last, missed = missed[len(missed)-most-1], missed[len(missed)-most:]
		if err = r.history.add(r.skipped(s, last, "missed", lost)); err != nil {
			return err
		}
		err = r.room.ChangeControl(ctx, state.ControlSchedule, s.Name, through(last))
	}
	for i, at := range slices.Concat(missed, fired) {
		firing := *s
		if i < len(missed) && s.Overlap == "skip" {
			firing.Overlap = "queue" // or the first one would be the only one
		}
		if err == nil {
			err = r.fire(ctx, &firing, at, false)
		}
		if err == nil && i < len(missed) {
			last, made = at, i+1
		}
	}
	if lost+made > 0 { // those are noted; the others are told of when they are
		r.opts.Tell("schedule-missed", s.Name, fmt.Sprintf("schedule %s: firings missed: %d, the last one at %s; run now: %d", s.Name, lost+made, last.Local().Format(time.DateTime), made))
	}
	return err
}

// fire makes one firing, and notes it. With now it is none of those that are scheduled.
func (r *Runner) fire(ctx context.Context, s *Schedule, at time.Time, now bool) error {
	c, instant := r.room.Controls(state.ControlSchedule)[s.Name], state.FormatTime(at)
	if now {
		if isKnown, err := r.hasEnded(s.Name, at); isKnown || err != nil || strings.Contains(c.OpenFirings, instant) {
			return err // the answer to the first request was lost
		}
	} else if open := len(strings.Fields(c.OpenFirings)); open > 0 && s.Overlap == "skip" || open >= max(mostOpen, s.Most) {
		return r.pass(ctx, r.skipped(s, at, "overlap", 1))
	}
	note := func(c *state.Control) {
		c.OpenFirings = strings.TrimSpace(c.OpenFirings + " " + instant)
		if !now {
			through(at)(c)
		}
	}
	if s.Job != "" {
		if err := r.room.ChangeControl(ctx, state.ControlSchedule, s.Name, note); err != nil {
			return err
		}
		r.Wake() // look starts it
		return nil
	}
	spec := s.Spec
	spec.IdempotencyKey = s.key(instant)
	if spec.Label == "" {
		spec.Label = s.Name
	}
	if spec.Queue == "" {
		spec.Queue = Queue
	}
	switch {
	case s.Overlap == "queue":
		for open := range strings.FieldsSeq(c.OpenFirings) {
			if t, ok := r.room.Fired(s.key(open)); ok {
				spec.After, spec.AfterPolicy = append(spec.After, t.ID), state.AfterAny
			}
		}
	case s.Overlap == "parallel" && spec.SessionKey == "" && !spec.Continue:
		spec.Parallel = true
	}
	if _, known := r.room.Fired(spec.IdempotencyKey); known { // before the clock was put back
		return r.room.ChangeControl(ctx, state.ControlSchedule, s.Name, through(at))
	}
	_, err := r.room.Fire(ctx, spec, s.Name, note)
	var refused *task.Error
	if now || !errors.As(err, &refused) || refused.Code == task.CodeFull || refused.Code == task.CodeStopped || refused.Code == task.CodeShortage {
		return err // or none
	}
	return r.pass(ctx, task.JobRun{Schedule: s.Name, Scheduled: at, Outcome: task.RunError, Reason: string(refused.Code), Ended: r.opts.Now(), Detail: task.OneSentence(refused.Error(), maxDetail)})
}

// pass notes a firing that is not made, its line first: after a crash that line tells of it.
func (r *Runner) pass(ctx context.Context, run task.JobRun) error {
	if err := r.ended(run); err != nil {
		return err
	}
	return r.room.ChangeControl(ctx, state.ControlSchedule, run.Schedule, through(run.Scheduled))
}

// through notes that all is settled up to an instant.
func through(at time.Time) func(*state.Control) {
	return func(c *state.Control) {
		if at.After(c.FiredThrough) {
			c.FiredThrough = at
		}
	}
}

// Queue is the queue of tasks of schedules that name none.
const Queue = "scheduled"

// maxDetail bounds what a line of the history has of an error, in bytes.
const maxDetail = 500

// skipped is the line of firings that are not made, up to one at an instant.
func (r *Runner) skipped(s *Schedule, at time.Time, why string, count int) task.JobRun {
	run := task.JobRun{Schedule: s.Name, Scheduled: at, Outcome: task.RunSkipped, Reason: why, Ended: r.opts.Now()}
	if count > 1 {
		run.Count = count
	}
	return run
}

// ended notes how a firing went, and then tells of a failure: once, also where it could not be noted at first.
func (r *Runner) ended(run task.JobRun) error {
	err := r.history.add(run)
	if err == nil && run.Outcome == task.RunError {
		r.opts.Tell("schedule-failed", run.Schedule, fmt.Sprintf("schedule %s: the firing of %s failed: stint cron runs %s", run.Schedule, run.Scheduled.Local().Format(time.DateTime), run.Schedule))
	}
	return err
}

// settle notes which firings of a schedule have ended, and returns its control record. Those of jobs do it themselves.
func (r *Runner) settle(ctx context.Context, s *Schedule) (c state.Control, err error) {
	if c = r.room.Controls(state.ControlSchedule)[s.Name]; s.Job != "" {
		return c, nil
	}
	for instant := range strings.FieldsSeq(c.OpenFirings) {
		at, _ := time.Parse(time.RFC3339, instant) // it was checked when it was folded
		run := task.JobRun{Schedule: s.Name, Scheduled: at, Outcome: task.RunError, Reason: "lost", Ended: r.opts.Now(), Detail: "its task is not there any more"}
		if t, ok := r.room.Fired(s.key(instant)); ok && !t.Status.Terminal() {
			continue
		} else if ok {
			run.Task, run.Started, run.Ended, run.Reason, run.Detail = t.ID, t.CreatedAt, t.UpdatedAt, string(t.Reason), task.OneSentence(t.Error, maxDetail)
			run.Duration = t.UpdatedAt.Sub(t.CreatedAt).Seconds()
			if t.Status == state.Done {
				run.Outcome, run.Reason, run.Detail = task.RunOK, "", ""
			}
		}
		if err := r.close(ctx, run, instant); err != nil {
			return c, err
		}
	}
	return r.room.Controls(state.ControlSchedule)[s.Name], nil
}

// close notes the end of an open firing, its line of the history first: after a crash that line tells of it.
func (r *Runner) close(ctx context.Context, run task.JobRun, instant string) error {
	isKnown, err := r.hasEnded(run.Schedule, run.Scheduled)
	if err == nil && !isKnown {
		err = r.ended(run)
	}
	if err != nil {
		return err
	}
	return r.room.ChangeControl(ctx, state.ControlSchedule, run.Schedule, func(c *state.Control) {
		c.OpenFirings = strings.Join(slices.DeleteFunc(strings.Fields(c.OpenFirings), func(s string) bool { return s == instant }), " ")
	})
}

// hasEnded reports whether the history has the end of the firing of an instant.
func (r *Runner) hasEnded(name string, at time.Time) (isKnown bool, err error) {
	_, err = r.history.last(name, func(old *task.JobRun) bool {
		isKnown = old.Scheduled.Equal(at) && old.Outcome != task.RunSkipped
		return isKnown || old.Ended.Before(at)
	})
	return isKnown, err
}

// Bounds of a job that sets none, and the wait before it is tried again, which doubles each time.
const (
	jobTimeout = 10 * time.Minute
	jobAgain   = 30 * time.Second
)

// start runs a job for a firing. ctx is that of Run: what it ends stays open, and the next master runs it again.
func (r *Runner) start(ctx context.Context, s *Schedule, at time.Time, instant string) {
	key, name, do, tries := s.key(instant), s.Name, r.opts.Jobs[s.Job], max(1, s.Spec.MaxAttempts)
	limit, err := time.ParseDuration(s.Spec.Timeout)
	if err != nil || limit <= 0 {
		limit = jobTimeout
	}
	r.running[key] = true
	r.jobs.Go(func() {
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.running, key)
		}()
		select {
		case r.slots <- struct{}{}:
			defer func() { <-r.slots }()
		case <-ctx.Done():
			return
		}
		run := task.JobRun{Schedule: name, Scheduled: at, Outcome: task.RunOK, Started: r.opts.Now()}
		for try, wait := 1, jobAgain; ; try, wait = try+1, 2*wait {
			bounded, cancel := context.WithTimeout(ctx, limit)
			detail, err := do(bounded)
			cancel()
			if ctx.Err() != nil {
				return
			}
			if run.Detail = task.OneSentence(detail, maxDetail); err == nil {
				break
			}
			if run.Detail = task.OneSentence(err.Error(), maxDetail); try == tries {
				run.Outcome, run.Reason = task.RunError, "exit"
				if errors.Is(err, context.DeadlineExceeded) {
					run.Reason = "timeout"
				}
				break
			}
			if task.Sleep(ctx, wait) != nil {
				return
			}
		}
		run.Ended = r.opts.Now()
		run.Duration = run.Ended.Sub(run.Started).Seconds()
		if err := r.close(ctx, run, instant); err != nil {
			r.opts.Log.Warn("the end of a job could not be noted, and it is run again", "schedule", name, "error", err)
			return
		}
		r.Wake() // it may be the turn of the next one
	})
}

// Wake makes the runner look now: the configuration may have changed.
func (r *Runner) Wake() { task.Wake(r.wake) }

// named returns the schedule of that name.
func (r *Runner) named(name string) (s Schedule, err error) {
	list, err := r.opts.List()
	if i := slices.IndexFunc(list, func(s Schedule) bool { return s.Name == name }); i >= 0 {
		return list[i], nil
	}
	if err == nil {
		err = &task.Error{Code: task.CodeNotFound, Message: "there is no schedule " + task.OneSentence(name, 64), Hint: "stint cron ls"}
	}
	return s, err
}

// ActOnSchedule does what a person asks of a schedule: run fires it now, pause keeps it from firing, and resume lets
// it, from now on. It returns the schedule as it is then. at is now, if it is not left out; who sends a request again
// sends the same, by which a firing is known.
func (r *Runner) ActOnSchedule(ctx context.Context, name, act string, at time.Time) (task.Schedule, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.named(name)
	if err != nil {
		return task.Schedule{}, err
	}
	now := r.opts.Now().Truncate(time.Millisecond)
	at = cmp.Or(at, now).UTC().Truncate(time.Millisecond)
	if ahead := at.Sub(now); ahead > onTime || -ahead > aheadMost {
		return task.Schedule{}, task.Wrong("at", "leave it out", "at is %s, and it is %s here", state.FormatTime(at), state.FormatTime(now))
	}
	if act == "run" {
		err = r.fire(ctx, &s, at, true)
	} else {
		if act == "pause" { // what is due by now is not lost
			err = r.lookAt(ctx, &s)
		}
		if err == nil {
			err = r.room.ChangeControl(ctx, state.ControlSchedule, name, func(c *state.Control) { c.Paused, c.FiredThrough = act == "pause", now })
		}
		if r.paused[name] = act == "pause"; err != nil {
			delete(r.paused, name) // as after a crash
		}
		r.Wake()
	}
	if err != nil {
		return task.Schedule{}, err
	}
	views, _ := Views([]Schedule{s}, r.room.Controls(state.ControlSchedule), r.opts.Path, now) // it has changed, whether its last firing can be read or not
	return views[0], nil
}

// Schedules returns all schedules. With an error, which says what is wrong in the configuration, they are those of before.
func (r *Runner) Schedules(ctx context.Context) ([]task.Schedule, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list, err := r.opts.List()
	for i := range list {
		if _, failed := r.settle(ctx, &list[i]); failed != nil {
			return nil, failed
		}
	}
	r.Wake() // the configuration may have changed
	views, failed := Views(list, r.room.Controls(state.ControlSchedule), r.opts.Path, r.opts.Now())
	if failed != nil { // then nothing fires, since nobody knows what has
		return nil, failed
	}
	return views, err
}

// JobRuns returns the firings of a schedule, or of all (""), that have ended or were skipped, the newest first.
func (r *Runner) JobRuns(ctx context.Context, name string, most int) ([]task.JobRun, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name != "" {
		s, err := r.named(name)
		if err == nil {
			_, err = r.settle(ctx, &s)
		}
		if err != nil {
			return nil, err
		}
	}
	list := []task.JobRun{}
	_, err := r.history.last(name, func(run *task.JobRun) bool {
		list = append(list, *run)
		return len(list) == most
	})
	slices.SortStableFunc(list, func(a, b task.JobRun) int { return b.Scheduled.Compare(a.Scheduled) }) // they were written as they ended
	return list, err
}

// RunsSince returns what has ended or was skipped since a time, of all schedules.
func (r *Runner) RunsSince(since time.Time) (list []task.JobRun, err error) {
	_, err = r.history.last("", func(run *task.JobRun) bool {
		if !run.Ended.Before(since) {
			list = append(list, *run)
		}
		return run.Ended.Before(since)
	})
	return list, err
}

// DueBefore reports whether any schedule fires before an instant.
func (r *Runner) DueBefore(t time.Time) bool {
	list, _ := r.opts.List()
	controls := r.room.Controls(state.ControlSchedule)
	return slices.ContainsFunc(list, func(s Schedule) bool {
		c := controls[s.Name]
		next := s.Next(c.FiredThrough, 1) // it may have passed: its firing is late by the jitter
		return !c.Paused && !c.FiredThrough.IsZero() && len(next) > 0 && s.due(next[0]).Before(t)
	})
}

// Views returns what clients see of schedules: from their control records, by name, and the history at path. The error says why
// that cannot be read; the schedules are without their last firings then.
func Views(list []Schedule, controls map[string]state.Control, path string, now time.Time) (views []task.Schedule, err error) {
	views = []task.Schedule{}
	h := &history{path: path}
	for i := range list {
		s, c := &list[i], controls[list[i].Name]
		v := task.Schedule{
			Name: s.Name, Cron: s.Cron, Zone: s.Zone, Job: s.Job, Title: state.TitleOf(s.Spec.Prompt), Overlap: s.Overlap, Missed: s.Missed, Most: s.Most,
			Jitter: s.Jitter, Paused: c.Paused, Origin: s.Origin, Next: []time.Time{}, Open: []time.Time{},
		}
		if !c.Paused {
			for _, at := range s.Next(now, 3) {
				v.Next = append(v.Next, at.UTC())
			}
		}
		for open := range strings.FieldsSeq(c.OpenFirings) {
			at, _ := time.Parse(time.RFC3339, open)
			v.Open = append(v.Open, at)
		}
		var failed error
		v.Last, failed = h.last(s.Name, func(*task.JobRun) bool { return true })
		views, err = append(views, v), cmp.Or(err, failed)
	}
	return views, err
}
