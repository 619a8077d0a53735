// Package postgrestest starts for tests a real PostgreSQL of their own, and has the means to let it go wrong: it
// is killed or paused. Only tests import it.
//
// A server lies in a temporary directory and listens at a Unix socket there. A small process waits for the test binary to end,
// however it does, and then kills the server and removes its files: nothing is left behind by a panic or a timeout either.
package postgrestest

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience is how long a step of a server may take on a machine with much to do.
const patience = time.Minute

// A Server is a PostgreSQL server. Its methods are for one goroutine at a time, but for URL and Database.
type Server struct {
	Dir   string   // has all files, and the socket
	bin   string   // directory of the programs
	args  []string // settings beside the usual ones
	lasts bool     // longer than a test
	log   *os.File // what its programs print

	watchdog *exec.Cmd
	alive    io.Closer // the watchdog reads it until we end
	process  *os.Process
	names    atomic.Int64
}

// newCluster makes the files of a server.
var newCluster = []string{"initdb", "-U", "postgres", "-E", "UTF8", "--locale=C", "--wal-segsize=1"}

// shared is the server of this test binary.
var shared = sync.OnceValues(func() (*Server, error) { return (&Server{lasts: true}).start(newCluster) })

// Shared returns the one server of this test binary. It ends with the binary: tests that
// kill or stop a server start one of their own.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, err := shared()
	return s.forTest(t, err)
}

// Start starts a server that ends with the test. Settings are such as "ssl=on".
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := (&Server{args: settings}).start(newCluster)
	return s.forTest(t, err)
}

// Standby starts a server that follows this one, which needs the setting max_wal_senders. It ends with the test.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	standby, err := (&Server{args: s.args}).start([]string{"pg_basebackup", "-h", s.Dir, "-R", "-c", "fast"})
	return standby.forTest(t, err)
}

// errMissing means that a server cannot be had on this machine.
var errMissing = errors.New("a test server of PostgreSQL is not to be had")

// forTest returns a server that has been started, shows its log if the test fails, and ends it
// then. Without one the test is skipped, which must not happen in CI.
func (s *Server) forTest(t testing.TB, err error) *Server {
	t.Helper()
	if errors.Is(err, errMissing) && os.Getenv("CI") != "true" {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if !s.lasts {
		t.Cleanup(s.end)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of PostgreSQL's log:\n%s", s.logTail())
		}
	})
	return s
}

// start makes files with one of the programs, and starts a server on them.
func (s *Server) start(program []string) (*Server, error) {
	if err := s.find(); err != nil {
		return nil, err
	}
	// The directory of a test would not do: the user postgres may not enter it, and its path can be too long for a socket.
	var err error
	if s.Dir, err = os.MkdirTemp("/tmp", "stint-pg"); err == nil {
		s.log, err = os.Create(filepath.Join(s.Dir, "log"))
	}
	if err == nil {
		err = s.watch()
	}
	if err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 && exec.Command("chown", "postgres", s.Dir).Run() != nil {
		err = fmt.Errorf("%w: there is no user postgres, and root must not run it", errMissing)
	}
	if err == nil {
		err = s.command(program[0], append(program[1:], "-D", filepath.Join(s.Dir, "data"), "--no-sync")...).Run()
	}
	if err == nil {
		err = s.run()
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, s.logTail())
		s.end()
		return nil, err
	}
	return s, nil
}

// find looks for the programs.
func (s *Server) find() error {
	programs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is well-formed
	if path, err := exec.LookPath("initdb"); err == nil {
		programs = append(programs, path)
	}
	if len(programs) == 0 {
		return fmt.Errorf("%w: there is no initdb in PATH or /usr/lib/postgresql", errMissing)
	}
	initdb, err := filepath.EvalSymlinks(programs[len(programs)-1]) // the other programs lie where it lies
	s.bin = filepath.Dir(initdb)
	return err
}

// watchdog waits for our end. Then it kills the postmaster and its children, which have sessions of their own, and removes the
// directory, with the disk that a test has mounted there and the segment of shared memory that a killed server leaves behind.
//
//go:embed watchdog.sh
var watchdog string

func (s *Server) watch() (err error) {
	s.watchdog = exec.Command("sh", "-c", watchdog, s.Dir)
	s.watchdog.Dir, s.watchdog.SysProcAttr = "/", &syscall.SysProcAttr{Setsid: true} // Ctrl-C is not for it
	if s.alive, err = s.watchdog.StdinPipe(); err != nil {
		return err
	}
	return s.watchdog.Start()
}

// end lets the watchdog do its work at once.
func (s *Server) end() {
	_ = s.log.Close()     // it was written by others
	_ = s.alive.Close()   // that is the sign
	_ = s.watchdog.Wait() // what it could not remove is no fault of the test
	if s.process != nil {
		_, _ = s.process.Wait() // it was killed
		s.process = nil
	}
}

// command returns one of the programs, which writes to the log.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	args = append([]string{filepath.Join(s.bin, name)}, args...)
	if os.Geteuid() == 0 {
		args = append([]string{"setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = s.Dir, []string{"LC_ALL=C", "TZ=UTC", "PATH=" + s.bin + ":/usr/bin:/bin", "PGHOST=" + s.Dir, "PGUSER=postgres"}
	cmd.Stdout, cmd.Stderr = s.log, s.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// settings are those of every server. Without fsync nothing is lost as long as the machine runs: what a killed process has
// written is in the page cache. Pages may be torn by a kill all the same, so full_page_writes stays on.
var settings = []string{
	"listen_addresses=", "fsync=off", "max_connections=100", "shared_buffers=16MB", "autovacuum=off",
	"dynamic_shared_memory_type=mmap", // in the data directory, so nothing is left in /dev/shm
	"max_wal_senders=0", "logging_collector=off", "timezone=UTC",
}

// run starts the server on its files and waits until it answers.
func (s *Server) run() error {
	args := []string{"-D", filepath.Join(s.Dir, "data"), "-k", s.Dir}
	for _, setting := range slices.Concat(settings, s.args) {
		args = append(args, "-c", setting)
	}
	cmd := s.command("postgres", args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	s.process = cmd.Process
	for deadline := time.Now().Add(patience); s.command("pg_isready", "-q").Run() != nil; time.Sleep(10 * time.Millisecond) {
		if ended, _ := syscall.Wait4(s.process.Pid, nil, syscall.WNOHANG, nil); ended != 0 || time.Now().After(deadline) {
			return errors.New("PostgreSQL does not start")
		}
	}
	return nil
}

// Kill kills all processes of the server with SIGKILL, as when memory runs out, and
// returns when they are gone. One that does not run stays as it is.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if s.process != nil {
		s.Signal(t, "KILL")
		_, _ = s.process.Wait() // it was killed
		s.process = nil
	}
}

// Restart starts the server on the files that it has. One that runs is killed before.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Kill(t)
	if err := s.run(); err != nil {
		t.Fatalf("%v\n%s", err, s.logTail())
	}
}

// signal stops the postmaster, so that it starts no more children, sends a signal to it and to those that there are,
// and waits for those that it kills; who should reap them may be slow.
//
//go:embed signal.sh
var signal string

// Signal sends a signal to all processes of the server. With STOP they stop in the middle of what they do, until CONT: connections
// stay open, and nothing answers.
func (s *Server) Signal(t testing.TB, name string) {
	t.Helper()
	if s.process == nil {
		t.Fatal("PostgreSQL does not run")
	}
	if out, err := exec.Command("sh", "-c", signal, strconv.Itoa(s.process.Pid), name).CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("SIG%s to PostgreSQL: %v\n%s", name, err, out)
	}
}

// URL returns the URL of a database.
func (s *Server) URL(database string) string {
	return "postgres://postgres@/" + url.PathEscape(database) + "?host=" + url.QueryEscape(s.Dir)
}

// Database makes an empty database, which is dropped with the test, and returns its URL.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	return s.URL(s.NewDatabase(t))
}

// NewDatabase makes an empty database, which is dropped with the test, and returns its name.
func (s *Server) NewDatabase(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test%d", s.names.Add(1))
	s.CreateDatabase(t, name)
	t.Cleanup(func() {
		if s.lasts {
			_ = s.drop(name).Run() // it goes with the server at the latest
		}
	})
	return name
}

// CreateDatabase makes an empty database of that name, a word, in place of one that is there.
func (s *Server) CreateDatabase(t testing.TB, name string) {
	t.Helper()
	if err := errors.Join(s.drop(name).Run(), s.command("createdb", name).Run()); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) drop(name string) *exec.Cmd {
	return s.command("dropdb", "--if-exists", "--force", name)
}

func (s *Server) logTail() string {
	data, _ := os.ReadFile(s.log.Name()) // it is for people
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
