package durable

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// strangers are things that can stand where a file of ours should, what is said of them,
// and what errors.Is says.
var strangers = []struct {
	name, says string
	is         error
	put        func(path string) error
}{
	{"FIFO", "is a FIFO; ", syscall.ENXIO, func(p string) error { return syscall.Mkfifo(p, 0o600) }},
	{"link", "is a symbolic link", syscall.ELOOP, func(p string) error { return os.Symlink("canary", p) }},
	{"dangling link", "is a symbolic link", syscall.ELOOP, func(p string) error { return os.Symlink("nowhere", p) }},
	{"directory", "is a directory; ", syscall.EISDIR, func(p string) error { return os.Mkdir(p, 0o700) }},
	{"socket", "is not a regular file; ", syscall.ENXIO, func(p string) error {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: p})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		return l.Close()
	}},
}

// TestOpenStrangers: whatever stands there and however it is opened, the error says what
// it is, at once, and nothing behind a link is changed or made.
func TestOpenStrangers(t *testing.T) {
	for _, s := range strangers {
		for how, flag := range map[string]int{
			"read": os.O_RDONLY, "write": os.O_WRONLY, "both": os.O_RDWR, "append": os.O_WRONLY | os.O_APPEND | os.O_CREATE,
			"make": os.O_RDWR | os.O_CREATE, "empty": os.O_WRONLY | os.O_CREATE | os.O_TRUNC,
		} {
			t.Run(s.name+"/"+how, func(t *testing.T) {
				path := stranger(t, s.put)
				f, err := Open(path, flag, FileMode)
				if f != nil || !errors.Is(err, s.is) || !strings.HasPrefix(err.Error(), path+" "+s.says) || !strings.Contains(err.Error(), "move it away") {
					t.Errorf("%v, %v, want: %s", f, err, s.says)
				}
				expectCanary(t, path)
			})
		}
	}
}

// TestPutFileReplacesStrangers: what stands there is replaced and not written to; but a
// directory, which may hold files.
func TestPutFileReplacesStrangers(t *testing.T) {
	for _, s := range strangers {
		t.Run(s.name, func(t *testing.T) {
			path := stranger(t, s.put)
			err := PutFile(path, []byte("new"))
			if s.name == "directory" {
				if err == nil || !strings.Contains(err.Error(), path+" is a directory; ") {
					t.Errorf("got %v", err)
				}
			} else if err != nil || content(t, path) != "new" {
				t.Errorf("got %v", err)
			}
			if left := temps(t, filepath.Dir(path)); len(left) > 0 {
				t.Errorf("%q is left behind", left)
			}
			expectCanary(t, path)
		})
	}
}

// stranger puts something into a directory of its own, beside a canary.
func stranger(t *testing.T, put func(path string) error) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "") // the path of a socket must be short
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	writeOld(t, filepath.Join(dir, "canary"), "unchanged")
	path = filepath.Join(dir, "file")
	must(t, put(path))
	return path
}

func expectCanary(t *testing.T, path string) {
	t.Helper()
	dir := filepath.Dir(path)
	if got := content(t, filepath.Join(dir, "canary")); got != "unchanged" {
		t.Errorf("the canary has %q", got)
	}
	if _, err := os.Lstat(filepath.Join(dir, "nowhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was made behind a link: %v", err)
	}
}

// TestOpenOurs: a file of ours is opened as os.OpenFile opens it, and waits like one.
func TestOpenOurs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if _, err := Open(path, os.O_RDONLY, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("what is missing: %v", err)
	}
	writeOld(t, path, "old")
	if _, err := Open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, FileMode); !errors.Is(err, fs.ErrExist) {
		t.Errorf("what is there: %v", err)
	}
	f, err := Open(path, os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if cerr := f.Close(); cerr != nil || err != nil || flags&unix.O_NONBLOCK != 0 || content(t, path) != "" {
		t.Errorf("flags %x, %v, %v, %q", flags, err, cerr, content(t, path))
	}
	defer func(old int) { euid = old }(euid)
	euid++
	if _, err := Open(path, os.O_RDONLY, 0); err == nil || !strings.Contains(err.Error(), "not to you; make it yours with chown") {
		t.Errorf("a file of another user: %v", err)
	}
	if euid = os.Geteuid(); euid == 0 {
		return // root may read everything
	}
	must(t, os.Chmod(path, 0))
	if _, err := Open(path, os.O_RDONLY, 0); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "chmod u+rw it") {
		t.Errorf("an unreadable file: %v", err)
	}
}

func TestTryLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	var files [2]*os.File
	for i := range files {
		f, err := Open(path, os.O_RDWR|os.O_CREATE, FileMode)
		must(t, err)
		files[i] = f
	}
	for _, want := range []bool{true, false} {
		if held, err := TryLock(files[0]); held != want || err != nil {
			t.Errorf("%v, %v, want %v", held, err, want)
		}
		files[0], files[1] = files[1], files[0]
	}
	must(t, files[0].Close())
	if held, err := TryLock(files[1]); !held || err != nil {
		t.Errorf("a lock that was left: %v, %v", held, err)
	}
	_ = files[1].Close() // only locked
	if _, err := TryLock(files[1]); err == nil {
		t.Error("a closed file was locked")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
