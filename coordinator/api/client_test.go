package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/coordinator/api/client"
	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

func TestPromptArrivesAsItWasSent(t *testing.T) {
	s := serve(t, newFake(t), Options{})
	for name, prompt := range map[string]string{
		"records":  "## Task x\n- status: done\n<!-- end 3 -->\r\n\n```",
		"markup":   "<a href=\"x\">&amp;\u2028\u2029\u0085\ufeff",
		"control":  strings.Repeat("\x00\x1b\x7f\x01", 1<<18),
		"blanks":   "  \n\t x \n\n",
		"quotes":   `\u0000 "quoted" \\ {"prompt":"x"}`,
		"unicode":  strings.Repeat("日本語😀", 1000),
		"option":   "--help",
		"replaced": "\ufffd",
	} {
		v, err := s.client.Submit(t.Context(), task.TaskSpec{Prompt: prompt})
		if err == nil {
			v, err = s.client.Task(t.Context(), v.ID)
		}
		if err != nil || v.Prompt != prompt {
			t.Errorf("%s: %v, %q", name, err, wire.Clip(v.Prompt))
		}
	}
	for name, spec := range map[string]task.TaskSpec{
		"prompt":     {Prompt: "a\xffb"},
		"workspace":  {Prompt: "x", Workspace: "/caf\xe9"},
		"sessionKey": {Prompt: "x", SessionKey: "\xed\xa0\x80"},
	} {
		_, err := s.client.Submit(t.Context(), spec)
		if !errors.Is(err, &task.Error{Code: task.CodeInvalid}) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := s.client.Submit(t.Context(), task.TaskSpec{Prompt: strings.Repeat("\x00", wire.MaxBody/6+1)})
	if !errors.Is(err, &task.Error{Code: task.CodeInvalid}) {
		t.Errorf("too large: %v", err)
	}
}

func TestOddReferences(t *testing.T) {
	m := newFake(t)
	s := serve(t, m, Options{})
	for _, id := range []string{"a/b", "a b", "%2F", "ü", "x?y#z", "...", "wait"} {
		m.add(state.Task{ID: id, Status: state.Done})
		if v, err := s.client.Task(t.Context(), id); err != nil || v.ID != id {
			t.Errorf("%q: %q %v", id, v.ID, err)
		}
		if v, err := s.client.Wait(t.Context(), id); err != nil || v.ID != id {
			t.Errorf("wait %q: %q %v", id, v.ID, err)
		}
	}
	if v, err := client.Fetch[wire.SessionView](t.Context(), s.client, "GET", "/v1/sessions/dir:%2Fhome%2Fana%2Fshop", nil); err != nil || v.ID != "s2" || len(v.Transcript) != 1 {
		t.Errorf("session: %+v %v", v, err)
	}
	for ref, code := range map[string]task.Code{"": task.CodeInvalid, ".": task.CodeNotFound, "..": task.CodeNotFound} {
		if _, err := s.client.Task(t.Context(), ref); !errors.Is(err, &task.Error{Code: code}) {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

func TestNoMaster(t *testing.T) {
	dir := t.TempDir()
	file, left := filepath.Join(dir, "file"), filepath.Join(dir, "left")
	must(t, os.WriteFile(file, nil, 0o600))
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	must(t, err)
	ln.SetUnlinkOnClose(false)
	must(t, ln.Close())
	for _, socket := range []string{filepath.Join(dir, "none"), filepath.Join(dir, "none", "s"), filepath.Join(file, "s"), file, left} {
		if _, err := client.Dial(socket).Health(t.Context()); !errors.Is(err, client.ErrNoMaster) || !strings.Contains(err.Error(), socket) {
			t.Errorf("%s: %v", socket, err)
		}
	}
}

// TestMasterThatDies accepts a connection, reads a little and hangs up, as one
// that is killed does.
func TestMasterThatDies(t *testing.T) {
	ln, err := guard.Listen(filepath.Join(t.TempDir(), "d", "s"))
	must(t, err)
	done := make(chan error, 1)
	go func() {
		for range 2 {
			c, err := ln.Accept()
			if err != nil {
				done <- err
				return
			}
			_, err = c.Read(make([]byte, 10))
			if err := errors.Join(err, c.Close()); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	c := client.Dial(ln.Addr().String())
	for range 2 {
		_, err = c.Wait(t.Context(), "a")
		if !errors.Is(err, &task.Error{Code: task.CodeStopped}) || errors.Is(err, client.ErrNoMaster) {
			t.Errorf("%v", err)
		}
	}
	if err := errors.Join(<-done, ln.Close()); err != nil {
		t.Error(err)
	}
}

func TestClientGivesTheContextsCause(t *testing.T) {
	m := newFake(t)
	m.add(state.Task{ID: "a", Status: state.Queued})
	s := serve(t, m, Options{})
	enough := errors.New("enough")
	for name, call := range map[string]func(context.Context) error{
		"wait": func(ctx context.Context) error { _, err := s.client.Wait(ctx, "a"); return err },
		"logs": func(ctx context.Context) error { return s.client.Logs(ctx, "a", "", "stdout", true, failingWriter{}) },
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- call(ctx) }()
		eventually(t, name+" is under way", func() bool { return m.subscribers() == 1 })
		cancel(enough)
		if err := <-done; !errors.Is(err, enough) {
			t.Errorf("%s: %v", name, err)
		}
		eventually(t, name+" is over in the server", func() bool { return m.subscribers() == 0 })
	}
}

// TestClientOutlivesItsMaster goes on with the master's successor, though the
// connection that it kept is dead.
func TestClientOutlivesItsMaster(t *testing.T) {
	m := newFake(t)
	s := serve(t, m, Options{})
	if _, err := s.client.Health(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, s.stop())
	if _, err := s.client.Health(t.Context()); !errors.Is(err, client.ErrNoMaster) {
		t.Errorf("between the two: %v", err)
	}
	serveAt(t, m, Options{}, s.socket)
	if _, err := s.client.Submit(t.Context(), task.TaskSpec{Prompt: "x"}); err != nil {
		t.Errorf("with the successor: %v", err)
	}
}

// TestActOnScheduleSendsItsInstant, by which the master knows a request that is made again.
func TestActOnScheduleSendsItsInstant(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 12, 45, 123_000_000, time.UTC)
	got, err := client.Fetch[task.Schedule](t.Context(), serve(t, newFake(t), Options{}).client, http.MethodPost, "/v1/schedules/nightly/run", wire.MomentBody{At: at})
	if err != nil || len(got.Open) != 1 || !got.Open[0].Equal(at) {
		t.Errorf("%+v, %v", got, err)
	}
}
