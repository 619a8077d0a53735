package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// A BadFileError is the error for what stands where a file of ours should and is none.
type BadFileError struct {
	Path string
	What string // what it is, as the end of a sentence
	Hint string // what to do
	File bool   // it is a file, but another user's, or closed to us
	Err  error  // what the system says to it, or would
}

func (e *BadFileError) Error() string { return e.Path + " " + e.What + "; " + e.Hint }

func (e *BadFileError) Unwrap() error { return e.Err }

// euid is the user that the files must belong to.
var euid = os.Geteuid()

// NoTricks are the flags that keep an open from following a link and from waiting at a FIFO.
const NoTricks = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// Open is [os.OpenFile] for what lies below the state directory. Agents may run as its user and put another thing there: Open
// follows no link, not even to make a file behind it, waits at no FIFO, and returns nothing but a regular file of the user's.
// The error is a [*BadFileError] that names what else is there; it wraps fs.ErrNotExist if nothing is. Of links to a directory
// above it nothing is said: a person may have put one there.
func Open(name string, flag int, perm fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(name, flag&^os.O_TRUNC|NoTricks, perm)
	if err != nil {
		fi, lerr := os.Lstat(name)
		if lerr == nil && !errors.Is(err, fs.ErrExist) {
			err = explain(name, fi, err)
		}
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil {
		err = explain(name, fi, nil)
	}
	if err == nil && flag&os.O_TRUNC != 0 && fi.Size() > 0 {
		err = f.Truncate(0)
	}
	if err == nil {
		err = syscall.SetNonblock(int(f.Fd()), false) // whoever inherits it knows nothing of that
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// With opens a file, calls f with it and its state, and closes it.
func With(fsys FS, name string, flag int, f func(File, fs.FileInfo) error) error {
	file, err := fsys.OpenFile(name, flag, FileMode)
	if err != nil {
		return err
	}
	fi, err := file.Stat()
	if err == nil {
		err = f(file, fi)
	}
	return errors.Join(err, file.Close())
}

// explain returns why what stands at path is no file of ours; err, with which it could not be opened, if that does not tell.
func explain(path string, fi fs.FileInfo, err error) error {
	const away = "stint uses no such thing: move it away"
	bad := &BadFileError{Path: path, Hint: away, Err: err}
	var errno error
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch mode := fi.Mode(); {
	case mode&fs.ModeSymlink != 0:
		bad.What, bad.Hint, errno = "is a symbolic link, which is not followed", "put the file itself there, or move it away", syscall.ELOOP
	case mode.IsDir():
		bad.What, errno = "is a directory", syscall.EISDIR
	case mode&fs.ModeNamedPipe != 0:
		bad.What, errno = "is a FIFO", syscall.ENXIO
	case !mode.IsRegular():
		bad.What, errno = "is not a regular file", syscall.ENXIO
	case ok && int(st.Uid) != euid:
		bad.File, bad.What, bad.Hint = true, fmt.Sprintf("belongs to user %d, not to you", st.Uid), "make it yours with chown, or move it away"
	case errors.Is(err, fs.ErrPermission):
		bad.File, bad.What, bad.Hint = true, "cannot be read and written by you", "chmod u+rw it, or move it away"
	default:
		return err
	}
	if bad.Err == nil {
		bad.Err = errno
	}
	return bad
}

// TryLock takes the lock of an open file, which whoever inherits the descriptor holds
// too. held is false if it is somebody else's: it does not wait.
func TryLock(f *os.File) (held bool, err error) {
	err = again(func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) })
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, os.NewSyscallError("flock", err)
}
