// Package rundir has what lies below runs/<runId> of a state directory, where agents may have put anything in
// the place of anything: the prompt as it was sent, the files that came with the task and those that were
// collected after it, the answer, and the output streams. What a file is called there, and how it is opened
// without following a link, is known here alone, as is how the directories below work_dir are removed.
package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/memory"
	"stint/state"
)

// ErrNotKept means that the copy of a collected file is gone.
var ErrNotKept = errors.New("the copy is not kept any more")

// OpenCollected opens a file in the directory files of a run. Whatever a person has made of the
// path in the ledger, and whatever an agent has left there, it is a regular file below that
// directory that has no other name. Errors are sentences for people; [ErrNotKept] is one of them.
func OpenCollected(runDir, path string) (*os.File, fs.FileInfo, error) {
	clean, err := task.CleanPath(path)
	if err != nil {
		return nil, nil, fmt.Errorf("the path %w", err)
	}
	if fi, err := os.Lstat(runDir); err != nil || !fi.IsDir() { // a run may have put a link there
		return nil, nil, ErrNotKept
	}
	root, err := openRoot(runDir)
	if err != nil {
		return nil, nil, ErrNotKept
	}
	defer func() { _ = root.Close() }() // only opened from
	f, fi, err := openRegular(root, filepath.Join(FilesName, clean))
	if errors.Is(err, errMissing) {
		return nil, nil, ErrNotKept
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the copy %w", err)
	}
	return f, fi, nil
}

// What lies in a run's directory.
const (
	AnswerName = "answer"       // the whole answer of the task, where the ledger has only its head and tail
	PromptName = "prompt.md"    // what the agent was told
	MemoryName = "memory.json"  // what was found in the notes
	EventsName = "events.jsonl" // what happened in the run, one [task.LogEvent] a line
	StderrName = "stderr"       // missing where nothing was written to it
	FilesName  = "files"        // directory of the files that came with the task and those that were collected after the run
)

// ReadMemory reads what was found in the notes for a run; nil if there is nothing, or no longer.
func ReadMemory(runDir string) *memory.Result {
	var found memory.Result
	data, err := ReadOutput(runDir, MemoryName)
	if err != nil || json.Unmarshal(data, &found) != nil {
		return nil
	}
	return &found
}

// IsRunID reports whether id, from a ledger that people edit, can be the name of a run's directory.
func IsRunID(id string) bool {
	return id != "" && filepath.IsLocal(id) && filepath.Base(id) == id && id != "."
}

// Dir returns the directory of a run's files in a state directory.
func Dir(stateDir, runID string) string { return filepath.Join(stateDir, "runs", runID) }

// Weigh returns what is left of the files of a run of that state directory.
func Weigh(r *task.TaskRun, dir string) {
	r.RunDir = Dir(dir, r.RunID)
	fi, err := os.Lstat(r.RunDir)
	if r.Kept = err == nil && fi.IsDir(); !r.Kept {
		return
	}
	r.Stdout, r.Stderr = outputSize(r.RunDir, "stdout"), outputSize(r.RunDir, StderrName)
}

// outputSize returns how many bytes a reader of an output gets; 0 if there is none.
func outputSize(runDir, name string) int64 {
	fi, err := os.Lstat(filepath.Join(runDir, name))
	if err != nil || !fi.Mode().IsRegular() {
		return 0
	}
	return fi.Size()
}

// FindRun returns a run of a task by its id, a unique piece of that, or its number among the agent's, from 1.
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
	ids := make([]string, len(found))
	for i := range found {
		ids[i] = found[i].RunID
	}
	return state.Step{}, task.Ambiguous("runs of task "+t.ID, run, ids)
}

// RunsOf returns the runs of a task, in their order.
func RunsOf(t *state.Task) []state.Step {
	return slices.DeleteFunc(slices.Clone(t.Steps), func(s state.Step) bool { return !IsRunID(s.RunID) })
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

// OpenWork opens work_dir, below which tasks have directories of their own, and makes it if it is
// missing. What agents write and we remove there must be theirs: it lies apart from the state
// directory, behind no link, and is the user's alone. Errors are sentences for people.
func OpenWork(dir, stateDir string) (*os.Root, error) {
	real, why := task.WithoutLinks(dir), ""
	switch {
	case !filepath.IsAbs(dir) || filepath.Clean(dir) != dir:
		why = "is no absolute path in its shortest form"
	case real != dir:
		why = "is or lies behind a symbolic link; name the directory itself: " + real
	case task.IsBelow(dir, stateDir) || task.IsBelow(stateDir, dir):
		why = "and the state directory must lie apart: agents write to the one, and not to the other"
	}
	if why != "" {
		return nil, fmt.Errorf("work_dir %q %s", dir, why)
	}
	var root *os.Root
	err := durable.MkdirAll(durable.OS, dir)
	if err == nil {
		root, err = openRoot(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("work_dir cannot be used: %w", err)
	}
	fi, err := root.Stat(".")
	if err == nil && (int(statOf(fi).Uid) != os.Geteuid() || fi.Mode().Perm()&0o022 != 0) {
		err = fmt.Errorf("work_dir %q belongs to another user, or others can write to it (mode %04o): make it yours, and chmod 700", dir, fi.Mode().Perm())
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// RemoveTree removes what is at a path. It follows no link. Directories that nobody may write to,
// such as those of Go's module cache, are made writable first.
func RemoveTree(root *os.Root, path string) error {
	if root.RemoveAll(path) == nil {
		return nil
	}
	err := fs.WalkDir(root.FS(), path, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = root.Chmod(path, durable.DirMode)
		}
		return err
	})
	return errors.Join(err, root.RemoveAll(path))
}
