package server

import (
	"context"
	"testing"
	"time"

	"stint/coordinator/postgres/postgrestest"
)

// TestCloseDoesNotWait closes pools whose server does not answer: one with a statement
// that waits, one with a statement that was given up, and one of a check that failed.
func TestCloseDoesNotWait(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	s := postgrestest.Start(t)
	text := s.URL("postgres") + "&connect_timeout=1"
	waits, _ := connected(t, text)
	gaveUp, _ := connected(t, text)
	s.Signal(t, "STOP")
	long, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := waits.Exec(long, "SELECT 1")
		ended <- err
	}()
	for waits.Stat().AcquiredConns() != 1 {
		time.Sleep(time.Millisecond)
	}
	soon(t, "closed with a statement that waits", waits.Close)
	if err := <-ended; err == nil {
		t.Error("the statement came through")
	}
	within, cancelSoon := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancelSoon()
	if _, err := gaveUp.Exec(within, "SELECT 1"); err == nil {
		t.Error("a paused server answers")
	}
	soon(t, "closed with a statement that was given up", gaveUp.Close)
	soon(t, "a look", func() {
		if _, err := Connect(t.Context(), says(text), 3); err == nil {
			t.Error("a paused server was connected to")
		}
	})
}

// soon expects that something takes less than 3 s.
func soon(t *testing.T, what string, do func()) {
	t.Helper()
	begun := time.Now()
	do()
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("%s: took %v", what, took)
	}
}
