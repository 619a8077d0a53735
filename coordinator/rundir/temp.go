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

// OpenWork opens the directory below which tasks have directories of their own, and makes it if
// it is missing. Agents write there, and what is removed there must be theirs: it is an absolute
// path without links, apart from the state directory, and no other user can write to it. Errors
// are sentences for people; the caller closes the root.
func OpenWork(dir, stateDir string) (root *os.Root, err error) {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return nil, fmt.Errorf("work_dir %q is no absolute path in its shortest form", dir)
	}
	if task.IsBelow(dir, stateDir) || task.IsBelow(stateDir, dir) {
		return nil, fmt.Errorf("work_dir %s and the state directory %s must lie apart: agents write to the one, and not to the other", dir, stateDir)
	}
	there := dir // as far as it is there
	for _, err := os.Lstat(there); errors.Is(err, fs.ErrNotExist); _, err = os.Lstat(there) {
		there = filepath.Dir(there)
	}
	if real := task.WithoutLinks(there); real != there {
		return nil, fmt.Errorf("work_dir %s is or lies behind a symbolic link; name the directory itself: %s", dir, filepath.Join(real, dir[len(there):]))
	}
	if err := durable.MkdirAll(durable.OS, dir); err != nil {
		return nil, fmt.Errorf("work_dir cannot be made: %w", err)
	}
	if root, err = openRoot(dir); err != nil {
		return nil, fmt.Errorf("work_dir cannot be used: %w", err)
	}
	fi, err := root.Stat(".")
	switch {
	case err != nil:
	case int(statOf(fi).Uid) != os.Geteuid():
		err = fmt.Errorf("work_dir %s belongs to another user", dir)
	case fi.Mode().Perm()&0o022 != 0:
		err = fmt.Errorf("work_dir %s can be written by other users (mode %04o): chmod 700 %[1]s", dir, fi.Mode().Perm())
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// RemoveTree removes what is at a path, as far as it is ours. It follows no link. Directories
// that nobody may write to, such as those of Go's module cache, are made writable first.
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
