package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

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
// and lastOutput and settling, which anyone may read.
type run struct {
	id          string
	task        state.Task // as it is while the run is at work
	begun       time.Time
	started     *ledger.Record // the `running` record
	session     string         // native session to resume; "" begins a new one
	named       bool           // the task brought that session from outside: stint has not run in it yet
	home        string         // where its workspace led when it was begun; written with runsMu
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
	recorded    bool               // its `running` record is in the ledger, or just being written; the log\'s goroutine uses it
	probe       bool               // it finds out whether a shortage is over
	check       *task.VerifyResult // how the verify command ended; nil: it was not run, or was cut off
	ctx         context.Context
	cancel      context.CancelCauseFunc
	lastOutput  atomic.Pointer[time.Time] // nil: the agent has put nothing out yet
	settling    atomic.Bool               // it has ended, and its result waits until a save of tasks.md is settled
}

// execute carries out a run and records how it ended. The run is taken off the
// list only then, so that nothing else uses its lane before.
func (c *Coordinator) execute(r *run) {
	defer func() {
		r.cancel(nil)
		c.runsMu.Lock()
		delete(c.runs, r.task.ID)
		c.runsMu.Unlock()
		c.NoteUse()
		select {
		case c.ended <- struct{}{}:
		default:
		}
	}()
	home := homeOf(&r.task)
	c.runsMu.Lock()
	r.home = home
	c.runsMu.Unlock()
	c.carrySnapshot(r.before, r.id)
	for now := r; now != nil; {
		next, err := c.round(now)
		if err != nil && !errors.Is(err, &task.Error{Code: task.CodeStopped}) {
			c.Trouble("the end of run "+now.id+" could not be recorded", err)
		}
		now = next
	}
}

// round carries out what a run's phase says, and records how it ended. It gives the
// run that follows in the same attempt; nil if none does.
func (c *Coordinator) round(r *run) (*run, error) {
	var out task.Outcome
	switch r.task.Phase {
	case state.PhaseVerify:
		out = c.verify(r)
	case state.PhaseEvaluate:
		out = c.evaluate(r)
	default:
		if out = c.attempt(r); out.Class == state.ClassExit {
			c.blameShortage(r, &out)
		}
	}
	switch {
	case out.Shortage != 0:
		c.lacks(out.Shortage, r.probe, false)
	case out.Class == "":
		c.begun(r)
	}
	c.settle(r)
	c.Config.Log.Info("run ended", "task", r.task.ID, "run", r.id, "phase", cmp.Or(string(r.task.Phase), "agent"), "class", cmp.Or(string(out.Class), "success"), "exit", out.ExitCode)
	s, goes := c.next(r, &out)
	if r.task.Phase != state.PhaseEvaluate && (!goes || s.phase == state.PhaseEvaluate) {
		c.inspect(r, &out)
	}
	if goes {
		c.noteAnswer(&r.task) // an agent's turn behind which another step comes has ended well
		return c.goOn(r, &out, s)
	}
	_, begun := c.snapshotOf(r.id)
	unbegun := out.Shortage != 0 && !begun
	c.gather(r, &out)
	err := c.finish(r, out)
	if unbegun {
		_ = os.RemoveAll(c.RunDir(r.id)) // nothing was at work there, and each try would leave one
	}
	return nil, err
}

// settleLimit bounds how long the end of a run waits for tasks.md: for longer than the
// ledger waits for the rest of a file that seems to be cut off.
const settleLimit = 10 * time.Second

// settle takes over what a run has written into tasks.md before its end is recorded: a
// command that queues its task again does that to a task that runs, which is counted.
func (c *Coordinator) settle(r *run) {
	r.settling.Store(true)
	defer r.settling.Store(false)
	ctx, stop := context.WithTimeout(context.Background(), settleLimit)
	defer stop()
	if err := c.Settle(ctx); err != nil { // the watch tries again, and tells
		c.Config.Log.Debug("tasks.md was not taken over at the end of a run", "error", err)
	}
}

// gather collects the files that a task is to leave, when all else went well.
func (c *Coordinator) gather(r *run, out *task.Outcome) {
	t, err := c.Whole(r.task.ID)
	if err != nil || out.Class != "" || len(t.OutputSpec) == 0 {
		return
	}
	for again := true; again; again = task.ShortageOf(err) != 0 && c.WaitForRoom(r.ctx, "a task's output", err) {
		if _, err = c.makeFiles(r.id); err == nil {
			err = c.hasMoved(r, &t)
		}
		if err == nil {
			r.outputs, err = rundir.Collect(t.Workspace, c.RunDir(r.id), t.OutputSpec)
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
func (c *Coordinator) attempt(r *run) task.Outcome {
	t, err := c.Whole(r.task.ID)
	if err != nil {
		return broken(err)
	}
	if t.Prompt == "" {
		return task.Outcome{Class: state.ClassExit, ExitCode: -1, Error: "the task has no prompt; add one in tasks.md and retry"}
	}
	if wrong := c.Misplaced(&t); wrong != "" {
		return isMisplaced(wrong)
	}
	agent := c.Config.Agents[r.task.Agent]
	if agent == nil {
		return task.Outcome{Class: state.ClassAgentMissing, ExitCode: -1, Error: fmt.Sprintf("there is no agent %q here; stint doctor lists them", r.task.Agent)}
	}
	if c.missesSession(r, t.Resume) {
		return task.Outcome{Class: state.ClassSessionLost, ExitCode: -1, Error: noSession}
	}
	unlock, err := session.Lock(r.ctx, c.Config.StateDir, r.task.SessionID, c.Config.SessionLockTimeout)
	if errors.Is(err, session.ErrBusy) {
		return task.Outcome{Class: state.ClassSessionBusy, ExitCode: -1, Error: err.Error()}
	}
	if err != nil {
		return broken(err)
	}
	defer func() {
		if err := unlock(); err != nil {
			c.Trouble("a session could not be unlocked", err)
		}
	}()
	return c.runAgent(r, agent, &t)
}

const noSession = "there is no session to resume; resume_missing is error"

// missesSession reports whether a run must not begin a session, and would.
func (c *Coordinator) missesSession(r *run, resume string) bool {
	return r.session == "" && resume == "always" && c.Config.ResumeMissing == "error"
}

// broken is the outcome of a run that could not begin for a reason of ours.
func broken(err error) task.Outcome {
	return task.Outcome{Class: state.ClassInterrupted, ExitCode: -1, Error: err.Error(), Shortage: task.ShortageOf(err)}
}

func (c *Coordinator) runAgent(r *run, agent task.Agent, t *state.Task) task.Outcome {
	if r.kept = r.session != "" && t.PromptKept == r.session; r.kept {
		c.View(func(st *fold.State) { r.counted, _ = st.ThreadOf(r.task.Agent, r.session) })
	}
	turn, told, err := c.prepare(r, t)
	var wrong *task.FileError
	if errors.As(err, &wrong) && task.ShortageOf(err) == 0 {
		return task.Outcome{Class: state.ClassExit, ExitCode: -1, Error: err.Error() + "; correct inputFiles in tasks.md and retry"}
	}
	if err != nil {
		return broken(err)
	}
	ctx := r.ctx
	if limit := c.Timeout(t); limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, limit, task.ErrTimeout)
		defer stop()
	}
	c.noteTree(r, t, false)
	if err := c.say(r, session.RoleUser, prompt.UserMessage(told), ""); task.ShortageOf(err) != 0 {
		return broken(err)
	}
	out := c.runTurn(ctx, r.task.Agent, agent, turn, func(e task.Event) { c.heard(r, e) })
	out.Fresh = r.session == ""
	r.looked, r.flagged = true, len(t.Findings) > 0
	if t.Iteration > 1 || r.kept { // what an earlier turn of the attempt was denied
		out.Findings = together(t.Findings, out.Findings)
	}
	if cause := context.Cause(r.ctx); out.Class == state.ClassTimeout && errors.Is(cause, task.ErrCanceled) && !errors.Is(cause, errStrayed) {
		out.Class, out.Error = state.ClassCanceled, string(state.ClassCanceled) // by a person, while the agent had its grace
	}
	if out.Class == state.ClassTimeout {
		out.Error = strings.TrimPrefix(fmt.Sprintf("it ran longer than its limit of %s; %s", c.Timeout(t), strings.TrimPrefix(out.Error, "timeout")), "; ")
		out.Error = strings.TrimRight(out.Error, "; ")
	}
	if out.Shortage != 0 {
		return out
	}
	c.checkSession(r, t, &out)
	_ = c.say(r, session.RoleAssistant, out.Result, out.Error)
	return out
}

// errStrayed ends a run that goes on in another session than it must.
var errStrayed = fmt.Errorf("%w: the session was not resumed", task.ErrCanceled)

// mayNotStray reports whether the run makes no sense in another session than the
// one to resume: its user wants an error, or it does not have the prompt.
func (c *Coordinator) mayNotStray(r *run, now string) bool {
	return r.session != "" && now != "" && !strings.EqualFold(now, r.session) && (r.kept || c.Config.ResumeMissing == "error")
}

// checkSession makes sure that the outcome is one of the session that was to be
// resumed, and completes what it says about sessions.
func (c *Coordinator) checkSession(r *run, t *state.Task, out *task.Outcome) {
	if r.strayed == "" && !out.Forked && c.mayNotStray(r, out.Session) {
		r.strayed = out.Session
	}
	if r.strayed != "" {
		out.Session = "" // nothing is to go on with it
		if cause := context.Cause(r.ctx); cause == nil || errors.Is(cause, errStrayed) {
			out.Class, out.Result, out.Kept = state.ClassSessionLost, "", false
			out.Error = fmt.Sprintf("session %s was not resumed: the agent began %s instead", r.session, r.strayed)
		}
	}
	if out.Session == "" {
		out.Session = r.task.AgentSession
	}
	switch {
	case out.Note != "" || out.Class == state.ClassSessionLost || r.kept:
	case r.session == "" && t.Resume == "always":
		out.Note = "there was no session to resume; a new one was begun"
	case r.session != "" && out.Session != "" && !strings.EqualFold(out.Session, r.session):
		out.Note = fmt.Sprintf("session %s was not resumed: the agent began %s instead", r.session, out.Session)
	}
}

// prepare makes runs/<runId> with the prompt as it is sent and the task's files. told is
// that prompt before anything in it was escaped.
func (c *Coordinator) prepare(r *run, t *state.Task) (turn task.Turn, told string, err error) {
	files, err := c.makeFiles(r.id)
	if err != nil {
		return task.Turn{}, "", err
	}
	inputs, err := rundir.WriteInputs(files, t.InputFiles)
	if err != nil {
		return task.Turn{}, "", err
	}
	turn, told = c.turn(r, t), c.prompt(r, t, inputs, c.remember(r, t))
	return turn, told, c.writePrompt(turn, r.task.Agent, told)
}

// writePrompt writes what an agent is sent.
func (c *Coordinator) writePrompt(turn task.Turn, agent, text string) error {
	return durable.PutFile(turn.Prompt, []byte(c.escapePrompt(agent, text)))
}

// escapePrompt returns a prompt in the form that an agent's CLI passes on unchanged.
func (c *Coordinator) escapePrompt(agent, text string) string {
	if a, ok := c.Config.Agents[agent].(task.PromptEscaper); ok {
		return a.EscapePrompt(text)
	}
	return text
}

// turn gives what an agent is told to do in a run.
func (c *Coordinator) turn(r *run, t *state.Task) task.Turn {
	dir := c.RunDir(r.id)
	turn := task.Turn{
		TaskID: t.ID, RunID: r.id, Attempt: r.task.Attempt, RunDir: dir, Prompt: filepath.Join(dir, rundir.PromptName),
		Workspace: t.Workspace, Model: t.Model, Session: r.session, Fork: r.kept,
		Limits: task.RunLimits{Idle: c.Config.IdleTimeout, Startup: c.Config.StartupTimeout, Grace: c.Config.Grace},
	}
	if len(t.InputFiles) > 0 {
		turn.Files = filepath.Join(dir, rundir.FilesName)
	}
	return turn
}

// prompt gives what the agent is told. hits are what was found in the notes.
func (c *Coordinator) prompt(r *run, t *state.Task, inputs []string, hits []memory.Hit) string {
	return prompt.Build(prompt.Input{
		Memory: hits, Check: c.checkOf(t),
		SessionKey: r.task.SessionKey, SessionID: r.task.SessionID, TaskID: t.ID, RunID: r.id,
		Attempt: r.task.Attempt, Agent: r.task.Agent, Workspace: t.Workspace, Policy: c.policy(t),
		Message: t.Prompt, Resumed: r.session != "", Interrupted: r.interrupted,
		Kept: r.kept, Files: inputs, Outputs: t.OutputSpec, Iteration: iterationOf(t), Template: c.Workspace(t.Workspace).PromptTemplate,
	})
}

// iterationOf gives the round of the verify loop that a turn belongs to; 0: there is none.
func iterationOf(t *state.Task) int {
	if !task.HasVerify(t) {
		return 0
	}
	return max(1, t.Iteration)
}

// checkOf gives what is known of the verify command when an agent's turn begins.
func (c *Coordinator) checkOf(t *state.Task) *prompt.Check {
	if !task.HasVerify(t) || t.VerifyExitCode == nil || *t.VerifyExitCode == 0 {
		return nil
	}
	return &prompt.Check{
		Command: t.VerifyCommand, ExitCode: *t.VerifyExitCode, Time: t.VerifyTime, Output: t.VerifyOutput,
		Iteration: iterationOf(t), Of: c.MaxIterations(t),
	}
}

// recall searches the notes for a turn, unless it was told already, or its template has
// no place for what is found.
func (c *Coordinator) recall(ctx context.Context, r *run, t *state.Task) (found memory.Result, err error) {
	if c.Config.Memory == nil || r.kept || t.Iteration > 1 && r.session != "" || !c.Workspace(t.Workspace).PromptTemplate.Names("Memory") {
		return found, nil
	}
	return c.Config.Memory(ctx, t.Workspace, t.Prompt)
}

// remember searches the notes for a turn, and leaves in its directory what was found
// and why. A search that fails is no reason not to run.
func (c *Coordinator) remember(r *run, t *state.Task) []memory.Hit {
	found, err := c.recall(r.ctx, r, t)
	if found.Partial != "" {
		c.Config.Log.Warn("the notes of a workspace were not searched whole", "workspace", t.Workspace, "why", found.Partial)
	}
	if err == nil && (len(found.Hits)+len(found.Skipped) > 0 || found.Partial != "") {
		var text []byte
		if text, err = json.MarshalIndent(found, "", "  "); err == nil {
			err = durable.PutFile(filepath.Join(c.RunDir(r.id), rundir.MemoryName), append(text, '\n'))
		}
	}
	if err != nil {
		c.Trouble("the notes of a workspace could not be searched", err)
	}
	return found.Hits
}

// heard takes what a running agent tells. Its session id is recorded the moment
// it is known, so that a crash can resume it.
func (c *Coordinator) heard(r *run, e task.Event) {
	if e.Started {
		c.begun(r)
		return
	}
	now := c.Config.Now()
	r.lastOutput.Store(&now)
	if e.Text != "" {
		c.noteAnswer(&r.task)
	}
	if e.Session == "" || e.Session == r.task.AgentSession {
		return
	}
	if !e.Forked && c.mayNotStray(r, e.Session) {
		r.strayed = e.Session
		r.cancel(errStrayed)
		return
	}
	err := c.Update(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		t, err := task.PeekIn(st, r.task.ID)
		if err != nil || t.Status != state.Running { // as stillRuns
			return nil
		}
		rec := &ledger.Record{Kind: ledger.KindTask, ID: r.task.ID}
		// No status: that of a person who ends the task just now is to count.
		rec.Add(state.NativeKey(r.task.Agent), e.Session)
		if e.Forked { // it has the prompt too, unless a person has changed that, and goes on counting
			if t.PromptKept == r.session {
				rec.Add(state.KeyPromptKept, e.Session)
			}
			if r.counted != (state.Usage{}) {
				rec.Add(state.KeyThreadTokens, state.FormatThread(r.counted))
			}
		}
		tx.Append(rec.Add(state.KeyUpdatedAt, state.FormatTime(c.Config.Now())))
		return nil
	})
	if err != nil { // conclude tries again
		c.Trouble("a session id could not be recorded", err)
		return
	}
	c.runsMu.Lock()
	r.task.AgentSession = e.Session
	if e.Forked && r.task.PromptKept == r.session {
		r.task.PromptKept = e.Session
	}
	c.runsMu.Unlock()
	c.KeepSession(r.task.SessionID)
}

// stillRuns reports whether the task is still in this run: a person may have
// ended or requeued it meanwhile, and then the run has no say any more. No other
// run of the task is started while this one is on the list.
func stillRuns(st *fold.State, r *run) bool {
	t, ok := st.Peek(r.task.ID)
	return ok && t.Status == state.Running
}

// say adds a message to the session's transcript. The transcript is for people;
// the ledger has what counts, so an error goes to the log, and matters only to a turn that
// has not begun.
func (c *Coordinator) say(r *run, role, text, problem string) error {
	if c.IsGone() {
		return c.Err()
	}
	tr, err := session.OpenTranscript(c.Config.StateDir, r.task.SessionID)
	if err == nil {
		err = tr.Append(session.Message{Role: role, Text: text, TS: c.Config.Now().UTC(), TaskID: r.task.ID, RunID: r.id, Error: problem})
	}
	if err != nil {
		c.Trouble("the transcript could not be written", err)
	}
	return err
}

// isMisplaced is the outcome of a run that must not begin for that reason.
func isMisplaced(why string) task.Outcome {
	return task.Outcome{Class: state.ClassExit, ExitCode: -1, Error: why + "; name the directory that you mean as its workspace in tasks.md, and retry"}
}

// homeOf gives the directory in which a run of a task begins: what is recorded has no
// links, and one that is there now came later.
func homeOf(t *state.Task) string {
	if t.WorkspaceByHand {
		return task.WithoutLinks(t.Workspace)
	}
	return t.Workspace
}

// hasMoved says that the workspace of a run is another directory than its attempt has
// found, or may be: what runs below it can put a link in its place at any time.
func (c *Coordinator) hasMoved(r *run, t *state.Task) error {
	if wrong := c.Misplaced(t); wrong != "" {
		return errors.New(wrong)
	}
	if real := task.WithoutLinks(t.Workspace); t.Workspace == r.task.Workspace && real != r.home {
		return fmt.Errorf("the workspace %s leads to %s now", t.Workspace, real)
	}
	return nil
}
