package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
	"stint/ledger/durable"
)

// patience is how long a gate may take to end its run by itself after it has lost the master: a second of grace, and the killing.
const patience = 3 * time.Second

// Recover proves that nothing of a run lives, and ends what does. The master calls it at start for each task that was running
// when the last one ended, before the task may run again. It returns nil when the run is dead, and a sentence that says what is
// in the way when that cannot be proved before ctx ends; then the task must not be started.
//
// Dead means: the machine was started anew since; or no agent was ever started; or the gate, its descendants and the agent's
// group are gone, the run's cgroup is empty, no process carries the run's marker in its environment, and nobody holds the run's
// lock. No process is ever signalled by its pid alone. The empty cgroup is removed.
func Recover(ctx context.Context, runDir, runID string) error {
	boot, err := hold.BootID()
	if err != nil {
		return unproved(runID, err)
	}
	rec, err := readRecord(runDir)
	switch {
	case isGone(err):
		// No agent was started, or it has deleted the file. What there is is found by
		// its mark, and in the cgroup if this process is where the last one was.
		rec = &runRecord{Cgroup: hold.PlanCgroup(runID)}
	case err != nil:
		return unproved(runID, err)
	case rec.BootID != boot:
		return nil
	}
	rec.RunID = runID
	return rec.end(ctx, runDir)
}

func unproved(runID string, err error) error {
	return fmt.Errorf("run %s cannot be proved dead: %w", runID, err)
}

// end ends what is left of a run of this boot; see [Recover].
func (rec *runRecord) end(ctx context.Context, runDir string) error {
	rec.dir, rec.gentle = runDir, time.Now().Add(patience)
	if filepath.Base(string(rec.Cgroup)) != hold.CgroupName(rec.RunID) {
		rec.Cgroup = "" // another one is none of ours
	}
	if err := rec.endAll(ctx); err != nil {
		return unproved(rec.RunID, err)
	}
	_ = rec.Cgroup.Remove() // that it stays does not keep the task from running
	return nil
}

// endAll kills until two looks in a row find nothing: a process that forks just then could be missed by one.
func (rec *runRecord) endAll(ctx context.Context) error {
	clean := 0
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		reason, err := rec.round()
		if err != nil {
			return err
		}
		if clean++; reason != "" {
			clean = 0
		}
		if clean == 2 {
			return nil
		}
		if err := task.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("%s: %w", cmp.Or(reason, "there was no time to look twice"), err)
		}
	}
}

// round looks once and kills what may be killed. It says what still lives.
func (rec *runRecord) round() (reason string, err error) {
	gate, below, err := rec.living()
	if err != nil {
		return "", err
	}
	if rec.Cgroup.HoldsSelf() || slices.ContainsFunc(below, func(p hold.Proc) bool { return p.PID == os.Getpid() }) {
		return "", errors.New("this process was started by that very run")
	}
	if gate.PID != 0 && time.Now().Before(rec.gentle) {
		return fmt.Sprintf("its gate, process %d, lives", gate.PID), nil
	}
	if len(below) > 0 || !rec.Cgroup.Empty() { // before the gate: while it lives, orphans stay below it
		return rec.describe(below), errors.Join(rec.Cgroup.Kill(), killAll(below))
	}
	if gate.PID != 0 {
		return rec.describe([]hold.Proc{gate}), killAll([]hold.Proc{gate})
	}
	free, err := lockFree(rec.dir)
	if err != nil {
		return "", err
	}
	if !free {
		return "a process that cannot be identified holds " + filepath.Join(rec.dir, lockName), nil
	}
	return "", nil
}

// living returns the gate, if it lives, and all other processes of the run.
func (rec *runRecord) living() (gate hold.Proc, below []hold.Proc, err error) {
	all, err := hold.ListProcs()
	if err != nil {
		return hold.Proc{}, nil, err
	}
	if gate = find(all, hold.Proc{PID: rec.GatePID, Start: rec.GateStart}); gate.PID != 0 {
		below = hold.Descendants(all, gate.PID)
	}
	agent := find(all, rec.agent())
	for _, p := range all {
		mark, _ := hold.ReadMark(p.PID) // processes of other users cannot be looked into
		if p.PID != gate.PID && (agent.PID > 0 && p.PGID == agent.PID || mark != "" && mark == rec.RunID) && !slices.Contains(below, p) {
			below = append(below, p)
		}
	}
	below = hold.Alive(below)
	return gate, below, nil
}

// agent returns the agent's pid and start time as the gate has noted them.
func (rec *runRecord) agent() hold.Proc {
	data, err := durable.ReadFile(durable.OS, filepath.Join(rec.dir, lockName))
	if err != nil {
		return hold.Proc{}
	}
	text := strings.TrimSpace(string(data))
	pid, start, _ := strings.Cut(text[strings.LastIndexByte(text, '\n')+1:], " ")
	n, _ := strconv.Atoi(pid) // 0: none
	return hold.Proc{PID: n, Start: start}
}

// find returns that very process if it lives; a pid of 0 says that it does not.
func find(all []hold.Proc, want hold.Proc) hold.Proc {
	for _, p := range all {
		if want.PID > 0 && p.PID == want.PID && p.Start == want.Start && !p.Dead {
			return p
		}
	}
	return hold.Proc{}
}

func killAll(procs []hold.Proc) error {
	var errs []error
	for _, p := range procs {
		errs = append(errs, hold.SignalProc(p, syscall.SIGKILL))
	}
	return errors.Join(errs...)
}

// KillTree kills a child of this process that was not reaped yet, and what is below it.
func KillTree(child *os.Process) error {
	all, _ := hold.ListProcs() // without a list the child alone
	if err := child.Kill(); err != nil {
		return err // it was reaped: its number may have been another's
	}
	return killAll(hold.Descendants(all, child.Pid))
}

func (rec *runRecord) describe(procs []hold.Proc) string {
	if len(procs) == 0 {
		return "still alive: what is in " + string(rec.Cgroup)
	}
	var pids []string
	for _, p := range procs {
		pids = append(pids, fmt.Sprint(p.PID))
	}
	return "still alive: process " + strings.Join(pids, ", ")
}
