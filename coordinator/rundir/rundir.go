package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"stint/coordinator/task"
	"stint/memory"
)

// ErrNotKept means that the copy of a collected file is gone.
var ErrNotKept = errors.New("the copy is not kept any more")

// errRemoved is ErrNotKept of all copies of a run.
var errRemoved = fmt.Errorf("%w: the files of its run were removed, as retention says or by hand", ErrNotKept)

// OpenCollected opens a file in the directory files of a run. Whatever a person has
// made of the path in the ledger, and whatever an agent has left there, it is a regular
// file below that directory that has no other name. Errors are sentences for people;
// [ErrNotKept] is one of them.
func OpenCollected(runDir, path string) (*os.File, fs.FileInfo, error) {
	clean, err := task.CleanPath(path)
	if err != nil {
		return nil, nil, fmt.Errorf("the path %w", err)
	}
	if fi, err := os.Lstat(runDir); err != nil || !fi.IsDir() {
		return nil, nil, errRemoved
	}
	root, err := openRoot(runDir)
	if err != nil {
		return nil, nil, ErrNotKept
	}
	defer func() { _ = root.Close() }() // only opened from
	f, err := openRegular(root, filepath.Join(FilesName, clean))
	if errors.Is(err, errMissing) {
		return nil, nil, ErrNotKept
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the copy %w", err)
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("the copy cannot be read: %w", err), f.Close())
	}
	return f, fi, nil
}

// AnswerName is the file in a run's directory with the whole answer of the task.
const AnswerName = "answer"

// PromptName is the file in a run's directory with what the agent was told.
const PromptName = "prompt.md"

// MemoryName is the file in a run's directory with what was found in the notes.
const MemoryName = "memory.json"

// ReadMemory reads what was found in the notes for a run; nil if nothing was written
// down, or it is not to be read any more.
func ReadMemory(runDir string) *memory.Result {
	var found memory.Result
	data, err := ReadOutput(runDir, MemoryName)
	if err != nil || json.Unmarshal(data, &found) != nil {
		return nil
	}
	return &found
}

// IsRunID reports whether id can be the name of a run's directory. It may come from a
// ledger that was edited by hand, and must not lead elsewhere.
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
	r.Stdout, r.Stderr = outputSize(r.RunDir, "stdout"), outputSize(r.RunDir, "stderr")
}

// outputSize returns how many bytes a reader of an output gets; 0 if there is none.
func outputSize(runDir, name string) int64 {
	fi, err := os.Lstat(filepath.Join(runDir, name))
	if err != nil || !fi.Mode().IsRegular() {
		return 0
	}
	return fi.Size()
}
