package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"stint/coordinator/api"
)

// TestSilentMaster: what a person reads when the master was stopped.
func TestSilentMaster(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lock"), []byte("4711\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := (&app{stateOption: dir}).silent(fmt.Errorf("%w at /run/s", api.ErrSilent))
	if exitCode(err) != exitBusy || isPassing(err) {
		t.Errorf("code %d, passing %v", exitCode(err), isPassing(err))
	}
	var text bytes.Buffer
	printError(&text, err)
	for _, want := range []string{"process 4711", "stopped, has no more open files, or hangs: the master does not answer at /run/s", "kill -CONT 4711", "kill -9 4711"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in %q", want, text.String())
		}
	}
}

// TestHTTPThatFailsEndsNoMaster: commands go on over the socket.
func TestHTTPThatFailsEndsNoMaster(t *testing.T) {
	token, err := api.OpenToken(filepath.Join(t.TempDir(), "token"))
	if err != nil {
		t.Fatal(err)
	}
	lns, err := api.ListenLoopback("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, ln := range lns {
		if err := ln.Close(); err != nil { // so that it cannot be accepted from
			t.Error(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var told error
		ended := false
		m := &master{log: slog.New(slog.DiscardHandler)}
		go func() {
			m.serveHTTP(ctx, api.NewServer(nil, api.Options{Token: token}), lns, func(err error) { told = err })
			ended = true
		}()
		synctest.Wait()
		if told == nil || ended {
			t.Errorf("it is told as %v; it has ended, and the master with it: %v", told, ended)
		}
		cancel()
		synctest.Wait()
		if !ended {
			t.Error("it does not end with the master")
		}
	})
}

// TestNoTokenWithoutAListener: where the port is taken, the server is not told that it has
// one.
func TestNoTokenWithoutAListener(t *testing.T) {
	taken, err := api.ListenLoopback("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, ln := range taken {
			_ = ln.Close()
		}
	}()
	m := &master{state: t.TempDir(), cfg: &Config{HTTP: taken[0].Addr().String()}}
	if lns, token, err := m.listenHTTP(); err == nil || lns != nil || token != nil {
		t.Errorf("%v, %v, %v", lns, token, err)
	}
}
