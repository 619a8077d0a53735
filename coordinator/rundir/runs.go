package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"stint/coordinator/task"
	"stint/state"
)

// FindRun returns a run of a task: by its id, a unique piece of that, or its number among
// the runs of the task's agent, from 1.
func FindRun(t *state.Task, run string) (state.Step, error) {
	if n, err := strconv.Atoi(run); err == nil && len(run) < 5 { // no piece of an id
		turns := TurnsOf(t)
		if n < 1 || n > len(turns) {
			return state.Step{}, NoRun(t, "it has no run %d of its agent: there are %d", n, len(turns))
		}
		return turns[n-1], nil
	}
	found := slices.DeleteFunc(RunsOf(t), func(s state.Step) bool { return !strings.Contains(s.RunID, run) })
	switch len(found) {
	case 0:
		return state.Step{}, NoRun(t, "it has no run %q", run)
	case 1:
		return found[0], nil
	}
	return state.Step{}, &task.Error{
		Code: task.CodeAmbiguous, Hint: "give more of the id",
		Message: fmt.Sprintf("task %s: %q fits several of its runs, such as %s and %s", t.ID, run, found[0].RunID, found[1].RunID),
	}
}

// RunsOf returns the runs of a task, in their order. An older stint has merged records
// that tell of the last one alone.
func RunsOf(t *state.Task) (runs []state.Step) {
	for _, s := range append(slices.Clip(t.Steps), state.Step{RunID: t.RunID, Attempt: t.Attempt}) {
		known := slices.ContainsFunc(runs, func(r state.Step) bool { return r.RunID == s.RunID })
		if IsRunID(s.RunID) && !known {
			runs = append(runs, s)
		}
	}
	return runs
}

// TurnsOf returns the runs of a task's agent.
func TurnsOf(t *state.Task) []state.Step {
	return slices.DeleteFunc(RunsOf(t), func(s state.Step) bool { return s.Phase != "" })
}

// NoRun returns the error for when a task has no such run, or no prompt of it.
func NoRun(t *state.Task, format string, args ...any) error {
	return &task.Error{Code: task.CodeNotFound, Message: "task " + t.ID + ": " + fmt.Sprintf(format, args...), Hint: "stint show " + t.ID}
}

// Removed returns the error for when a run of a task that has ended has no directory; nil if it has.
func Removed(t *state.Task, runDir string) error {
	if _, err := os.Lstat(runDir); !t.Status.Terminal() || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return NoRun(t, "run %s has no files any more: they were removed, as retention says or by hand, or it wrote none", filepath.Base(runDir))
}
