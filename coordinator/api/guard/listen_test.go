package guard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/task"
)

// socketDir returns a directory with a short path and mode 0700.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "stint")
	must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// missing skips a test for want of something, which must not happen in CI.
func missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

// eventually waits until cond holds, for what another goroutine does.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for tick := time.Tick(2 * time.Millisecond); !cond(); {
		select {
		case <-tick:
		case <-deadline:
			t.Fatal("never: " + what)
		}
	}
}

// connected reports whether somebody listens at socket.
func connected(socket string) bool {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

func TestListenModes(t *testing.T) {
	socket := filepath.Join(socketDir(t), "new", "deep", "s.sock")
	ln, err := Listen(socket)
	must(t, err)
	for path, want := range map[string]os.FileMode{
		socket:                             os.ModeSocket | 0o600,
		filepath.Dir(socket):               os.ModeDir | 0o700,
		filepath.Dir(filepath.Dir(socket)): os.ModeDir | 0o700,
	} {
		if fi, err := os.Lstat(path); err != nil || fi.Mode() != want {
			t.Errorf("%s: %v %v, want %v", path, fi.Mode(), err, want)
		}
	}
	if err := errors.Join(ln.Close(), ln.Close()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestListenTakesTheLeftoverOfADeadMaster(t *testing.T) {
	socket := filepath.Join(socketDir(t), "s.sock")
	old, err := Listen(socket)
	must(t, err)
	now, err := Listen(socket)
	must(t, err)
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	if !connected(socket) {
		t.Error("closing the old listener removed the socket of the new one")
	}
	if err := now.Close(); err != nil {
		t.Error(err)
	}
}

// TestListenAnew: a socket that somebody has removed or replaced, or its directory, comes
// back for its user alone; and not after Close.
func TestListenAnew(t *testing.T) {
	socket := filepath.Join(socketDir(t), "stint", "s.sock")
	ln, err := Listen(socket)
	must(t, err)
	l := ln.(*listener)
	l.look = 5 * time.Millisecond
	ended := make(chan error)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				ended <- err
				return
			}
			_ = c.Close()
		}
	}()
	dir := filepath.Dir(socket)
	away := func(path string) error { return os.Rename(path, path+".away"+strconv.Itoa(rand.Int())) }
	for what, do := range map[string]func() error{
		"its directory removed":     func() error { return os.RemoveAll(dir) },
		"its directory a file":      func() error { return errors.Join(away(dir), os.WriteFile(dir, nil, 0o600)) },
		"its directory open to all": func() error { return errors.Join(away(dir), os.Mkdir(dir, 0o700), os.Chmod(dir, 0o777)) },
		"its directory a link":      func() error { return errors.Join(away(dir), os.Symlink(t.TempDir(), dir)) },
		"a FIFO":                    func() error { return errors.Join(away(socket), syscall.Mkfifo(socket, 0o600)) },
		"another's closed socket": func() error {
			closed, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket + ".closed", Net: "unix"})
			if err != nil {
				return err
			}
			closed.SetUnlinkOnClose(false)
			return errors.Join(closed.Close(), os.Rename(socket+".closed", socket))
		},
		"a directory": func() error { return errors.Join(away(socket), os.MkdirAll(socket+"/x", 0o700)) },
	} {
		l.mu.Lock() // not between the moments when its socket is made and when it is known
		err := do()
		l.mu.Unlock()
		if err != nil {
			t.Fatal(what, err)
		}
		eventually(t, "it listens again: "+what, func() bool { return connected(socket) })
	}
	eventually(t, "it is for its user alone", func() bool {
		fi, err := os.Lstat(socket)
		return err == nil && fi.Mode() == os.ModeSocket|0o600
	})
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := os.Lstat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestListenRefuses(t *testing.T) {
	dir := socketDir(t)
	open, link, file := filepath.Join(dir, "open"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	must(t, errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o750), os.Symlink(dir, link), os.WriteFile(file, nil, 0o600)))
	for path, want := range map[string]string{
		filepath.Join(open, "s"): "open to other users (mode 0750)",
		filepath.Join(link, "s"): "a link",
		file:                     "not a socket",
		filepath.Join(file, "s"): "directory",
		filepath.Join(dir, strings.Repeat("x", 108), "s"): "the system allows",
	} {
		ln, err := Listen(path)
		if err == nil {
			t.Errorf("%s: accepted; close: %v", path, ln.Close())
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if e := (*task.Error)(nil); errors.As(err, &e) && e.Hint == "" {
			t.Errorf("no hint: %v", err)
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file in the way is gone: %v", err)
	}
}

func TestMayCall(t *testing.T) {
	for _, c := range []struct {
		uid, own int
		want     bool
	}{{1000, 1000, true}, {0, 1000, true}, {1001, 1000, false}, {1000, 0, false}, {0, 0, true}} {
		if got := mayCall(c.uid, c.own); got != c.want {
			t.Errorf("mayCall(%d, %d) = %v", c.uid, c.own, got)
		}
		err := checkOwner("/tmp/s", c.uid, c.own)
		if (err == nil) != c.want || err != nil && (!errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), fmt.Sprintf("the socket /tmp/s belongs to user %d, not to you", c.uid))) {
			t.Errorf("checkOwner(%d, %d): %v", c.uid, c.own, err)
		}
	}
}

// TestStrangerIsCutOff makes the listener believe that it belongs to someone
// else, so that we are the stranger.
func TestStrangerIsCutOff(t *testing.T) {
	ln, err := Listen(filepath.Join(socketDir(t), "s.sock"))
	must(t, err)
	l := ln.(*listener)
	allow := mayCall(os.Getuid(), l.uid+1) // root may call everyone
	l.uid++
	accepted := make(chan bool)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			err = c.Close()
		}
		accepted <- err == nil
	}()
	c, err := net.Dial("unix", ln.Addr().String())
	must(t, err)
	_, err = c.Read(make([]byte, 1)) // either way it is closed
	if err := errors.Join(c.Close(), ln.Close()); err != nil {
		t.Error(err)
	}
	if got := <-accepted; got != allow || err == nil {
		t.Errorf("accepted %v, want %v; %v", got, allow, err)
	}
}

func TestAddressesOfThisMachineAlone(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:7433", "[::1]:7433", "localhost:7433", "127.0.0.1:0"} {
		if err := CheckLoopback(addr); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	for _, addr := range []string{
		"", ":7433", "7433", "0.0.0.0:7433", "[::]:7433", "[::ffff:127.0.0.1]:7433", "[::1%lo]:7433", "lo:7433", "localhost.:7433", "LOCALHOST:7433", "127.0.0.2:7433",
		"127.1:7433", "2130706433:7433", "0x7f000001:7433", "192.168.1.2:7433", "example.com:7433", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000", "127.0.0.1:-1",
		"127.0.0.1:07433", "http://127.0.0.1:7433", "127.0.0.1:7433/", "user@127.0.0.1:7433", " 127.0.0.1:7433", "unix:/tmp/s",
	} {
		var e *task.Error
		if err := CheckLoopback(addr); !errors.As(err, &e) || !strings.Contains(e.Hint, "ssh -L") {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// TestBothAddressesAreTaken: whichever is named, nobody else can answer for the other one;
// and where somebody does, the port is taken.
func TestBothAddressesAreTaken(t *testing.T) {
	lns, err := ListenLoopback("127.0.0.1:0")
	must(t, err)
	if len(lns) < 2 {
		missing(t, "there is no IPv6")
	}
	port := fmt.Sprint(lns[0].Addr().(*net.TCPAddr).Port)
	for i, other := range []string{"[::1]:", "127.0.0.1:"} {
		if err := lns[i].Close(); err != nil {
			t.Error(err)
		}
		for _, addr := range []string{"127.0.0.1:", "[::1]:", "localhost:"} {
			if _, err := ListenLoopback(addr + port); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("%s with a stranger at %s: %v", addr, other, err)
			}
		}
		if lns[i], err = net.Listen("tcp", lns[i].Addr().String()); err != nil {
			t.Fatal(err)
		}
	}
	for _, ln := range lns {
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, addr := range []string{"127.0.0.1:", "[::1]:", "localhost:"} {
		lns, err := ListenLoopback(addr + port)
		if err != nil || len(lns) != 2 {
			t.Fatalf("%s: %d, %v", addr, len(lns), err)
		}
		for _, ln := range lns {
			if err := ln.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
