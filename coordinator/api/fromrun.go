package api

import (
	"context"
	"net"
	"net/http"
	"path"
	"slices"

	"stint/coordinator"
	"stint/state"
)

// runHeader is the header with the run that a client says that it is part of.
const runHeader = "Stint-Run"

type (
	peerKey struct{} // under which a connection's context has the pid of its process
	runKey  struct{} // under which a request's context has the run that it comes from
)

// withPeer notes which process has made a connection.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if u, ok := c.(*net.UnixConn); ok {
		if pid, err := peerPID(u); err == nil {
			return context.WithValue(ctx, peerKey{}, pid)
		}
	}
	return ctx
}

// forRuns are the requests, beside those that read, which a run may make.
var forRuns = []string{"/v1/tasks", "/tasks", "/v1/tasks/batch", "/v1/tasks/preview", "/v1/tasks/*/cancel"}

// admit lets a request pass that changes something, with the run that it comes from,
// unless that run may not make it.
func (s *Server) admit(r *http.Request) (*http.Request, *problem) {
	run, err := s.runOf(r)
	if err != nil {
		return r, asProblem(&coordinator.Error{Code: coordinator.CodeForbidden, Message: "nobody can tell whether an agent asks: " + err.Error(), Hint: "try again"})
	}
	if run == "" {
		return r, nil
	}
	if !slices.ContainsFunc(forRuns, func(pattern string) bool { ok, _ := path.Match(pattern, r.URL.Path); return ok }) {
		return r, asProblem(coordinator.ErrFromRun)
	}
	return r.WithContext(context.WithValue(r.Context(), runKey{}, run)), nil
}

// withRun notes the run that a request comes from, as far as it can be told.
func (s *Server) withRun(r *http.Request) *http.Request {
	run, _ := s.runOf(r)
	return r.WithContext(context.WithValue(r.Context(), runKey{}, run))
}

// runOf gives the run that a request comes from: the one that its process was
// started in, whatever it says, else the one that it names; "" if none.
func (s *Server) runOf(r *http.Request) (string, error) {
	if pid, _ := r.Context().Value(peerKey{}).(int); pid > 0 && s.opts.RunOf != nil {
		if run, err := s.opts.RunOf(pid); run != "" || err != nil {
			return run, err
		}
	}
	return r.Header.Get(runHeader), nil
}

// fromRun gives the run that a request comes from which was admitted, or waits; "" if
// none.
func fromRun(ctx context.Context) string {
	run, _ := ctx.Value(runKey{}).(string)
	return run
}

// beginWait notes that the run which asks, if one does, waits for a task until done is
// called, or says why it would do so in vain.
func (s *Server) beginWait(ctx context.Context, ref string) (done func(), err error) {
	run := fromRun(ctx)
	if run == "" {
		return func() {}, nil
	}
	return s.master.BeginWait(run, ref)
}

// ownTask gives the id of a task that a run may cancel: its own task's agent must have
// asked for it. What ref means may be another task a moment later.
func (s *Server) ownTask(ctx context.Context, run, ref string) (id string, err error) {
	t, err := s.master.Task(ctx, ref)
	if err != nil {
		return "", err
	}
	parent, err := s.master.Task(ctx, t.TriggeredBy)
	if t.Trigger != state.ByAgent || err != nil || parent.RunID != run || parent.Status != state.Running {
		return "", coordinator.ErrFromRun
	}
	return t.ID, nil
}
