package postgres

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres/postgrestest"
)

// A smallDisk is a server whose files lie on a disk of 100 MB. Only root may mount one.
type smallDisk struct{ *postgrestest.Server }

func startOnSmallDisk(t testing.TB, settings ...string) smallDisk {
	t.Helper()
	s := smallDisk{postgrestest.Start(t, append([]string{"min_wal_size=2MB", "max_wal_size=8MB"}, settings...)...)}
	s.Kill(t)
	move := exec.Command("sh", "-ec", "mkdir disk; mount -t tmpfs -o mode=0755,size=100m none disk; mv data disk; ln -s disk/data data")
	move.Dir = s.Dir
	if out, err := move.CombinedOutput(); err != nil && os.Getenv("CI") != "true" {
		t.Skipf("a small disk is not to be had: %v: %s", err, out)
	} else if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.Restart(t)
	return s
}

func (s smallDisk) ballast() string { return filepath.Join(s.Dir, "disk", "ballast") }

// fill leaves no room on the disk. The server finds out when it needs some: it may
// refuse statements or end.
func (s smallDisk) fill(t testing.TB) {
	t.Helper()
	f, err := os.OpenFile(s.ballast(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(chunk)
	}
	if closed := f.Close(); !errors.Is(err, syscall.ENOSPC) || closed != nil {
		t.Fatal(err, closed)
	}
}

// empty makes room on the disk again, and starts the server if it has ended.
func (s smallDisk) empty(t testing.TB) {
	t.Helper()
	if err := os.Remove(s.ballast()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "data", "postmaster.pid")); err != nil { // which it has removed then
		s.Restart(t)
	}
}

// TestSmallDisk: a server without room refuses what needs some, and goes on with it. Its disk goes with it.
func TestSmallDisk(t *testing.T) {
	var disk string
	t.Run("full", func(t *testing.T) {
		s := startOnSmallDisk(t)
		disk = filepath.Join(s.Dir, "disk")
		url := s.URL(s.NewDatabase(t))
		exec := func(sql string) error {
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				return err
			}
			_, err = conn.Exec(t.Context(), sql)
			return errors.Join(err, conn.Close(t.Context()))
		}
		if err := exec("CREATE TABLE kept (n text)"); err != nil {
			t.Fatal(err)
		}
		s.fill(t)
		if exec("INSERT INTO kept SELECT repeat(md5(n::text), 50) FROM generate_series(1, 20000) n") == nil {
			t.Error("there was room on a full disk")
		}
		s.empty(t)
		if err := exec("INSERT INTO kept VALUES ('there is room')"); err != nil {
			t.Error(err)
		}
		s.fill(t)
	})
	if disk == "" { // it was skipped, or has failed
		return
	}
	if _, err := os.Stat(disk); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the disk is still there: %v", err)
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), disk) {
		t.Errorf("the disk is still mounted: %v", err)
	}
}
