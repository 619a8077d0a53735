package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator/api"
	"stint/coordinator/api/client"
	"stint/coordinator/api/guard"
)

// TestSilentMaster: what a person reads when the master was stopped.
func TestSilentMaster(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lock"), []byte("4711\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := (&app{stateOption: dir}).silent(fmt.Errorf("%w at /run/s", client.ErrSilent))
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

// TestHTTPIsTriedAgain: where the port is taken, or cannot be accepted from any more,
// commands go on over the socket, and it is opened again as soon as that is possible. In
// fake time.
func TestHTTPIsTriedAgain(t *testing.T) {
	token, err := guard.OpenToken(filepath.Join(t.TempDir(), "token"))
	if err != nil {
		t.Fatal(err)
	}
	lns, err := guard.ListenLoopback("127.0.0.1:0")
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
		defer cancel()
		var tries []int
		var log bytes.Buffer
		last, ended, failures := time.Now(), false, 0
		answer := api.NewServer(nil, api.Options{Token: token}).Loopback(lns)
		open := func() (func(context.Context) error, error) {
			tries = append(tries, int(time.Since(last).Seconds()))
			last = time.Now()
			if len(tries) == 8 {
				return answer, nil
			}
			return nil, errors.New("taken")
		}
		m := &master{log: slog.New(slog.NewTextHandler(&log, nil)), cfg: &Config{}}
		go func() {
			m.serveHTTP(ctx, answer, open, func(error) { failures++ })
			ended = true
		}()
		time.Sleep(125 * time.Second)
		synctest.Wait()
		if want := "[1 2 4 8 16 30 30 30 1 2]"; fmt.Sprint(tries) != want || ended {
			t.Errorf("tried after %v seconds, want %s; it has ended, and the master with it: %v", tries, want, ended)
		}
		if text := log.String(); failures != 2 || strings.Count(text, "level=WARN") != 4 || strings.Count(text, "taken") != 2 || strings.Count(text, "the HTTP interface is open") != 1 {
			t.Errorf("%s", text)
		}
		cancel()
		synctest.Wait()
		if !ended {
			t.Error("it does not end with the master")
		}
	})
}

// TestNoListenerWhereThePortIsTaken: not even one for half of the addresses.
func TestNoListenerWhereThePortIsTaken(t *testing.T) {
	taken, err := guard.ListenLoopback("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, ln := range taken {
			_ = ln.Close()
		}
	}()
	m := &master{state: t.TempDir(), cfg: &Config{HTTP: taken[0].Addr().String()}}
	if lns, err := m.listenHTTP(); err == nil || lns != nil {
		t.Errorf("%v, %v", lns, err)
	}
}
