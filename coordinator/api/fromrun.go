package api

import (
	"context"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"sync"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

type (
	peerKey struct{} // under which a connection's context has the peer
	runKey  struct{} // under which a request's context has the run that it comes from
)

// A peer is who has made a connection.
type peer struct {
	find func() (run string, err error) // looks for the run that it is part of; "" if none

	mu   sync.Mutex // guards what follows
	seen bool       // run is known
	run  string
}

// withPeer notes who has made a connection: on the socket at once, for the process may end
// and its pid be another's before it asks for anything. If that happens before Accept, the
// other one is taken for the caller: the kernel tells the pid of who connected. SO_PEERPIDFD
// would tell the process itself, from Linux 6.5 on.
func (s *Server) withPeer(ctx context.Context, c net.Conn) context.Context {
	if s.opts.RunOf == nil {
		return ctx
	}
	if c, ok := c.(*net.UnixConn); ok {
		if pid, err := guard.PeerPID(c); err == nil && pid > 0 {
			return context.WithValue(ctx, peerKey{}, &peer{find: s.opts.RunOf(pid)})
		}
	}
	return ctx
}

// partOf returns the run that the peer is part of; "" if none. It looks once, which takes
// longer than a submit: a process is part of the run that it was started in until it ends.
func (p *peer) partOf() (run string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.seen {
		if p.run, err = p.find(); err != nil {
			return "", err
		}
		p.seen = true
	}
	return p.run, nil
}

// forRuns are the paths at which a run may POST; beside that it may read.
var forRuns = []string{"/v1/tasks", "/tasks", "/v1/tasks/batch", "/v1/tasks/preview", "/v1/tasks/*/cancel", "/v1/memory/search", "/v1/agents"}

// admit lets a request pass that changes something, with the run that it comes from,
// unless that run may not make it. Where nobody can tell, the connection ends: who has it
// is looked up anew only for another one.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (*http.Request, *wire.Problem) {
	run, err := s.runOf(r)
	if err != nil {
		w.Header().Set("Connection", "close")
		code := task.CodeForbidden
		if task.ShortageOf(err) != 0 {
			code = task.CodeShortage
			_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, wire.MaxBody)) // else net/http holds the connection for a while
			s.noteShortage(err)
		}
		return r, wire.ProblemOf(&task.Error{Code: code, Message: "nobody can tell whether an agent asks: " + err.Error(), Hint: "try again"})
	}
	if run == "" {
		return r, nil
	}
	if r.Method != http.MethodPost || !slices.ContainsFunc(forRuns, func(pattern string) bool { ok, _ := path.Match(pattern, r.URL.Path); return ok }) {
		return r, wire.ProblemOf(task.ErrFromRun)
	}
	return r.WithContext(context.WithValue(r.Context(), runKey{}, run)), nil
}

// runOf returns the run that a request comes from: the one that its process was
// started in, whatever it says, else the one that it names; "" if none. Over TCP there is
// none: the token decides there.
func (s *Server) runOf(r *http.Request) (string, error) {
	if guard.OverTCP(r.Context()) {
		return "", nil
	}
	if p, ok := r.Context().Value(peerKey{}).(*peer); ok {
		if run, err := p.partOf(); run != "" || err != nil {
			return run, err
		}
	}
	return r.Header.Get(wire.RunHeader), nil
}

// environment returns the environment of the user's call that a request has. One that comes
// over TCP, or from a run, has none: programs are looked for in it.
func environment(ctx context.Context, env []string) []string {
	if guard.OverTCP(ctx) || fromRun(ctx) != "" {
		return nil
	}
	return env
}

// fromRun returns the run that a request comes from which was admitted, or waits; "" if
// none.
func fromRun(ctx context.Context) string {
	run, _ := ctx.Value(runKey{}).(string)
	return run
}

// beginWait notes that the run which asks, if one does, waits for a task until done is
// called, or returns why it may not.
func (s *Server) beginWait(ctx context.Context, ref string) (done func(), err error) {
	run := fromRun(ctx)
	if run == "" {
		return func() {}, nil
	}
	return s.rooms.Tasks.BeginWait(run, ref)
}
