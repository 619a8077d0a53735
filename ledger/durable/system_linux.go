package durable

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func datasync(f *os.File) error {
	return os.NewSyscallError("fdatasync", again(func() error { return unix.Fdatasync(int(f.Fd())) }))
}

func changed(st *syscall.Stat_t) int64 { return st.Ctim.Nano() }

// exchangeAtOnce lets two files change places in one step.
func exchangeAtOnce(a, b string) error {
	return again(func() error { return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) })
}
