//go:build !linux

package gate

import (
	"os"
	"syscall"
	"time"
)

// SelfCommand starts this program again.
func SelfCommand() ([]string, error) {
	exe, err := os.Executable()
	return []string{exe}, err
}

// becomeReaper does nothing: only Linux knows subreapers.
func becomeReaper() error { return nil }

// closeOnExec keeps descriptors from first on out of the agent.
func closeOnExec(first int) { closeListed("/dev/fd", first) }

// agentAttr puts the agent into a session and group of its own.
func agentAttr(*os.File) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// endGroup kills what is left of the group of a leader that was reaped just now. As
// long as there is a member, the group's number is given to nobody else.
func endGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }

// awaitChild is a short pause: the caller then looks without waiting.
func awaitChild() error {
	time.Sleep(5 * time.Millisecond)
	return nil
}
