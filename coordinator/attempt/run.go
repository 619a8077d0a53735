package attempt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"stint/coordinator/queue"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/memory"
	"stint/prompt"
	"stint/session"
	"stint/state"
	"stint/state/fold"
)

// A run is one execution of an agent for a task. Its fields are set when it is
// chosen and then belong to its goroutine, but for cancel, which anyone may call,
// lastOutput and settling, which anyone may read, and those that mu guards.
type Run struct {
	mu   sync.Mutex // guards home, and AgentSession and PromptInHistory of task; its goroutine reads the last two without
	home string     // where its workspace led when it was begun

	ID          string
	Task        state.Task // as it is while the run is at work
	Begun       time.Time
	Started     *ledger.Record // the `running` record
	Session     string         // native session to resume; "" begins a new one
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
	cut         bool               // of the attempt's answer only head and tail are left
	Recorded    bool               // its `running` record is in the ledger, or just being written; the log's goroutine uses it
	Probe       bool               // it finds out whether a shortage is over
	check       *task.VerifyResult // how the verify command ended; nil: it was not run, or was cut off
	Ctx         context.Context
	Cancel      context.CancelCauseFunc
	LastOutput  atomic.Pointer[time.Time] // nil: the agent has put nothing out yet
	Settling    atomic.Bool               // it has ended, and its result waits until a save of tasks.md is settled
}

// AsTask returns the task as its run knows it, whose workspace is where that led at first.
func (r *Run) AsTask() state.Task {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.Task
	t.Workspace = r.home
	return t
}

// Run carries out a run that was started, and the runs that follow it in its attempt, and
// records how each ended. replace is told of each that follows, before it begins.
func (a *Attempts) Run(r *Run, replace func(next *Run)) {
	home := homeOf(&r.Task)
	r.mu.Lock()
	r.home = home
	r.mu.Unlock()
	a.carrySnapshot(r.before, r.ID)
	for r != nil {
		next, err := a.round(r)
		if err != nil {
			a.TroubleUnlessStopped("the end of run "+r.ID+" could not be recorded", err)
		}
		if r = next; r != nil {
			replace(r)
		}
	}
}

// round carries out what a run's phase says, and records how it ended. It returns
// the run that follows in the same attempt; nil if none does.
func (a *Attempts) round(r *Run) (*Run, error) {
	var out task.Outcome
	switch r.Task.Phase {
	case state.PhaseVerify:
		out = a.verify(r)
	case state.PhaseEvaluate:
		out = a.evaluate(r)
	default:
		if out = a.attempt(r); out.Class == state.ClassExit {
			a.shortages.Blame(r.Begun, &out)
		}
	}
	switch {
	case out.Shortage != 0:
		a.shortages.Met(out.Shortage, r.Probe)
	case out.Class == "":
		a.shortages.Started(r.Begun)
	}
	// What the run has written into tasks.md is taken over before its end is recorded: a command
	// that queues its task again does that to a task that runs, which is counted.
	r.Settling.Store(true)
	ctx, stop := context.WithTimeout(context.Background(), settleLimit)
	if err := a.Settle(ctx); err != nil { // the watch tries again, and tells
		a.Config.Log.Debug("tasks.md was not taken over at the end of a run", "error", err)
	}
	stop()
	r.Settling.Store(false)
	a.Config.Log.Info("run ended", "task", r.Task.ID, "run", r.ID, "phase", cmp.Or(string(r.Task.Phase), "agent"), "class", cmp.Or(string(out.Class), "success"), "exit", out.ExitCode)
	s, goes := a.next(r, &out)
	if r.Task.Phase != state.PhaseEvaluate && (!goes || s.phase == state.PhaseEvaluate) {
		a.inspect(r, &out)
	}
	if goes {
		a.noteAnswer(&r.Task) // an agent's turn behind which another step comes has ended well
		return a.nextStep(r, &out, s)
	}
	_, begun := a.snapshotOf(r.ID)
	unbegun := out.Shortage != 0 && !begun
	a.collectOutputs(r, &out)
	place := a.PlaceOf(r.Task.ID)
	_, err := a.recordEnd(r, &out, place, "a result", false, func(st *fold.State, tx *ledger.Tx, _ *state.Task) {
		a.conclude(st, tx, r, out, place)
	})
	if unbegun {
		_ = os.RemoveAll(a.RunDir(r.ID)) // nothing was at work there, and each try would leave one
	}
	return nil, err
}

// settleLimit bounds how long the end of a run waits for tasks.md: for longer than the
// ledger waits for the rest of a file that seems to be cut off.
const settleLimit = 10 * time.Second

// collectOutputs collects the files that a task is to leave, when all else went well.
func (a *Attempts) collectOutputs(r *Run, out *task.Outcome) {
	t, err := a.Whole(r.Task.ID)
	if err != nil || out.Class != "" || len(t.OutputSpec) == 0 {
		return
	}
	for again := true; again; again = task.ShortageOf(err) != 0 && a.WaitForRoom(r.Ctx, "a task's output", err) {
		if _, err = a.makeFiles(r.ID); err == nil {
			err = a.hasMoved(r, &t)
		}
		if err == nil {
			r.outputs, err = rundir.Collect(t.Workspace, a.RunDir(r.ID), t.OutputSpec, a.Config.IsGuardedDir)
		}
	}
	switch short := task.ShortageOf(err); {
	case short != 0: // to be ended now
		out.Class, out.Error, out.Shortage = state.ClassInterrupted, err.Error(), short
	case err != nil:
		out.Class, out.Error = state.ClassOutputMissing, err.Error()
	}
}

// attempt prepares the run's files, locks its session and runs the agent.
func (a *Attempts) attempt(r *Run) task.Outcome {
	t, err := a.Whole(r.Task.ID)
	if err != nil {
		return setupFailed(err)
	}
	if t.Prompt == "" {
		return task.Outcome{Class: state.ClassExit, ExitCode: -1, Error: "the task has no prompt; add one in tasks.md and retry"}
	}
	if wrong := a.Misplaced(&t); wrong != "" {
		return isMisplaced(wrong)
	}
	agent := a.Config.Agents[r.Task.Agent]
	if agent == nil {
		return task.Outcome{Class: state.ClassAgentMissing, ExitCode: -1, Error: fmt.Sprintf("there is no agent %q here; stint doctor lists them", r.Task.Agent)}
	}
	if a.MissesSession(r, t.Resume) {
		return task.Outcome{Class: state.ClassSessionLost, ExitCode: -1, Error: NoSession}
	}
	unlock, err := session.Lock(r.Ctx, a.Config.StateDir, r.Task.SessionID, a.Config.SessionLockTimeout)
	if errors.Is(err, session.ErrBusy) {
		return task.Outcome{Class: state.ClassSessionBusy, ExitCode: -1, Error: err.Error()}
	}
	if err != nil {
		return setupFailed(err)
	}
	defer func() {
		if err := unlock(); err != nil {
			a.Trouble("a session could not be unlocked", err)
		}
	}()
	return a.runAgent(r, agent, &t)
}

// NoSession is the error of a run that must resume a session and has none.
const NoSession = "there is no session to resume; resume_missing is error"

// MissesSession reports whether a run must not begin a session, and would.
func (a *Attempts) MissesSession(r *Run, resume string) bool {
	return r.Session == "" && resume == "always" && a.Config.ResumeMissing == "error"
}

// setupFailed is the outcome of a run that could not begin for a reason of ours.
func setupFailed(err error) task.Outcome {
	return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1, Error: err.Error(), Shortage: task.ShortageOf(err)}
}

// runAgent makes the files of a turn and lets the agent carry it out.
func (a *Attempts) runAgent(r *Run, agent task.Agent, t *state.Task) task.Outcome {
	if r.kept = r.Session != "" && t.PromptInHistory == r.Session; r.kept {
		a.View(func(st *fold.State) { r.counted, _ = st.ThreadOf(r.Task.Agent, r.Session) })
	}
	var inputs []string
	told, turn := "", a.Turn(r, t)
	files, err := a.makeFiles(r.ID)
	if err == nil {
		inputs, err = rundir.WriteInputs(files, t.InputFiles)
	}
	if err == nil {
		told = a.Prompt(r, t, inputs, a.remember(r, t))
		err = a.writePrompt(turn, r.Task.Agent, told)
	}
	var wrong *task.FileError
	if errors.As(err, &wrong) && task.ShortageOf(err) == 0 {
		return task.Outcome{Class: state.ClassExit, ExitCode: -1, Error: err.Error() + "; correct inputFiles in tasks.md and retry"}
	}
	if err != nil {
		return setupFailed(err)
	}
	ctx := r.Ctx
	if limit := a.Timeout(t); limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, limit, task.ErrTimeout)
		defer stop()
	}
	a.noteTree(r, t, false)
	if err := a.appendTranscript(r, session.RoleUser, prompt.UserMessage(told), ""); task.ShortageOf(err) != 0 {
		return setupFailed(err)
	}
	out := a.runTurn(ctx, r.Task.Agent, agent, turn, func(e task.Event) { a.onEvent(r, e) })
	out.Fresh = r.Session == ""
	r.looked, r.flagged = true, len(t.Findings) > 0
	if t.Iteration > 1 || r.kept { // what an earlier turn of the attempt was denied
		out.Findings = together(t.Findings, out.Findings)
	}
	if cause := context.Cause(r.Ctx); out.Class == state.ClassTimeout && errors.Is(cause, task.ErrCanceled) && !errors.Is(cause, errStrayed) {
		out.Class, out.Error = state.ClassCanceled, string(state.ClassCanceled) // by a person, while the agent had its grace
	}
	if out.Class == state.ClassTimeout {
		out.Error = strings.TrimPrefix(fmt.Sprintf("it ran longer than its limit of %s; %s", a.Timeout(t), strings.TrimPrefix(out.Error, "timeout")), "; ")
		out.Error = strings.TrimRight(out.Error, "; ")
	}
	if out.Shortage != 0 {
		return out
	}
	a.checkSession(r, t, &out)
	_ = a.appendTranscript(r, session.RoleAssistant, out.Result, out.Error)
	return out
}

const missingRetry = 2 * time.Second // before a run looks once more

// runTurn lets the agent of that name carry out a turn. Where its program is missing, it
// tries once more a moment later.
func (a *Attempts) runTurn(ctx context.Context, name string, agent task.Agent, turn task.Turn, report func(task.Event)) task.Outcome {
	out := agent.Run(ctx, turn, report)
	if out.Class != state.ClassAgentMissing || !queue.Read(a.Store, func(st *fold.State) bool { return st.HasRun(name) }) {
		return out
	}
	again := time.NewTimer(missingRetry)
	defer again.Stop()
	select {
	case <-again.C:
		return agent.Run(ctx, turn, report)
	case <-ctx.Done():
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, task.ErrCanceled):
		out.Class = state.ClassCanceled
	case !errors.Is(cause, task.ErrTimeout): // else it is still missing
		out.Class = state.ClassInterrupted
	}
	return out
}

// errStrayed ends a run that goes on in another session than it must.
var errStrayed = fmt.Errorf("%w: the session was not resumed", task.ErrCanceled)

// mayNotStray reports whether the run makes no sense in another session than the
// one to resume: its user wants an error, or it does not have the prompt.
func (a *Attempts) mayNotStray(r *Run, now string) bool {
	return r.Session != "" && now != "" && !strings.EqualFold(now, r.Session) && (r.kept || a.Config.ResumeMissing == "error")
}

// checkSession makes sure that the outcome is one of the session that was to be
// resumed, and completes what it says about sessions.
func (a *Attempts) checkSession(r *Run, t *state.Task, out *task.Outcome) {
	if r.strayed == "" && !out.Forked && a.mayNotStray(r, out.Session) {
		r.strayed = out.Session
	}
	if r.strayed != "" {
		out.Session = "" // nothing is to go on with it
		if cause := context.Cause(r.Ctx); cause == nil || errors.Is(cause, errStrayed) {
			out.Class, out.Result, out.Kept = state.ClassSessionLost, "", false
			out.Error = fmt.Sprintf("session %s was not resumed: the agent began %s instead", r.Session, r.strayed)
		}
	}
	if out.Session == "" {
		out.Session = r.Task.AgentSession
	}
	switch {
	case out.Note != "" || out.Class == state.ClassSessionLost || r.kept:
	case r.Session == "" && t.Resume == "always":
		out.Note = "there was no session to resume; a new one was begun"
	case r.Session != "" && out.Session != "" && !strings.EqualFold(out.Session, r.Session):
		out.Note = fmt.Sprintf("session %s was not resumed: the agent began %s instead", r.Session, out.Session)
	}
}

// writePrompt writes what an agent is sent.
func (a *Attempts) writePrompt(turn task.Turn, agent, text string) error {
	return durable.PutFile(turn.Prompt, []byte(a.EscapePrompt(agent, text)))
}

// EscapePrompt returns a prompt in the form that an agent's CLI passes on unchanged.
func (a *Attempts) EscapePrompt(agent, text string) string {
	if e, ok := a.Config.Agents[agent].(task.PromptEscaper); ok {
		return e.EscapePrompt(text)
	}
	return text
}

// Turn returns what an agent is told to do in a run.
func (a *Attempts) Turn(r *Run, t *state.Task) task.Turn {
	dir := a.RunDir(r.ID)
	turn := task.Turn{
		TaskID: t.ID, RunID: r.ID, Attempt: r.Task.Attempt, RunDir: dir, Prompt: filepath.Join(dir, rundir.PromptName),
		Workspace: t.Workspace, Model: t.Model, Session: r.Session, Fork: r.kept,
		Limits: task.RunLimits{Idle: a.Config.IdleTimeout, Startup: a.Config.StartupTimeout, Grace: a.Config.Grace},
	}
	if len(t.InputFiles) > 0 {
		turn.Files = filepath.Join(dir, rundir.FilesName)
	}
	return turn
}

// Prompt returns what the agent is told. hits are what was found in the notes.
func (a *Attempts) Prompt(r *Run, t *state.Task, inputs []string, hits []memory.Hit) string {
	var check *prompt.Check // how the verify command ended before the turn
	if task.HasVerify(t) && t.VerifyExitCode != nil && *t.VerifyExitCode != 0 {
		check = &prompt.Check{
			Command: t.VerifyCommand, ExitCode: *t.VerifyExitCode, Time: t.VerifyTime, Output: t.VerifyOutput,
			Iteration: iterationOf(t), Of: a.MaxIterations(t),
		}
	}
	return prompt.Build(prompt.Input{
		Memory: hits, Check: check,
		SessionKey: r.Task.SessionKey, SessionID: r.Task.SessionID, TaskID: t.ID, RunID: r.ID,
		Attempt: r.Task.Attempt, Agent: r.Task.Agent, Workspace: t.Workspace, Policy: a.policy(t),
		Message: t.Prompt, Resumed: r.Session != "", Interrupted: r.interrupted,
		Kept: r.kept, Files: inputs, Outputs: t.OutputSpec, Iteration: iterationOf(t), Template: a.Workspace(t.Workspace).PromptTemplate,
	})
}

// iterationOf returns the round of the verify loop that a turn belongs to; 0: there is none.
func iterationOf(t *state.Task) int {
	if !task.HasVerify(t) {
		return 0
	}
	return max(1, t.Iteration)
}

// Recall searches the notes for a turn, unless it was told already, or its template has
// no place for what is found.
func (a *Attempts) Recall(ctx context.Context, r *Run, t *state.Task) (found memory.Result, err error) {
	if a.Config.Memory == nil || r.kept || t.Iteration > 1 && r.Session != "" || !a.Workspace(t.Workspace).PromptTemplate.Names("Memory") {
		return found, nil
	}
	return a.Config.Memory(ctx, t.Workspace, t.Prompt)
}

// remember searches the notes for a turn, and leaves in its directory what was found
// and why. A search that fails is no reason not to run.
func (a *Attempts) remember(r *Run, t *state.Task) []memory.Hit {
	found, err := a.Recall(r.Ctx, r, t)
	if found.Partial != "" {
		a.Config.Log.Warn("the notes of a workspace were not searched whole", "workspace", t.Workspace, "why", found.Partial)
	}
	if err == nil && (len(found.Hits)+len(found.Skipped) > 0 || found.Partial != "") {
		var text []byte
		if text, err = json.MarshalIndent(found, "", "  "); err == nil {
			err = durable.PutFile(filepath.Join(a.RunDir(r.ID), rundir.MemoryName), append(text, '\n'))
		}
	}
	if err != nil {
		a.Trouble("the notes of a workspace could not be searched", err)
	}
	return found.Hits
}

// onEvent takes what a running agent tells. Its session id is recorded the moment
// it is known, so that a crash can resume it.
func (a *Attempts) onEvent(r *Run, e task.Event) {
	if e.Started {
		a.shortages.Started(r.Begun)
		return
	}
	now := a.Config.Now()
	r.LastOutput.Store(&now)
	if e.Text != "" {
		a.noteAnswer(&r.Task)
	}
	if e.Session == "" || e.Session == r.Task.AgentSession {
		return
	}
	if !e.Forked && a.mayNotStray(r, e.Session) {
		r.strayed = e.Session
		r.Cancel(errStrayed)
		return
	}
	err := a.Update(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		t, runs := stillRuns(st, r)
		if !runs {
			return nil
		}
		rec := &ledger.Record{Kind: ledger.KindTask, ID: r.Task.ID}
		// No status: that of a person who ends the task just now is to count.
		rec.Add(state.NativeKey(r.Task.Agent), e.Session)
		if e.Forked { // it has the prompt too, unless a person has changed that, and goes on counting
			if t.PromptInHistory == r.Session {
				rec.Add(state.KeyPromptInHistory, e.Session)
			}
			if r.counted != (state.Usage{}) {
				rec.Add(state.KeyThreadTokens, state.FormatThread(r.counted))
			}
		}
		tx.Append(rec.Add(state.KeyUpdatedAt, state.FormatTime(a.Config.Now())))
		return nil
	})
	if err != nil { // conclude tries again
		a.Trouble("a session id could not be recorded", err)
		return
	}
	r.mu.Lock()
	r.Task.AgentSession = e.Session
	if e.Forked && r.Task.PromptInHistory == r.Session {
		r.Task.PromptInHistory = e.Session
	}
	r.mu.Unlock()
	a.KeepSession(r.Task.SessionID)
}

// stillRuns returns the task as it is now, and reports whether it is still in this run: a
// person may have ended or requeued it meanwhile, and then the run has no say any more. No
// other run of the task is started while this one is on the list.
func stillRuns(st *fold.State, r *Run) (t state.Task, runs bool) {
	t, runs = st.Peek(r.Task.ID)
	return t, runs && t.Status == state.Running
}

// appendTranscript adds a message to the session's transcript. The transcript is for people;
// the ledger has what counts, so an error goes to the log, and matters only to a turn that
// has not begun.
func (a *Attempts) appendTranscript(r *Run, role, text, problem string) error {
	if a.IsGone() {
		return a.Err()
	}
	tr, err := session.OpenTranscript(a.Config.StateDir, r.Task.SessionID)
	if err == nil {
		err = tr.Append(session.Message{Role: role, Text: text, TS: a.Config.Now().UTC(), TaskID: r.Task.ID, RunID: r.ID, Error: problem})
	}
	if err != nil {
		a.Trouble("the transcript could not be written", err)
	}
	return err
}

// isMisplaced is the outcome of a run that must not begin for that reason.
func isMisplaced(why string) task.Outcome {
	return task.Outcome{Class: state.ClassExit, ExitCode: -1, Error: why + "; name the directory that you mean as its workspace in tasks.md, and retry"}
}

// homeOf returns the directory in which a run of a task begins: what is recorded has no
// links, and one that is there now came later.
func homeOf(t *state.Task) string {
	if t.WorkspaceByHand {
		return task.WithoutLinks(t.Workspace)
	}
	return t.Workspace
}

// hasMoved says that the workspace of a run is another directory than its attempt has
// found, or may be: what runs below it can put a link in its place at any time.
func (a *Attempts) hasMoved(r *Run, t *state.Task) error {
	if wrong := a.Misplaced(t); wrong != "" {
		return errors.New(wrong)
	}
	if real := task.WithoutLinks(t.Workspace); t.Workspace == r.Task.Workspace && real != r.home {
		return fmt.Errorf("the workspace %s leads to %s now", t.Workspace, real)
	}
	return nil
}
