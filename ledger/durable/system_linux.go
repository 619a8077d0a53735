package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

func datasync(f *os.File) error {
	return os.NewSyscallError("fdatasync", again(func() error { return unix.Fdatasync(int(f.Fd())) }))
}

// exchangeAtOnce lets two files change places in one step.
func exchangeAtOnce(a, b string) error {
	return again(func() error { return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) })
}
