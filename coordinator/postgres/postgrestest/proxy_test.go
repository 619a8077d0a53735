package postgrestest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// commitOne commits a row in table kept through the proxy.
func commitOne(t *testing.T, url string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // it may be broken
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO kept SELECT generate_series(1, $1)", 1); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// TestProxy: what each fault does to a client, and to what it has committed.
func TestProxy(t *testing.T) {
	s := Shared(t)
	name := s.NewDatabase(t)
	direct := s.URL(name)
	mustExec(t, direct, "CREATE TABLE kept (n int)")
	p := NewProxy(t, s)
	for _, tc := range []struct {
		name  string
		fault func()
		fails bool
		rows  int // that the commit leaves
		hangs bool
	}{
		{"nothing", func() {}, false, 1, false},
		{"bytes", func() { p.ResetAfter(700) }, true, 0, false},
		{"more bytes than come", func() { p.ResetAfter(1 << 30) }, false, 1, false},
		{"commit", p.LoseCommit, true, 0, false},
		{"answer", p.LoseAnswerOfCommit, true, 1, false},
		{"cut", p.Cut, true, 0, false},
		{"hang", p.Hang, true, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mustExec(t, direct, "TRUNCATE kept")
			tc.fault()
			begun := time.Now()
			err := commitOne(t, p.URL(name))
			if took := time.Since(begun); (err != nil) != tc.fails || (took > time.Second) != tc.hangs {
				t.Errorf("the commit: %v after %s", err, took)
			}
			p.Heal()
			wantNumber(t, direct, "SELECT count(*) FROM kept", tc.rows)
			wantNumber(t, p.URL(name), "SELECT count(*) FROM kept", tc.rows)
		})
	}
	if n := p.Faults(); n != 3 {
		t.Errorf("%d faults", n)
	}
}

// TestSwitch: who has a connection loses it, and comes to the other server.
func TestSwitch(t *testing.T) {
	s, other := Shared(t), Start(t)
	name := s.NewDatabase(t)
	other.CreateDatabase(t, name)
	mustExec(t, other.URL(name), "CREATE TABLE kept AS SELECT 7 AS n")
	p := NewProxy(t, s)
	conn, err := pgx.Connect(t.Context(), p.URL(name))
	must(t, err)
	p.SwitchTo(other)
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the connection is still there")
	}
	wantNumber(t, p.URL(name), "SELECT n FROM kept", 7)
}

// TestLose: what was open hears nothing any more; who comes later does.
func TestLose(t *testing.T) {
	s := Shared(t)
	name := s.NewDatabase(t)
	p := NewProxy(t, s)
	conn, err := pgx.Connect(t.Context(), p.URL(name))
	must(t, err)
	p.Lose()
	p.Heal()
	wantNumber(t, p.URL(name), "SELECT 7", 7)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := conn.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a connection that was lost: %v", err)
	}
}
