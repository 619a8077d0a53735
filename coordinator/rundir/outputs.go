package rundir

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"

	"stint/coordinator/redact"
	"stint/coordinator/task"
	"stint/ledger/durable"
)

// Outputs are the files of some runs, one behind the other, as far as they went when they were opened: what a
// reader of them gets has a length, and each byte a place. They are safe for concurrent reading.
type Outputs struct {
	redact *redact.Filter
	parts  []part
	size   int64
}

// A part is a file in the whole.
type part struct {
	at   int64 // where it begins in the whole
	size int64
	file *os.File
}

// errCut means that a piece of a file is gone.
var errCut = errors.New("a part of the output was removed while it was read")

// Tidy removes what nobody needs of a run that has ended and of which nothing is alive: its lock, and stderr if it is empty.
func Tidy(runDir string) {
	root, err := os.OpenRoot(filepath.Dir(runDir) + "/") // a run may have put a link in the place of its directory
	if err != nil {
		return // what cannot be removed does no harm
	}
	defer func() { _ = root.Close() }() // nothing was written
	name := filepath.Base(runDir)
	_ = root.Remove(filepath.Join(name, "lock"))
	if fi, err := root.Lstat(filepath.Join(name, StderrName)); err == nil && fi.Mode().IsRegular() && fi.Size() == 0 {
		_ = root.Remove(filepath.Join(name, StderrName))
	}
}

// OpenOutputs opens files as [OpenOutput] does, for a reader who gets them masked by a filter, which
// may be nil. A stderr that is not there is an empty one: see Tidy. Of a last file that grows, what a secret may begin with is left out. The caller closes them.
func OpenOutputs(paths []string, filter *redact.Filter, grows bool) (*Outputs, error) {
	o := &Outputs{redact: filter}
	for _, path := range paths {
		f, err := OpenOutput(filepath.Split(path))
		if filepath.Base(path) == StderrName && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = o.add(f)
		}
		if err != nil {
			return nil, errors.Join(err, o.Close())
		}
	}
	if grows && len(o.parts) > 0 {
		last := &o.parts[len(o.parts)-1]
		end := make([]byte, min(last.size, lastBlock))
		n, err := last.file.ReadAt(end, last.size-int64(len(end)))
		if err != nil && !errors.Is(err, io.EOF) { // it may have been emptied
			return nil, errors.Join(err, o.Close())
		}
		held := int64(filter.Open(end[:n]))
		last.size, o.size = last.size-held, o.size-held
	}
	return o, nil
}

// lastBlock is how much of the end of a file is looked at for the beginning of a secret.
const lastBlock = 4096

// add puts a file behind those that are there.
func (o *Outputs) add(f *os.File) error {
	o.parts = append(o.parts, part{at: o.size, file: f})
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	o.parts[len(o.parts)-1].size = fi.Size()
	o.size += fi.Size()
	return nil
}

// Close closes the files.
func (o *Outputs) Close() error {
	var err error
	for _, p := range o.parts {
		err = errors.Join(err, p.file.Close())
	}
	return err
}

// Size returns the length of the whole in bytes.
func (o *Outputs) Size() int64 { return o.size }

// ReadAt implements [io.ReaderAt]. What a run has removed since is an error.
func (o *Outputs) ReadAt(b []byte, off int64) (n int, err error) {
	i := sort.Search(len(o.parts), func(i int) bool { return o.parts[i].at+o.parts[i].size > off })
	for ; i < len(o.parts) && n < len(b); i++ {
		p, from := o.parts[i], off+int64(n)-o.parts[i].at
		want := min(int64(len(b)-n), p.size-from)
		k, err := o.redact.ReadAt(p.file, b[n:n+int(want)], from)
		n += k
		switch {
		case int64(k) == want:
		case err == nil || errors.Is(err, io.EOF):
			return n, errCut
		default:
			return n, err
		}
	}
	if n < len(b) {
		err = io.EOF
	}
	return n, err
}

// OpenOutput opens a file of a run's directory for reading. A command may have put another thing
// there: it follows no link and waits for no pipe, which is an error with [task.CodeConflict].
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
