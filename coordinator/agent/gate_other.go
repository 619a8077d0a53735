//go:build !linux

package agent

import (
	"os"
	"syscall"
	"time"
)

// selfCommand starts this program again.
func selfCommand() ([]string, error) {
	exe, err := os.Executable()
	return []string{exe}, err
}

// becomeReaper does nothing: only Linux knows subreapers.
func becomeReaper() error { return nil }

// closeOnExec keeps descriptors from first on out of the agent: those that the
// master itself had inherited without the flag.
func closeOnExec(first int) {
	names, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, n := range names {
		if fd := atoi(n.Name()); fd >= first {
			syscall.CloseOnExec(fd)
		}
	}
}

// agentAttr puts the agent into a session and group of its own.
func agentAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// awaitChild is a short pause: the caller then looks without waiting.
func awaitChild() error {
	time.Sleep(5 * time.Millisecond)
	return nil
}
