package gate

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
)

// A proc is one process as the system shows it. Pid and start together name a process for as long as the
// machine is up; a pid alone does not, because it is given out again.
type proc struct {
	pid   int
	ppid  int
	pgid  int
	start string // opaque: equal only for the same process
	dead  bool   // a zombie: ended, and not yet reaped
}

// errGone is returned for a process that no longer exists.
var errGone = errors.New("no such process")

// descendants returns all processes below root, nearest first.
func descendants(all []proc, root int) []proc {
	children := make(map[int][]proc, len(all))
	for _, p := range all {
		if p.pid != p.ppid {
			children[p.ppid] = append(children[p.ppid], p)
		}
	}
	found := children[root]
	for i := 0; i < len(found); i++ {
		pid := found[i].pid
		found = append(found, children[pid]...)
		delete(children, pid)
	}
	return found
}

// alive keeps the processes that have not ended yet. The list is no more used.
func alive(procs []proc) []proc {
	return slices.DeleteFunc(procs, func(p proc) bool { return p.dead })
}

// signalChecked sends a signal to a process if that pid is still its own. A process
// that has ended is no error.
func signalChecked(p proc, send func() error) error {
	now, err := readProc(p.pid)
	if errors.Is(err, errGone) || err == nil && now.start != p.start {
		return nil
	}
	if err != nil {
		return err
	}
	if err := send(); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal to process %d: %w", p.pid, err)
	}
	return nil
}

// readOnce returns what reads a file that does not change: once, but for the times
// that it cannot be read, as when there are no more open files.
func readOnce(name string) func() ([]byte, error) {
	var mu sync.Mutex
	var kept []byte
	return func() ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if kept != nil {
			return kept, nil
		}
		data, err := os.ReadFile(name)
		if err == nil {
			kept = data
		}
		return data, err
	}
}
