package admission

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"stint/coordinator/task"
	"stint/state"
)

// resolveWorkspace returns the path of a workspace without links, or says why no task can
// work there.
func resolveWorkspace(dir string) (string, error) {
	if !filepath.IsAbs(dir) || strings.ContainsAny(dir, "\x00\r\n") {
		return "", task.Wrong("workspace", "name a directory with -C", "the workspace %q is no absolute path", dir)
	}
	if path, err := filepath.EvalSymlinks(dir + "/"); err == nil { // only a directory can have a slash behind it
		return path, nil
	}
	fi, err := os.Stat(dir)
	switch {
	case err != nil:
		return "", task.Wrong("workspace", "name a directory that exists with -C", "the workspace %s cannot be used: %v", dir, errors.Unwrap(err))
	case !fi.IsDir():
		return "", task.Wrong("workspace", "name a directory with -C", "the workspace %s is not a directory", dir)
	}
	return dir, nil
}

// checkFollowUps checks the prompts of follow-ups.
func checkFollowUps(s *task.TaskSpec) error {
	if err := CheckTemplate(s.OnFailure); err != nil {
		return task.InOption("onFailure", err)
	}
	return task.InOption("onIssue", CheckTemplate(s.OnIssue))
}

// Submit takes a task in. When it returns nil, the task is on the disk. A spec
// whose ID or idempotency key is known gives the task that is there already; the
// same key with another body is a conflict. The spec is checked first: where its workspace
// has gone meanwhile, it is refused although its key is known.
func (a *Admission) Submit(ctx context.Context, s task.TaskSpec) (state.Task, error) {
	defer a.Call()()
	tasks, err := a.take(ctx, request{specs: []task.TaskSpec{s}})
	if err != nil {
		return state.Task{}, err
	}
	return tasks[0], nil
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
