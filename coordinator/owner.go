package coordinator

import (
	"io/fs"
	"syscall"
)

// ownerOf gives the user id that owns a file; -1 if the system does not say.
func ownerOf(fi fs.FileInfo) int {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
