package postgrestest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("POSTGRESTEST_WAIT") != "" {
		startAndWait()
	}
	goleak.VerifyTestMain(m)
}

// startAndWait is a test binary that is killed while it uses a server.
func startAndWait() {
	s, err := shared()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(s.Dir, s.process.Pid)
	select {}
}

// query returns the one number that a statement returns.
func query(t *testing.T, url, statement string) (n int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(ctx) }() // it may be broken
	return n, conn.QueryRow(ctx, statement).Scan(&n)
}

// mustExec runs a statement.
func mustExec(t *testing.T, url, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Error(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// wantNumber fails if a statement does not return that number.
func wantNumber(t *testing.T, url, statement string, want int) {
	t.Helper()
	if n, err := query(t, url, statement); n != want || err != nil {
		t.Errorf("%s: %d, %v, want %d", statement, n, err, want)
	}
}

// TestNothingIsLeftBehind: a test binary that is killed leaves no process and no file.
func TestNothingIsLeftBehind(t *testing.T) {
	s := &Server{}
	if err := s.find(); errors.Is(err, errMissing) {
		s.forTest(t, err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), "POSTGRESTEST_WAIT=1"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	must(t, err)
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = cmd.Process.Kill() // before any failure
	_ = cmd.Wait()         // it was killed
	var dir string
	var pid int
	if _, scanned := fmt.Sscan(line, &dir, &pid); err != nil || scanned != nil {
		t.Fatalf("%q: %v, %v", line, err, scanned)
	}
	until(t, "the server and its files are gone", func() bool {
		_, err := os.Stat(dir)
		status, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output() // it fails if there is none
		return errors.Is(err, fs.ErrNotExist) && (len(status) == 0 || status[0] == 'Z')
	})
}

// TestDatabases: each is a new one, and is dropped with its test.
func TestDatabases(t *testing.T) {
	s := Shared(t)
	var first string
	t.Run("use", func(t *testing.T) {
		first = s.Database(t)
		second := s.Database(t)
		mustExec(t, first, "CREATE TABLE kept (n int)")
		mustExec(t, second, "CREATE TABLE kept (n int)")
	})
	var refused interface{ SQLState() string }
	if _, err := query(t, first, "SELECT 1"); !errors.As(err, &refused) || refused.SQLState() != "3D000" {
		t.Errorf("a database is still there: %v", err)
	}
}

// TestOutages: what was committed is there after a kill and a pause.
func TestOutages(t *testing.T) {
	s := Start(t, "application_name=seen")
	url := s.Database(t)
	mustExec(t, url, "CREATE TABLE kept (n int)")
	for i, outage := range []func(testing.TB){s.Kill, func(t testing.TB) { s.Signal(t, "STOP") }} {
		mustExec(t, url, "INSERT INTO kept VALUES (1)")
		outage(t)
		begun := time.Now()
		if _, err := query(t, url, "SELECT 1"); err == nil || (i < 1) == (time.Since(begun) > time.Second) {
			t.Errorf("outage %d: %v after %s", i, err, time.Since(begun))
		}
		if i < 1 {
			s.Restart(t)
		} else {
			s.Signal(t, "CONT")
		}
		wantNumber(t, url, "SELECT count(*) FROM kept", i+1)
	}
	wantNumber(t, url, "SELECT count(*) FROM pg_settings WHERE name = 'application_name' AND setting = 'seen'", 1)
	s.Signal(t, "STOP") // its end is no matter of its state
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until polls for something that must become true.
func until(t testing.TB, what string, true func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !true(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s it is not so that %s", patience, what)
		}
	}
}
