package coordinator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/prompt"
	"stint/session"
	"stint/state"
)

// A run is one execution of an agent for a task. Its fields are set when it is
// chosen and then belong to its goroutine, but for cancel, which anyone may call.
type run struct {
	id          string
	task        state.Task // as it is while the run is at work
	begun       time.Time
	started     *ledger.Record // the `running` record
	session     string         // native session to resume; "" begins a new one
	interrupted bool           // the run before this one did not end by itself
	ctx         context.Context
	cancel      context.CancelCauseFunc
}

// execute carries out a run and records how it ended. The run is taken off the
// list only then, so that nothing else uses its lane before.
func (c *Coordinator) execute(r *run) {
	defer func() {
		r.cancel(nil)
		c.runsMu.Lock()
		delete(c.runs, r.task.ID)
		c.lastCall = c.cfg.Now() // the idle time begins when there is nothing more to do
		c.runsMu.Unlock()
		select {
		case c.ended <- struct{}{}:
		default:
		}
	}()
	out := c.attempt(r)
	c.log.Info("run ended", "task", r.task.ID, "run", r.id, "class", first(string(out.Class), "success"), "exit", out.ExitCode)
	if err := c.finish(r, out); err != nil && !errors.Is(err, &Error{Code: CodeStopped}) {
		c.trouble("the end of run "+r.id+" could not be recorded", err)
	}
}

// attempt prepares the run's files, locks its session and runs the agent.
func (c *Coordinator) attempt(r *run) Outcome {
	t, err := c.whole(r.task.ID)
	if err != nil {
		return broken(err)
	}
	if t.Prompt == "" {
		return Outcome{Class: state.ClassExit, ExitCode: -1, Error: "the task has no prompt; add one in tasks.md and retry"}
	}
	if t.Workspace != "" && isBelow(c.cfg.StateDir, t.Workspace) && c.isWorkspaceByHand(t.ID) {
		return Outcome{Class: state.ClassExit, ExitCode: -1, Error: "the state directory lies in the task's workspace, where the agent could change tasks; name another workspace in tasks.md and retry"}
	}
	agent := c.cfg.Agents[r.task.Agent]
	if agent == nil {
		return Outcome{Class: state.ClassAgentMissing, ExitCode: -1, Error: fmt.Sprintf("there is no agent %q here; stint doctor lists them", r.task.Agent)}
	}
	if r.session == "" && t.Resume == "always" && c.cfg.ResumeMissing == "error" {
		return Outcome{Class: state.ClassSessionLost, ExitCode: -1, Error: "there is no session to resume; resume_missing is error"}
	}
	unlock, err := session.Lock(r.ctx, c.cfg.StateDir, r.task.SessionID, c.cfg.SessionLockTimeout)
	if errors.Is(err, session.ErrBusy) {
		return Outcome{Class: state.ClassSessionBusy, ExitCode: -1, Error: err.Error()}
	}
	if err != nil {
		return broken(err)
	}
	defer func() {
		if err := unlock(); err != nil {
			c.trouble("a session could not be unlocked", err)
		}
	}()
	return c.runAgent(r, agent, &t)
}

// broken is the outcome of a run that could not begin for a reason of ours.
func broken(err error) Outcome {
	return Outcome{Class: state.ClassInterrupted, ExitCode: -1, Error: err.Error()}
}

// isWorkspaceByHand reports whether a person's edit has named the workspace of a
// task: then Submit has not checked it.
func (c *Coordinator) isWorkspaceByHand(id string) bool {
	c.mu.Lock()
	offs := c.state.Offsets(id)
	c.mu.Unlock()
	for _, off := range slices.Backward(offs) {
		s, err := c.ledger.SectionAt(off)
		if err != nil {
			return true // to be on the safe side
		}
		if s.Get(state.KeyWorkspace) != nil {
			return s.Value(ledger.KeyBy) == ledger.ByHand
		}
	}
	return false
}

func (c *Coordinator) runAgent(r *run, agent Agent, t *state.Task) Outcome {
	turn, err := c.prepare(r, t)
	if err != nil {
		return broken(err)
	}
	ctx := r.ctx
	if limit := c.timeout(t); limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, limit, ErrTimeout)
		defer stop()
	}
	c.say(r, session.RoleUser, t.Prompt, "")
	out := agent.Run(ctx, turn, func(e Event) { c.heard(r, e) })
	if out.Class == state.ClassTimeout {
		out.Error = strings.TrimPrefix(fmt.Sprintf("it ran longer than its limit of %s; %s", c.timeout(t), strings.TrimPrefix(out.Error, "timeout")), "; ")
		out.Error = strings.TrimRight(out.Error, "; ")
	}
	c.say(r, session.RoleAssistant, out.Result, out.Error)
	if out.Session == "" {
		out.Session = r.task.AgentSession
	}
	if r.session == "" && t.Resume == "always" && out.Note == "" {
		out.Note = "there was no session to resume; a new one was begun"
	}
	return out
}

// prepare makes runs/<runId> with the prompt as it is sent.
func (c *Coordinator) prepare(r *run, t *state.Task) (Turn, error) {
	dir := c.RunDir(r.id)
	files := filepath.Join(dir, "files") // where a task without a workspace works
	if err := os.MkdirAll(files, durable.DirMode); err != nil {
		return Turn{}, err
	}
	policy := c.cfg.OutputPolicy
	if set := c.workspace(t.Workspace); set.OutputPolicy != nil {
		policy = *set.OutputPolicy
	}
	built := prompt.Build(prompt.Input{
		SessionKey: r.task.SessionKey, SessionID: r.task.SessionID, TaskID: t.ID, RunID: r.id,
		Attempt: r.task.Attempt, Agent: r.task.Agent, Workspace: t.Workspace, Policy: policy,
		Message: t.Prompt, Resumed: r.session != "", Interrupted: r.interrupted,
	})
	path := filepath.Join(dir, "prompt.md")
	if err := os.WriteFile(path, []byte(built), durable.FileMode); err != nil {
		return Turn{}, err
	}
	return Turn{
		TaskID: t.ID, RunID: r.id, Attempt: r.task.Attempt, RunDir: dir, Prompt: path,
		Workspace: first(t.Workspace, files), Model: t.Model, Session: r.session,
		Limits: RunLimits{Idle: c.cfg.IdleTimeout, Startup: c.cfg.StartupTimeout, Grace: c.cfg.Grace},
	}, nil
}

// RunDir gives the directory of a run's files.
func (c *Coordinator) RunDir(runID string) string {
	return filepath.Join(c.cfg.StateDir, "runs", runID)
}

func (c *Coordinator) timeout(t *state.Task) time.Duration {
	if d, err := time.ParseDuration(t.Timeout); err == nil {
		return d
	}
	if set := c.workspace(t.Workspace); set.Timeout > 0 {
		return set.Timeout
	}
	return c.cfg.Timeout
}

// heard takes what a running agent tells. Its session id is recorded the moment
// it is known, so that a crash can resume it.
func (c *Coordinator) heard(r *run, e Event) {
	if e.Session == "" || e.Session == r.task.AgentSession {
		return
	}
	err := c.update(context.Background(), func(tx *ledger.Tx) error {
		if !c.stillRuns(r) {
			return nil
		}
		rec := &ledger.Record{Kind: ledger.KindTask, ID: r.task.ID}
		tx.Append(rec.Add(state.KeyStatus, string(state.Running)).Add(state.NativeKey(r.task.Agent), e.Session).
			Add(state.KeyUpdatedAt, state.FormatTime(c.cfg.Now())))
		return nil
	})
	if err != nil { // conclude tries again
		c.trouble("a session id could not be recorded", err)
		return
	}
	r.task.AgentSession = e.Session
	c.keepSession(r.task.SessionID)
}

func (c *Coordinator) keepSession(id string) {
	c.mu.Lock()
	s, ok := c.state.SessionByID(id)
	c.mu.Unlock()
	if !ok {
		return
	}
	if err := c.store.Put(entryOf(s)); err != nil {
		c.trouble("a session is left out of sessions.json", err)
	}
}

// stillRuns reports whether the task is still in this run: a person may have
// ended or requeued it meanwhile, and then the run has no say any more. No other
// run of the task is started while this one is on the list.
func (c *Coordinator) stillRuns(r *run) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.state.Peek(r.task.ID)
	return ok && t.Status == state.Running
}

// say adds a message to the session's transcript. The transcript is for people;
// the ledger has what counts, so an error only goes to the log.
func (c *Coordinator) say(r *run, role, text, problem string) {
	tr, err := session.OpenTranscript(c.cfg.StateDir, r.task.SessionID)
	if err == nil {
		err = tr.Append(session.Message{Role: role, Text: text, TS: c.cfg.Now().UTC(), TaskID: r.task.ID, RunID: r.id, Error: problem})
	}
	if err != nil {
		c.trouble("the transcript could not be written", err)
	}
}

// maxResult is how much of an answer stands in the ledger; the whole answer is
// in runs/<runId>/answer.
const maxResult = 64 << 10

// bounded gives head and tail of a long answer, marked as cut.
func bounded(answer string) string {
	if len(answer) <= maxResult {
		return answer
	}
	head, tail := maxResult*3/4, maxResult/4
	for head > 0 && !utf8.RuneStart(answer[head]) {
		head--
	}
	for tail > 0 && !utf8.RuneStart(answer[len(answer)-tail]) {
		tail--
	}
	return fmt.Sprintf("%s\n[… %d bytes are left out here; the whole answer is in the run's file answer …]\n%s",
		answer[:head], len(answer)-head-tail, answer[len(answer)-tail:])
}

// finish records how a run ended. Where the disk is full it waits until there is
// room, so that a result is not lost; the lane stays taken meanwhile.
func (c *Coordinator) finish(r *run, out Outcome) error {
	if out.Result != "" {
		if err := os.WriteFile(filepath.Join(c.RunDir(r.id), "answer"), []byte(out.Result), durable.FileMode); err != nil {
			c.trouble("an answer could not be written to its file", err)
		}
	}
	for {
		err := c.update(context.Background(), func(tx *ledger.Tx) error {
			if c.stillRuns(r) {
				c.conclude(r, out, tx)
			}
			return nil
		})
		if !errors.Is(err, &Error{Code: CodeFull}) {
			c.keepSession(r.task.SessionID)
			return err
		}
		c.trouble("a result waits for room on the disk", err)
		select {
		case <-c.ledger.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// conclude appends the records with which a run ends.
func (c *Coordinator) conclude(r *run, out Outcome, tx *ledger.Tx) {
	now := c.cfg.Now()
	if out.Class == state.ClassSessionLost && r.session == "" && c.cfg.ResumeMissing != "error" {
		out.Class = state.ClassExit // it cannot have lost what it was not asked for; asking again would go on for ever
	}
	v := c.judge(&r.task, out, now)
	rec := &ledger.Record{Kind: ledger.KindTask, ID: r.task.ID}
	rec.Add(state.KeyStatus, string(v.status)).AddIf(state.KeyReason, string(v.reason)).
		AddIf(state.KeyNotBefore, state.FormatTime(v.notBefore)).AddIf(state.KeyError, out.Error).AddIf(state.KeyNote, first(out.Note, v.note))
	number := func(key string, old, now int) {
		if old != now {
			rec.Add(key, strconv.Itoa(now))
		}
	}
	number(state.KeyAttempt, r.task.Attempt, v.attempt)
	number(state.KeyRetries, r.task.Retries, v.retries)
	number(state.KeyLimitWaits, r.task.LimitWaits, v.limitWaits)
	if !v.limitSince.Equal(r.task.LimitSince) {
		rec.Add(state.KeyLimitSince, state.FormatTime(v.limitSince))
	}
	if v.loseSession {
		rec.Add(state.NativeKey(r.task.Agent), "").Add(state.KeySessionID, c.cfg.ID())
	} else if out.Session != "" && out.Session != r.task.AgentSession {
		rec.Add(state.NativeKey(r.task.Agent), out.Session)
	}
	if out.Class == "" || out.ExitCode >= 0 {
		rec.Add(state.KeyExitCode, strconv.Itoa(out.ExitCode))
	}
	addUsage(rec, out.Usage)
	if v.reason == state.ClassCanceled {
		rec.Add(state.KeyBy, ledger.ByClient) // an edit would have taken the task out of its run
	}
	rec.Add(state.KeyUpdatedAt, state.FormatTime(now)).AddIf(state.KeyResult, bounded(out.Result))
	tx.Append(rec)
	if v.account != nil {
		tx.Append(v.account)
	}
}

func addUsage(rec *ledger.Record, u state.Usage) {
	for _, f := range []struct {
		key string
		n   int64
	}{
		{state.KeyInputTokens, u.InputTokens},
		{state.KeyCachedInputTokens, u.CachedInputTokens},
		{state.KeyOutputTokens, u.OutputTokens},
		{state.KeyReasoningTokens, u.ReasoningTokens},
	} {
		if f.n > 0 {
			rec.Add(f.key, strconv.FormatInt(f.n, 10))
		}
	}
	if u.CostUSD > 0 {
		rec.Add(state.KeyCostUSD, strconv.FormatFloat(u.CostUSD, 'f', -1, 64))
	}
}
