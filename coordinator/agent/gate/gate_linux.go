package gate

import (
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// SelfCommand starts this program again. The link works also when the binary
// itself is gone, as that of go run is.
func SelfCommand() ([]string, error) { return []string{"/proc/self/exe"}, nil }

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
	closeListed("/proc/self/fd", first) // a kernel before 5.11
}

// agentAttr puts the agent into a session and group of its own, and into a cgroup
// if dir is not nil. It is killed when the gate is, whatever ended the gate.
func agentAttr(dir *os.File) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if dir != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(dir.Fd())
	}
	return attr
}

// endGroup has nothing to do: what is left of the agent's group is now below the gate.
func endGroup(int) {}

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
