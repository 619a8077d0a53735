package api

import (
	"context"
	"errors"
	"net"
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
		"prompt":      {Prompt: "a\xffb"},
		"workspace":   {Prompt: "x", Workspace: "/caf\xe9"},
		"session key": {Prompt: "x", SessionKey: "\xed\xa0\x80"},
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

func TestClientRoundTrip(t *testing.T) {
	m := newFake(t)
	s := serve(t, m, Options{})
	c, ctx := s.client, t.Context()
	at := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	v, err := c.Submit(ctx, task.TaskSpec{Prompt: "hello", Agent: "codex", SessionKey: "web", Label: "l/1 & 2", NotBefore: at})
	if err != nil || v.ID == "" || v.Status != state.Queued || !v.NotBefore.Equal(at) || v.Agent != "codex" {
		t.Fatalf("%+v %v", v, err)
	}
	if list, err := c.List(ctx, state.Filter{Status: []state.Status{state.Queued, state.Done}, Session: "web", Label: "l/1 & 2", Limit: 5}); err != nil || len(list) != 1 || list[0].ID != v.ID {
		t.Errorf("list: %+v %v", list, err)
	}
	for _, f := range []state.Filter{{Status: []state.Status{state.Dead}}, {TenantID: "ana"}, {Queue: "slow"}, {Agent: "demo"}} {
		if list, err := c.List(ctx, f); err != nil || len(list) != 0 {
			t.Errorf("%+v: %+v %v", f, list, err)
		}
	}
	if got, err := c.Task(ctx, v.ID[:13]); err != nil || got.ID != v.ID || got.Prompt != "hello" || got.Why == "" {
		t.Errorf("task: %+v %v", got, err)
	}
	if why, err := c.Why(ctx, "@last"); err != nil || why != "it is queued" {
		t.Errorf("why: %q %v", why, err)
	}
	if raw, err := c.Raw(ctx, "@last"); err != nil || string(raw) != "## Task "+v.ID+"\n" {
		t.Errorf("raw: %q %v", raw, err)
	}
	if got, err := c.Cancel(ctx, v.ID); err != nil || got.Status != state.Canceled || m.by != "client" {
		t.Errorf("cancel: %+v %v", got, err)
	}
	if got, err := c.Wait(ctx, v.ID); err != nil || got.Status != state.Canceled {
		t.Errorf("wait: %+v %v", got, err)
	}
	if got, err := c.Retry(ctx, v.ID); err != nil || got.Status != state.Queued {
		t.Errorf("retry: %+v %v", got, err)
	}
	if h, err := c.Health(ctx); err != nil || h.PID != 7 || h.Counts[state.Queued] != 1 {
		t.Errorf("health: %+v %v", h, err)
	}
	if list, err := c.Sessions(ctx); err != nil || len(list) != 2 || list[1].Key != "dir:/home/ana/shop" {
		t.Errorf("sessions: %+v %v", list, err)
	}
	if ses, err := c.Session(ctx, "dir:/home/ana/shop"); err != nil || ses.ID != "s2" || len(ses.Transcript) != 1 || ses.Tasks == nil {
		t.Errorf("session: %+v %v", ses, err)
	}
	if ses, err := c.Session(ctx, "web"); err != nil || len(ses.Tasks) != 1 {
		t.Errorf("session: %+v %v", ses, err)
	}
	if err := c.Handover(ctx); err != nil || !m.over {
		t.Errorf("handover: %v", err)
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
	for ref, code := range map[string]task.Code{"": task.CodeInvalid, ".": task.CodeNotFound, "..": task.CodeNotFound} {
		if _, err := s.client.Task(t.Context(), ref); !errors.Is(err, &task.Error{Code: code}) {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

func TestNoMaster(t *testing.T) {
	dir := t.TempDir()
	file, left := filepath.Join(dir, "file"), filepath.Join(dir, "left")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
		"logs": func(ctx context.Context) error { return s.client.Logs(ctx, "a", "stdout", true, failingWriter{}) },
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
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Health(t.Context()); !errors.Is(err, client.ErrNoMaster) {
		t.Errorf("between the two: %v", err)
	}
	serveAt(t, m, Options{}, s.socket)
	if _, err := s.client.Submit(t.Context(), task.TaskSpec{Prompt: "x"}); err != nil {
		t.Errorf("with the successor: %v", err)
	}
}
