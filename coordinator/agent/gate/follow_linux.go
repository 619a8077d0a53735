package gate

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// followPause is how long writes are gathered after one was told of: what a chatty agent costs does not
// grow with their number.
const followPause = 25 * time.Millisecond

// follow returns a channel that tells when one of the files was written to, until the caller leaves.
func follow(files ...*output) (written <-chan struct{}, leave func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, func() {}, os.NewSyscallError("inotify_init1", err)
	}
	told, quit, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	events := os.NewFile(uintptr(fd), "inotify")
	for _, file := range files {
		if _, err := unix.InotifyAddWatch(fd, file.Name(), unix.IN_MODIFY|unix.IN_DONT_FOLLOW); err != nil {
			_ = events.Close() // nothing was read
			return nil, func() {}, os.NewSyscallError("inotify_add_watch", err)
		}
	}
	go func() {
		defer close(ended)
		for buf := make([]byte, 4<<10); ; {
			if _, err := events.Read(buf); err != nil {
				return // it was closed
			}
			select {
			case told <- struct{}{}:
			case <-quit:
			}
			select {
			case <-time.After(followPause):
			case <-quit:
			}
		}
	}()
	return told, func() { close(quit); _ = events.Close(); <-ended }, nil
}
