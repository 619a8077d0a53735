//go:build !linux

package hold

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

	"golang.org/x/sys/unix"
)

func ReadProc(pid int) (Proc, error) {
	all, err := ListProcs()
	if err != nil {
		return Proc{}, err
	}
	if i := slices.IndexFunc(all, func(p Proc) bool { return p.PID == pid }); i >= 0 {
		return all[i], nil
	}
	return Proc{}, ErrGone
}

// ListProcs asks ps, which every Unix has. The start time has a resolution of one second.
func ListProcs() ([]Proc, error) {
	out, err := exec.Command("/bin/ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,lstart=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	var all []Proc
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
		all = append(all, Proc{
			PID: pid, PPID: ppid, PGID: pgid,
			Start: strings.Join(f[4:], " "), Dead: strings.HasPrefix(f[3], "Z"),
		})
	}
	return all, nil
}

// Uptime returns the time of a clock that goes on while the machine sleeps, as CLOCK_MONOTONIC does here.
func Uptime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // every Unix has it
	return time.Duration(ts.Nano())
}

// ReadMark would find a run in the environment, which these systems do not show.
func ReadMark(int) (run string, err error) { return "", nil }

// SignalProc signals that process and no other. A process that has ended is no error.
func SignalProc(p Proc, sig syscall.Signal) error {
	return signalChecked(p, func() error { return syscall.Kill(p.PID, sig) })
}

// BootID names the time since the machine was started.
var BootID = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("/usr/sbin/sysctl", "-n", "kern.boottime").Output()
	if err != nil {
		return "", fmt.Errorf("sysctl kern.boottime: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// SelfPath returns what starts this program again.
func SelfPath() (string, error) { return os.Executable() }

// SelfBelow is SelfPath.
func SelfBelow() (string, error) { return SelfPath() }

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
