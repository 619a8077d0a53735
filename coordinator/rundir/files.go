package rundir

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"stint/coordinator/redact"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/state"
)

// maxOutput is the size of the largest file that is collected, in bytes.
const maxOutput = 64 << 20

// openRoot opens a directory, and does not wait where a FIFO has taken its place.
func openRoot(dir string) (*os.Root, error) { return os.OpenRoot(dir + "/") }

// WriteInputs writes the files that come with a task below dir, which is the run's or the task's
// alone, and returns their paths. Those that are there from an earlier turn stay as they are.
func WriteInputs(dir string, files []state.InputFile) (paths []string, err error) {
	root, err := openRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for _, f := range files {
		path, err := task.CleanPath(f.Name)
		if err == nil {
			err = putNew(root, path, f.Content)
		}
		if err != nil {
			return nil, &task.FileError{What: "input file", Path: f.Name, Err: err}
		}
		paths = append(paths, filepath.Join(dir, path))
	}
	return paths, nil
}

// Collect copies the files of a workspace that a task names from there into the run's directory files. It
// returns those that could be taken; the error has a sentence for each of the others, and for what lies in a
// guarded directory. Nothing of the run may be alive any more. The copies are masked by a filter.
func Collect(workspace, runDir string, spec []string, guarded func(name string) bool, filter *redact.Filter) (taken []state.OutputFile, err error) {
	from, err := openRoot(workspace)
	if err != nil {
		return nil, fmt.Errorf("no output file could be collected: %w", err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	run, err := openRoot(runDir)
	if err != nil {
		return nil, fmt.Errorf("no output file could be collected: %w", err)
	}
	to, err := run.OpenRoot(FilesName) // an agent may have put a link in its place: it stays in run
	if err = errors.Join(err, run.Close()); err != nil {
		return nil, fmt.Errorf("no output file could be collected: %w", err)
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	var problems []string
	for _, path := range spec {
		f, err := take(from, to, path, guarded, filter)
		if task.ShortageOf(err) != 0 {
			return nil, &task.FileError{What: "output file", Path: path, Err: err}
		}
		if err != nil {
			problems = append(problems, (&task.FileError{What: "output file", Path: path, Err: err}).Error())
			continue
		}
		taken = append(taken, f)
	}
	if len(problems) > 0 {
		return taken, errors.New(state.Cut(strings.Join(problems, "; "), 1000))
	}
	return taken, nil
}

// take copies one file.
func take(from, to *os.Root, path string, guarded func(name string) bool, filter *redact.Filter) (out state.OutputFile, err error) {
	clean, err := task.CleanPath(path)
	if err != nil {
		return out, err
	}
	for part := range strings.SplitSeq(clean, string(filepath.Separator)) {
		if guarded(part) {
			return out, fmt.Errorf("lies in %s, from which nothing is collected", part)
		}
	}
	in, _, err := openRegular(from, clean)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	dst, err := createNew(to, clean)
	if err != nil {
		return out, fmt.Errorf("could not be copied: %w", err)
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	sum := sha256.New()
	w := filter.Writer(io.MultiWriter(sum, dst))
	n, err := io.Copy(w, io.LimitReader(in, maxOutput+1))
	if err == nil {
		err = w.Flush()
	}
	switch {
	case err != nil:
		return out, fmt.Errorf("could not be copied: %w", err)
	case n > maxOutput:
		return out, errTooLarge
	}
	return state.OutputFile{Path: clean, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// putNew writes a file, unless there is one that is nothing else's, in the place of whatever is
// there, but of a directory with files. It follows no link. A crash leaves all of it or nothing.
func putNew(to *os.Root, path, text string) error {
	if _, err := lookAt(to, path); err == nil {
		return nil
	}
	dir, whole := filepath.Dir(path), ".stint-new"
	if _, err := lookAt(to, dir); errors.Is(err, errLink) {
		return err
	}
	if err := errors.Join(to.MkdirAll(dir, durable.DirMode), to.Remove(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := createNew(to, whole)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = to.Rename(whole, path)
	}
	return err
}

// createNew makes a file in the place of whatever is there.
func createNew(to *os.Root, path string) (*os.File, error) {
	if err := cmp.Or(to.MkdirAll(filepath.Dir(path), durable.DirMode), to.RemoveAll(path)); err != nil {
		return nil, err
	}
	return to.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, durable.FileMode)
}

// openRegular opens a file that an agent may have chosen to our harm. It follows no link, opens nothing that could block or do
// something when it is opened, and takes no file that has another name, because that may lie anywhere. Should the path change
// meanwhile, the root still keeps everything below it, and what was opened is compared with what was looked at.
func openRegular(root *os.Root, path string) (*os.File, fs.FileInfo, error) {
	seen, err := lookAt(root, path)
	if err != nil {
		return nil, nil, err
	}
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil, readError(err)
	}
	opened, err := f.Stat()
	if err == nil && !os.SameFile(seen, opened) {
		err = errors.New("was exchanged while it was opened")
	}
	if err == nil {
		err = checkRegular(opened)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, opened, nil
}

// lookAt returns what stands at path, or says why it is nothing to be collected.
func lookAt(root *os.Root, path string) (fs.FileInfo, error) {
	top, err := root.Stat(".")
	if err != nil {
		return nil, readError(err)
	}
	parts := strings.Split(path, string(filepath.Separator))
	for i := range parts {
		fi, err := root.Lstat(filepath.Join(parts[:i+1]...))
		switch {
		case err != nil:
			return nil, readError(err)
		case fi.Mode().Type() == fs.ModeSymlink:
			return nil, errLink
		case i == len(parts)-1:
			return fi, checkRegular(fi)
		case !fi.IsDir():
			return nil, errMissing
		case statOf(fi).Dev != statOf(top).Dev:
			return nil, errors.New("lies on another file system than the workspace")
		}
	}
	return nil, errMissing
}

var (
	errMissing  = errors.New("is missing")
	errTooLarge = fmt.Errorf("is larger than %d MiB", maxOutput>>20)
	errLink     = errors.New("is or lies behind a symbolic link, which is not followed")
)

func checkRegular(fi fs.FileInfo) error {
	switch {
	case fi.IsDir():
		return errors.New("is a directory; name the files in it")
	case !fi.Mode().IsRegular():
		return errors.New("is no regular file")
	case statOf(fi).Nlink > 1:
		return errors.New("has another name (a hard link), so that it may belong elsewhere; copy it")
	case fi.Size() > maxOutput:
		return errTooLarge
	}
	return nil
}

// readError makes a sentence's end of what went wrong with a path.
func readError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errMissing
	}
	return fmt.Errorf("cannot be read: %w", err)
}

func statOf(fi fs.FileInfo) *syscall.Stat_t { return fi.Sys().(*syscall.Stat_t) }
