package gate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"stint/coordinator/task"
)

// followPause is how long writes are gathered after one was told of: what chatty agents cost does not grow with their number.
const followPause = 25 * time.Millisecond

// A follower tells runs that their outputs were written to.
type follower struct {
	mu   sync.Mutex
	fd   int                   // of inotify
	runs map[int]chan struct{} // by watch; nil: fd is not open yet
}

// outputs is that of all supervisors, which are copied for each turn. From the first run on it lives as long as
// the process, because the kernel takes 10 ms and more to close what has watched a file.
var outputs = &follower{}

// follow returns a channel that tells when one of the files was written to, until the caller leaves.
func (f *follower) follow(files ...*output) (written <-chan struct{}, leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var own []int
	leave = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, id := range own {
			delete(f.runs, id)
			_, _ = unix.InotifyRmWatch(f.fd, uint32(id)) // it may have gone with its file
		}
	}
	if f.runs == nil {
		if f.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
			return nil, leave, os.NewSyscallError("inotify_init1", err)
		}
		f.runs = map[int]chan struct{}{}
		go f.read(os.NewFile(uintptr(f.fd), "inotify"))
	}
	told := make(chan struct{}, 1)
	for _, file := range files {
		id, err := unix.InotifyAddWatch(f.fd, fmt.Sprintf("/proc/self/fd/%d", file.Fd()), unix.IN_MODIFY) // whatever has its name by now
		if err != nil {
			return nil, leave, os.NewSyscallError("inotify_add_watch", err)
		}
		own, f.runs[id] = append(own, id), told
	}
	return told, leave, nil
}

// read passes on what the kernel tells.
func (f *follower) read(events *os.File) {
	for buf := make([]byte, 64<<10); ; time.Sleep(followPause) {
		n, err := events.Read(buf)
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) { // inotify never ends
			return
		}
		f.mu.Lock()
		for p := buf[:n]; len(p) >= unix.SizeofInotifyEvent; p = p[unix.SizeofInotifyEvent:] { // of a file there is no name
			if binary.NativeEndian.Uint32(p[4:])&unix.IN_Q_OVERFLOW != 0 { // of whom, nobody knows
				for _, told := range f.runs {
					task.Wake(told)
				}
			}
			task.Wake(f.runs[int(binary.NativeEndian.Uint32(p))]) // or nobody, any more
		}
		f.mu.Unlock()
	}
}
