package coordinator

import (
	"context"
	"path/filepath"
	"time"

	"stint/coordinator/attempt"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/memory"
	"stint/state"
	"stint/state/fold"
)

// Preview returns what Submit would accept, or why it would not, and what would be run
// then; see [Admission.Foresee]. Nothing is kept, and no agent is started.
func (c *Coordinator) Preview(ctx context.Context, specs []task.TaskSpec, isList bool) ([]task.TaskPreview, error) {
	defer c.Call()()
	foreseen, err := c.Foresee(ctx, specs, isList)
	if err != nil {
		return nil, err
	}
	list := make([]task.TaskPreview, len(foreseen))
	for i, f := range foreseen {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if list[i] = f.TaskPreview; f.Known {
			continue
		}
		if err := c.previewRun(ctx, &list[i], f.FromRun, f.Begun); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// previewRun tells of the first run of a task, for which the run asks if one does. begun
// says that a task before it has its session, of which the ledger knows nothing yet.
func (c *Coordinator) previewRun(ctx context.Context, p *task.TaskPreview, asks string, begun bool) error {
	r, known := c.Reserve(&p.Task), false
	r.Cancel(nil)
	c.View(func(st *fold.State) {
		r = c.Begin(st, r, &p.Task, p.Task.Agent, c.Config.Now())
		_, known = st.SessionByID(r.Task.SessionID)
		for _, id := range st.Running() {
			if other, ok := st.Peek(id); ok && other.SessionKey == r.Task.SessionKey {
				p.Ahead++
			}
		}
	})
	for _, other := range c.Queue(r.Task.SessionKey) {
		if !other.Passed(c.Config.Now()) {
			p.Ahead++
		}
	}
	switch {
	case r.Session != "":
		p.Session, p.Resumes = task.SessionResume, r.Session
	case (begun || known) && p.Ahead > 0:
		p.Session = task.SessionLater
	default:
		p.Session = task.SessionNew
	}
	t := &p.Task
	t.VerifyCommand = r.Task.VerifyCommand
	p.Timeout = lasting(c.Timeout(t))
	if task.HasVerify(t) {
		p.MaxIterations, p.VerifyTimeout = c.MaxIterations(t), lasting(c.VerifyTimeout(t))
	}
	c.plan(p, r)
	return c.foresee(ctx, p, asks, r)
}

// lasting returns a limit, "" for none.
func lasting(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// plan returns what would be started.
func (c *Coordinator) plan(p *task.TaskPreview, r *attempt.Run) {
	if p.Session == task.SessionNew && c.MissesSession(r, p.Task.Resume) {
		p.Reason, p.Error = state.ClassSessionLost, attempt.NoSession
		return
	}
	if planner, ok := c.Config.Agents[r.Task.Agent].(task.Planner); ok {
		plan := planner.Plan(c.Turn(r, &p.Task))
		p.Argv, p.Env, p.Reason, p.Error = plan.Argv, plan.Env, plan.Class, plan.Error
	}
}

// foresee returns the prompt with what is found in the notes. A run that asks is shown no
// others than a search of its own would find.
func (c *Coordinator) foresee(ctx context.Context, p *task.TaskPreview, asks string, r *attempt.Run) error {
	t := &p.Task
	var found memory.Result
	var err error = errForeignNotes
	if asks == "" || c.isOfRun(asks, t.Workspace) {
		found, err = c.Recall(ctx, r, t)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil { // no reason not to run
		found.Partial = err.Error()
	}
	if found.Engine != "" || found.Partial != "" || len(found.Skipped) > 0 {
		p.Memory = &found
	}
	var inputs []string
	for _, f := range t.InputFiles { // their names were checked
		inputs = append(inputs, filepath.Join(c.RunDir(r.ID), rundir.FilesName, f.Name))
	}
	p.Prompt = c.EscapePrompt(r.Task.Agent, c.Prompt(r, t, inputs, found.Hits))
	return nil
}
