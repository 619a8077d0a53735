package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/redact"
	"stint/coordinator/task"
)

// Bounds of the server. They keep a broken client from holding on to it.
const (
	maxHeader     = 32 << 10
	headerTimeout = 5 * time.Second
	idleTimeout   = time.Minute
)

// Options are what a [Server] can be told. The zero value is good for a master.
type Options struct {
	Version string           // of the program, for the API's description
	Log     *slog.Logger     // nil: nothing is logged
	Now     func() time.Time // nil: time.Now. To be the clock of the master's createdAt
	NewID   func() string    // ids of tasks whose client chose none; nil: UUIDv7
	Poll    time.Duration    // between two looks at a log that is followed; 0: 100 ms
	Grace   time.Duration    // that short requests have left when the server is stopped; 0: 2 s

	Config string // for [wire.Notice]

	Redact *redact.Filter // masks secrets in what the programs of runs wrote; nil: nothing is masked

	// OpenPage calls [Server.Loopback] and serves, for a page that is asked for where no port is open; nil: nobody can.
	OpenPage func() error

	Agents []string // names that the page offers for a new task
	// LookAtAgents returns what there is to know of the agents for a task that has an environment
	// of its own, or, as nil, the master's. With probe it asks their programs; ctx bounds it.
	LookAtAgents func(ctx context.Context, env []string, probe bool) []wire.AgentView
	Topics       []wire.Topic // of the manual, for the page
	// Line returns what a list for people shows of a task: the same for every look if that has ended. Table
	// writes such lines, each with its end; nil: lists are JSON alone.
	Line  func(v wire.TaskView, look wire.Look) []byte
	Table func(w io.Writer, lines []byte, look wire.Look) error

	// RunOf notes which process has pid now, and returns a function that looks for the run that it is part
	// of, "" if none. An error says that nobody can tell. nil: requests say it themselves.
	RunOf func(pid int) func() (run string, err error)
}

// A Server answers requests with what its [Rooms] return. It is an [http.Handler] and safe for concurrent use.
type Server struct {
	rooms Rooms
	opts  Options
	mux   *http.ServeMux

	operations []operation // as they were registered

	opening sync.Mutex           // held while a port is opened for the page
	port    atomic.Pointer[port] // that sign-in codes are for; nil: none is open

	short    atomic.Int64 // when the machine last lacked something, in Unix nanoseconds
	usages   turnstile    // for what reads the whole ledger
	searches turnstile    // for searches of notes
}

// NewServer returns a server for a master. It starts nothing: see [Server.Serve].
func NewServer(rooms Rooms, opts Options) *Server {
	opts.Log = cmp.Or(opts.Log, slog.New(slog.DiscardHandler))
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.NewID == nil {
		opts.NewID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	opts.Poll = cmp.Or(opts.Poll, 100*time.Millisecond)
	opts.Grace = cmp.Or(opts.Grace, 2*time.Second)
	s := &Server{
		rooms: rooms, opts: opts, mux: http.NewServeMux(),
		usages: make(turnstile, 1), searches: make(turnstile, maxSearches),
	}
	s.routes()
	return s
}

// Serve answers the connections of ln until ctx ends, and returns nil then. By then ln is closed and nothing of the server runs
// any more: long requests are ended at once, short ones are given the grace time. Any other error is ln's.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	return s.serve(ctx, []net.Listener{ln}, func(*http.Server) {})
}

// serve is Serve for several listeners, with a server that set has changed.
func (s *Server) serve(ctx context.Context, lns []net.Listener, set func(*http.Server)) error {
	base, end := context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), stopKey{}, ctx))
	defer end(nil)
	var conns sync.WaitGroup
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       guard.Peers(s.opts.RunOf),
		ConnState: func(_ net.Conn, cs http.ConnState) {
			switch cs {
			case http.StateNew:
				conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				conns.Done()
			}
		},
	}
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
	end(wire.ErrStopping)
	_ = srv.Close() // the listeners and what is left of the connections; nobody can do more about it
	for range left {
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	conns.Wait()
	return err
}

// stopKey is the key under which a request's context carries the context of Serve.
type stopKey struct{}

// long returns the context of a request that may last: it ends with the request
// and, with wire.ErrStopping as its cause, as soon as the server is stopped.
func long(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop, _ := ctx.Value(stopKey{}).(context.Context) // a test's request has none
	release := context.AfterFunc(cmp.Or(stop, context.Background()), func() { cancel(wire.ErrStopping) })
	return ctx, func() { release(); cancel(nil) }
}

// lasting returns a handler whose request may last for long: it ends with the server, and says so.
func lasting[I, T any](handler func(context.Context, *I) (T, error)) func(context.Context, *I) (T, error) {
	return func(ctx context.Context, in *I) (T, error) {
		ctx, release := long(ctx)
		defer release()
		v, err := handler(ctx, in)
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return v, err
	}
}

// Loopback issues sign-in codes for lns from now on, until the function that it returns has ended. That one answers the
// connections of lns like [Server.Serve], once each request has shown that it is for us (Host), from no other page (Origin),
// and from who has the token. Where the system tells whose a connection is, nothing is read from other users than ours and
// root: while no master ran, one of them may have listened in its place, and been told the token. It also ends, with nil, when
// nobody who was let in has asked for anything for the time unused; 0: never.
func (s *Server) Loopback(lns []net.Listener, token *guard.Token, unused time.Duration) (serve func(context.Context) error) {
	p := &port{limit: cmp.Or(unused, math.MaxInt64)}
	expired, expire := context.WithCancel(context.Background())
	p.timer = time.AfterFunc(p.limit, func() {
		if p.uses.Load() == 0 { // else the end of the last use sets the timer
			s.port.CompareAndSwap(p, nil) // no code is for it any more
			expire()
		}
	})
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.isPublic(r) {
			defer p.use()()
		}
		s.ServeHTTP(w, r)
	})
	p.guard = guard.New(lns, guard.Options{Token: token, Now: s.opts.Now, Log: s.opts.Log, IsPublic: s.isPublic, IsLong: s.isLong, Handler: answer})
	s.port.Store(p)
	return func(ctx context.Context) error {
		defer s.port.CompareAndSwap(p, nil)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(expired, cancel)()
		return s.serve(ctx, p.guard.Listen(lns), p.guard.Protect)
	}
}

// A port is a listener on TCP, and how long nobody has used it.
type port struct {
	guard *guard.Guard
	limit time.Duration
	timer *time.Timer  // closes the port once nobody has used it for the limit
	uses  atomic.Int64 // requests at work
}

// use notes that the port is in use until end is called.
func (p *port) use() (end func()) {
	p.uses.Add(1)
	return func() {
		if p.uses.Add(-1) == 0 {
			p.timer.Reset(p.limit)
		}
	}
}

// shortAgain is how long nothing is lacking until that is logged anew.
const shortAgain = time.Minute

// noteShortage logs that the machine lacks something, once however often that is met.
func (s *Server) noteShortage(err error) {
	if now := time.Now().UnixNano(); now-s.short.Swap(now) > int64(shortAgain) {
		s.opts.Log.Error("clients may have to wait for what the machine lacks", "error", err)
	}
}

// A spareListener keeps a descriptor for a client that calls when there is no other, so
// that it gets an answer. Only one goroutine may accept.
type spareListener struct {
	net.Listener
	note  func(error)
	spare *os.File // nil: it is in use, or cannot be had
}

const (
	acceptAgain = 20 * time.Millisecond // how soon a connection is accepted again that could not be
	spareFor    = 2 * time.Second       // how long one may have the spare descriptor: others call too
)

// Accept returns the next connection, once there is a descriptor for it.
func (l *spareListener) Accept() (net.Conn, error) {
	for {
		if l.spare == nil {
			l.spare, _ = os.Open(os.DevNull) // else the next time
		}
		c, err := l.Listener.Accept()
		if err != nil && l.spare != nil {
			_ = l.spare.Close() // nothing was read from it
			l.spare = nil
			if task.ShortageOf(err) != 0 {
				l.note(err)
				if c, err = l.Listener.Accept(); err == nil {
					time.AfterFunc(spareFor, func() { _ = c.Close() }) // nearly always it is closed by then
				}
			}
		}
		if task.ShortageOf(err) == 0 {
			return c, err
		}
		l.note(err)
		time.Sleep(acceptAgain)
	}
}
