package client

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/task"
)

// TestSilentMaster: a master that was stopped takes connections and answers nothing.
func TestSilentMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peers []net.Conn
		c := New("/run/s", func(context.Context, string, string) (net.Conn, error) {
			own, peer := net.Pipe()
			peers = append(peers, peer)
			return own, nil
		})
		begun := time.Now()
		_, err := c.Task(t.Context(), "x")
		if took := time.Since(begun); !errors.Is(err, ErrSilent) || took != askAfter+answerWithin {
			t.Errorf("%v after %s", err, took)
		}
		begun = time.Now()
		err = c.Logs(t.Context(), "x", "", "stdout", true, io.Discard)
		if took := time.Since(begun); !errors.Is(err, ErrSilent) || took != answerWithin {
			t.Errorf("logs that follow: %v after %s", err, took)
		}
		c.Close()
		for _, peer := range peers {
			if err := peer.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestListIsWhole: a list of tasks counts only if all of it has come. What is none will be none when it is asked for again.
func TestListIsWhole(t *testing.T) {
	for answer, whole := range map[string]bool{
		`{"tasks":[{"id":"a"},{"id":"b"}],"next":"2s"}`: true,
		`{"tasks":[{"id":"a"},{"id":"b"}`:               false,
		`{"tasks":[{"id":"a"},`:                         false,
		`{"tasks":[{"id":"a"},{"id":`:                   false,
		`{"tasks":[`:                                    false,
		`{"why":"none"}`:                                false,
		`{"tasks":[{"id":1}]}`:                          false,
		`<html>`:                                        false,
		``:                                              false,
	} {
		for _, breaksOff := range []bool{false, true} {
			srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(answer)) // the client's end is checked below
				_ = http.NewResponseController(w).Flush()
				if breaksOff {
					panic(http.ErrAbortHandler)
				}
			})}
			ln := newPipeListener()
			done := make(chan error, 1)
			go func() { done <- srv.Serve(ln) }()
			c := New("/run/s", ln.dial)
			views, err := c.SubmitAll(t.Context(), []task.TaskSpec{{}, {}})
			if (err == nil) != (whole && !breaksOff) || err == nil && len(views) != 2 {
				t.Errorf("%s (breaks off: %t): %d tasks, %v", answer, breaksOff, len(views), err)
			}
			isNone := strings.HasPrefix(answer, "<") || strings.Contains(answer, "why") || strings.Contains(answer, "1")
			if err != nil && errors.Is(err, &task.Error{Code: task.CodeStopped}) == isNone {
				t.Errorf("%s (breaks off: %t): %v", answer, breaksOff, err)
			}
			c.Close()
			if err := srv.Close(); err != nil {
				t.Error(err)
			}
			if err := <-done; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		}
	}
}

// TestBusyMaster: a master that is busy with one thing is not silent.
func TestBusyMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-time.After(time.Minute)
			_, _ = w.Write([]byte(`{"why": "at last"}`)) // the client's end is checked below
		})}
		ln := newPipeListener()
		done := make(chan error, 1)
		go func() { done <- srv.Serve(ln) }()
		c := New("/run/s", ln.dial)
		if v, err := c.Task(t.Context(), "x"); err != nil || v.Why != "at last" {
			t.Errorf("%q %v", v.Why, err)
		}
		c.Close()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// A pipeListener accepts what dial makes, until it is closed.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipeListener() pipeListener {
	return pipeListener{make(chan net.Conn), make(chan struct{})}
}

// dial may come late: a client may want a connection that nobody needs any more.
func (l pipeListener) dial(context.Context, string, string) (net.Conn, error) {
	own, peer := net.Pipe()
	select {
	case l.conns <- peer:
		return own, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l pipeListener) Close() error { close(l.closed); return nil }
func (pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "/run/s", Net: "unix"} }
