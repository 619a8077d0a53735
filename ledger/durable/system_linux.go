package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

func datasync(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = c.Control(func(fd uintptr) {
		serr = again(func() error { return unix.Fdatasync(int(fd)) })
	})
	if err != nil {
		return err
	}
	return os.NewSyscallError("fdatasync", serr)
}

// exchangeAtOnce lets two files change places in one step.
func exchangeAtOnce(a, b string) error {
	return again(func() error { return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) })
}
