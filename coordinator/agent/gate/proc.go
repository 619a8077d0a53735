package gate

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// A proc is one process as the system shows it. Pid and start together name a
// process for as long as the machine is up; a pid alone does not, because it is
// given out again.
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
	var found []proc
	next := children[root]
	for len(next) > 0 {
		found = append(found, next...)
		var below []proc
		for _, p := range next {
			below = append(below, children[p.pid]...)
			delete(children, p.pid)
		}
		next = below
	}
	return found
}

// alive keeps the processes that have not ended yet.
func alive(procs []proc) []proc {
	kept := procs[:0:0]
	for _, p := range procs {
		if !p.dead {
			kept = append(kept, p)
		}
	}
	return kept
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
