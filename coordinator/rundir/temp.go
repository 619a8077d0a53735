package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"stint/coordinator/task"
	"stint/ledger/durable"
)

// OpenWork opens work_dir, below which tasks have directories of their own, and makes it if it is
// missing. What agents write and we remove there must be theirs: it lies apart from the state
// directory, behind no link, and is the user's alone. Errors are sentences for people.
func OpenWork(dir, stateDir string) (*os.Root, error) {
	there := dir // as far as it is there
	for _, err := os.Lstat(there); errors.Is(err, fs.ErrNotExist); _, err = os.Lstat(there) {
		there = filepath.Dir(there)
	}
	real, why := task.WithoutLinks(there), ""
	switch {
	case !filepath.IsAbs(dir) || filepath.Clean(dir) != dir:
		why = "is no absolute path in its shortest form"
	case real != there:
		why = "is or lies behind a symbolic link; name the directory itself: " + real + dir[len(there):]
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
