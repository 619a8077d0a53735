package coordinator

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/memory"
	"stint/state"
	"stint/state/fold"
)

// errPreview ends a change of the ledger of which nothing is to be kept.
var errPreview = errors.New("this is a preview")

// maxPreviews is how many tasks a preview tells of: each has a search and a prompt.
const maxPreviews = 100

// Preview says what Submit would take in, or why it would not, and what would be run
// then. isList says that the specs came as a list, so that errors name the field of one
// with its place. Nothing is kept, and no agent is started.
func (c *Coordinator) Preview(ctx context.Context, specs []task.TaskSpec, isList bool) ([]task.TaskPreview, error) {
	defer c.Call()()
	if len(specs) > maxPreviews {
		return nil, task.Invalid("give it some of them", "%d tasks are too many for a preview; at most %d are taken", len(specs), maxPreviews)
	}
	in, err := c.newIntake(ctx, request{specs: specs, isList: isList})
	if err != nil {
		return nil, err
	}
	err = c.Update(ctx, func(st *fold.State, _ *ledger.Tx) error {
		if err := in.record(st, &ledger.Tx{}); err != nil {
			return err
		}
		return errPreview
	})
	if !errors.Is(err, errPreview) {
		return nil, err
	}
	list := make([]task.TaskPreview, len(in.list))
	for i := range in.list {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if list[i], err = in.preview(ctx, i); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// preview tells of one of the tasks that are given together.
func (in *intake) preview(ctx context.Context, i int) (task.TaskPreview, error) {
	n := slices.IndexFunc(in.fresh, func(t state.Task) bool { return t.ID == in.ids[i] })
	if n < 0 {
		t, err := in.c.Whole(in.ids[i])
		return task.TaskPreview{Task: t, Known: true}, err
	}
	rec, err := in.c.newTask(&in.list[i], &in.fresh[n])
	if err != nil {
		return task.TaskPreview{}, err
	}
	t, err := taskOf(rec)
	if err != nil {
		return task.TaskPreview{}, err
	}
	p := task.TaskPreview{Task: t}
	begun := false
	for _, before := range in.fresh[:n] {
		if s := &in.list[in.index[before.ID]]; s.Hold || s.NotBefore.After(in.c.Config.Now()) {
			continue // it is passed, as in the lane
		}
		if before.SessionKey == t.SessionKey {
			p.Ahead++
		}
		begun = begun || before.SessionID == t.SessionID
	}
	return p, in.c.previewRun(ctx, &p, in.list[i].FromRun, begun)
}

// taskOf gives the task that a record would make.
func taskOf(r *ledger.Record) (state.Task, error) {
	r.Seq = 1
	text, err := ledger.AppendRecord(nil, r)
	if err != nil {
		return state.Task{}, err
	}
	doc := ledger.Parse(text)
	if len(doc.Sections) != 1 {
		return state.Task{}, errors.New("the record of the task cannot be read again")
	}
	return fold.TaskOf(&doc.Sections[0])
}

// previewRun tells of the first run of a task, for which the run asks if one does. begun
// says that a task before it has its session, of which the ledger knows nothing yet.
func (c *Coordinator) previewRun(ctx context.Context, p *task.TaskPreview, asks string, begun bool) error {
	r, known := c.newRun(&p.Task), false
	r.cancel(nil)
	c.View(func(st *fold.State) {
		r = c.begin(st, r, &p.Task, p.Task.Agent, c.Config.Now())
		_, known = st.SessionByID(r.task.SessionID)
		for _, id := range st.Running() {
			if other, ok := st.Peek(id); ok && other.SessionKey == r.task.SessionKey {
				p.Ahead++
			}
		}
	})
	for _, other := range c.Queue(r.task.SessionKey) {
		if !other.Passed(c.Config.Now()) {
			p.Ahead++
		}
	}
	switch {
	case r.session != "":
		p.Session, p.Resumes = task.SessionResume, r.session
	case (begun || known) && p.Ahead > 0:
		p.Session = task.SessionLater
	default:
		p.Session = task.SessionNew
	}
	t := &p.Task
	t.VerifyCommand = r.task.VerifyCommand
	p.Timeout = lasting(c.Timeout(t))
	if task.HasVerify(t) {
		p.MaxIterations, p.VerifyTimeout = c.MaxIterations(t), lasting(c.VerifyTimeout(t))
	}
	c.plan(p, r)
	return c.foresee(ctx, p, asks, r)
}

// lasting gives a limit, "" for none.
func lasting(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// plan says what would be started.
func (c *Coordinator) plan(p *task.TaskPreview, r *run) {
	if p.Session == task.SessionNew && c.missesSession(r, p.Task.Resume) {
		p.Reason, p.Error = state.ClassSessionLost, noSession
		return
	}
	if planner, ok := c.Config.Agents[r.task.Agent].(task.Planner); ok {
		plan := planner.Plan(c.turn(r, &p.Task))
		p.Argv, p.Env, p.Reason, p.Error = plan.Argv, plan.Env, plan.Class, plan.Error
	}
}

// foresee gives the prompt with what is found in the notes. A run that asks is shown no
// others than a search of its own would find.
func (c *Coordinator) foresee(ctx context.Context, p *task.TaskPreview, asks string, r *run) error {
	t := &p.Task
	var found memory.Result
	var err error = errForeignNotes
	if asks == "" || c.isOfRun(asks, t.Workspace) {
		found, err = c.recall(ctx, r, t)
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
		inputs = append(inputs, filepath.Join(c.RunDir(r.id), rundir.FilesName, f.Name))
	}
	p.Prompt = c.escapePrompt(r.task.Agent, c.prompt(r, t, inputs, found.Hits))
	return nil
}
