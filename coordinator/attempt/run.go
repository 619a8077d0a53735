// Package attempt runs one attempt at a task: a chain of runs, which are an agent's turn, the verify command
// and the turn after it, as long as that does not pass, and, where it is configured, an evaluator's look at
// the answer. It builds the prompt, locks the session, is notified of what the agent reports, decides by one
// table ([Attempts.judge]) what becomes of the task, and records that with its follow-up in one change.
//
// It knows nothing of other runs at work: the dispatcher above starts an attempt and waits for
// its end. What keeps every run of the machine from beginning is noted in [Shortages].
package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"stint/coordinator/admission"
	"stint/coordinator/queue"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/coordinator/worktree"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/state"
	"stint/state/fold"
)

// Attempts run what the dispatcher has started. Their methods may be called by any goroutine.
type Attempts struct {
	Shortages Shortages
	tasks     *queue.Store
	admission *admission.Admission
	beside    beside
	ended     chan string // directories of runs that have ended, for Tidy
}

// New returns the attempts at the tasks of a store. Their follow-ups go through the admission to it.
func New(s *queue.Store, a *admission.Admission) *Attempts {
	return &Attempts{
		Shortages: Shortages{store: s}, tasks: s, admission: a, ended: make(chan string, 1000),
		beside: beside{open: map[string]string{}, last: map[string]string{}},
	}
}

// A Run is one execution of an agent for a task. Its fields belong to its goroutine, but for Cancel, which anyone
// may call, LastOutput and Settling, which anyone may read, and those that mu guards.
type Run struct {
	mu   sync.Mutex // guards home, and AgentSession and PromptInHistory of task; its goroutine reads the last two without
	home string     // where its workspace led when it was begun

	ID          string
	Task        state.Task // as it is while the run is at work
	Begun       time.Time
	Started     *ledger.Record // the `running` record
	Session     string         // native session to resume; "" begins a new one
	checkout    string         // that it has for itself; "": none
	tree        *worktree.Tree // in which it works, and whose lock it has; nil: none, or it is not in order
	named       bool           // the task brought that session from outside: stint has not run in it yet
	interrupted bool           // the run before this one did not end by itself
	kept        bool           // session has the prompt already: the run goes on in a fork of it
	counted     state.Usage    // by the CLI in session before the run
	strayed     string         // the session that the agent began in place of the one that it had to resume
	outputs     []state.OutputFile
	before      string             // the run that this one goes on from: what that has changed is the attempt's; "": none
	looked      bool               // the answer was looked at: the findings are the outcome's
	flagged     bool               // the task has findings in its records
	account     *ledger.Record     // what the evaluator's turn says about the account; nil if nothing
	used        state.Usage        // by all runs of the task with this one, at its end
	changes     *state.Changes     // of the attempt, in its checkout; nil: not known
	files       []state.FileChange // some of them
	cut         bool               // of the attempt's answer only head and tail are left
	Probe       bool               // it finds out whether a shortage is over
	note        string             // what its user should know of how it was begun
	most        int64              // tokens that it may use; 0: any number
	check       *task.VerifyResult // how the verify command ended; nil: it was not run, or was cut off
	Ctx         context.Context
	Cancel      context.CancelCauseFunc
	endTurn     context.CancelCauseFunc   // of the agent alone
	LastOutput  atomic.Pointer[time.Time] // nil: the agent has put nothing out yet
	Settling    atomic.Bool               // it has ended, and its result waits until a save of tasks.md is settled
	events      atomic.Pointer[rundir.EventLog]
}

// AgentFor returns the agent of a task that may name none: a session goes on with its own.
func (a *Attempts) AgentFor(st *fold.State, t *state.Task, defaultAgent string) string {
	if t.Agent != "" || !task.IsNamedLane(t.SessionKey) {
		return cmp.Or(t.Agent, defaultAgent)
	}
	return cmp.Or(st.SessionAgent(t.SessionKey, slices.Sorted(maps.Keys(a.tasks.Config.Agents))), defaultAgent)
}

// InWayOf reports whether a run uses what next needs: its task, its lane, its session or its checkout.
func (r *Run) InWayOf(next *Run) bool {
	return r.Task.ID == next.Task.ID || r.checkout != "" && next.checkout != "" && state.Overlap(r.checkout, next.checkout) || r.Task.SessionKey == next.Task.SessionKey || r.Task.SessionID != "" && r.Task.SessionID == next.Task.SessionID
}

// Reserve makes the run of a task, for which nothing is decided yet but its place.
func (a *Attempts) Reserve(t *state.Task) *Run {
	r := &Run{ID: a.tasks.Config.ID(), Task: *t, Begun: a.tasks.Config.Now()}
	r.Task.SessionKey = t.Lane()
	r.checkout = a.admission.Checkout(t)
	r.Ctx, r.Cancel = context.WithCancelCause(context.Background())
	return r
}

// Begin returns the run of t, as the ledger has it, for a reserved one, with its `running` record.
func (a *Attempts) Begin(st *fold.State, reserved *Run, t *state.Task, defaultAgent string, now time.Time) *Run {
	r := &Run{ID: reserved.ID, Task: *t, Begun: now, checkout: reserved.checkout, Ctx: reserved.Ctx, Cancel: reserved.Cancel}
	r.interrupted = t.Reason == state.ClassInterrupted
	if slices.Contains(retriesIteration, t.Reason) || t.Reason == state.ClassVerify || t.Phase != "" || t.Iteration > 0 {
		r.before = t.RunID
	}
	r.named = t.AgentSession != "" && t.RunID == ""
	r.Task.Attempt++
	r.Task.RunID = r.ID
	r.Task.RunStartedAt = now
	rec := task.RecordOf(t.ID).Add(state.KeyStatus, string(state.Running)).Add(state.KeyRunID, r.ID).Add(state.KeyAttempt, strconv.Itoa(r.Task.Attempt)).
		Add(state.KeyStartedAt, state.FormatTime(now)).Add(state.KeyUpdatedAt, state.FormatTime(now))
	a.complete(st, r, defaultAgent, rec)
	r.Session = t.AgentSession
	if s, ok := st.SessionByID(r.Task.SessionID); ok && t.Resume != "never" && s.Agent == r.Task.Agent && s.Account == r.Task.Account && s.Native != "" && !r.named {
		r.Session = s.Native // it may have been forked since the task's last run
	}
	rec.AddWhen(t.Reason != "", state.KeyReason, "")
	rec.AddWhen(t.Error != "" && t.Phase != state.PhaseEvaluate, state.KeyError, "") // else it is that of the answer
	rec.AddWhen(!t.NotBefore.IsZero(), state.KeyNotBefore, "")
	rec.AddWhen(t.ExitCode != nil, state.KeyExitCode, "")
	rec.AddWhen(t.Changes != nil && r.before == "", state.KeyChanges, "") // those of an earlier attempt
	rec.AddWhen(t.Changes != nil && r.before == "", state.KeyChangedFiles, "")
	r.Started = rec
	return r
}

// complete fills in what a task written by hand has left out. One of a named session goes on with that.
func (a *Attempts) complete(st *fold.State, r *Run, defaultAgent string, rec *ledger.Record) {
	t := &r.Task
	fill := func(field *string, key, value string) {
		if *field == "" && value != "" {
			*field = value
			rec.Add(key, value)
		}
	}
	fill(&t.Agent, state.KeyAgent, a.AgentFor(st, t, defaultAgent))
	fill(&t.Account, state.KeyAccount, t.Agent)
	if dir, by := st.HomeOf(t, a.tasks.Config.WorkspaceRoot); t.Workspace == "" && dir != "" {
		t.Workspace, t.WorkspaceByHand = dir, by == ledger.ByHand
		rec.Add(state.KeyWorkspace, dir).AddIf(state.KeyWorkspaceBy, by)
	}
	if dir := filepath.Join(a.tasks.Config.WorkDir, t.ID); t.Isolation == state.IsolationTemp && a.tasks.Config.IsTemp(dir) && t.Workspace != dir { // a person's, or work_dir is another one now
		t.Workspace, t.WorkspaceByHand, t.Within = dir, false, ""
		rec.Add(state.KeyWorkspace, dir)
	}
	trees := &a.tasks.Config.Trees
	if _, ofTree := state.WorktreeBase(t.Isolation); ofTree && trees.Dir != "" && t.Workspace != "" { // a person's
		if _, _, has := trees.Origin(t.Workspace); !has {
			t.Workspace, t.WorkspaceByHand, t.Within = trees.PathOf(worktree.NameOf(t.Lane()), t.Workspace), false, ""
			rec.Add(state.KeyWorkspace, t.Workspace)
		}
	}
	fill(&t.VerifyCommand, state.KeyVerifyCommand, a.tasks.Workspace(t.Workspace).VerifyCommand)
	if t.MaxIterations == 0 && task.HasVerify(t) {
		t.MaxIterations = a.tasks.MaxIterations(t)
		rec.Add(state.KeyMaxIterations, strconv.Itoa(t.MaxIterations))
	}
	rec.AddWhen(t.CreatedAt.IsZero(), state.KeyCreatedAt, state.FormatTime(r.Begun))
	fill(&t.SessionKey, state.KeySessionKey, t.Lane())
	s, ok := st.CurrentSession(t.SessionKey, t.Agent, t.Account)
	if ok && task.IsNamedLane(t.SessionKey) && t.Resume != "never" && (t.AgentSession == "" || t.AgentSession == s.Native) {
		fill(&t.SessionID, state.KeySessionID, s.ID)
	}
	fill(&t.SessionID, state.KeySessionID, a.tasks.Config.ID())
}

// AsTask returns the task as its run knows it, whose workspace is where that led at first.
func (r *Run) AsTask() *state.Task {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.Task
	t.Workspace = r.home
	return &t
}

// Run runs a run that was started, and the runs that follow it in its attempt, and
// records how each ended. replace is told of each that follows, before it begins.
func (a *Attempts) Run(r *Run, replace func(next *Run)) {
	home, lane, id := homeOf(&r.Task), r.Task.Lane(), r.Task.ID
	r.mu.Lock()
	r.home = home
	r.mu.Unlock()
	a.carrySnapshot(r.before, r.ID)
	for r != nil {
		next, err := a.round(r)
		if err != nil {
			a.tasks.TroubleUnlessStopped("the end of run "+r.ID+" could not be recorded", err)
		} else {
			select {
			case a.ended <- a.tasks.RunDir(r.ID):
			default: // there is always something that runs
				rundir.Tidy(a.tasks.RunDir(r.ID))
			}
		}
		if r = next; r != nil {
			replace(r)
		}
	}
	if lane == state.LanePrefixTask+id || lane == state.LanePrefixDir+home { // which this run still has: nothing begins there
		a.removeTemp(home)
	}
}

// Tidy removes what nobody needs of one of the runs that have ended, and reports whether there was one. The
// dispatcher calls it when nothing runs: many removals make the file system slow for the runs at work.
func (a *Attempts) Tidy() bool {
	select {
	case dir := <-a.ended:
		if !a.tasks.IsGone() {
			rundir.Tidy(dir)
		}
		return true
	default:
		return false
	}
}

// round runs a run's phase and records how it ended. It returns the next run of the attempt, or nil.
func (a *Attempts) round(r *Run) (*Run, error) {
	const settleLimit = 10 * time.Second // longer than the ledger waits for the rest of a file that seems to be cut off
	var out task.Outcome
	r.events.Store(rundir.NewEventLog(a.tasks.RunDir(r.ID), r.Task.ID))
	defer func() { r.events.Load().Close(a.tasks.Config.Now()) }()
	t, err := a.tasks.Whole(r.Task.ID)
	var lease *task.Lease
	if find := a.tasks.Config.LeaseOf; t.SharedID != "" && find != nil {
		lease = find(t.ID)
	}
	r.Ctx = task.WithLease(r.Ctx, lease)
	leave, wrong := a.enterTree(r, &t)
	defer leave()
	switch {
	case err != nil:
		out = setupFailed(err)
	case wrong != nil:
		out = *wrong
	case t.SharedID != "" && lease == nil: // its worker has ended, or could not renew it
		r.Cancel(admission.Cancellation(ledger.ByWorker))
		out = task.Outcome{Class: state.ClassCanceled, ExitCode: -1, Error: "no worker here has the lease of shared task " + t.SharedID}
	case r.Task.Phase == state.PhaseVerify:
		out = a.verify(r, &t)
	case r.Task.Phase == state.PhaseEvaluate:
		out = a.evaluate(r, &t)
	default:
		if out = a.attempt(r, &t); out.Class == state.ClassExit {
			a.Shortages.blame(r.Begun, &out)
		}
	}
	switch {
	case out.Shortage != 0:
		a.Shortages.met(out.Shortage, r.Probe, false)
	case out.Class == "":
		a.Shortages.started(r.Begun)
	}
	// What the run has written into tasks.md is taken over before its end is recorded: a command
	// that queues its task again does that to a task that runs, which is counted.
	r.Settling.Store(true)
	ctx, stop := context.WithTimeout(context.Background(), settleLimit)
	if err := a.tasks.ReconcileNow(ctx); err != nil { // the watch tries again, and tells
		a.tasks.Config.Log.Debug("tasks.md was not taken over at the end of a run", "error", err)
	}
	stop()
	r.Settling.Store(false)
	end := []any{"task", r.Task.ID, "run", r.ID, "phase", cmp.Or(string(r.Task.Phase), "agent"), "class", cmp.Or(string(out.Class), "success"), "exit", out.ExitCode}
	if out.Signal != 0 {
		end = append(end, "signal", out.Signal.String())
	}
	a.tasks.Config.Log.Info("run ended", end...)
	s, goes := a.next(r, &out)
	if r.Task.Phase != state.PhaseEvaluate && (!goes || s.Phase == state.PhaseEvaluate) {
		a.inspect(r, &out)
	}
	if goes {
		a.noteAnswer(&r.Task) // an agent's turn behind which another step comes has ended well
		return a.nextStep(r, &out, s)
	}
	_, begun := a.snapshotOf(r.ID)
	unbegun := out.Shortage != 0 && !begun
	a.collectOutputs(r, &out)
	place := a.admission.PlaceOf(r.Task.ID)
	var ended state.Task
	runs, err := a.recordEnd(r, &out, place, "a result", false, func(st *fold.State, tx *ledger.Tx, t *state.Task) {
		ended = *t
		ended.Status = a.conclude(st, tx, r, out, place)
	})
	if !runs {
		ended, _ = a.tasks.Peek(r.Task.ID)
	}
	if err == nil { // else the task runs again
		a.logEnd(r, &out, &ended)
	}
	if unbegun {
		_ = os.RemoveAll(a.tasks.RunDir(r.ID)) // nothing was at work there, and each try would leave one
	}
	return nil, err
}

// collectOutputs collects the files that a task is to leave, when all else went well.
func (a *Attempts) collectOutputs(r *Run, out *task.Outcome) {
	t, err := a.tasks.Whole(r.Task.ID)
	if err != nil || out.Class != "" || len(t.OutputSpec) == 0 {
		return
	}
	for again := true; again; again = task.ShortageOf(err) != 0 && a.tasks.WaitForRoom(r.Ctx, "a task's output", err) {
		if _, err = a.makeFiles(r.ID); err == nil {
			err = a.hasMoved(r, &t)
		}
		if err == nil {
			r.outputs, err = rundir.Collect(t.Workspace, a.tasks.RunDir(r.ID), t.OutputSpec, a.tasks.Config.IsGuardedDir, a.tasks.Config.Redact)
		}
	}
	switch short := task.ShortageOf(err); {
	case short != 0: // to be ended now
		out.Class, out.Error, out.Shortage = state.ClassInterrupted, err.Error(), short
	case err != nil:
		out.Class, out.Error = state.ClassOutputMissing, err.Error()
	}
}

// setupFailed is the outcome of a run that could not begin for a reason of ours.
func setupFailed(err error) task.Outcome {
	return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1, Error: err.Error(), Shortage: task.ShortageOf(err)}
}

// stillRuns returns the task as it is now, and reports whether it is still in this run: a person may have ended
// or requeued it. No other run of the task starts while this one is on the list.
func stillRuns(st *fold.State, r *Run) (t state.Task, runs bool) {
	t, runs = st.Peek(r.Task.ID)
	return t, runs && t.Status == state.Running
}

// Event returns the newest event of the run; nil if there was none yet.
func (r *Run) Event() *task.LogEvent {
	if l := r.events.Load(); l != nil {
		return l.Current()
	}
	return nil
}

// AwaitEvents returns when the log of a run that ends is complete; after a second in any case.
func (r *Run) AwaitEvents(ctx context.Context) {
	if l := r.events.Load(); l != nil {
		select {
		case <-l.Done:
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// log writes an event of the run, for people.
func (a *Attempts) log(r *Run, e task.LogEvent) {
	e.Time = a.tasks.Config.Now().UTC()
	r.events.Load().Add(e, r.home)
}

// logEnd writes the last event of an attempt: how it ended, and what the task is now.
func (a *Attempts) logEnd(r *Run, out *task.Outcome, t *state.Task) {
	texts := []string{string(t.Status), string(out.Class), out.Error}
	if t.Status == state.Queued {
		texts[0] = "queued again"
	}
	e := task.LogEvent{
		Kind: task.LogEnd, Status: string(t.Status), Failed: out.Class != "", Text: strings.TrimRight(strings.Join(slices.Compact(texts), ": "), ": "),
		ExitCode: &out.ExitCode, Tokens: r.used.InputTokens + r.used.OutputTokens,
	}
	if !t.StartedAt.IsZero() {
		e.DurationMS = a.tasks.Config.Now().Sub(t.StartedAt).Milliseconds()
	}
	a.log(r, e)
}

// noteLife notes that what a run has started is at work: just now, or since it prints something.
func (a *Attempts) noteLife(r *Run, isStart bool) {
	if isStart {
		a.Shortages.started(r.Begun)
		return
	}
	now := a.tasks.Config.Now()
	r.LastOutput.Store(&now)
}

// inWrongWorkspace is the outcome of a run that must not begin for that reason.
func inWrongWorkspace(why string) task.Outcome {
	return task.Outcome{Class: state.ClassExit, ExitCode: -1, Error: why + "; name the directory that you mean as its workspace in tasks.md, and retry"}
}

// homeOf returns the directory in which a run begins. What is recorded has no links: one came later.
func homeOf(t *state.Task) string {
	if t.WorkspaceByHand {
		return task.WithoutLinks(t.Workspace)
	}
	return t.Workspace
}

// hasMoved returns an error if the workspace of a run is another directory than its attempt has
// found, or may be: what runs below it can put a link in its place at any time.
func (a *Attempts) hasMoved(r *Run, t *state.Task) error {
	if wrong := a.admission.WorkspaceError(t); wrong != "" {
		return errors.New(wrong)
	}
	if real := task.WithoutLinks(t.Workspace); t.Workspace == r.Task.Workspace && real != r.home {
		return fmt.Errorf("the workspace %s leads to %s now", t.Workspace, real)
	}
	return nil
}

// makeTemp makes the directory of a task that works below work_dir, if it is not there. Its path
// never changes: agents look for a conversation by the directory in which it began.
func (a *Attempts) makeTemp(t *state.Task) error {
	if !a.tasks.Config.IsTemp(t.Workspace) {
		if t.Isolation == state.IsolationTemp {
			return errors.New("the task cannot have a directory of its own: there is no work_dir, or its id cannot be the name of a directory")
		}
		return nil
	}
	work, err := a.tasks.OpenWork()
	if err != nil {
		return err
	}
	if err = work.Mkdir(filepath.Base(t.Workspace), durable.DirMode); errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, work.Close())
}

// removeTemp removes the directory of a task that has ended, unless another open task works there.
func (a *Attempts) removeTemp(dir string) {
	id := filepath.Base(dir)
	if t, err := a.tasks.Peek(id); !a.tasks.Config.Cleanup || !a.tasks.Config.IsTemp(dir) || err != nil || !t.Status.Terminal() {
		return // one of an unknown task may be another master's
	}
	for _, other := range queue.Read(a.tasks, (*fold.State).OpenIDs) {
		if t, err := a.tasks.Peek(other); err == nil && task.IsWithin(t.Workspace, dir) {
			return
		}
	}
	work, err := a.tasks.OpenWork()
	if err == nil {
		err = errors.Join(rundir.RemoveTree(work, id), work.Close())
	}
	a.tasks.TroubleUnlessStopped("the directory of a task could not be removed", err) // the next master tries again
}

// CleanTemp removes, before anything is started, the directories that ended tasks of an earlier master have left.
func (a *Attempts) CleanTemp() {
	entries, _ := os.ReadDir(a.tasks.Config.WorkDir) // most often there is none
	for _, e := range entries {
		a.removeTemp(filepath.Join(a.tasks.Config.WorkDir, e.Name()))
	}
}
