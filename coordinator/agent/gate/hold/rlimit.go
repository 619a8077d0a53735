package hold

import (
	"fmt"
	"syscall"
	"time"
)

// Resources are limits that the kernel keeps for each process of a run. They are inherited. A limit of 0
// stays as it is, and one above what this process itself may have is cut down to that.
type Resources struct {
	CPU      time.Duration // processor time of one process, in whole seconds
	Files    uint64        // open descriptors; with fewer than about 20 nothing starts
	FileSize uint64        // bytes of one file that is written; what it prints is one
	Memory   uint64        // bytes of address space; Node and Bun reserve many gigabytes
	Nice     int           // added to the priority number, as nice(1) does
}

// start starts a process that is born with the limits. The gate keeps them itself, because only root could
// get rid of them again, and they do not hurt it; but for memory, of which a Go program reserves more than it
// uses. A pid together with an error says that the process lives without its limits.
func (r Resources) start(fork func() (pid int, err error)) (pid int, err error) {
	seconds := uint64((r.CPU + time.Second - 1) / time.Second)
	for _, l := range []struct {
		name       string
		resource   int
		soft, hard uint64
	}{
		{"CPU", syscall.RLIMIT_CPU, seconds, seconds + 1}, // who uses it up is told so (SIGXCPU) and killed a second later
		{"Files", syscall.RLIMIT_NOFILE, r.Files, r.Files},
		{"FileSize", syscall.RLIMIT_FSIZE, r.FileSize, r.FileSize},
	} {
		if l.soft == 0 {
			continue
		}
		if err := set(l.resource, l.soft, l.hard); err != nil {
			return 0, fmt.Errorf("the limit %s (%d) cannot be set: %w", l.name, l.soft, err)
		}
	}
	if r.Nice != 0 {
		if err := beNice(r.Nice); err != nil {
			return 0, fmt.Errorf("the limit Nice (%d) cannot be set: %w", r.Nice, err)
		}
	}
	if r.Memory == 0 {
		return fork()
	}
	if pid, err = startSmall(r.Memory, fork); pid > 0 && err != nil {
		err = fmt.Errorf("the limit Memory (%d) cannot be set: %w", r.Memory, err)
	}
	return pid, err
}

// set sets a limit of this process, as far as it may.
func set(resource int, soft, hard uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(resource, &now); err != nil {
		return err
	}
	now.Cur, now.Max = min(soft, now.Max), min(hard, now.Max)
	return syscall.Setrlimit(resource, &now)
}
