package agent

import (
	"os"

	"golang.org/x/sys/unix"
)

// punch makes a hole of the first n bytes of a file.
func punch(f *os.File, n int64) error {
	if unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, n) == nil {
		return nil
	}
	return rewrite(f, n) // not every file system can
}
