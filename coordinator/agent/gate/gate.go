package gate

import (
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

	"stint/coordinator/task"
	"stint/ledger/durable"
)

// lockFD is the descriptor at which the gate and the agent hold the run's lock.
const lockFD = 3

// goneGrace is what an agent gets to end by itself when the master is gone.
const goneGrace = time.Second

// A command is one line from the master to the gate. The first one starts the
// agent, the next one stops it; the end of the pipe says that the master is gone.
type command struct {
	Start *startCommand `json:"start,omitempty"`
	Stop  bool          `json:"stop,omitempty"`
}

// A startCommand is all that the gate knows of a run. It comes through the pipe
// and not by argument or file, because the environment holds credentials.
type startCommand struct {
	Argv   []string      `json:"argv"`
	Env    []string      `json:"env"`
	Dir    string        `json:"dir"`
	Stdin  string        `json:"stdin"`
	Stdout string        `json:"stdout"`
	Stderr string        `json:"stderr"`
	Lock   string        `json:"lock"` // where the agent's pid and start time go
	Grace  time.Duration `json:"grace"`
	Cgroup cgroup        `json:"cgroup,omitempty"`
	Limits Resources     `json:"limits"`
}

// A report is one line from the gate to the master.
type report struct {
	Started int        `json:"started,omitempty"` // the agent's pid
	End     *EndReport `json:"end,omitempty"`     // last: nothing of the run is left
}

// An EndReport says how the program ended.
type EndReport struct {
	Exit    int    `json:"exit"`              // -1 when a signal ended it or it never started
	Signal  int    `json:"signal,omitempty"`  // the signal that ended it
	Err     string `json:"err,omitempty"`     // why it could not be started
	Missing bool   `json:"missing,omitempty"` // the program is not there or cannot be executed

	Shortage syscall.Errno `json:"shortage,omitempty"` // Err is this shortage of the machine: see task.ShortageOf
}

// Main is the body of the hidden subcommand gate. Only the supervisor starts it: control and out are the
// pipes from and to the master, descriptor 3 is the run's lock. main calls it before anything else and passes
// its result to os.Exit. It starts one agent when told to, waits for it, and returns when no descendant is
// left; at the end of control it ends them all by itself.
func Main(control io.Reader, out io.Writer) int {
	CloseOnExec(lockFD + 1)
	syscall.CloseOnExec(lockFD) // the agent gets it by name
	dec := json.NewDecoder(control)
	var first command
	if dec.Decode(&first) != nil || first.Start == nil {
		return 0 // the master went away before it said go
	}
	g := &gate{
		spec: first.Start, out: json.NewEncoder(out),
		changed: make(chan struct{}, 1), killed: make(map[int]string),
	}
	end := g.run(dec)
	_ = g.out.Encode(report{End: &end}) // without a master nobody needs to know
	return 0
}

// A gate holds one run.
type gate struct {
	spec    *startCommand
	out     *json.Encoder
	changed chan struct{}  // something below was reaped
	killed  map[int]string // start times of what was killed, by pid
	cgroup  cgroup         // of the agent; set by start, as is failure
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
	defer func() { _ = g.cgroup.remove() }() // an empty one that stays is taken away by Recover
	if end != nil {
		return *end
	}
	_ = g.out.Encode(report{Started: g.pid}) // a lost master shows as the end of control
	commands := make(chan command)
	go func() { // ends with the process
		defer close(commands)
		for {
			var c command
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

// watch lets the agent work until it ends or somebody wants its end, and then
// kills what is left until nothing is.
func (g *gate) watch(commands <-chan command, signals <-chan os.Signal) {
	var grace <-chan time.Time // runs from the first SIGTERM on
	kill := time.NewTimer(0)
	kill.Stop()
	pause := time.Millisecond
	for {
		select {
		case <-g.changed:
			if g.over() {
				return
			}
			if exited, _ := g.state(); exited {
				pause = time.Millisecond
				kill.Reset(0)
			}
		case c, ok := <-commands:
			if !ok {
				commands = nil
				grace = g.terminate(goneGrace)
			} else if c.Stop && grace == nil {
				grace = g.terminate(g.spec.Grace)
			}
		case s := <-signals:
			if s != syscall.SIGPIPE && grace == nil {
				grace = g.terminate(g.spec.Grace)
			}
		case <-grace:
			kill.Reset(0)
		case <-kill.C:
			g.killAll()
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
	files, err := g.open()
	defer func() {
		for _, f := range files {
			_ = f.Close() // the agent has its own copies
		}
	}()
	if err != nil {
		return &EndReport{Exit: -1, Err: err.Error(), Shortage: task.ShortageOf(err)}
	}
	fds := []uintptr{files[0].Fd(), files[1].Fd(), files[2].Fd(), lockFD}
	attr := &syscall.ProcAttr{Dir: g.spec.Dir, Env: g.spec.Env, Files: fds}
	missing := false
	pid, err := g.spec.Limits.start(func() (int, error) {
		pid, err := asVictim(func() (int, error) { return g.fork(attr) })
		missing = errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EACCES) ||
			errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENOEXEC)
		return pid, err
	})
	if pid == 0 {
		short := task.ShortageOf(err)
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

// fork starts the agent in a cgroup of its own if there can be one, and else
// without: then being its reaper must do.
func (g *gate) fork(attr *syscall.ProcAttr) (pid int, err error) {
	if dir, err := g.spec.Cgroup.make(); err == nil {
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

// open opens the agent's three files and looks at its directory, so that what fails later is the program.
func (g *gate) open() ([]*os.File, error) {
	if fi, err := os.Stat(g.spec.Dir); err != nil {
		return nil, err
	} else if !fi.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", g.spec.Dir)
	}
	var files []*os.File
	for i, name := range []string{g.spec.Stdin, g.spec.Stdout, g.spec.Stderr} {
		open, flag := durable.Open, os.O_WRONLY|os.O_CREATE|os.O_APPEND
		if i == 0 {
			flag = os.O_RDONLY
		}
		if name == os.DevNull {
			open = os.OpenFile
		}
		f, err := open(name, flag, durable.FileMode)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
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
	p, err := readProc(g.pid)
	if err != nil {
		return
	}
	if f, err := durable.Open(g.spec.Lock, os.O_WRONLY, 0); err == nil { // lockFD cannot be written to
		_, _ = f.WriteString(strconv.Itoa(p.pid) + " " + p.start + "\n")
		_ = f.Close()
	}
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

// killAll kills every descendant that is there now, as long as it finds new
// ones. The caller comes again until there is no child.
func (g *gate) killAll() {
	_ = g.cgroup.kill() // all at once; what has left the cgroup is found below
	g.mu.Lock()
	if !g.exited {
		_ = syscall.Kill(-g.pid, syscall.SIGKILL) // where there is neither a cgroup nor /proc
	}
	g.mu.Unlock()
	for fresh := true; fresh; {
		all, err := listProcs()
		if err != nil {
			return
		}
		fresh = false
		for _, p := range alive(descendants(all, os.Getpid())) {
			if g.killed[p.pid] != p.start {
				g.killed[p.pid] = p.start
				fresh = true
				_ = signalProc(p, syscall.SIGKILL) // it is looked for again
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

// collect reaps what has ended. The lock is held, so that no pid becomes free
// while a signal is on its way to it.
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
	return empty && g.cgroup.empty()
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
		if fd := atoi(n.Name()); fd >= first {
			syscall.CloseOnExec(fd)
		}
	}
}

// atoi returns -1 for what is no number.
func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1
	}
	return n
}
