package gate

import (
	"errors"
	"fmt"
	"sync"

	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
)

// liveGates are the runs of the gates that this process has started and not reaped, by pid: one is forgotten
// before it is reaped, because its pid is not another's before. A gate keeps all that its agent starts below
// itself, so a process's ancestors show which run it is part of, whatever its environment says.
var liveGates sync.Map

// RunOf notes which process has pid now, and returns a function that looks for the run that it is part of, or
// "": one of this master, or one that an earlier master has left, of which isOurs reports whether it is of
// the same state directory. Where that process has ended, whoever has its pid by then, or cannot be seen, as
// one of root's with hidepid, the error says that nobody can tell.
func RunOf(pid int, isOurs func(run string) bool) func() (run string, err error) {
	return runOf(pid, isOurs, procReader{hold.ReadProc, hold.ReadMark})
}

// A procReader looks processes up.
type procReader struct {
	read func(pid int) (hold.Proc, error)
	mark func(pid int) (run string, err error) // by what its environment was when its program started
}

func runOf(pid int, isOurs func(run string) bool, l procReader) func() (run string, err error) {
	p, unseen := l.read(pid) // once: pid may be another's later
	return func() (run string, err error) {
		err = unseen
		for range 10 { // again if an ancestor ends meanwhile, and its children get another one
			if unseen != nil {
				break
			}
			if run, err = l.runAbove(pid, p.Start, isOurs); !errors.Is(err, hold.ErrGone) {
				break
			}
		}
		if err != nil {
			return "", fmt.Errorf("process %d: %w", pid, err)
		}
		return run, nil
	}
}

// runAbove looks at the process that began at start, and its ancestors. One that is there and cannot be seen is taken for somebody
// else's, as /proc may be set up: all of a run is the user's own, and is seen unless it makes itself undumpable, as sshd is too.
//
// The gate of a run that an earlier master has left is known by the mark in its environment,
// which nothing below it can change. So the highest mark counts.
func (l procReader) runAbove(pid int, start string, isOurs func(run string) bool) (run string, err error) {
	gates := map[int]string{}
	liveGates.Range(func(pid, run any) bool { // before the process is seen to live: none that it is below is missing
		gates[pid.(int)] = run.(string)
		return true
	})
	p, err := l.read(pid)
	if err == nil && (p.Start != start || p.Dead) {
		err = hold.ErrGone
	}
	if err != nil {
		return "", err
	}
	for gates[p.PID] == "" {
		mark, err := l.mark(p.PID)
		if task.ShortageOf(err) != 0 { // it could be seen
			return "", err
		}
		if mark != "" && isOurs(mark) {
			run = mark
		}
		if p.PPID <= 1 {
			return run, nil
		}
		above, err := l.read(p.PPID)
		if task.ShortageOf(err) != 0 {
			return "", err
		}
		if err != nil {
			return run, l.stillBelow(p)
		}
		p = above
	}
	return gates[p.PID], nil
}

// stillBelow returns an error if a process has ended, or is not p's parent any more.
func (l procReader) stillBelow(p hold.Proc) error {
	again, err := l.read(p.PID)
	if task.ShortageOf(err) != 0 {
		return err
	}
	if err != nil || again.PPID != p.PPID {
		return hold.ErrGone
	}
	return nil
}
