package agent

import (
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// selfCommand starts this program again. The link works also when the binary
// itself is gone, as that of go run is.
func selfCommand() ([]string, error) { return []string{"/proc/self/exe"}, nil }

// becomeReaper makes orphans among the descendants children of this process.
func becomeReaper() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// closeOnExec keeps descriptors from first on out of the agent: those that the
// master itself had inherited without the flag.
func closeOnExec(first int) {
	if unix.CloseRange(uint(first), math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	names, err := os.ReadDir("/proc/self/fd") // a kernel before 5.11
	if err != nil {
		return
	}
	for _, n := range names {
		if fd := atoi(n.Name()); fd >= first {
			syscall.CloseOnExec(fd)
		}
	}
}

// agentAttr puts the agent into a session and group of its own. It is killed
// when the gate is, whatever ended the gate.
func agentAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitChild blocks until a child has ended and leaves it unreaped. It fails
// with ECHILD when there is no child, which here is the proof that there is no
// descendant either: orphans become children.
func awaitChild() error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}
