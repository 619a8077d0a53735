package gate

import (
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

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
	const name, more, most = "/proc/self/oom_score_adj", 500, 1000
	text, err := os.ReadFile(name)
	own, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
	if err = errors.Join(err, err2); err == nil {
		err = os.WriteFile(name, []byte(strconv.Itoa(min(own+more, most))), 0)
	}
	if err != nil {
		return start() // without: it is only a hint
	}
	pid, err = start()
	_ = os.WriteFile(name, text, 0) // without: it is only a hint
	return pid, err
}
