package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"stint/coordinator/agent/gate/hold"
	"stint/ledger/durable"
)

// Names of the files in a run's directory that this package makes.
const (
	stdoutName = "stdout"
	stderrName = "stderr"
	lockName   = "lock"     // its first line is the run's record; the next one, by the gate, has pid and start time of the agent
	recordName = "run.json" // has the record of a run that an earlier version has begun
)

// A runRecord is what is needed to find a run's processes again. It holds no secret and is on disk before the
// agent is started. It goes with the lock, once nothing of the run is alive and its end is recorded.
type runRecord struct {
	RunID     string      `json:"runId"`
	TaskID    string      `json:"taskId,omitempty"`
	GatePID   int         `json:"gatePid"`
	GateStart string      `json:"gateStart"` // start time, as the system counts it
	BootID    string      `json:"bootId"`
	Cgroup    hold.Cgroup `json:"cgroup,omitempty"` // where the gate makes one if it can
	Argv      []string    `json:"argv"`             // for people
	Env       []string    `json:"env"`              // names

	dir    string    // of the run; these two are for its end
	gentle time.Time // until then the gate may end the run by itself
}

// isGone reports an error that says that a file of the run is not there: it never was, or
// the run has removed it, or put another thing there.
func isGone(err error) bool {
	var bad *durable.BadFileError
	return errors.Is(err, fs.ErrNotExist) || errors.As(err, &bad) && !bad.File
}

// readRecord returns the record of a run; see [isGone] for when there is none.
func readRecord(runDir string) (*runRecord, error) {
	data, err := durable.ReadFile(durable.OS, filepath.Join(runDir, lockName))
	data, _, _ = bytes.Cut(data, []byte("\n"))
	if !bytes.HasPrefix(data, []byte("{")) && (err == nil || isGone(err)) {
		data, err = durable.ReadFile(durable.OS, filepath.Join(runDir, recordName))
	}
	if err != nil {
		return nil, err
	}
	rec := new(runRecord)
	if err := json.Unmarshal(data, rec); err != nil { // a power cut came before its bytes, or before some of them
		return nil, fmt.Errorf("the record of %s: %w: %w", runDir, err, fs.ErrNotExist)
	}
	return rec, nil
}

// EnvNames returns the names of an environment, sorted. Values are never recorded.
func EnvNames(env []string) []string {
	names := make([]string, len(env))
	for i, kv := range env {
		names[i], _, _ = strings.Cut(kv, "=")
	}
	slices.Sort(names)
	return names
}

// A gateProc is a run whose gate lives: its pipes, its lock, its process.
type gateProc struct {
	cmd     *exec.Cmd
	record  *runRecord // as it was written: the agent may change the file
	control *os.File
	lock    *os.File
	reports chan hold.Report // closed when the gate's end of the pipe is, and its reader ends; holds all that a gate says
}

// begin locks a run, starts its gate, writes its record and only then
// lets the gate start the agent. After an error nothing of the run is left.
func (v *Supervisor) begin(s Spec, stdin *os.File) (_ *gateProc, err error) {
	dir := s.Turn.RunDir
	s.limits = v.Resources
	if !v.NoCgroup {
		s.cgroup = hold.PlanCgroup(s.Turn.RunID)
	}
	lock, note, err := takeLock(filepath.Join(dir, lockName))
	if err != nil {
		return nil, err
	}
	defer func() { _ = note.Close() }() // nobody waits for the disk: see record
	// The run's own descriptors: what an agent sets on one that it shared with us would count for us as well.
	var h *gateProc
	stdout, err := durable.Open(filepath.Join(dir, stdoutName), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		defer func() { _ = stdout.Close() }() // nothing was written
		var stderr *os.File
		if stderr, err = durable.Open(filepath.Join(dir, stderrName), os.O_WRONLY|os.O_APPEND, 0); err == nil {
			defer func() { _ = stderr.Close() }() // nothing was written
			h, err = v.startGate(s, []*os.File{lock, stdout, stdin, note}, stderr)
		}
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if h.record, err = v.record(s, note, h.cmd.Process.Pid); err == nil {
		err = h.send(hold.Command{Start: s.start()})
	}
	if err != nil {
		h.release() // the gate reads the end of its pipe and goes
		h.wait()
		return nil, err
	}
	return h, nil
}

// startGate starts the gate with its two pipes, the files of the run, and stderr, where one that crashes leaves its trace.
func (v *Supervisor) startGate(s Spec, files []*os.File, stderr *os.File) (*gateProc, error) {
	argv := v.Self
	if len(argv) == 0 {
		path, err := gatePath()
		if err != nil {
			return nil, err
		}
		argv = []string{path, "gate"}
	}
	controlR, controlW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: argv[0], Args: append([]string{"stint"}, argv[1:]...), Dir: "/",
		// The mark is for a sweep to find it. It needs no more than these processors, and the runtime need
		// not look how many there are. Built with -race, it would wait a second at its end.
		Env:   []string{hold.EnvRunID + "=" + s.Turn.RunID, "GOMAXPROCS=2", "GORACE=atexit_sleep_ms=0"},
		Stdin: controlR, Stderr: stderr, ExtraFiles: files,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, WaitDelay: time.Second,
	}
	status, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	err = errors.Join(err, controlR.Close())
	if cmd.Process == nil {
		return nil, fmt.Errorf("the gate could not be started: %w", errors.Join(err, controlW.Close()))
	}
	h := &gateProc{cmd: cmd, control: controlW, lock: files[0], reports: make(chan hold.Report, 4)}
	liveGates.Store(cmd.Process.Pid, s.Turn.RunID)
	go h.read(status)
	return h, nil
}

// record writes the record of a run. It need not be durable, and so nobody waits for the disk here: what was
// written is seen by every later process of this boot, whoever is killed, and a power cut ends all processes:
// where the record is missing or cut off then, nothing is found by the run's mark.
func (v *Supervisor) record(s Spec, note *os.File, pid int) (*runRecord, error) {
	p, err := hold.ReadProc(pid)
	if err != nil {
		return nil, fmt.Errorf("the gate ended at once: %w", err)
	}
	boot, err := hold.BootID()
	if err != nil {
		return nil, err
	}
	rec := &runRecord{
		RunID: s.Turn.RunID, TaskID: s.Turn.TaskID, Argv: s.Argv, Env: EnvNames(s.Env),
		GatePID: p.PID, GateStart: p.Start, BootID: boot, Cgroup: s.cgroup,
	}
	data, _ := json.Marshal(rec) // it has texts and numbers
	write := (*os.File).Write
	if v.write != nil {
		write = v.write
	}
	_, err = write(note, append(data, '\n'))
	return rec, err
}

// read passes the gate's reports on, and ends when the gate does.
func (h *gateProc) read(status io.Reader) {
	defer close(h.reports)
	dec := json.NewDecoder(status)
	for {
		var rep hold.Report
		if dec.Decode(&rep) != nil {
			return
		}
		h.reports <- rep
	}
}

// send writes one command. A gate that is gone shows as the end of its reports too.
func (h *gateProc) send(c hold.Command) error {
	data, _ := json.Marshal(c) // it has texts and numbers
	err := h.control.SetWriteDeadline(time.Now().Add(30 * time.Second))
	if err == nil {
		_, err = h.control.Write(append(data, '\n'))
	}
	return err
}

// release closes our ends: the gate reads the end of its pipe, and the lock is held by what lives of the run alone.
func (h *gateProc) release() {
	_ = h.control.Close() // a pipe: nothing can be lost
	_ = h.lock.Close()    // nothing was written
}

// wait reaps the gate when its reports have ended.
func (h *gateProc) wait() {
	for range h.reports {
	}
	liveGates.Delete(h.cmd.Process.Pid)
	_ = h.cmd.Wait() // how the gate ended does not matter: its last report does
}

// takeLock locks the run for everything that inherits the descriptor lock, which cannot be written to: the
// agent must not say which process is to be killed for its own. note can, and is ours and the gate's. The file is
// emptied: the agent of the directory's last run would be a stranger.
func takeLock(name string) (lock, note *os.File, err error) {
	f, err := durable.Open(name, os.O_RDONLY|os.O_CREATE, durable.FileMode)
	if err != nil {
		return nil, nil, err
	}
	held, err := durable.TryLock(f)
	if !held && err == nil {
		err = fmt.Errorf("%s is held: something of this run lives", name)
	}
	if err == nil {
		note, err = durable.Open(name, os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, note, nil
}

// lockFree reports whether nobody holds the lock of a run. That alone proves nothing: shells and wrappers drop descriptors.
func lockFree(runDir string) (bool, error) {
	f, err := durable.Open(filepath.Join(runDir, lockName), os.O_RDWR, 0)
	if isGone(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	free, err := durable.TryLock(f)
	return free, errors.Join(err, f.Close())
}

// awaitFree waits until the lock is free: at most d, because a process that is
// just being forked holds every descriptor of its parent for a moment.
func awaitFree(runDir string, d time.Duration) bool {
	for end := time.Now().Add(d); ; time.Sleep(5 * time.Millisecond) {
		if free, err := lockFree(runDir); free || err != nil || time.Now().After(end) {
			return free
		}
	}
}
