package query

import (
	"context"
	"path/filepath"

	"stint/coordinator/attempt"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/memory"
	"stint/state"
	"stint/state/fold"
)

// Preview returns what Submit would accept, or why it would not, and what would be run
// then; see [admission.Admission.Foresee]. Nothing is kept, and no agent is started.
func (q *Query) Preview(ctx context.Context, specs []task.TaskSpec, isList bool) ([]task.TaskPreview, error) {
	return q.admission.Foresee(ctx, specs, isList, func(p *task.TaskPreview, s *task.TaskSpec, begun bool) error {
		return q.previewRun(ctx, p, s, begun)
	})
}

// previewRun fills in what is known of a task's first run. One that asks sees no notes but its own.
func (q *Query) previewRun(ctx context.Context, p *task.TaskPreview, spec *task.TaskSpec, begun bool) error {
	r, known := q.attempts.Reserve(&p.Task), false
	r.Cancel(nil)
	q.tasks.View(func(st *fold.State) {
		r = q.attempts.Begin(st, r, &p.Task, p.Task.Agent, q.tasks.Config.Now())
		_, known = st.SessionByID(r.Task.SessionID)
		for _, other := range st.Lane(r.Task.SessionKey) {
			if other.Status == state.Running || !other.Passed(q.tasks.Config.Now()) {
				p.Ahead++
			}
		}
	})
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
	if limit := q.tasks.Timeout(t); limit > 0 {
		p.Timeout = task.FormatLimit(limit)
	}
	if task.HasVerify(t) {
		p.MaxIterations = q.tasks.MaxIterations(t)
		if limit := q.tasks.VerifyTimeout(t); limit > 0 {
			p.VerifyTimeout = task.FormatLimit(limit)
		}
	}
	planner, canPlan := q.tasks.Config.Agents[r.Task.Agent].(task.Planner)
	switch {
	case p.Session == task.SessionNew && q.attempts.MissesSession(r, t.Resume):
		p.Reason, p.Error = state.ClassSessionLost, attempt.NoSession
	case canPlan:
		turn := q.attempts.Turn(r, t)
		if len(spec.Environment) > 0 { // which is not kept yet
			turn.Env = spec.Environment
		}
		plan := planner.Plan(turn)
		p.Argv, p.Env, p.Reason, p.Error = plan.Argv, plan.Env, plan.Class, plan.Error
	}
	if danger := q.tasks.Config.Danger; danger != nil && p.Reason == "" {
		if _, err := danger(t.AccountName()); err != nil {
			p.Reason, p.Error = state.ClassDenied, err.Error()
		}
	}
	var found memory.Result
	var err error = errForeignNotes
	if spec.FromRun == "" || q.isOfRun(spec.FromRun, t.Workspace) {
		found, err = q.attempts.Recall(ctx, r, t)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && t.Isolation != state.IsolationTemp { // no reason not to run; a directory that is not made yet has no notes
		found.Partial = err.Error()
	}
	if found.Engine != "" || found.Partial != "" || len(found.Skipped) > 0 {
		p.Memory = &found
	}
	var inputs []string
	dir := filepath.Join(q.tasks.RunDir(r.ID), rundir.FilesName)
	if t.Isolation == state.IsolationTemp {
		dir = t.Workspace
	}
	for _, f := range t.InputFiles { // their names were checked
		inputs = append(inputs, filepath.Join(dir, f.Name))
	}
	p.Prompt = q.attempts.EscapePrompt(r.Task.Agent, q.attempts.Prompt(r, t, inputs, found.Hits))
	return nil
}

var errForeignNotes = &task.Error{
	Code: task.CodeForbidden, Field: "workspace", Message: "a run may search the notes of its own workspace only", Hint: "leave it to the user",
}

// SearchMemory searches the notes of a workspace as for a task, and changes nothing. A run may ask for what
// its own task's workspace has, and what is below it. The error is an *Error where the query is wrong.
func (q *Query) SearchMemory(ctx context.Context, m task.MemoryQuery) (task.MemoryResult, error) {
	if err := task.CheckPrompt(m.Prompt); err != nil {
		return task.MemoryResult{}, err
	}
	const hint = "give the absolute path of a directory"
	if !filepath.IsAbs(m.Workspace) || !task.IsPrintable(m.Workspace) {
		return task.MemoryResult{}, task.Wrong("workspace", hint, "%.200q is not an absolute path", m.Workspace)
	}
	dir, err := filepath.EvalSymlinks(m.Workspace + "/") // only a directory can have a slash behind it
	if err != nil {
		return task.MemoryResult{}, task.Wrong("workspace", hint, "there is no directory %.200q", m.Workspace)
	}
	if m.FromRun != "" && !q.isOfRun(m.FromRun, dir) {
		return task.MemoryResult{}, errForeignNotes
	}
	if q.tasks.Config.Memory == nil {
		return task.MemoryResult{Hits: []memory.Hit{}, Terms: []memory.Term{}}, nil
	}
	return q.tasks.Config.Memory(ctx, dir, m.Prompt)
}

// isOfRun reports whether a directory is the workspace of a run's task, or lies below it.
func (q *Query) isOfRun(run, dir string) bool {
	id, ok := "", false
	q.tasks.View(func(st *fold.State) { id, ok = st.RunningAs(run) })
	if !ok {
		return false
	}
	r := q.live.RunOf(id)
	if r == nil {
		return false
	}
	home := r.AsTask().Workspace
	return home != "" && task.IsWithin(dir, home)
}
