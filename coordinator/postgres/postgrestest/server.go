package postgrestest

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
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
	bin   string // directory of the programs
	dir   string // has all files, and the socket
	data  string
	args  []string // settings beside the usual ones
	lasts bool     // longer than a test
	of    *Server  // that it is a standby of; nil: of none
	log   *os.File // what its programs print

	watchdog *exec.Cmd
	alive    io.Closer // the watchdog reads it until we end
	process  *os.Process
	names    atomic.Int64
}

// shared is the server of this test binary.
var shared = sync.OnceValues(func() (*Server, error) { return (&Server{lasts: true}).start(nil) })

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
	return StartOnDisk(t, nil, settings...)
}

// StartOnDisk is Start of a server whose files lie on a small disk, which mount mounts on a directory.
// It is unmounted when the server ends.
func StartOnDisk(t testing.TB, mount func(dir string) error, settings ...string) *Server {
	t.Helper()
	s, err := (&Server{args: settings}).start(mount)
	return s.forTest(t, err)
}

// Standby starts a server that follows this one, which needs the setting max_wal_senders. It ends with the test.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	standby, err := (&Server{args: s.args, of: s}).start(nil)
	return standby.forTest(t, err)
}

// ErrMissing means that a server cannot be had on this machine.
var ErrMissing = errors.New("a test server of PostgreSQL is not to be had")

// forTest returns a server that has been started, shows its log if the test fails, and ends it
// then. Without one the test is skipped, which must not happen in CI.
func (s *Server) forTest(t testing.TB, err error) *Server {
	t.Helper()
	if errors.Is(err, ErrMissing) && os.Getenv("CI") != "true" {
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

// start makes a cluster and starts its server. Its files lie on a small disk if there is one to mount.
func (s *Server) start(mount func(dir string) error) (*Server, error) {
	if err := s.find(); err != nil {
		return nil, err
	}
	// The directory of a test would not do: the user postgres may not enter it, and its path can be too long for a socket.
	var err error
	if s.dir, err = os.MkdirTemp("/tmp", "stint-pg"); err == nil {
		s.log, err = os.Create(filepath.Join(s.dir, "log"))
	}
	if err == nil {
		err = s.watch()
	}
	if err != nil {
		return nil, err
	}
	s.data = filepath.Join(s.dir, "data")
	err = giveAway(s.dir)
	if disk := filepath.Join(s.dir, "disk"); err == nil && mount != nil {
		s.data = filepath.Join(disk, "data")
		err = errors.Join(os.Mkdir(disk, 0o755), mount(disk), giveAway(disk))
	}
	args := []string{"-D", s.data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"}
	if mount != nil {
		args = append(args, "--wal-segsize=1") // small, too
	}
	program := "initdb"
	if s.of != nil {
		program, args = "pg_basebackup", []string{"-D", s.data, "-h", s.of.dir, "-R", "-c", "fast", "--no-sync"}
	}
	if err == nil {
		err = s.command(program, args...).Run()
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

// find looks for the programs, and for a user who may run them.
func (s *Server) find() error {
	programs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is well-formed
	if path, err := exec.LookPath("initdb"); err == nil {
		programs = append(programs, path)
	}
	if len(programs) == 0 {
		return fmt.Errorf("%w: there is no initdb in PATH or /usr/lib/postgresql", ErrMissing)
	}
	initdb, err := filepath.EvalSymlinks(programs[len(programs)-1]) // the other programs lie where it lies
	if err != nil {
		return err
	}
	s.bin = filepath.Dir(initdb)
	if _, err := user.Lookup("postgres"); err != nil && os.Geteuid() == 0 {
		return fmt.Errorf("%w: it does not run as root, and %w", ErrMissing, err)
	}
	return nil
}

// giveAway makes a directory the server's own.
func giveAway(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return exec.Command("chown", "postgres", dir).Run()
}

// watchdog waits for our end. Then it kills the postmaster and its children, which have sessions of their own, and removes the
// directory, with what is mounted there and the segment of shared memory that a killed server leaves behind.
const watchdog = `
read -r end
if pid=$(pgrep -o -f "postgres -D $0/"); then
	kill -STOP "$pid"
	kill -KILL $(pgrep -P "$pid") "$pid"
fi
for data in "$0/data" "$0/disk/data"; do
	segment=$(sed -n '7s/.* //p' "$data/postmaster.pid") && ipcrm -m "$segment"
done
for again in 1 2 3 4 5 6 7 8 9 10; do
	[ ! -d "$0/disk" ] || umount "$0/disk"
	rm -rf "$0" && break
	sleep 0.1
done
`

func (s *Server) watch() (err error) {
	s.watchdog = exec.Command("sh", "-c", watchdog, s.dir)
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
	cmd.Dir, cmd.Env = s.dir, []string{"LC_ALL=C", "TZ=UTC", "PATH=" + s.bin + ":/usr/bin:/bin", "PGHOST=" + s.dir, "PGUSER=postgres"}
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
	args := []string{"-D", s.data, "-k", s.dir}
	for _, setting := range slices.Concat(settings, s.args) {
		args = append(args, "-c", setting)
	}
	cmd := s.command("postgres", args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	s.process = cmd.Process
	for deadline := time.Now().Add(patience); s.command("pg_isready", "-q").Run() != nil; time.Sleep(10 * time.Millisecond) {
		if s.Ended() || time.Now().After(deadline) { // one that ends before does not answer
			return errors.New("PostgreSQL does not start")
		}
	}
	return nil
}

// Ended reports whether the postmaster has ended by itself, and lets go of it then.
func (s *Server) Ended() bool {
	if s.process == nil {
		return true
	}
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(s.process.Pid, &status, syscall.WNOHANG, nil)
	if pid == 0 && err == nil {
		return false
	}
	_ = s.process.Release() // it was waited for
	s.process = nil
	return true
}

// Dir returns the directory of the socket.
func (s *Server) Dir() string { return s.dir }

// URL returns the URL of a database.
func (s *Server) URL(database string) string {
	return "postgres://postgres@/" + url.PathEscape(database) + "?host=" + url.QueryEscape(s.dir)
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
