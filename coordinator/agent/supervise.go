package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/ledger/durable"
)

const (
	stderrTail = 16 << 10 // bytes of stderr that are looked at after the end
	firstRead  = 4 << 10
	readSize   = 64 << 10
	readBurst  = 16 << 20 // bytes read in one go, so that limits are looked at between
	keptOutput = 64 << 10 // bytes of an output that is too long that its file keeps at the end
	hardExtra  = 10 * time.Second
)

// Causes with which the supervisor itself stops a run.
var (
	errStartup = errors.New("no output within the startup limit")
	errIdle    = errors.New("no more output within the idle limit")
	errHung    = errors.New("the agent did not end after its turn was over")
)

// A Spec is one run as an adapter wants it.
type Spec struct {
	Turn task.Turn
	Argv []string // argv[0] is the path of the program
	Env  []string

	Stdin  string // path of the standard input; "": the prompt
	CLI    bool   // the program is one of a version that may be unknown
	merged bool   // stderr goes where stdout goes
	short  bool   // of a long stdout only the end is kept: see shorten

	limits Resources // these two come from the runner
	cgroup cgroup
}

// start is what the gate is told.
func (s Spec) start() *startCommand {
	dir := s.Turn.RunDir
	grace := s.Turn.Limits.Grace
	if grace <= 0 {
		grace = defaultGrace
	}
	stderr := stderrName
	if s.merged {
		stderr = stdoutName
	}
	return &startCommand{
		Argv: s.Argv, Env: s.Env, Dir: s.Turn.Workspace, Stdin: cmp.Or(s.Stdin, s.Turn.Prompt),
		Stdout: filepath.Join(dir, stdoutName), Stderr: filepath.Join(dir, stderr), Lock: filepath.Join(dir, lockName),
		Grace: grace, Cgroup: s.cgroup, Limits: s.limits,
	}
}

// A sink takes what an agent writes to stdout, from one goroutine.
type sink interface {
	feed(p []byte)    // the next bytes; p is reused
	aside(p []byte)   // the next bytes of stderr, of many at once only the last ones
	finished() bool   // the agent has said that its turn is over
	began()           // the program is at work
	progress(n int64) // bytes of output so far, stderr included
	// stuck is asked regularly with the time; what it gives ends the run with that
	// cause. nil lets it go on.
	stuck(now time.Time) error
}

// An ended is how a run ended.
type runResult struct {
	err     error     // the run could not be begun
	started bool      // there was an agent
	end     endReport // of the agent, if not lost
	lost    bool      // the gate was killed: nobody knows how the agent ended
	cause   error     // why we stopped it; nil if it ended by itself
	stderr  []byte    // the last part of it
	held    bool      // the lock is held by a process outside the run
	cut     bool      // its file has not all of its output
}

// supervise carries out one run and returns when nothing of it is left. It calls
// out from this goroutine alone and leaves none behind.
func (r *Runner) supervise(ctx context.Context, s Spec, out sink) runResult {
	if ctx.Err() != nil {
		return runResult{cause: context.Cause(ctx)}
	}
	tail, err := openTail(s.Turn.RunDir)
	if err != nil {
		return runResult{err: err, end: endReport{Shortage: task.ShortageOf(err)}}
	}
	defer tail.close()
	h, err := r.begin(s)
	if err != nil {
		return runResult{err: err, end: endReport{Shortage: cmp.Or(task.ShortageOf(err), tail.gateShort())}}
	}
	w := &watch{runner: r, limits: s.Turn.Limits, short: s.short, out: out, held: h, tail: tail}
	w.grace = s.start().Grace
	w.run(ctx)
	w.finish(ctx, s.Turn.RunDir)
	if cause := context.Cause(ctx); w.ended.cause != nil && errors.Is(cause, task.ErrCanceled) {
		w.ended.cause = cause // a person's word counts, also when it came second
	}
	return w.ended
}

// A watch follows one run.
type watch struct {
	runner *Runner
	limits task.RunLimits
	grace  time.Duration
	short  bool
	out    sink
	held   *gateProc
	tail   *tail
	ended  runResult
	done   bool // the gate has said that nothing is left

	began   time.Time
	last    time.Time // of the last byte
	over    time.Time // when the turn was over
	total   int64
	hard    <-chan time.Time // when a gate that does not end is given up
	stopped <-chan struct{}  // ctx.Done until the run is stopped
}

// run returns when the gate has reported the end or is no use any more.
func (w *watch) run(ctx context.Context) {
	poll := w.runner.Poll
	if poll <= 0 {
		poll = defaultPoll
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	w.began, w.stopped = time.Now(), ctx.Done()
	for !w.done {
		select {
		case rep, ok := <-w.held.reports:
			if !ok {
				w.ended.lost = true
				return
			}
			w.onReport(rep)
		case <-w.stopped:
			w.stop(context.Cause(ctx))
		case <-w.hard:
			w.ended.lost = true
			return
		case <-tick.C:
			w.look()
			w.checkLimits()
		}
	}
}

func (w *watch) onReport(rep report) {
	if rep.Started > 0 {
		w.ended.started = true
		w.out.began()
	}
	if rep.End != nil {
		w.ended.end, w.done = *rep.End, true
	}
}

// look reads what is new and notes when something was.
func (w *watch) look() {
	for range readBurst / readSize {
		p := w.tail.read()
		if len(p) == 0 {
			break
		}
		w.out.feed(p)
	}
	w.out.aside(w.tail.readErr())
	now := time.Now()
	if total := w.tail.total(); total > w.total {
		w.total, w.last = total, now
		w.out.progress(total)
	}
	if !w.out.finished() {
		w.over = time.Time{} // another turn has begun
	} else if w.over.IsZero() {
		w.over = now
	}
}

// checkLimits stops a run that is silent for too long, or that is over and does
// not end.
func (w *watch) checkLimits() {
	hang := w.runner.HangGrace
	if hang <= 0 {
		hang = defaultHangGrace
	}
	switch {
	case !w.over.IsZero():
		if time.Since(w.over) >= hang {
			w.stop(errHung)
		}
	case w.total == 0:
		if w.limits.Startup > 0 && time.Since(w.began) >= w.limits.Startup {
			w.stop(errStartup)
		}
	case w.limits.Idle > 0 && time.Since(w.last) >= w.limits.Idle:
		w.stop(errIdle)
	default:
		if err := w.out.stuck(time.Now()); err != nil {
			w.stop(err)
		}
	}
}

// stop asks the gate, once, to end the run.
func (w *watch) stop(cause error) {
	if w.ended.cause != nil {
		return
	}
	w.ended.cause = cause
	w.stopped = nil
	w.hard = time.After(w.grace + hardExtra)
	_ = w.held.cmd.Process.Signal(syscall.SIGCONT) // an agent may have stopped its gate
	_ = w.held.send(command{Stop: true})           // a gate that is gone shows at once, one that hangs at hard
}

// finish makes sure that nothing is left, and reads what is still unread. It
// waits for that without a limit, because nobody may start the task again before.
func (w *watch) finish(ctx context.Context, runDir string) {
	w.held.release()
	ctx = context.WithoutCancel(ctx)
	if w.ended.lost {
		for w.held.record.end(ctx, runDir) != nil {
			time.Sleep(time.Second)
		}
	}
	for rep := range w.held.reports { // what a slow gate has said after all
		w.onReport(rep)
	}
	w.ended.lost = !w.done
	w.held.wait()
	w.ended.held = !awaitFree(ctx, runDir, 2*time.Second)
	for before := int64(-1); before != w.tail.off; {
		before = w.tail.off
		w.look()
	}
	w.ended.stderr = w.tail.stderrEnd()
	if short := w.tail.gateShort(); w.ended.lost && !w.ended.started && short != 0 {
		w.ended.end = endReport{Exit: -1, Err: short.Error(), Shortage: short}
	}
	w.ended.cut = w.tail.gone > 0
	if w.short && w.tail.size() > mostOutput && !w.ended.held { // one outside the run may go on writing
		w.ended.cut = shorten(runDir) == nil || w.ended.cut
	}
}

// gateShort returns what Go's runtime lacked in a gate that it has ended, which has written
// nothing else; 0 if it does not say so.
func (t *tail) gateShort() syscall.Errno {
	p := make([]byte, firstRead)
	n, _ := t.stderr.ReadAt(p, t.beginErr) // what could be read
	switch text := string(p[:n]); {
	case strings.Contains(text, "pthread_create failed"), strings.Contains(text, "failed to create new OS thread"):
		return syscall.EAGAIN
	case strings.Contains(text, "out of memory"), strings.Contains(text, "cannot allocate memory"):
		return syscall.ENOMEM
	}
	return 0
}

// A tail follows the two output files of a run from where they ended when it
// began: a run's directory may have served before.
type tail struct {
	stdout, stderr *os.File
	off            int64 // of stdout, read so far
	begin          int64
	beginErr       int64
	offErr         int64 // of stderr, read so far
	buf            []byte
	gone           int64 // bytes that the run itself has removed: off and gone are the place in its output
}

// openTail opens the files, which it makes if need be.
func openTail(dir string) (*tail, error) {
	t := &tail{buf: make([]byte, firstRead)}
	var err error
	if t.stdout, t.begin, err = openAtEnd(filepath.Join(dir, stdoutName)); err != nil {
		return nil, err
	}
	if t.stderr, t.beginErr, err = openAtEnd(filepath.Join(dir, stderrName)); err != nil {
		return nil, errors.Join(err, t.stdout.Close())
	}
	t.off, t.offErr = t.begin, t.beginErr
	return t, nil
}

func openAtEnd(name string) (*os.File, int64, error) {
	f, err := durable.Open(name, os.O_RDWR|os.O_CREATE, durable.FileMode)
	if err != nil {
		return nil, 0, err
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, fi.Size(), nil
}

func (t *tail) close() {
	_ = t.stdout.Close() // what was written to it is no loss
	_ = t.stderr.Close()
}

// read returns the next bytes of stdout, none when there are no more.
func (t *tail) read() []byte {
	if size := t.size(); size < t.off { // the run itself has cut it off, as "echo x > /dev/stderr" does
		t.gone, t.off = t.gone+t.off, 0
	}
	n, err := t.stdout.ReadAt(t.buf, t.off)
	if err != nil && err != io.EOF {
		return nil // the file is ours and open: looked at again with the next tick
	}
	t.off += int64(n)
	p := t.buf[:n]
	if n == firstRead && len(t.buf) == n { // most agents never say so much at once
		t.buf = make([]byte, readSize)
	}
	return p
}

// readErr returns what is new on stderr.
func (t *tail) readErr() []byte {
	fi, err := t.stderr.Stat()
	if err != nil || fi.Size() == t.offErr {
		return nil
	}
	size := fi.Size()
	if size < t.offErr { // it was emptied
		t.offErr = 0
	}
	from := max(t.offErr, size-stderrTail)
	p := make([]byte, size-from)
	n, err := t.stderr.ReadAt(p, from)
	if err != nil && err != io.EOF {
		return nil
	}
	t.offErr = from + int64(n)
	return p[:n]
}

// size returns that of stdout's file.
func (t *tail) size() int64 {
	fi, err := t.stdout.Stat()
	if err != nil {
		return t.off
	}
	return fi.Size()
}

// shorten keeps of an output that is longer than mostOutput the last bytes alone, below a
// line that says so. Nobody writes to it any more; who reads it goes on with the old file.
func shorten(runDir string) error {
	f, err := rundir.OpenOutput(runDir, stdoutName)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	fi, err := f.Stat()
	if err != nil || fi.Size() <= mostOutput {
		return err
	}
	from := fi.Size() - keptOutput
	kept, err := io.ReadAll(io.NewSectionReader(f, from, keptOutput))
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, "[the first %d bytes of this output were not kept]\n", from)
	return durable.ReplaceFile(durable.OS, f.Name(), append(text, kept...))
}

// total returns the bytes written by this run so far.
func (t *tail) total() int64 {
	n := t.off - t.begin + t.gone
	if fi, err := t.stderr.Stat(); err == nil {
		n += fi.Size() - t.beginErr
	}
	return n
}

// stderrEnd returns the last bytes that this run wrote to stderr.
func (t *tail) stderrEnd() []byte {
	fi, err := t.stderr.Stat()
	if err != nil {
		return nil
	}
	from := max(t.beginErr, fi.Size()-stderrTail)
	if fi.Size() <= from {
		return nil // cut by someone
	}
	p := make([]byte, fi.Size()-from)
	n, err := t.stderr.ReadAt(p, from)
	if err != nil && err != io.EOF {
		return nil
	}
	return p[:n]
}
