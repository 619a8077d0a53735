package hold

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// EnvRunID is a variable of every program that runs under a gate: the id of its run. It is also
// the mark by which a process of a run is found again.
const EnvRunID = "STINT_RUN_ID"

// Descriptors that a gate is started with, beside its two pipes, and the run's stderr as its own.
const (
	lockFD   = 3 + iota // the run's lock, which gate and agent hold
	stdoutFD            // these two are the agent's
	stdinFD
	noteFD // the lock's file, open for writing: the agent must not say which process is to be killed for its own
)

// goneGrace is what an agent gets to end by itself when the master is gone.
const goneGrace = time.Second

// leasePoll is how often a gate looks whether the lease of its run has ended: a timer does not count what the machine sleeps.
const leasePoll = 500 * time.Millisecond

// A Command is one line from the master to the gate. The first one starts the
// agent, the next one stops it; the end of the pipe says that the master is gone.
type Command struct {
	Start *StartCommand `json:"start,omitempty"`
	Stop  bool          `json:"stop,omitempty"`
	Until time.Duration `json:"until,omitempty"` // see [StartCommand]: now it is this
}

// A StartCommand is all that the gate knows of a run. It comes through the pipe
// and not by argument or file, because the environment holds credentials.
type StartCommand struct {
	Argv   []string      `json:"argv"`
	Env    []string      `json:"env"`
	Dir    string        `json:"dir"`
	Merged bool          `json:"merged,omitempty"` // stderr goes where stdout goes
	Grace  time.Duration `json:"grace"`
	Cgroup Cgroup        `json:"cgroup,omitempty"`
	Limits Resources     `json:"limits"`

	// Until is when the run must have ended, by [Uptime], whether the master says so or not; 0: never.
	Until time.Duration `json:"until,omitempty"`
}

// A Report is one line from the gate to the master.
type Report struct {
	Started int        `json:"started,omitempty"` // the agent's pid
	End     *EndReport `json:"end,omitempty"`     // last: nothing of the run is left
}

// An EndReport says how the program ended.
type EndReport struct {
	Exit    int    `json:"exit"`              // -1 when a signal ended it or it never started
	Signal  int    `json:"signal,omitempty"`  // the signal that ended it
	Err     string `json:"err,omitempty"`     // why it could not be started
	Missing bool   `json:"missing,omitempty"` // the program is not there or cannot be executed

	// Err is this error of the system; from the supervisor only if it is a shortage of the machine: see task.ShortageOf.
	Shortage syscall.Errno `json:"shortage,omitempty"`
}

// Main is the body of the hidden subcommand gate. Only the supervisor starts it: control and out are the pipes from and to the
// master, the further descriptors are those above. main calls it before anything else and passes its result to os.Exit. It starts
// one agent when told to, waits for it, and returns when no descendant is left; at the end of control it ends them all by itself.
func Main(control io.Reader, out io.Writer) int {
	CloseOnExec(lockFD) // the agent gets its own by name
	dec := json.NewDecoder(control)
	var first Command
	if dec.Decode(&first) != nil || first.Start == nil {
		return 0 // the master went away before it said go
	}
	g := &gate{
		spec: first.Start, out: json.NewEncoder(out),
		changed: make(chan struct{}, 1), killed: make(map[int]string),
	}
	end := g.run(dec)
	_ = g.out.Encode(Report{End: &end}) // without a master nobody needs to know
	return 0
}

// A gate holds one run.
type gate struct {
	spec    *StartCommand
	out     *json.Encoder
	changed chan struct{}  // something below was reaped
	killed  map[int]string // start times of what was killed, by pid
	cgroup  Cgroup         // of the agent; set by start, as is failure
	failure string         // why the agent was not let go although it was started

	mu     sync.Mutex // held while reaping, and while the agent's pid is signalled
	pid    int
	exited bool
	status syscall.WaitStatus
	empty  bool // there is no child any more
}

// run starts the agent and returns when nothing is left of it.
func (g *gate) run(dec *json.Decoder) EndReport {
	// Notify also keeps a write to a master that is gone from ending the gate. It
	// is no signal.Ignore, because the agent would inherit that.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	if err := becomeReaper(); err != nil {
		return EndReport{Exit: -1, Err: err.Error()}
	}
	started := make(chan *EndReport)
	go g.hold(started)
	end := <-started
	defer func() { _ = g.cgroup.Remove() }() // an empty one that stays is taken away by Recover
	if end != nil {
		return *end
	}
	_ = g.out.Encode(Report{Started: g.pid}) // a lost master shows as the end of control
	commands := make(chan Command)
	go func() { // ends with the process
		defer close(commands)
		for {
			var c Command
			if dec.Decode(&c) != nil {
				return
			}
			commands <- c
		}
	}()
	g.watch(commands, signals)
	return g.end()
}

// hold starts the agent and reaps until nothing is left. It does both on one
// thread, because the kernel kills the agent when the thread that started it ends.
func (g *gate) hold(started chan<- *EndReport) {
	runtime.LockOSThread()
	end := g.start()
	started <- end
	if end == nil {
		g.reap()
	}
}

// watch lets the agent work until it ends or somebody wants its end, and then kills what is left until nothing is.
func (g *gate) watch(commands <-chan Command, signals <-chan os.Signal) {
	var grace <-chan time.Time // runs from the first SIGTERM on
	kill := time.NewTimer(0)
	kill.Stop()
	until, lease := g.spec.Until, time.NewTimer(leasePoll)
	defer lease.Stop()
	const first, soon = 4 * time.Millisecond, 8 * time.Millisecond // what is killed is gone by then, most often
	pause := first
	for {
		select {
		case <-g.changed:
			if g.over() {
				return
			}
			if exited, _ := g.state(); exited && pause != soon {
				pause = first
				kill.Reset(0)
			}
		case c, ok := <-commands:
			if !ok {
				commands = nil
				grace = g.terminate(goneGrace)
			} else if c.Stop && grace == nil {
				grace = g.terminate(g.spec.Grace)
			}
			until = cmp.Or(c.Until, until)
		case <-lease.C:
			if until > 0 && Uptime() >= until && grace == nil {
				grace = g.terminate(max(0, until+g.spec.Grace-Uptime())) // less after the machine was asleep
			}
			if until > 0 {
				lease.Reset(leasePoll)
			}
		case s := <-signals:
			if s != syscall.SIGPIPE && grace == nil {
				grace = g.terminate(g.spec.Grace)
			}
		case <-grace:
			kill.Reset(0)
		case <-kill.C:
			g.killAll(pause > first)
			if g.over() {
				return
			}
			kill.Reset(pause)
			pause = min(2*pause, time.Second) // what cannot be killed must not cost a core
		}
	}
}

// start brings the agent to life, or says why it cannot.
func (g *gate) start() *EndReport {
	if g.spec.Until > 0 && Uptime() >= g.spec.Until {
		return &EndReport{Exit: -1, Err: "its lease has ended"}
	}
	if fi, err := os.Stat(g.spec.Dir); err != nil { // so that what fails later is the program
		short, _ := errors.AsType[syscall.Errno](err)
		return &EndReport{Exit: -1, Err: err.Error(), Shortage: short}
	} else if !fi.IsDir() {
		return &EndReport{Exit: -1, Err: g.spec.Dir + " is not a directory"}
	}
	fds := []uintptr{stdinFD, stdoutFD, 2, lockFD}
	if g.spec.Merged {
		fds[2] = stdoutFD
	}
	attr := &syscall.ProcAttr{Dir: g.spec.Dir, Env: g.spec.Env, Files: fds}
	missing := false
	pid, err := g.spec.Limits.start(func() (int, error) {
		pid, err := asVictim(func() (int, error) { return g.fork(attr) })
		missing = errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EACCES) ||
			errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENOEXEC)
		return pid, err
	})
	if pid == 0 {
		short, _ := errors.AsType[syscall.Errno](err)
		if g.spec.Limits.Files > 0 && short == syscall.EMFILE { // a limit of the run, which stays
			short = 0
		}
		return &EndReport{Exit: -1, Err: fmt.Sprintf("%s: %v", g.spec.Argv[0], err), Missing: missing, Shortage: short}
	}
	g.pid = pid
	if err != nil { // it lives, and without all its limits
		g.failure = err.Error()
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	g.mark()
	return nil
}

// fork starts the agent in a cgroup of its own if there can be one, and else without: then being its reaper must do.
func (g *gate) fork(attr *syscall.ProcAttr) (pid int, err error) {
	if dir, err := g.spec.Cgroup.Make(); err == nil {
		g.cgroup, attr.Sys = g.spec.Cgroup, agentAttr(dir)
		pid, err = forkExec(g.spec.Argv, attr)
		_ = dir.Close() // only the kernel needed it
		if err == nil {
			return pid, nil
		}
	}
	attr.Sys = agentAttr(nil)
	return forkExec(g.spec.Argv, attr)
}

// forkExec tries again while the program is open for writing in some process that is just being forked.
func forkExec(argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	for range 10 {
		pid, err = syscall.ForkExec(argv[0], argv, attr)
		if err != syscall.ETXTBSY {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return pid, err
}

// mark notes the agent's pid and start time for Recover, in the file that is locked: a file of its own would
// cost more than all else that is written here. It need not be durable: after a power cut there is no process
// to find. Without it, the environment marker still finds the agent.
func (g *gate) mark() {
	p, err := ReadProc(g.pid)
	if err != nil {
		return
	}
	_, _ = syscall.Write(noteFD, []byte(strconv.Itoa(p.PID)+" "+p.Start+"\n"))
}

// terminate asks the agent's group to end and starts the clock.
func (g *gate) terminate(grace time.Duration) <-chan time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.exited { // once reaped, its number may belong to another group
		_ = syscall.Kill(-g.pid, syscall.SIGTERM) // what does not obey is killed
	}
	return time.After(grace)
}

// killAll kills every descendant that is there now, as long as it finds new ones. The caller comes again until
// there is no child. The first time the cgroup, if there is one, will do: it takes longer to look at all processes.
func (g *gate) killAll(again bool) {
	_ = g.cgroup.Kill() // all at once; what has left the cgroup is found below
	g.mu.Lock()
	if !g.exited {
		_ = syscall.Kill(-g.pid, syscall.SIGKILL) // where there is neither a cgroup nor /proc
	}
	g.mu.Unlock()
	for fresh := again || g.cgroup == ""; fresh; {
		all, err := ListProcs()
		if err != nil {
			return
		}
		fresh = false
		for _, p := range Alive(Descendants(all, os.Getpid())) {
			if g.killed[p.PID] != p.Start {
				g.killed[p.PID] = p.Start
				fresh = true
				_ = SignalProc(p, syscall.SIGKILL) // it is looked for again
			}
		}
	}
}

// reap collects every child that ends, own and adopted, until there is none.
func (g *gate) reap() {
	for {
		err := awaitChild()
		g.mu.Lock()
		g.collect()
		g.empty = g.empty || err != nil
		empty := g.empty
		g.mu.Unlock()
		select {
		case g.changed <- struct{}{}:
		default: // not yet looked at
		}
		if empty {
			return
		}
	}
}

// collect reaps what has ended. The lock is held, so that no pid becomes free while a signal is on its way to it.
func (g *gate) collect() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			g.empty = true
			return
		case pid == 0:
			return
		case pid == g.pid:
			g.exited, g.status = true, status
			endGroup(pid)
		}
	}
}

func (g *gate) state() (exited, empty bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.exited, g.empty
}

// over reports whether nothing of the run is left.
func (g *gate) over() bool {
	_, empty := g.state()
	return empty && g.cgroup.Empty()
}

func (g *gate) end() EndReport {
	if g.failure != "" {
		return EndReport{Exit: -1, Err: g.failure}
	}
	if g.status.Signaled() {
		return EndReport{Exit: -1, Signal: int(g.status.Signal())}
	}
	return EndReport{Exit: g.status.ExitStatus()}
}

// closeListed is CloseOnExec by a directory of the descriptors.
func closeListed(dir string, first int) {
	names, _ := os.ReadDir(dir) // what could be read
	for _, n := range names {
		if fd, err := strconv.Atoi(n.Name()); err == nil && fd >= first {
			syscall.CloseOnExec(fd)
		}
	}
}
