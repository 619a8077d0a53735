package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/redact"
	"stint/coordinator/task"
	"stint/ledger/durable"
)

const (
	stderrTail = 16 << 10 // bytes of stderr that are looked at after the end
	readSize   = 64 << 10
	readBurst  = 16 << 20 // bytes read in one go, so that limits are looked at between
	lastBursts = 16       // of a long output that was unread at the end, before its last burst
	hardExtra  = 10 * time.Second
)

// What a file keeps of the output of a [Spec] that is Short, and of any that was too long to be read to its end.
const (
	MostOutput = 8 << 20  // bytes; of a longer output
	KeptOutput = 64 << 10 // the last bytes
)

// Causes with which the supervisor itself stops a run.
var (
	ErrStartup = errors.New("no output within the startup limit")
	ErrIdle    = errors.New("no more output within the idle limit")
	ErrHung    = errors.New("the agent did not end after its turn was over")
)

// Defaults of a [Supervisor].
const (
	defaultGrace     = 5 * time.Second
	defaultHangGrace = 15 * time.Second
	defaultPoll      = 5 * time.Second        // for what nobody tells of, as writes to a mapped file
	oftenPoll        = 100 * time.Millisecond // where writes cannot be followed
)

// A Supervisor runs programs, each under a gate of its own. The zero value works. It may be used by several goroutines at once.
type Supervisor struct {
	// Self is the command that starts the gate; the default is the program stint-gate where it lies beside this
	// one and is of the same build, and else this one with the argument "gate".
	Self []string
	// HangGrace is how long a program may live on after it has said that its turn is over; the default is 15 s.
	HangGrace time.Duration
	// Poll is how often the output is looked at although the system tells of no write; the default is 5 s,
	// and 100 ms where the system cannot tell.
	Poll time.Duration
	// Resources are the limits of the program and all that it starts.
	Resources hold.Resources
	// Redact masks secrets in what the sinks get, and at the end of a run in its files.
	Redact *redact.Filter
	// NoCgroup leaves cgroups alone, as on a system where none can be made.
	NoCgroup bool

	write func(f *os.File, record []byte) (int, error) // writes a run's record; nil: File.Write
}

// A Spec is one program to be run.
type Spec struct {
	Turn task.Turn // its run: ids, directories, limits
	Argv []string  // argv[0] is the path of the program
	Env  []string  // all of its environment; see [hold.EnvRunID]

	Stdin  string // path of the standard input; "": the prompt
	Merged bool   // stderr goes where stdout goes
	Short  bool   // of a stdout longer than [MostOutput] only the end is kept, below a line that says so

	lease  *task.Lease    // of the context; nil: it has none
	limits hold.Resources // these two come from the supervisor
	cgroup hold.Cgroup
}

// start is what the gate is told.
func (s Spec) start() *hold.StartCommand {
	until, _ := s.lease.Until()
	return &hold.StartCommand{
		Argv: s.Argv, Env: s.Env, Dir: s.Turn.Workspace, Merged: s.Merged,
		Grace: cmp.Or(s.Turn.Limits.Grace, defaultGrace), Cgroup: s.cgroup, Limits: s.limits, Until: until,
	}
}

// A Sink takes what a program writes, from one goroutine.
type Sink interface {
	Feed(p []byte)    // the next bytes of stdout; p is reused
	Aside(p []byte)   // the next bytes of stderr, of many at once only the last ones
	Finished() bool   // reports whether the program has said that its turn is over
	Began()           // the program is at work
	Progress(n int64) // bytes of output so far, stderr included
	// Stuck is asked regularly with the time; its error ends the run with that cause. nil lets it go on.
	Stuck(now time.Time) error
}

// A Result is how a run ended.
type Result struct {
	Err     error          // the run could not be begun
	Started bool           // there was a program
	End     hold.EndReport // of the program, if not lost
	Lost    bool           // the gate was killed: nobody knows how the program ended
	Cause   error          // why we stopped it; nil if it ended by itself
	Stderr  []byte         // the last part of it
	Held    bool           // the lock is held by a process outside the run
	Cut     bool           // its file has not all of its output
	Polled  error          // why the system could not tell of its output, which was looked at from time to time
}

// Supervise runs one program and returns when nothing of it is left. It calls out from this
// goroutine alone and leaves none behind. When ctx ends, so does the program.
func (v *Supervisor) Supervise(ctx context.Context, s Spec, out Sink) Result {
	if ctx.Err() != nil {
		return Result{Cause: context.Cause(ctx)}
	}
	s.lease = task.LeaseOf(ctx)
	v.Redact.Refresh()
	stdout, err := openOutput(filepath.Join(s.Turn.RunDir, stdoutName))
	if err != nil {
		return Result{Err: err, End: hold.EndReport{Shortage: task.ShortageOf(err)}}
	}
	defer func() { _ = stdout.Close() }() // what was written to it is no loss
	stderr, err := openOutput(filepath.Join(s.Turn.RunDir, stderrName))
	if err != nil {
		return Result{Err: err, End: hold.EndReport{Shortage: task.ShortageOf(err)}}
	}
	defer func() { _ = stderr.Close() }() // likewise
	stdin, err := openInput(cmp.Or(s.Stdin, s.Turn.Prompt))
	if err != nil {
		return Result{End: hold.EndReport{Exit: -1, Err: err.Error(), Shortage: task.ShortageOf(err)}}
	}
	h, err := v.begin(s, stdin)
	_ = stdin.Close() // only read from
	if err != nil {
		return Result{Err: err, End: hold.EndReport{Shortage: cmp.Or(task.ShortageOf(err), gateShort(stderr))}}
	}
	w := &watch{
		spec: &s, hang: cmp.Or(v.HangGrace, defaultHangGrace), out: out, held: h, stdout: stdout, stderr: stderr, buf: make([]byte, readSize),
		redact: v.Redact, feed: v.Redact.Writer(sinkWriter(out.Feed)),
	}
	w.run(ctx, v.Poll)
	w.finish(ctx)
	if cause := context.Cause(ctx); w.ended.Cause != nil && errors.Is(cause, task.ErrCanceled) {
		w.ended.Cause = cause // a person's word counts, also when it came second
	}
	return w.ended
}

// A watch follows one run.
type watch struct {
	spec   *Spec
	hang   time.Duration // that it may live on after its turn is over
	out    Sink
	held   *gateProc
	stdout *output
	stderr *output
	buf    []byte // for what is read of stdout
	ended  Result
	done   bool // the gate has said that nothing is left

	redact *redact.Filter
	feed   *redact.Writer // to out

	began   time.Time
	last    time.Time // of the last byte
	over    time.Time // when the turn was over
	total   int64
	until   time.Duration    // when the gate ends the run by itself, by its clock; 0: never
	hard    <-chan time.Time // when a gate that does not end is given up
	stopped <-chan struct{}  // ctx.Done until the run is stopped
}

// run returns when the gate has reported the end or is no use any more.
func (w *watch) run(ctx context.Context, poll time.Duration) {
	written, leave, err := outputs.follow(w.stdout, w.stderr)
	defer leave()
	if w.ended.Polled = err; written == nil {
		poll = cmp.Or(poll, oftenPoll)
	}
	poll = cmp.Or(poll, defaultPoll)
	next := time.NewTimer(0)
	defer next.Stop()
	w.began, w.stopped = time.Now(), ctx.Done()
	var prolonged <-chan struct{}
	w.until, prolonged = w.spec.lease.Until()
	for !w.done {
		select {
		case rep, ok := <-w.held.reports:
			if !ok {
				w.ended.Lost = true
				return
			}
			w.onReport(rep)
			continue
		case <-w.stopped:
			w.stop(context.Cause(ctx))
			continue
		case <-prolonged:
			w.until, prolonged = w.spec.lease.Until()
			_ = w.held.send(hold.Command{Until: w.until}) // a gate that is gone shows at once
			continue
		case <-w.hard:
			w.ended.Lost = true
			return
		case <-next.C:
		case <-written:
		}
		more, limit := w.readNew(), w.checkLimits()
		if next.Reset(min(poll, limit)); more {
			next.Reset(0) // nobody tells again of what is still unread
		}
	}
}

func (w *watch) onReport(rep hold.Report) {
	if rep.Started > 0 {
		w.ended.Started = true
		w.out.Began()
	}
	if rep.End != nil {
		w.ended.End, w.done = *rep.End, true
		w.ended.End.Shortage = task.ShortageOf(rep.End.Shortage)
		if w.ended.Cause == nil && w.until > 0 && hold.Uptime() >= w.until {
			w.ended.Cause = task.ErrLease // its gate has ended it, or has not let it begin
		}
	}
}

// readNew reads what is new and notes when something was. It reports whether there may be more.
func (w *watch) readNew() (more bool) {
	for range readBurst / readSize {
		p := w.stdout.read(w.buf)
		if more = len(p) > 0; !more {
			break
		}
		_, _ = w.feed.Write(p) // a sink has no errors
	}
	if size := w.stderr.size(); size != w.stderr.off {
		w.stderr.skip(stderrTail)
		w.out.Aside(w.redact.Bytes(w.stderr.read(make([]byte, stderrTail))))
	}
	now := time.Now()
	if total := w.stdout.written() + w.stderr.written(); total > w.total {
		w.total, w.last = total, now
		w.out.Progress(total)
	}
	if !w.out.Finished() {
		w.over = time.Time{} // another turn has begun
	} else if w.over.IsZero() {
		w.over = now
	}
	return more
}

// checkLimits stops a run that is silent for too long, or that is over and does not end. It returns the time until the next limit.
func (w *watch) checkLimits() time.Duration {
	limit, since, cause := w.spec.Turn.Limits.Idle, w.last, ErrIdle
	switch {
	case !w.over.IsZero():
		limit, since, cause = w.hang, w.over, ErrHung
	case w.total == 0:
		limit, since, cause = w.spec.Turn.Limits.Startup, w.began, ErrStartup
	}
	left := limit - time.Since(since)
	if limit > 0 && left <= 0 {
		w.stop(cause)
	} else if err := w.out.Stuck(time.Now()); err != nil && w.over.IsZero() {
		w.stop(err)
	}
	if limit <= 0 || w.ended.Cause != nil { // none, or all is said
		return math.MaxInt64
	}
	return left
}

// stop asks the gate, once, to end the run.
func (w *watch) stop(cause error) {
	if w.ended.Cause != nil {
		return
	}
	w.ended.Cause = cause
	w.stopped = nil
	w.hard = time.After(w.spec.start().Grace + hardExtra)
	_ = w.held.cmd.Process.Signal(syscall.SIGCONT) // an agent may have stopped its gate
	_ = w.held.send(hold.Command{Stop: true})      // a gate that is gone shows at once, one that hangs at hard
}

// finish makes sure that nothing is left, and reads what is still unread. It
// waits for that without a limit, because nobody may start the task again before.
func (w *watch) finish(ctx context.Context) {
	w.held.release()
	ctx, runDir := context.WithoutCancel(ctx), w.spec.Turn.RunDir
	if w.ended.Lost {
		for w.held.record.end(ctx, runDir) != nil {
			time.Sleep(time.Second)
		}
	}
	for rep := range w.held.reports { // what a slow gate has said after all
		w.onReport(rep)
	}
	w.ended.Lost = !w.done
	w.held.wait()
	w.ended.Held = !awaitFree(runDir, 2*time.Second)
	for before, n := int64(-1), 0; before != w.stdout.off && n < lastBursts; n++ {
		before = w.stdout.off
		w.readNew()
	}
	tooLong := w.stdout.skip(readBurst) // a sparse file may have more than anyone can read
	if tooLong {
		w.readNew()
	}
	w.redact.Refresh() // an account may have been edited since
	_ = w.feed.Flush()
	last := make([]byte, stderrTail)
	n, _ := w.redact.ReadAt(w.stderr, last, max(w.stderr.begin, w.stderr.size()-stderrTail)) // what could be read
	w.ended.Stderr = last[:n]
	if short := gateShort(w.stderr); w.ended.Lost && !w.ended.Started && short != 0 {
		w.ended.End = hold.EndReport{Exit: -1, Err: short.Error(), Shortage: short}
	}
	w.ended.Cut = w.stdout.gone > 0 || tooLong
	if (w.spec.Short || tooLong) && w.stdout.size() > MostOutput && !w.ended.Held { // one outside the run may go on writing
		w.ended.Cut = w.stdout.shorten(w.redact) == nil || w.ended.Cut
	}
	if !w.ended.Held {
		Redact(runDir, w.redact)
	}
}

// A sinkWriter is a method of a [Sink] as a writer.
type sinkWriter func(p []byte)

func (f sinkWriter) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// maxRewritten is the size in bytes of the largest output that is rewritten: a sparse file may have more than anyone can read.
const maxRewritten = 1 << 30

// Redact rewrites the output files of a run that have secrets, of which nothing may be alive. Each
// stays as long as it was. Readers mask what could not be rewritten.
func Redact(runDir string, f *redact.Filter) {
	for _, name := range []string{stdoutName, stderrName} {
		path := filepath.Join(runDir, name)
		in, err := durable.Open(path, os.O_RDONLY, 0)
		if err != nil {
			continue
		}
		write := func(to io.Writer) (found bool, err error) {
			w := f.Writer(to)
			_, err = io.Copy(w, io.NewSectionReader(in, 0, maxRewritten))
			return w.Found, errors.Join(err, w.Flush())
		}
		if fi, err := in.Stat(); err == nil && fi.Size() <= maxRewritten {
			if found, _ := write(io.Discard); found {
				_ = durable.RewriteFile(path, func(to io.Writer) error { _, err := write(to); return err })
			}
		}
		_ = in.Close() // only read from
	}
}

// gateShort returns what Go's runtime lacked in a gate that it has ended, which has written nothing else; 0 if it does not say so.
func gateShort(stderr *output) syscall.Errno {
	p := make([]byte, 4<<10)
	n, _ := stderr.ReadAt(p, stderr.begin) // what could be read
	switch text := string(p[:n]); {
	case strings.Contains(text, "pthread_create failed"), strings.Contains(text, "failed to create new OS thread"):
		return syscall.EAGAIN
	case strings.Contains(text, "netpollinit failed"):
		return syscall.EMFILE
	case strings.Contains(text, "out of memory"), strings.Contains(text, "cannot allocate memory"):
		return syscall.ENOMEM
	}
	return 0
}

// An output is a file that a run appends to. It is followed from where it ended when the run
// began: a run's directory may have served before.
type output struct {
	*os.File
	begin int64 // its size before the run
	off   int64 // read so far
	gone  int64 // bytes that the run itself has removed: off and gone are the place in its output
}

// openInput opens what a program reads, which is ours or nothing.
func openInput(name string) (*os.File, error) {
	if name == os.DevNull {
		return os.Open(name)
	}
	return durable.Open(name, os.O_RDONLY, 0)
}

func openOutput(name string) (*output, error) {
	f, err := durable.Open(name, os.O_RDONLY|os.O_CREATE, durable.FileMode)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &output{File: f, begin: fi.Size(), off: fi.Size()}, nil
}

func (o *output) size() int64 {
	fi, err := o.Stat()
	if err != nil {
		return o.off
	}
	return fi.Size()
}

func (o *output) written() int64 { return o.size() + o.gone - o.begin }

func (o *output) read(p []byte) []byte {
	if o.size() < o.off { // the run itself has cut it off, as "echo x > /dev/stderr" does
		o.gone, o.off = o.gone+o.off, 0
	}
	n, _ := o.ReadAt(p, o.off) // the file is ours and open: it is looked at again with the next tick
	o.off += int64(n)
	return p[:n]
}

// skip passes over what is unread, but for the last n bytes. It reports whether that was anything.
func (o *output) skip(n int64) bool {
	last := o.size() - n
	if last <= o.off {
		return false
	}
	o.off = last
	return true
}

// shorten keeps the last bytes of a long output alone, below a line that says so. Nobody
// writes to it any more; who reads it goes on with the old file.
func (o *output) shorten(f *redact.Filter) error {
	from, kept := o.size()-KeptOutput, make([]byte, KeptOutput)
	if _, err := f.ReadAt(o, kept, from); err != nil {
		return err
	}
	text := fmt.Appendf(nil, "[the first %d bytes of this output were not kept]\n", from)
	return durable.ReplaceFile(durable.OS, o.Name(), append(text, kept...))
}
