package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/state"
	"stint/state/fold"
)

// Verify runs the verify command of a task now, by itself, and records how it ended;
// the task's status stays. Its lane is taken meanwhile. One that waits for a round and
// passes ends without it. The error has CodeBusy if a run is at work there, CodeInvalid
// if there is no command. When ctx ends, so does the command. by is who asks.
func (c *Coordinator) Verify(ctx context.Context, ref, by string) (task.CheckResult, error) {
	defer c.Call()()
	if c.IsShut() {
		return task.CheckResult{}, c.StoppedError()
	}
	id, err := c.Find(ref)
	if err != nil {
		return task.CheckResult{}, err
	}
	t, err := c.Whole(id)
	if err != nil {
		return task.CheckResult{}, err
	}
	if err := c.checkable(&t); err != nil {
		return task.CheckResult{}, err
	}
	r, err := c.takeLane(ctx, &t)
	if err != nil {
		return task.CheckResult{}, err
	}
	defer c.leaveLane(r)
	defer context.AfterFunc(ctx, func() { r.cancel(task.ErrCanceled) })()
	return c.check(r, &t, by)
}

// checkable says why there is nothing to run for a task, and completes its command
// and where it runs.
func (c *Coordinator) checkable(t *state.Task) error {
	t.VerifyCommand = cmp.Or(t.VerifyCommand, c.Workspace(t.Workspace).VerifyCommand)
	switch {
	case t.Archived != "":
		return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s was archived", t.ID), Hint: "to bring it back: stint retry " + t.ID}
	case !task.HasVerify(t):
		return task.Invalid("give it one (verifyCommand: go test ./...) with: stint edit "+t.ID, "task %s has no verify command", t.ID)
	case t.Hold && t.Trigger == state.ByAgent:
		return &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("task %s is held because an agent asked for it", t.ID), Hint: "look at its verify command in stint show " + t.ID + ", then: stint release " + t.ID}
	}
	if wrong := c.Misplaced(t); wrong != "" {
		return task.Invalid("name another workspace with: stint edit "+t.ID, "%s", wrong)
	}
	if fi, err := os.Stat(t.Workspace); err != nil || !fi.IsDir() {
		return task.Invalid("stint show "+t.ID, "the directory %q of task %s is not there", t.Workspace, t.ID)
	}
	return nil
}

// takeLane registers a run that no record tells of. While it is on the list nothing
// else is started in its lane. A run there whose end is recorded is waited for.
func (c *Coordinator) takeLane(ctx context.Context, t *state.Task) (*run, error) {
	r := &run{id: c.Config.ID(), task: *t, begun: c.Config.Now()}
	r.task.SessionKey = t.Lane()
	r.ctx, r.cancel = context.WithCancelCause(context.Background())
	for {
		taken, err := c.tryLane(r)
		if taken || err != nil {
			return r, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(laneCheck):
		}
	}
}

// laneCheck is how often it is looked whether a run that has ended is off the list.
const laneCheck = 5 * time.Millisecond

// tryLane registers a run. It gives false if the lane is free in a moment.
func (c *Coordinator) tryLane(r *run) (taken bool, err error) {
	id := r.task.ID
	busy := func(format string, args ...any) error {
		return &task.Error{Code: task.CodeBusy, Message: fmt.Sprintf(format, args...), Hint: "once that has ended: stint verify " + id}
	}
	other, occupied := "", false
	c.View(func(st *fold.State) { other, occupied = st.Occupant(&r.task) })
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	switch {
	case c.IsShut():
		return false, c.StoppedError()
	case occupied:
		return false, busy("the lane of task %s is busy: task %s is at work", id, other)
	}
	if what := c.takenLanes()[r.task.SessionKey]; what != "" {
		return false, busy("the lane of task %s is busy: in it is %s", id, what)
	}
	if n := c.countChecks(); n >= max(1, c.Config.MaxWorkers) {
		return false, busy("%d verify commands run by themselves, and no more may (max_workers)", n)
	}
	if c.inUse(r) {
		return false, nil
	}
	c.runs[checkPrefix+id] = r
	return true, nil
}

// checkPrefix stands before the id of a task in the list of runs, where its verify
// command runs by itself: no record of the task ends that. No id has a blank.
const checkPrefix = "verify "

func isCheck(key string) bool { return strings.HasPrefix(key, checkPrefix) }

// countChecks counts the verify commands that run by themselves: they take no worker,
// and are bounded by the same number. runsMu is held.
func (c *Coordinator) countChecks() (n int) {
	for key := range c.runs {
		if isCheck(key) {
			n++
		}
	}
	return n
}

// takenLanes gives the lanes in which a verify command runs by itself, or may run
// still, and what is there. runsMu is held.
func (c *Coordinator) takenLanes() map[string]string {
	lanes := map[string]string{}
	for key, r := range c.runs {
		if isCheck(key) {
			lanes[r.task.SessionKey] = "the verify command of task " + r.task.ID
		}
	}
	for _, t := range c.leftovers {
		lanes[t.SessionKey] = "the verify command of task " + t.ID + ", which may still be alive"
	}
	return lanes
}

func (c *Coordinator) leaveLane(r *run) {
	r.cancel(nil)
	c.runsMu.Lock()
	delete(c.runs, checkPrefix+r.task.ID)
	c.runsMu.Unlock()
	c.NoteUse()
	select {
	case c.ended <- struct{}{}:
	default:
	}
}

// check runs the command and records what it told.
func (c *Coordinator) check(r *run, t *state.Task, by string) (task.CheckResult, error) {
	done, err := c.noteCheck(r)
	if err != nil {
		return task.CheckResult{}, err
	}
	defer done()
	res := c.Config.Shell.Verify(r.ctx, task.VerifyRun{
		TaskID: t.ID, RunID: r.id, Attempt: t.Attempt, Iteration: t.Iteration, RunDir: c.RunDir(r.id),
		Workspace: t.Workspace, Command: t.VerifyCommand, Timeout: c.VerifyTimeout(t), Grace: c.Config.Grace,
	})
	switch {
	case errors.Is(context.Cause(r.ctx), task.ErrShutdown):
		return task.CheckResult{}, c.StoppedError()
	case !res.Conclusive():
		return task.CheckResult{}, errors.New(res.Error)
	}
	c.Config.Log.Info("verify command ended", "task", t.ID, "run", r.id, "exit", res.ExitCode)
	err = c.Update(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		if !inJournal(st, t.ID) {
			return nil
		}
		rec := &ledger.Record{Kind: ledger.KindTask, ID: t.ID}
		addCheck(rec, &res)
		if now, err := task.PeekIn(st, t.ID); err == nil && res.Passed() && awaitsRound(&now) {
			rec.Add(state.KeyPhase, string(state.PhaseVerify)).Add(state.KeyIteration, strconv.Itoa(now.Iteration-1))
			task.Unset(rec, state.KeyNotBefore, isOfTurn(now.Reason) && now.By != ledger.ByHand && !now.NotBefore.IsZero()) // no person's
		}
		tx.Append(rec.Add(state.KeyBy, by))
		return nil
	})
	return task.CheckResult{
		TaskID: t.ID, RunID: r.id, RunDir: c.RunDir(r.id), Command: t.VerifyCommand, Passed: res.Passed(), ExitCode: res.ExitCode,
		Duration: res.Duration.Round(time.Millisecond).String(), Output: res.Output, Cut: res.Cut, Error: res.Error,
	}, err
}

// awaitsRound reports whether a task waits for a turn in which its agent is to mend what
// did not pass. If it passes now, its answer is verified instead.
func awaitsRound(t *state.Task) bool {
	return t.Status == state.Queued && t.Phase == "" && t.Iteration > 1
}

// isOfTurn reports whether what such a run waits for is needed by an agent's turn alone.
func isOfTurn(reason state.Class) bool {
	return reason == state.ClassNetwork || reason == state.ClassStalled || reason == state.ClassSessionBusy
}

// checksName is the directory with a file for each verify command that runs by
// itself: it is named by the run, and has the task and its lane, one a line. No record
// tells the next master of it.
const checksName = "checks"

// noteCheck makes the directory of a run, and notes that it is at work until done is
// called.
func (c *Coordinator) noteCheck(r *run) (done func(), err error) {
	dir := filepath.Join(c.Config.StateDir, checksName)
	note := filepath.Join(dir, r.id)
	for _, d := range []string{dir, c.RunDir(r.id)} {
		if err := rundir.Make(c.Store, d); err != nil {
			return nil, err
		}
	}
	if err := durable.PutFile(note, []byte(r.task.ID+"\n"+r.task.SessionKey+"\n")); err != nil {
		return nil, err
	}
	return func() {
		if err := os.Remove(note); err != nil {
			c.Trouble("a verify command that has ended is still noted", err)
		}
	}, nil
}

// recoverChecks ends what is left of verify commands that ran by themselves when the
// last master ended. Where that cannot be proved, nothing is started in the lane until
// it is, or until ctx ends.
func (c *Coordinator) recoverChecks(ctx context.Context) {
	list, err := os.ReadDir(filepath.Join(c.Config.StateDir, checksName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Trouble("verify commands of the last master could not be looked for", err)
	}
	var wg sync.WaitGroup
	for _, e := range list {
		if durable.IsTemp(e.Name()) {
			continue // a note that is just being written, or that a kill has left so
		}
		wg.Go(func() {
			if c.recoverCheck(ctx, e.Name()) {
				return
			}
			done := c.noteLeftover(e.Name())
			c.running.Go(func() {
				for !c.recoverCheck(ctx, e.Name()) {
					select {
					case <-ctx.Done():
						return // its lane stays taken until we have ended
					case <-time.After(task.RecoverTimeout):
					}
				}
				done()
			})
		})
	}
	wg.Wait()
}

// recoverCheck proves that nothing is left of such a run, and takes its note away.
func (c *Coordinator) recoverCheck(ctx context.Context, id string) (dead bool) {
	var err error
	if c.Config.Recover != nil {
		limited, stop := context.WithTimeout(ctx, task.RecoverTimeout)
		err = c.Config.Recover(limited, c.RunDir(id), id)
		stop()
	}
	if err == nil {
		err = os.Remove(filepath.Join(c.Config.StateDir, checksName, id))
	}
	if err != nil && ctx.Err() == nil {
		c.Trouble("a verify command of the last master may still be alive", err)
	}
	return err == nil
}

// noteLeftover notes that a run of the last master may still be alive in its lane,
// until done is called.
func (c *Coordinator) noteLeftover(id string) (done func()) {
	note, _ := durable.ReadFile(durable.OS, filepath.Join(c.Config.StateDir, checksName, id)) // without: there is no lane to take
	task, lane, _ := strings.Cut(strings.TrimSuffix(string(note), "\n"), "\n")
	c.runsMu.Lock()
	defer c.runsMu.Unlock()
	c.leftovers[id] = state.Task{ID: task, SessionKey: lane}
	return func() {
		c.runsMu.Lock()
		delete(c.leftovers, id)
		c.runsMu.Unlock()
		c.poke()
	}
}
