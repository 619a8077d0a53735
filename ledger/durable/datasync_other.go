//go:build !linux

package durable

import "os"

// datasync is a full sync where fdatasync is not to be had; on darwin os.File.Sync
// is F_FULLFSYNC, which is what reaches the disk there.
func datasync(f *os.File) error { return f.Sync() }
