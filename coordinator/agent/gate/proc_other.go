//go:build !linux

package gate

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func readProc(pid int) (proc, error) {
	all, err := listProcs()
	if err != nil {
		return proc{}, err
	}
	if i := slices.IndexFunc(all, func(p proc) bool { return p.pid == pid }); i >= 0 {
		return all[i], nil
	}
	return proc{}, errGone
}

// listProcs asks ps, which every Unix has. The start time has a resolution of one second.
func listProcs() ([]proc, error) {
	out, err := exec.Command("/bin/ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,lstart=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	var all []proc
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		pid, err1 := strconv.Atoi(f[0])
		ppid, err2 := strconv.Atoi(f[1])
		pgid, err3 := strconv.Atoi(f[2])
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("ps: %w", err)
		}
		all = append(all, proc{
			pid: pid, ppid: ppid, pgid: pgid,
			start: strings.Join(f[4:], " "), dead: strings.HasPrefix(f[3], "Z"),
		})
	}
	return all, nil
}

// markedProcs would find processes by their environment, which these systems do not show.
func markedProcs(string) ([]proc, error) { return nil, nil }

// readMark would find a run, too.
func readMark(int) (run string, err error) { return "", nil }

// signalProc signals that process and no other. A process that has ended is no error.
func signalProc(p proc, sig syscall.Signal) error {
	return signalChecked(p, func() error { return syscall.Kill(p.pid, sig) })
}

// bootID names the time since the machine was started.
var bootID = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("/usr/sbin/sysctl", "-n", "kern.boottime").Output()
	if err != nil {
		return "", fmt.Errorf("sysctl kern.boottime: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// SelfCommand starts this program again.
func SelfCommand() ([]string, error) {
	exe, err := os.Executable()
	return []string{exe}, err
}

// becomeReaper does nothing: only Linux knows subreapers.
func becomeReaper() error { return nil }

// CloseOnExec keeps descriptors from first on from the programs that this one starts.
func CloseOnExec(first int) { closeListed("/dev/fd", first) }

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
