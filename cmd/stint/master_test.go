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
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan string, 1), make(chan struct{})
	m := &master{log: slog.New(slog.DiscardHandler)}
	go func() {
		defer close(ended)
		m.serveHTTP(ctx, api.NewServer(nil, api.Options{Token: token}), lns, func(addr string) { told <- addr })
	}()
	select {
	case addr := <-told:
		if addr != "" {
			t.Errorf("it is told as %q", addr)
		}
	case <-ended:
		t.Fatal("it has ended, and the master with it")
	}
	select {
	case <-ended:
		t.Error("it has ended, and the master with it")
	default:
	}
	cancel()
	<-ended
}
