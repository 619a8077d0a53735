//go:build !linux

package durable

import (
	"os"
	"syscall"
)

// exchange is not to be had with the standard library alone: callers go another
// way then ([FS]). On darwin that would be renamex_np.
func exchange(a, b string) error {
	return &os.LinkError{Op: "exchange", Old: a, New: b, Err: syscall.ENOSYS}
}
