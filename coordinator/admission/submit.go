package admission

import (
	"context"
	"os"
	"path/filepath"

	"stint/coordinator/task"
	"stint/state"
)

// checkFollowUps checks the prompts of follow-ups.
func checkFollowUps(s *task.TaskSpec) error {
	if err := CheckTemplate(s.OnFailure); err != nil {
		return task.InOption("onFailure", err)
	}
	return task.InOption("onIssue", CheckTemplate(s.OnIssue))
}

// Submit enqueues a task. When it returns nil, the task is on the disk. A spec
// whose ID or idempotency key is known gives the task that is there already; the
// same key with another body is a conflict. The spec is checked first: where its workspace
// has gone meanwhile, it is refused although its key is known.
func (a *Admission) Submit(ctx context.Context, s task.TaskSpec) (state.Task, error) {
	tasks, err := a.submit(ctx, request{specs: []task.TaskSpec{s}})
	if err != nil {
		return state.Task{}, err
	}
	return tasks[0], nil
}

// SubmitAll enqueues many tasks, all or none of them, in one durable change, and
// returns them in the order of their specs. A spec may come after others of the batch
// by their ids. Specs whose id or idempotency key is known give the tasks that are
// there already. The error names the first spec that is wrong: "task 3 of 7: …".
func (a *Admission) SubmitAll(ctx context.Context, specs []task.TaskSpec) ([]state.Task, error) {
	return a.submit(ctx, request{specs: specs, isList: true})
}

// SubmitOnce is SubmitAll for a list that has an idempotency key as a whole; its specs
// have none. The same list under the same key gives the tasks that are there already,
// and anything else under it is a conflict: another list, a longer or a shorter one,
// one in another order, or a single task.
func (a *Admission) SubmitOnce(ctx context.Context, key string, specs []task.TaskSpec) ([]state.Task, error) {
	if err := task.CheckKey(key); err != nil {
		return nil, err
	}
	return a.submit(ctx, request{specs: specs, isList: true, key: key})
}

func (a *Admission) submit(ctx context.Context, req request) ([]state.Task, error) {
	defer a.Call()()
	in, err := a.newIntake(ctx, req)
	if err != nil {
		return nil, err
	}
	if tasks, err := in.again(ctx); tasks != nil || err != nil {
		return tasks, err
	}
	if err := a.Update(ctx, in.record); err != nil {
		return nil, err
	}
	return in.tasks()
}

// RepositoryRoot is checkoutAbove of a path that may have links.
func RepositoryRoot(dir string) string { return checkoutAbove(task.WithoutLinks(dir)) }

// checkoutAbove returns the directory above (or at) dir that is the top of a
// checkout, else dir: two tasks in one checkout are in one lane.
func checkoutAbove(dir string) string {
	for at := dir; ; at = filepath.Dir(at) {
		if IsCheckout(at) {
			return at
		}
		if at == filepath.Dir(at) {
			return dir
		}
	}
}

// IsCheckout reports whether dir holds a .git of git's: a file, or a directory
// with a HEAD. Sandboxes leave empty ones behind.
func IsCheckout(dir string) bool {
	git := filepath.Join(dir, ".git")
	fi, err := os.Stat(git)
	if err != nil || !fi.IsDir() {
		return err == nil
	}
	_, err = os.Stat(filepath.Join(git, "HEAD"))
	return err == nil
}
