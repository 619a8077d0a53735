package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger/journal"
	"stint/session"
	"stint/state"
	"stint/state/fold"
)

// A Master is what the server needs of a coordinator. Its methods may be called
// from any goroutine. An error that a client should be able to act on is, or
// wraps, a [*task.Error].
type Master interface {
	// Submit makes a task durable. A spec whose id or idempotency key is known
	// gives the task of old.
	Submit(ctx context.Context, spec task.TaskSpec) (state.Task, error)
	// SubmitAll makes tasks durable in one batch: all of them, or none if one is wrong.
	SubmitAll(ctx context.Context, specs []task.TaskSpec) ([]state.Task, error)
	// SubmitOnce is SubmitAll for a list with an idempotency key as a whole.
	SubmitOnce(ctx context.Context, key string, specs []task.TaskSpec) ([]state.Task, error)
	// Preview returns what would be taken in and run for specs, and keeps nothing.
	Preview(ctx context.Context, specs []task.TaskSpec, isList bool) ([]task.TaskPreview, error)
	// Task returns a whole task, with prompt and result.
	Task(ctx context.Context, ref string) (state.Task, error)
	// List returns tasks without their texts, newest first.
	List(f state.Filter) []state.Task
	// Rows is List for who writes the tasks down: see [fold.State.Rows]. encode must
	// not call the master.
	Rows(f state.Filter, encode func(*state.Task) ([]byte, error)) ([]fold.Row, error)
	// Cancel ends a task; by says who asked for it.
	Cancel(ctx context.Context, ref, by string) (state.Task, error)
	// Retry queues an ended task again; by says who asked for it.
	Retry(ctx context.Context, ref, by string) (state.Task, error)
	// Verify runs the verify command of a task by itself; by says who asked for it.
	Verify(ctx context.Context, ref, by string) (task.CheckResult, error)
	// Hold lets a queued task wait until it is released.
	Hold(ctx context.Context, ref, by string) (state.Task, error)
	// Release lets a held task run.
	Release(ctx context.Context, ref, by string) (state.Task, error)
	// Edit changes fields of a task that waits; by says who asked for it.
	Edit(ctx context.Context, ref string, p task.Patch, by string) (state.Task, error)
	// Move changes a queued task's place in its lane.
	Move(ctx context.Context, ref string, to task.Place, by string) (state.Task, error)
	// Pause makes the master start no more tasks, durably; those at work go on.
	Pause(ctx context.Context, reason, by string) error
	// Resume makes the master start tasks again.
	Resume(ctx context.Context, by string) error
	// Paused reports whether dispatch is stopped, and why.
	Paused() (paused bool, reason string)
	// Shortage tells of what the machine lacks while tasks wait for it; nil if nothing.
	Shortage() *task.Shortage
	// Queue returns the tasks that wait in a lane, in the order in which they will run.
	Queue(key string) []state.Task
	// Why says in one sentence why a task is not running, or how it ended.
	Why(ref string) (string, error)
	// BeginWait notes that a run waits for a task, until done is called, or says why it
	// may not.
	BeginWait(run, ref string) (done func(), err error)
	// Wait returns when the task has ended, or ctx has.
	Wait(ctx context.Context, ref string) (state.Task, error)
	// Raw returns the ledger's sections of a task.
	Raw(ctx context.Context, ref string) ([]byte, error)
	// SentPrompt returns what the agent was sent in a run of a task: by the run's id, a
	// unique piece of it, or its number; "" is the last one.
	SentPrompt(ctx context.Context, ref, run string) (task.SentPrompt, error)
	// LastOutput says when the agent of a running task last wrote anything, or when
	// its run began if it has not yet; zero if the task does not run.
	LastOutput(id string) time.Time
	// Settling reports whether the run of a running task has ended, and its result waits
	// until a save of tasks.md is settled.
	Settling(id string) bool
	// RunDir returns the directory of a run, which need not exist.
	RunDir(runID string) string
	// Runs returns all runs of a task, the oldest first.
	Runs(ctx context.Context, ref string) ([]task.TaskRun, error)
	// Files returns the files of a task: those that were collected after its last run, or
	// with run what lies in the directory of that one.
	Files(ctx context.Context, ref, run string) (task.TaskFiles, error)
	// OpenFile returns what is in a file of a task.
	OpenFile(ctx context.Context, ref, run, name string) (task.Content, error)
	// Accounts returns the accounts that are known, in the order of their names.
	Accounts() []state.AccountUse
	// Usage adds up what runs have used.
	Usage(ctx context.Context, q task.UsageQuery) ([]task.UsageRow, error)
	// SearchMemory searches the notes of a workspace as for a task.
	SearchMemory(ctx context.Context, q task.MemoryQuery) (task.MemoryResult, error)
	// Subscribe returns every change from now on, in order. The channel is closed
	// when more than buffer of them wait, and by cancel.
	Subscribe(buffer int) (changes <-chan *task.Change, cancel func())
	// SubscribeAfter is Subscribe, and gives what was missed since a record; without
	// changes where there is more of it.
	SubscribeAfter(after uint64, buffer int) (missed []*task.Change, changes <-chan *task.Change, cancel func())
	// Seq returns the number of the newest record.
	Seq() uint64
	Health() task.Health
	// Unready returns why no task is taken in just now; nil if tasks are.
	Unready() error
	Metrics() task.Metrics
	Sessions() []state.Session
	// Session returns a session by its key or id, and its transcript.
	Session(ref string) (state.Session, []session.Message, error)
	// SessionPage is Session with some of the last messages alone, or of those before a place.
	SessionPage(ref string, before int64, n int) (state.Session, session.Page, error)
	// Dump writes the whole state as text, the same for the same state.
	Dump(w io.Writer) error
	// Findings returns what is wrong in the ledger.
	Findings() []task.Finding
	// Reconcile takes over tasks.md now; with accept also what is held as the work
	// of a formatter.
	Reconcile(ctx context.Context, accept bool) (task.TakeOver, error)
	// Compact merges records and moves tasks that ended more than olderThan ago to
	// the archive; with dryRun it only says what it would do.
	Compact(ctx context.Context, olderThan time.Duration, dryRun bool) (journal.CompactReport, error)
	// Handover makes the master dispatch nothing more and end after its runs.
	Handover(ctx context.Context) error
}

// Bounds of the server. They keep a broken client from holding on to it.
const (
	maxHeader     = 32 << 10
	headerTimeout = 5 * time.Second
	bodyTimeout   = 30 * time.Second
	idleTimeout   = time.Minute
)

// errStopping is why long requests end when the server does.
var errStopping = &task.Error{
	Code:    task.CodeStopped,
	Message: "the master is shutting down",
	Hint:    "the tasks are kept; start it again with: stint serve",
}

// Options are what a [Server] can be told. The zero value is good for a master.
type Options struct {
	Version      string           // of the program, for the API's description
	Log          *slog.Logger     // nil: nothing is logged
	Now          func() time.Time // nil: time.Now. To be the clock of the master's createdAt
	NewID        func() string    // ids of tasks whose client chose none; nil: UUIDv7
	Poll         time.Duration    // between two looks at a log that is followed; 0: 100 ms
	Grace        time.Duration    // that short requests have left when the server is stopped; 0: 2 s
	EventBuffer  int              // changes that a reader of events may lag behind; 0: 1024
	WriteTimeout time.Duration    // that a reader of events may take for 16 KB of them; 0: 10 s
	Heartbeat    time.Duration    // of silence in events until readers are shown that they are connected; 0: 15 s

	Config string // digest of the master's configuration file, for [Notice]; "": it does not say

	Token *guard.Token // that requests over TCP must have; nil: there is no listener on TCP

	Agents []string // names that the page offers for a new task

	// RunOf notes which process has pid now, and gives a function that looks for the run
	// that it is part of, "" if none. An error says that nobody can tell. nil: requests say
	// it themselves.
	RunOf func(pid int) func() (run string, err error)
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	o.Poll = orElse(o.Poll, 100*time.Millisecond)
	o.Grace = orElse(o.Grace, 2*time.Second)
	o.EventBuffer = orElse(o.EventBuffer, 1024)
	o.WriteTimeout = orElse(o.WriteTimeout, 10*time.Second)
	o.Heartbeat = orElse(o.Heartbeat, 15*time.Second)
	return o
}

func orElse[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// A Server answers requests with what a [Master] says. It is an [http.Handler]
// and safe for concurrent use.
type Server struct {
	master  Master
	opts    Options
	mux     *http.ServeMux
	openAPI []byte
	guard   atomic.Pointer[guard.Guard] // of the listener on TCP; nil: there is none now

	short    atomic.Int64 // when the machine last lacked something, in Unix nanoseconds
	usages   turnstile    // for what reads the whole ledger
	searches turnstile    // for searches of notes
}

// NewServer returns a server for m. It starts nothing: see [Server.Serve].
func NewServer(m Master, opts Options) *Server {
	s := &Server{
		master: m, opts: opts.withDefaults(), mux: http.NewServeMux(),
		usages: make(turnstile, 1), searches: make(turnstile, maxSearches),
	}
	s.routes()
	return s
}

// Serve answers the connections of ln until ctx ends, and returns nil then. By
// then ln is closed and nothing of the server runs any more: long requests are
// ended at once, short ones are given the grace time. Any other error is ln's.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	return s.serve(ctx, []net.Listener{ln}, func(*http.Server) {})
}

// serve is Serve for several listeners, with a server that set has changed.
func (s *Server) serve(ctx context.Context, lns []net.Listener, set func(*http.Server)) error {
	base, end := context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), stopKey{}, ctx))
	defer end(nil)
	var conns sync.WaitGroup
	srv := s.httpServer(base, &conns)
	set(srv)
	served := make(chan error, len(lns))
	for _, ln := range lns {
		go func() {
			served <- srv.Serve(&spareListener{Listener: ln, note: s.noteShortage})
		}()
	}

	var err error
	left := len(lns)
	select {
	case err = <-served:
		left--
		err = fmt.Errorf("api: accept: %w", err)
	case <-ctx.Done():
		grace, cancel := context.WithTimeout(base, s.opts.Grace)
		_ = srv.Shutdown(grace) // what has not ended by itself is closed below
		cancel()
	}
	end(errStopping)
	_ = srv.Close() // the listeners and what is left of the connections; nobody can do more about it
	for range left {
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	conns.Wait()
	return err
}

// httpServer builds the server; conns counts the goroutines of its connections.
func (s *Server) httpServer(base context.Context, conns *sync.WaitGroup) *http.Server {
	return &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       s.withPeer,
		ConnState: func(_ net.Conn, cs http.ConnState) {
			switch cs {
			case http.StateNew:
				conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				conns.Done()
			}
		},
	}
}

// stopKey is the key under which a request's context carries the context of Serve.
type stopKey struct{}

// long returns the context of a request that may last: it ends with the request
// and, with errStopping as its cause, as soon as the server is stopped.
func long(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	release := func() bool { return true }
	if stop, ok := ctx.Value(stopKey{}).(context.Context); ok {
		release = context.AfterFunc(stop, func() { cancel(errStopping) })
	}
	return ctx, func() { release(); cancel(nil) }
}

// ended returns err, or why the long context of the call that gave it has ended.
func ended(ctx context.Context, err error) error {
	var why *task.Error
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case errors.As(context.Cause(ctx), &why):
		return why
	}
	return wire.NewProblem(http.StatusBadRequest, task.CodeInvalid, "the client did not wait for the answer", "") // it is not there to read it
}

// ServeLoopback answers the connections of lns like [Server.Serve], once each request
// has shown that it is for us (Host), from no other page (Origin), and from who has the
// token, which [Options] must have. Where the system tells whose a connection is, nothing
// is read from other users than ours and root: while no master ran, one of them may have
// listened in its place, and been told the token.
func (s *Server) ServeLoopback(ctx context.Context, lns []net.Listener) error {
	return s.Loopback(lns)(ctx)
}

// Loopback returns out sign-in codes for lns from now on, until the function that it returns
// has ended, which is ServeLoopback.
func (s *Server) Loopback(lns []net.Listener) (serve func(context.Context) error) {
	g := s.newGuard(lns)
	s.guard.Store(g)
	return func(ctx context.Context) error {
		defer s.guard.Store(nil)
		return s.serve(ctx, g.Listen(lns), g.Protect)
	}
}

// newGuard returns the guard for the port of lns.
func (s *Server) newGuard(lns []net.Listener) *guard.Guard {
	return guard.New(lns, guard.Options{Token: s.opts.Token, Now: s.opts.Now, Log: s.opts.Log, IsPublic: s.isPublic, IsLong: s.isLong, Handler: s})
}
