//go:build !linux

package gate

import "syscall"

// startSmall starts a process with a limit of memory, which the gate keeps.
func startSmall(memory uint64, fork func() (pid int, err error)) (pid int, err error) {
	if err := set(syscall.RLIMIT_AS, memory, memory); err != nil {
		return 0, err
	}
	return fork()
}

// beNice changes the priority of this process, the gate, which its agent inherits.
func beNice(n int) error {
	now, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		return err
	}
	return syscall.Setpriority(syscall.PRIO_PROCESS, 0, min(now+n, 19))
}

// asVictim only starts the process: no other system knows such a hint.
func asVictim(start func() (pid int, err error)) (pid int, err error) { return start() }
