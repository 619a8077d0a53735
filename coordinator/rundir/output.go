package rundir

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"stint/coordinator/task"
	"stint/ledger/durable"
)

// OpenOutput opens a file of a run's directory for reading. A command may have put
// another thing there: it follows no link and waits for no pipe, which is an error with
// [task.CodeConflict].
func OpenOutput(runDir, name string) (*os.File, error) {
	path := filepath.Join(runDir, name)
	f, err := durable.Open(path, os.O_RDONLY, 0)
	var bad *durable.BadFileError
	if errors.As(err, &bad) && !bad.File {
		return nil, &task.Error{Code: task.CodeConflict, Message: path + " is no longer a file, and is not read: it " + bad.What, Hint: "a command has put something else there: ls -l " + path}
	}
	return f, err
}

// ReadOutput reads a whole file of a run's directory, as [OpenOutput] opens it.
func ReadOutput(runDir, name string) ([]byte, error) {
	f, err := OpenOutput(runDir, name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	return data, errors.Join(err, f.Close())
}
