package hold

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
)

// A Proc is one process as the system shows it. Pid and start together name a process for as long as the
// machine is up; a pid alone does not, because it is given out again.
type Proc struct {
	PID   int
	PPID  int
	PGID  int
	Start string // opaque: equal only for the same process
	Dead  bool   // a zombie: ended, and not yet reaped
}

// ErrGone is returned for a process that no longer exists.
var ErrGone = errors.New("no such process")

// Descendants returns all processes below root, nearest first.
func Descendants(all []Proc, root int) []Proc {
	children := make(map[int][]Proc, len(all))
	for _, p := range all {
		if p.PID != p.PPID {
			children[p.PPID] = append(children[p.PPID], p)
		}
	}
	found := children[root]
	for i := 0; i < len(found); i++ {
		pid := found[i].PID
		found = append(found, children[pid]...)
		delete(children, pid)
	}
	return found
}

// Alive keeps the processes that have not ended yet. The list is no more used.
func Alive(procs []Proc) []Proc {
	return slices.DeleteFunc(procs, func(p Proc) bool { return p.Dead })
}

// signalChecked sends a signal to a process if that pid is still its own. A process that has ended is no error.
func signalChecked(p Proc, send func() error) error {
	now, err := ReadProc(p.PID)
	if errors.Is(err, ErrGone) || err == nil && now.Start != p.Start {
		return nil
	}
	if err != nil {
		return err
	}
	if err := send(); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal to process %d: %w", p.PID, err)
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
