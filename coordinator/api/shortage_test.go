package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/task"
	"stint/state"
)

// TestShortageIsNoRefusal: where the machine lacks what it takes to tell who asks, the
// client is asked to wait, and does: it gets what it wants, once.
func TestShortageIsNoRefusal(t *testing.T) {
	ctx, noted := context.Background(), 0
	var log bytes.Buffer
	m := familyOf(t)
	s := serve(t, m, Options{Log: slog.New(slog.NewTextHandler(&log, nil)), RunOf: func(int) func() (string, error) {
		if noted++; noted <= 1 {
			return func() (string, error) {
				return "", fmt.Errorf("process 7: %w", &os.PathError{Op: "open", Path: "/proc/7/stat", Err: syscall.EMFILE})
			}
		}
		return func() (string, error) { return "", nil }
	}})
	if _, err := s.client.Submit(ctx, task.TaskSpec{Prompt: "x"}); err != nil || noted != 2 {
		t.Errorf("after %d connections: %v", noted, err)
	}
	if list := m.List(state.Filter{}); len(list) != 5 {
		t.Errorf("%d tasks", len(list))
	}
	if n := strings.Count(log.String(), "too many open files"); n != 1 {
		t.Errorf("log:\n%s", &log)
	}
}

// scarce is a listener whose first clients find no descriptor.
type scarce struct {
	net.Listener
	failures int
}

func (s *scarce) Accept() (net.Conn, error) {
	if s.failures--; s.failures >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	one, other := net.Pipe()
	return one, other.Close()
}

// TestSpareDescriptor: a client that calls when there is no descriptor for it gets the spare one at once.
// Where that is gone too, the next try costs nothing, and neither is told again and again.
func TestSpareDescriptor(t *testing.T) {
	for failures, wait := range map[int]time.Duration{0: 0, 1: 0, 2: acceptAgain, 20: 10 * acceptAgain} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			s := newServer(newFake(t), Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			l := &spareListener{Listener: &scarce{failures: failures}, note: s.noteShortage}
			begun := time.Now()
			c, err := l.Accept()
			if err != nil || time.Since(begun) != wait {
				t.Fatalf("%d failures: %v after %s", failures, err, time.Since(begun))
			}
			if n := strings.Count(log.String(), "\n"); n != min(failures, 1) {
				t.Errorf("%d failures: log:\n%s", failures, &log)
			}
			if failures%2 == 0 { // it has no spare one
				_ = l.spare.Close() // nothing was read from it
				return
			}
			time.Sleep(spareFor + 1)
			if err := c.SetDeadline(time.Time{}); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("the spare one is still in use: %v", err)
			}
		})
	}
	l := &spareListener{Listener: refusing{}}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) || l.spare != nil {
		t.Errorf("closed: %v, spare %v", err, l.spare)
	}
}

type refusing struct{ net.Listener }

func (refusing) Accept() (net.Conn, error) { return nil, net.ErrClosed }
