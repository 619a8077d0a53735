package hold

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ReadProc looks a process up; ErrGone when there is none of that pid.
func ReadProc(pid int) (Proc, error) {
	data, err := readStat("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return Proc{}, ErrGone
	}
	if err != nil {
		return Proc{}, err
	}
	return parseStat(pid, data)
}

// readStat reads a file of the kernel's that is short, and whole with one call: of hundreds it costs a third of os.ReadFile.
func readStat(name string) ([]byte, error) {
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	data := make([]byte, 4<<10)
	n, err := syscall.Read(fd, data)
	return data[:max(n, 0)], errors.Join(err, syscall.Close(fd))
}

// parseStat reads /proc/<pid>/stat. The second field is the program's name in parentheses, which may itself hold blanks and
// parentheses: only what follows the last one counts. Of the rest the first field is number 3.
func parseStat(pid int, data []byte) (Proc, error) {
	end := bytes.LastIndexByte(data, ')')
	f := strings.Fields(string(data[end+1:]))
	if end < 0 || len(f) < 20 {
		return Proc{}, fmt.Errorf("/proc/%d/stat cannot be understood", pid)
	}
	ppid, err1 := strconv.Atoi(f[1])
	pgid, err2 := strconv.Atoi(f[2])
	if err := errors.Join(err1, err2); err != nil {
		return Proc{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	dead := f[0] == "Z" || f[0] == "X"
	return Proc{PID: pid, PPID: ppid, PGID: pgid, Start: f[19], Dead: dead}, nil
}

// ListProcs returns every process that this one can see.
func ListProcs() ([]Proc, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := make([]Proc, 0, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // not a process
		}
		p, err := ReadProc(pid)
		if err == nil {
			all = append(all, p)
		} else if !errors.Is(err, ErrGone) {
			return nil, err
		}
	}
	return all, nil
}

// ReadMark returns the run that a process is part of by its environment, as it was when its program started; "" if it names none.
func ReadMark(pid int) (run string, err error) {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(EnvRunID+"=")); ok {
			run = string(value)
		}
	}
	return run, err
}

// SignalProc signals that process and no other: the pid is pinned by a pidfd before its start time is
// compared, so that it cannot be given to another process in between. A process that has ended is no error.
func SignalProc(p Proc, sig syscall.Signal) error {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil { // a kernel before 5.3, or a filter: the check alone must do
		return signalChecked(p, func() error { return syscall.Kill(p.PID, sig) })
	}
	err = signalChecked(p, func() error { return unix.PidfdSendSignal(fd, sig, nil, 0) })
	return errors.Join(err, unix.Close(fd))
}

// BootID names the time since the machine was started: pids and start times of another boot mean nothing.
func BootID() (string, error) {
	data, err := bootFile()
	return strings.TrimSpace(string(data)), err
}

var bootFile = readOnce("/proc/sys/kernel/random/boot_id")

// Uptime returns how long ago the machine was started, with the time that it slept.
func Uptime() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // every Linux has it
	return time.Duration(ts.Nano())
}

// SelfPath returns what starts this program again. The link works when the binary itself is gone, as that of go run is.
func SelfPath() (string, error) { return "/proc/self/exe", nil }

// SelfBelow is SelfPath for another program below this one, as the gate may be.
func SelfBelow() (string, error) { return fmt.Sprintf("/proc/%d/exe", os.Getpid()), nil }

// becomeReaper makes orphans among the descendants children of this process.
func becomeReaper() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// CloseOnExec keeps descriptors from first on, such as a script's lock that we
// inherited without the flag, from the programs that this one starts.
func CloseOnExec(first int) {
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

// awaitChild blocks until a child has ended and leaves it unreaped. It fails with ECHILD when there is no
// child, which here is the proof that there is no descendant either: orphans become children.
func awaitChild() error {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}

// spareSpace is how much address space the gate may need while it starts its agent.
const spareSpace = 256 << 20

// startSmall starts a process with a limit of memory. It is born with it if the
// gate can have it for that moment without harm, and else gets it right after.
func startSmall(memory uint64, fork func() (pid int, err error)) (pid int, err error) {
	restore := func() error { return nil }
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_AS, &old); err != nil {
		return 0, err
	}
	if memory > ownSpace()+spareSpace {
		if err := set(syscall.RLIMIT_AS, memory, old.Max); err != nil {
			return 0, err
		}
		restore = func() error { return syscall.Setrlimit(syscall.RLIMIT_AS, &old) }
	}
	pid, err = fork()
	if err = errors.Join(err, restore()); err != nil {
		return pid, err
	}
	hard := min(memory, old.Max)
	err = unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: hard, Max: hard}, nil)
	if errors.Is(err, unix.ESRCH) {
		return pid, nil // it has ended already
	}
	return pid, err
}

// ownSpace returns the size of this process's address space in bytes.
func ownSpace() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	pages, _, _ := strings.Cut(string(text), " ")
	n, err2 := strconv.ParseUint(pages, 10, 64)
	if errors.Join(err, err2) != nil {
		return math.MaxUint64 - spareSpace // not known: rather too much
	}
	return n * uint64(os.Getpagesize())
}

// beNice changes the priority of the calling thread, which is the one that starts
// the agent: the gate's other threads must come to their turn when it is killed.
func beNice(n int) error {
	now, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, 0, min(20-now+n, 19)) // the system call counts from 40 down to 1
}

// asVictim starts a process that the kernel ends rather than others when memory
// runs out: rather its run is lost than the master, or somebody's editor.
func asVictim(start func() (pid int, err error)) (pid int, err error) {
	const file, more, most = "/proc/self/oom_score_adj", 500, 1000
	text, _ := os.ReadFile(file) // it is only a hint, as is all that fails here
	if own, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		_ = os.WriteFile(file, []byte(strconv.Itoa(min(own+more, most))), 0)
		defer func() { _ = os.WriteFile(file, text, 0) }()
	}
	return start()
}
