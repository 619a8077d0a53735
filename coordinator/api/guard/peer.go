package guard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"stint/coordinator/api/wire"
)

type (
	peerKey struct{} // under which a connection's context has the peer
	runKey  struct{} // under which a request's context has the run that it comes from
)

// A peer is who has made a connection. It is looked for once, which takes longer than a submit: a
// process is part of the run that it was started in until it ends.
type peer struct {
	find func() (run string, err error) // looks for the run that it is part of; "" if none

	mu   sync.Mutex // guards what follows
	seen bool       // run is known
	run  string
}

// Peers returns a function for [http.Server].ConnContext that notes who has made a connection: on the socket at once, for the
// process may end and its pid be another's before it asks for anything. If that happens before Accept, the other one is taken for
// the caller: the kernel tells the pid of who connected. SO_PEERPIDFD would tell the process itself, from Linux 6.5 on. find notes
// which process has a pid now, and returns a function that looks for the run that it is part of; nil: requests say it themselves.
func Peers(find func(pid int) func() (run string, err error)) func(context.Context, net.Conn) context.Context {
	return func(ctx context.Context, c net.Conn) context.Context {
		if c, ok := c.(*net.UnixConn); ok && find != nil {
			if _, pid, err := peerOf(c); err == nil && pid > 0 {
				return context.WithValue(ctx, peerKey{}, &peer{find: find(pid)})
			}
		}
		return ctx
	}
}

// peerOf returns user and process that made the connection, as the kernel recorded them at connect; pid is 0 if it cannot be told.
func peerOf(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	cerr := raw.Control(func(fd uintptr) { uid, pid, err = credOf(int(fd)) })
	return uid, pid, errors.Join(cerr, err)
}

// RunOf returns the run that a request comes from: the one that its process was started in, whatever it says,
// else the one that it names; "" if none. Over TCP there is none: the token decides there.
func RunOf(r *http.Request) (string, error) {
	if OverTCP(r.Context()) {
		return "", nil
	}
	if p, ok := r.Context().Value(peerKey{}).(*peer); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.seen {
			run, err := p.find()
			if err != nil {
				return "", err
			}
			p.run, p.seen = run, true
		}
		if p.run != "" {
			return p.run, nil
		}
	}
	return r.Header.Get(wire.RunHeader), nil
}

// WithRun returns the context of a request that comes from a run.
func WithRun(ctx context.Context, run string) context.Context {
	return context.WithValue(ctx, runKey{}, run)
}

// Run returns the run that a request comes from which was admitted, or waits; "" if none.
func Run(ctx context.Context) string {
	run, _ := ctx.Value(runKey{}).(string)
	return run
}
