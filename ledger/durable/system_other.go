//go:build !linux

package durable

import (
	"os"
	"syscall"
)

// datasync is a full sync; on darwin os.File.Sync is F_FULLFSYNC, which is what reaches the disk there.
func datasync(f *os.File) error { return f.Sync() }

func changed(st *syscall.Stat_t) int64 { return st.Ctimespec.Nano() }

func exchangeAtOnce(string, string) error { return syscall.ENOSYS }
