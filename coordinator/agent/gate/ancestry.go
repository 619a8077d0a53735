package gate

import (
	"errors"
	"fmt"
	"sync"

	"stint/coordinator/task"
)

// liveGates are the runs of the gates that this process has started and not reaped, by pid:
// one is forgotten before it is reaped, because its pid is not another's before. A gate keeps
// all that its agent starts below itself, so a process's ancestors show which run it is part
// of, whatever its environment says.
var liveGates sync.Map

// gateRuns returns the runs of the gates that live now, by pid.
func gateRuns() map[int]string {
	runs := map[int]string{}
	liveGates.Range(func(pid, run any) bool {
		runs[pid.(int)] = run.(string)
		return true
	})
	return runs
}

// RunOf notes which process has pid now, and returns a function that looks for the run of
// this master that it is part of, or "". Where that process has ended, whoever has its pid
// by then, or cannot be seen, as one of root's with hidepid, the error says that nobody can
// tell.
func RunOf(pid int) func() (run string, err error) { return runOf(pid, readProc) }

func runOf(pid int, read func(pid int) (proc, error)) func() (run string, err error) {
	p, unseen := read(pid) // once: pid may be another's later
	return func() (run string, err error) {
		err = unseen
		for range 10 { // again if an ancestor ends meanwhile, and its children get another one
			if unseen != nil {
				break
			}
			if run, err = runAbove(pid, p.start, read); !errors.Is(err, errGone) {
				break
			}
		}
		if err != nil {
			return "", fmt.Errorf("process %d: %w", pid, err)
		}
		return run, nil
	}
}

// runAbove looks at the process that began at start, and its ancestors. One that is there
// and cannot be seen is taken for somebody else's, as /proc may be set up: all of a run is
// the user's own, and is seen unless it makes itself undumpable, as sshd is too.
func runAbove(pid int, start string, read func(pid int) (proc, error)) (run string, err error) {
	gates := gateRuns() // before the process is seen to live: none that it is below is missing
	child, err := read(pid)
	if err == nil && (child.start != start || child.dead) {
		err = errGone
	}
	if err != nil || len(gates) == 0 || gates[pid] != "" {
		return gates[pid], err
	}
	for child.ppid > 1 && gates[child.ppid] == "" {
		p, err := read(child.ppid)
		if task.ShortageOf(err) != 0 { // it could be seen
			return "", err
		}
		if err != nil {
			return "", stillBelow(child, read)
		}
		child = p
	}
	return gates[child.ppid], nil
}

// stillBelow returns an error if a process has ended, or is not p's parent any more.
func stillBelow(p proc, read func(pid int) (proc, error)) error {
	again, err := read(p.pid)
	if task.ShortageOf(err) != 0 {
		return err
	}
	if err != nil || again.ppid != p.ppid {
		return errGone
	}
	return nil
}
