package agent

import (
	"os"

	"golang.org/x/sys/unix"
)

// punch makes a hole of the first n bytes of a file.
func punch(f *os.File, n int64) error {
	for {
		switch err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, n); err {
		case unix.EINTR:
		case unix.EOPNOTSUPP, unix.ENOSYS:
			return rewrite(f, n) // not every file system can
		default:
			return err // what is printed meanwhile is worth more than the room
		}
	}
}
