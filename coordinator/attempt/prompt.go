package attempt

import (
	"context"
	"encoding/json"
	"path/filepath"

	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/memory"
	"stint/prompt"
	"stint/state"
)

// writePrompt writes what an agent is sent.
func (a *Attempts) writePrompt(turn task.Turn, agent, text string) error {
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
	if len(t.InputFiles) > 0 && t.Isolation == "" { // else they lie in the workspace
		turn.Files = filepath.Join(dir, rundir.FilesName)
	}
	return turn
}

// EnvironmentLost is the note about a run in the environment of the master instead of its task's.
const EnvironmentLost = "the environment of its call is no longer in env/: the master's was used"

// environment returns the environment that a task's programs run in, and has the run's end tell
// if it is lost; nil: that of the master counts.
func (a *Attempts) environment(r *Run, t *state.Task) []string {
	env, ok := a.tasks.Environment(t.Environment)
	if !ok {
		r.note = EnvironmentLost
	}
	return env
}

// Prompt returns what the agent is told. hits are what was found in the notes.
func (a *Attempts) Prompt(r *Run, t *state.Task, inputs []string, hits []memory.Hit) string {
	var check *prompt.Check // how the verify command ended before the turn
	if task.HasVerify(t) && t.VerifyExitCode != nil && *t.VerifyExitCode != 0 {
		check = &prompt.Check{
			Command: t.VerifyCommand, ExitCode: *t.VerifyExitCode, Time: t.VerifyTime, Output: t.VerifyOutput,
			Iteration: iterationOf(t), Of: a.tasks.MaxIterations(t),
		}
	}
	return prompt.Build(prompt.Input{
		Memory: hits, Check: check,
		SessionKey: r.Task.SessionKey, SessionID: r.Task.SessionID, TaskID: t.ID, RunID: r.ID,
		Attempt: r.Task.Attempt, Agent: r.Task.Agent, Workspace: t.Workspace, Policy: a.tasks.OutputPolicy(t),
		Message: t.Prompt, Resumed: r.Session != "", Interrupted: r.interrupted,
		Kept: r.kept, Files: inputs, Outputs: t.OutputSpec, Iteration: iterationOf(t), Template: a.tasks.Workspace(t.Workspace).PromptTemplate,
	})
}

// iterationOf returns the iteration of the verify loop that a turn belongs to; 0: there is none.
func iterationOf(t *state.Task) int {
	if !task.HasVerify(t) {
		return 0
	}
	return max(1, t.Iteration)
}

// Recall searches the notes for a turn, unless it was told already, or its template has
// no place for what is found.
func (a *Attempts) Recall(ctx context.Context, r *Run, t *state.Task) (found memory.Result, err error) {
	if a.tasks.Config.Memory == nil || r.kept || t.Iteration > 1 && r.Session != "" || !a.tasks.Workspace(t.Workspace).PromptTemplate.Names("Memory") {
		return found, nil
	}
	return a.tasks.Config.Memory(ctx, t.Workspace, t.Prompt)
}

// remember searches the notes for a turn, and leaves in its directory what was found
// and why. A search that fails is no reason not to run.
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
	if err != nil {
		a.tasks.Trouble("the notes of a workspace could not be searched", err)
	}
	return found.Hits
}
