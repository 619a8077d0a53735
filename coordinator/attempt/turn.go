package attempt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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

// attempt prepares the run's files, locks its session and runs the agent.
func (a *Attempts) attempt(r *Run, t *state.Task) task.Outcome {
	if t.Prompt == "" {
		return task.Outcome{Class: state.ClassExit, ExitCode: -1, Error: "the task has no prompt; add one in tasks.md and retry"}
	}
	if err := a.makeTemp(t); err != nil {
		return setupFailed(err)
	}
	if wrong := a.admission.WorkspaceError(t); wrong != "" {
		return inWrongWorkspace(wrong)
	}
	agent := a.tasks.Config.Agents[r.Task.Agent]
	if agent == nil {
		return task.Outcome{Class: state.ClassAgentMissing, ExitCode: -1, Error: fmt.Sprintf("there is no agent %q here; stint doctor lists them", r.Task.Agent)}
	}
	if wrong := a.tasks.AccountsNow().Missing(r.Task.Agent, r.Task.AccountName()); wrong != "" { // any more
		return task.Outcome{Class: state.ClassExit, ExitCode: -1, Error: wrong, Final: true}
	}
	if err := a.admission.CheckAllow(r.Task.Agent, t.Workspace, t.Allow); err != nil { // of an edited task, or as configured now
		return task.Outcome{Class: state.ClassDenied, ExitCode: -1, Error: strings.TrimPrefix(err.Error(), "allow: "), Final: true}
	}
	if a.MissesSession(r, t.Resume) {
		return task.Outcome{Class: state.ClassSessionLost, ExitCode: -1, Error: NoSession}
	}
	isOwn := strings.HasPrefix(r.Task.SessionKey, state.LanePrefixTask)
	if !isOwn && (r.Session != "" || task.IsNamedLane(r.Task.SessionKey)) { // else nobody else knows of it
		unlock, err := session.Lock(r.Ctx, a.tasks.Config.StateDir, r.Task.SessionID, a.tasks.Config.SessionLockTimeout)
		if errors.Is(err, session.ErrBusy) {
			return task.Outcome{Class: state.ClassSessionBusy, ExitCode: -1, Error: err.Error()}
		}
		if err != nil {
			return setupFailed(err)
		}
		defer func() { a.tasks.TroubleUnlessStopped("a session could not be unlocked", unlock()) }()
	}
	return a.runAgent(r, agent, t)
}

// NoSession is the error of a run that must resume a session and has none.
const NoSession = "there is no session to resume; resume_missing is error"

// MissesSession reports whether a run must not begin a session, and would.
func (a *Attempts) MissesSession(r *Run, resume string) bool {
	return r.Session == "" && resume == "always" && a.tasks.Config.ResumeMissing == "error"
}

// runAgent makes the files of a turn and lets the agent carry it out.
func (a *Attempts) runAgent(r *Run, agent task.Agent, t *state.Task) task.Outcome {
	if r.kept = r.Session != "" && t.PromptInHistory == r.Session; r.kept {
		a.tasks.View(func(st *fold.State) { r.counted, _ = st.ThreadOf(r.Task.Agent, r.Session) })
	}
	var inputs []string
	told, turn := "", a.Turn(r, t)
	files, err := t.Workspace, a.tasks.MakeDir(turn.RunDir)
	if err == nil && t.Isolation != state.IsolationTemp && len(t.InputFiles) > 0 {
		files, err = a.makeFiles(r.ID)
	}
	if err == nil && len(t.InputFiles) > 0 {
		inputs, err = rundir.WriteInputs(files, t.InputFiles)
	}
	if err == nil {
		told = a.Prompt(r, t, inputs, a.remember(r, t))
		err = a.writePrompt(turn, r.Task.Agent, told, task.NoteSchema)
	}
	var wrong *task.FileError
	if errors.As(err, &wrong) && task.ShortageOf(err) == 0 {
		return task.Outcome{Class: state.ClassExit, ExitCode: -1, Error: err.Error() + "; correct inputFiles in tasks.md and retry"}
	}
	if err != nil {
		return setupFailed(err)
	}
	ctx, endTurn := context.WithCancelCause(r.Ctx)
	defer endTurn(nil)
	rest := a.tasks.Rest(t)
	r.most, r.endTurn = rest.Tokens, endTurn
	for cause, limit := range map[error]time.Duration{task.ErrTimeout: a.tasks.Timeout(t), errBudget: rest.Time} {
		if limit > 0 {
			defer time.AfterFunc(limit, func() { endTurn(cause) }).Stop()
		}
	}
	a.noteTree(r, t)
	if err := a.appendTranscript(r, session.RoleUser, prompt.UserMessage(told), ""); task.ShortageOf(err) != 0 {
		return setupFailed(err)
	}
	out := a.runTurn(ctx, &r.Task, agent, turn, func(e task.Event) { a.onEvent(r, e) })
	a.beginLog(r, nil) // of an agent that has told nothing
	out.Fresh = r.Session == ""
	r.looked, r.flagged = true, len(t.Findings) > 0
	if t.Iteration > 1 || r.kept { // what an earlier turn of the attempt was denied
		out.Findings = together(t.Findings, out.Findings)
	}
	if cause := context.Cause(r.Ctx); out.Class == state.ClassTimeout && errors.Is(cause, task.ErrCanceled) && !errors.Is(cause, errStrayed) {
		out.Class, out.Error = state.ClassCanceled, string(state.ClassCanceled) // by a person, while the agent had its grace
	}
	if errors.Is(context.Cause(ctx), errBudget) && out.Class == state.ClassTimeout {
		out.Class, out.Error = state.ClassBudget, "it was ended because a budget is spent"
	}
	if out.Class == state.ClassTimeout {
		out.Error = joined(fmt.Sprintf("it ran longer than its limit of %s", a.tasks.Timeout(t)), strings.TrimPrefix(out.Error, "timeout"))
	}
	if out.Shortage != 0 {
		return out
	}
	a.checkSession(r, t, &out)
	a.checkDenied(t, &out)
	_ = a.appendTranscript(r, session.RoleAssistant, out.Result, out.Error)
	return out
}

// beginLog writes the first event of an agent's turn, unless there is one: only what it tells first shows its environment.
func (a *Attempts) beginLog(r *Run, env []string) {
	if r.Event() != nil {
		return
	}
	text := fmt.Sprintf("%s, attempt %d", r.Task.Agent, r.Task.Attempt)
	if r.Task.Iteration > 1 {
		text += fmt.Sprintf(", iteration %d", r.Task.Iteration)
	}
	if r.Session != "" {
		text += ", resumes session " + r.Session
	}
	a.log(r, task.LogEvent{Kind: task.LogRun, Text: text, Env: env})
}

// DeniedFails is the value of the setting denied with which a denied tool is a failure.
const DeniedFails = "fail"

// checkDenied makes a failure of a turn that was denied a tool, where that is configured.
func (a *Attempts) checkDenied(t *state.Task, out *task.Outcome) {
	i := slices.IndexFunc(out.Findings, func(f state.Issue) bool { return f.Kind == string(state.ClassDenied) })
	if out.Class == "" && i >= 0 && a.tasks.Workspace(t.Workspace).Denied == DeniedFails {
		out.Class, out.Error = state.ClassDenied, out.Findings[i].Message
	}
}

// runTurn runs a turn with the task's account. Where the program is missing, it tries again a moment later.
func (a *Attempts) runTurn(ctx context.Context, t *state.Task, agent task.Agent, turn task.Turn, report func(task.Event)) task.Outcome {
	const missingRetry = 2 * time.Second // before a run looks once more
	name := t.Agent
	if danger := a.tasks.Config.Danger; danger != nil && !turn.ReadOnly {
		effect, err := danger(t.AccountName())
		if err != nil {
			return task.Outcome{Class: state.ClassDenied, ExitCode: -1, Error: err.Error(), Final: true}
		}
		if effect != "" {
			if err := a.noteDanger(t, effect); err != nil {
				return setupFailed(err)
			}
		}
	}
	if env := a.tasks.Config.AccountEnv; env != nil {
		var err error
		if turn.Account, err = env(t.AccountName()); err != nil {
			return task.Outcome{Class: state.ClassAuth, ExitCode: -1, Error: err.Error()}
		}
	}
	out := agent.Run(ctx, turn, report)
	if out.Class != state.ClassAgentMissing || !queue.Read(a.tasks, func(st *fold.State) bool { return st.HasRun(name) }) {
		return out
	}
	if task.Sleep(ctx, missingRetry) == nil {
		out = agent.Run(ctx, turn, report)
		if found := a.tasks.Config.AgentFound; out.Class == state.ClassAgentMissing && found != nil && a.IsFound(name) && !found(name, turn.Env) {
			out.Final = true
			out.Error += "; other tasks find it: submit the task again from a shell that has it in PATH, or configure " + name + "_bin"
		}
		return out
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, task.ErrCanceled):
		out.Class = state.ClassCanceled
	case !errors.Is(cause, task.ErrTimeout): // else it is still missing
		out.Class = state.ClassInterrupted
	}
	return out
}

// noteDanger records, before a run without a guard, what its agent can do, and that it may do it twice.
func (a *Attempts) noteDanger(t *state.Task, effect string) error {
	policy := "; idempotency: at least once, an interrupted run is repeated"
	if t.IdempotencyKey != "" {
		policy += "; no other task has the key " + t.IdempotencyKey.Given()
	}
	return a.tasks.Update(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		if now, _ := st.Peek(t.ID); now.Status != state.Running {
			return nil // a person has ended it
		}
		tx.Append(task.RecordOf(t.ID).Add(state.KeyNote, effect+policy).Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now())))
		return nil
	})
}

// IsFound reports whether an agent's program is there, for the master or for a task that has
// not ended and has an environment of its own. It may be slow.
func (a *Attempts) IsFound(agent string) bool {
	found := a.tasks.Config.AgentFound
	if found == nil || found(agent, nil) {
		return true
	}
	for digest := range a.tasks.OpenEnvironments(agent) {
		if env, ok := a.tasks.Environment(digest); ok && env != nil && found(agent, env) {
			return true
		}
	}
	return false
}

// What ends a run that has spent what it may, or goes on in another session than it must.
var (
	errBudget  = fmt.Errorf("%w: a budget is spent", task.ErrTimeout)
	errStrayed = fmt.Errorf("%w: the session was not resumed", task.ErrCanceled)
)

// mayNotStray reports whether the run makes no sense in another session than the
// one to resume: its user wants an error, or it does not have the prompt.
func (a *Attempts) mayNotStray(r *Run, now string) bool {
	return r.Session != "" && now != "" && !strings.EqualFold(now, r.Session) && (r.kept || a.tasks.Config.ResumeMissing == "error")
}

// checkSession completes what the outcome says about sessions, and refuses one of another session.
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
	out.Session = cmp.Or(out.Session, r.Task.AgentSession)
	switch {
	case out.Note != "" || out.Class == state.ClassSessionLost || r.kept:
	case r.Session == "" && t.Resume == "always":
		out.Note = "there was no session to resume; a new one was begun"
	case r.Session != "" && out.Session != "" && !strings.EqualFold(out.Session, r.Session):
		out.Note = fmt.Sprintf("session %s was not resumed: the agent began %s instead", r.Session, out.Session)
	}
}

// onEvent takes what a running agent tells. Its session id is recorded at once, so that a crash can resume it.
func (a *Attempts) onEvent(r *Run, e task.Event) {
	a.beginLog(r, e.Env)
	if a.noteLife(r, e.Started); e.Started {
		return
	}
	if e.Log != nil {
		a.log(r, *e.Log)
		if r.most > 0 && e.Log.Tokens >= r.most {
			r.endTurn(errBudget)
		}
	}
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
	err := a.tasks.Update(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
		t, runs := stillRuns(st, r)
		if !runs {
			return nil
		}
		rec := task.RecordOf(r.Task.ID)
		// No status: that of a person who ends the task just now is to count.
		rec.Add(state.NativeKey(r.Task.Agent), e.Session)
		if e.Forked { // it has the prompt too, unless a person has changed that, and goes on counting
			rec.AddWhen(t.PromptInHistory == r.Session, state.KeyPromptInHistory, e.Session)
			rec.AddWhen(r.counted != (state.Usage{}), state.KeyThreadTokens, state.FormatThread(r.counted))
		}
		tx.Append(rec.Add(state.KeyUpdatedAt, state.FormatTime(a.tasks.Config.Now())))
		return nil
	})
	if err != nil { // conclude tries again
		a.tasks.Trouble("a session id could not be recorded", err)
		return
	}
	r.mu.Lock()
	r.Task.AgentSession = e.Session
	if e.Forked && r.Task.PromptInHistory == r.Session {
		r.Task.PromptInHistory = e.Session
	}
	r.mu.Unlock()
	a.tasks.KeepSessions(r.Task.SessionKey)
}

// appendTranscript adds a message to the session's transcript. The transcript is for people; the ledger has
// what counts, so an error goes to the log, and matters only to a turn that has not begun. The session of a task
// that has a lane of its own gets none: it would repeat that one task.
func (a *Attempts) appendTranscript(r *Run, role, text, problem string) error {
	if a.tasks.IsGone() {
		return a.tasks.Err()
	}
	if strings.HasPrefix(r.Task.SessionKey, state.LanePrefixTask) {
		return nil
	}
	err := session.Append(durable.OS, a.tasks.Config.StateDir, session.Message{
		Role: role, Text: text, TS: a.tasks.Config.Now(), SessionID: r.Task.SessionID, TaskID: r.Task.ID, RunID: r.ID, Error: problem,
	})
	a.tasks.TroubleUnlessStopped("the transcript could not be written", err)
	return err
}

// schemaName is the file of a run that has the schema of the answer, if it must follow one.
const schemaName = "schema.json"

// writePrompt writes what an agent is sent, and the schema of its answer if the turn has one.
func (a *Attempts) writePrompt(turn task.Turn, agent, text, schema string) error {
	if turn.Schema != "" {
		if err := durable.PutFile(turn.Schema, []byte(schema+"\n")); err != nil {
			return err
		}
	}
	return durable.PutFile(turn.Prompt, []byte(a.EscapePrompt(agent, text)))
}

// EscapePrompt returns a prompt in the form that an agent's CLI passes on unchanged.
func (a *Attempts) EscapePrompt(agent, text string) string {
	if e, ok := a.tasks.Config.Agents[agent].(task.PromptEscaper); ok {
		return e.EscapePrompt(text)
	}
	return text
}

// Turn returns what an agent is told to do in a run.
func (a *Attempts) Turn(r *Run, t *state.Task) task.Turn {
	dir := a.tasks.RunDir(r.ID)
	turn := task.Turn{
		TaskID: t.ID, RunID: r.ID, Attempt: r.Task.Attempt, RunDir: dir, Prompt: filepath.Join(dir, rundir.PromptName),
		Workspace: t.Workspace, Root: task.RepositoryRoot(t.Place()), Model: t.Model, Session: r.Session, Fork: r.kept, Allow: t.Allow, Env: a.environment(r, t), Budget: a.tasks.Rest(t).USD,
		Limits: task.RunLimits{Idle: a.tasks.Config.IdleTimeout, Startup: a.tasks.Config.StartupTimeout, Grace: a.tasks.Config.Grace},
	}
	if strings.HasPrefix(t.Prompt, task.NoteQuestion) {
		turn.ReadOnly, turn.Looks, turn.Allow, turn.Schema = true, true, nil, filepath.Join(dir, schemaName)
	}
	if len(t.InputFiles) > 0 && t.Isolation != state.IsolationTemp { // else they lie in the workspace
		turn.Files = filepath.Join(dir, rundir.FilesName)
	}
	return turn
}

// environmentLost is the note about a run in the environment of the master instead of its task's.
const environmentLost = "the environment of its call is no longer in env/: the master's was used"

// environment returns that of a task's programs, nil for the master's, and notes for the run's end if it is lost.
func (a *Attempts) environment(r *Run, t *state.Task) []string {
	env, ok := a.tasks.Environment(t.Environment)
	if !ok {
		r.note = environmentLost
	}
	return env
}

// Prompt returns what the agent is told. hits are what was found in the notes.
func (a *Attempts) Prompt(r *Run, t *state.Task, inputs []string, hits []memory.Hit) string {
	var check *prompt.Check // how the verify command ended before the turn
	iteration := 0          // of the verify loop that the turn belongs to; 0: there is none
	if task.HasVerify(t) {
		iteration = max(1, t.Iteration)
		if t.VerifyExitCode != nil && *t.VerifyExitCode != 0 {
			check = &prompt.Check{
				Command: t.VerifyCommand, ExitCode: *t.VerifyExitCode, Time: t.VerifyTime, Output: t.VerifyOutput,
				Iteration: iteration, Of: a.tasks.MaxIterations(t),
			}
		}
	}
	return prompt.Build(prompt.Input{
		Memory: hits, Check: check,
		SessionKey: r.Task.SessionKey, SessionID: r.Task.SessionID, TaskID: t.ID, RunID: r.ID,
		Attempt: r.Task.Attempt, Agent: r.Task.Agent, Workspace: t.Workspace, Policy: a.tasks.OutputPolicy(t),
		Message: t.Prompt, Resumed: r.Session != "", Interrupted: r.interrupted,
		Kept: r.kept, Files: inputs, Outputs: t.OutputSpec, Iteration: iteration, Template: a.tasks.Workspace(t.Workspace).PromptTemplate,
	})
}

// Recall searches the notes for a turn, unless it was told already, or its template has no place for them.
func (a *Attempts) Recall(ctx context.Context, r *Run, t *state.Task) (found memory.Result, err error) {
	if a.tasks.Config.Memory == nil || r.kept || t.Iteration > 1 && r.Session != "" || !a.tasks.Workspace(t.Workspace).PromptTemplate.Names("Memory") {
		return found, nil
	}
	return a.tasks.Config.Memory(ctx, t.Workspace, t.Prompt)
}

// remember searches the notes for a turn, and leaves in its directory what was found. It cannot fail the run.
func (a *Attempts) remember(r *Run, t *state.Task) []memory.Hit {
	found, err := a.Recall(r.Ctx, r, t)
	if found.Partial != "" {
		a.tasks.Config.Log.Warn("the notes of a workspace were not searched whole", "workspace", t.Workspace, "why", found.Partial)
	}
	if err == nil && (len(found.Hits)+len(found.Skipped) > 0 || found.Partial != "") {
		var text []byte
		if text, err = json.MarshalIndent(found, "", "  "); err == nil {
			err = durable.PutFile(filepath.Join(a.tasks.RunDir(r.ID), rundir.MemoryName), append(text, '\n'))
		}
	}
	if err == nil && a.tasks.Config.Injected != nil {
		err = a.tasks.Config.Injected(t.Workspace, slices.Concat(found.Hits, found.Archived))
	}
	a.tasks.TroubleUnlessStopped("the notes of a workspace could not be searched, or their uses counted", err)
	return found.Hits
}
