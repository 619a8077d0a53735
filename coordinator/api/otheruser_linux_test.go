package api

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asNobody calls do as another user who has no rights, and gives what it gives. The
// thread that was made that user is thrown away.
func asNobody(t testing.TB, do func() error) (err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good
		const nobody = 65534
		for _, call := range [][2]uintptr{{syscall.SYS_SETGROUPS, 0}, {syscall.SYS_SETRESGID, nobody}, {syscall.SYS_SETRESUID, nobody}} {
			id := call[1]
			if _, _, errno := syscall.RawSyscall(call[0], id, id, id); errno != 0 {
				err = errno
				return
			}
		}
		err = do()
	}()
	<-done
	return err
}

// TestPromise11OtherUsers: another user of the machine gets neither the token nor a word
// over the socket or over TCP, where everybody may knock; not even who has got hold of the
// token, as whoever listened at our port while no master ran.
func TestPromise11OtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		missing(t, "only root can be somebody else")
	}
	options, log := logged()
	m := twoTasks(t)
	s := serveTCP(t, m, options)
	over := serve(t, m, Options{})
	path := s.file
	open := func(name string) { // as if somebody had let others in there
		if err := os.Chmod(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	open(filepath.Dir(filepath.Dir(path)))
	if err := os.WriteFile(path+".open", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open(path + ".open")
	if err := asNobody(t, func() error { _, err := os.ReadFile(path + ".open"); return err }); err != nil {
		t.Fatal(err) // what is refused below would be for another cause
	}
	for what, do := range map[string]func() error{
		"read the token":        func() error { _, err := os.ReadFile(path); return err },
		"write the token":       func() error { return os.WriteFile(path, []byte("x"), 0o600) },
		"change its mode":       func() error { return os.Chmod(path, 0o666) },
		"connect to the socket": func() error { return dialUnix(over.socket) },
	} {
		if err := asNobody(t, do); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("another user can %s: %v", what, err)
		}
	}
	open(filepath.Dir(over.socket))
	open(over.socket)
	if err := asNobody(t, func() error { return dialUnix(over.socket) }); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the socket answers another user: %v", err)
	}
	request := strings.NewReplacer("HOST", s.addr, "TOKEN", s.token).Replace(withHeader("x: y"))
	if answers := s.raw(t, request); len(answers) != 1 || answers[0].StatusCode != 200 {
		t.Errorf("our own user is not let in: %v", answers)
	}
	for _, request := range []string{request, "GET / HTTP/1.0\r\nHost: " + s.addr + "\r\n\r\n", "x\r\n\r\n"} {
		var answers []rawAnswer
		if err := asNobody(t, func() error { answers = s.raw(t, request); return nil }); err != nil {
			t.Fatal(err)
		}
		if len(answers) != 0 {
			t.Errorf("another user is answered over TCP: %v", answers)
		}
	}
	if log.String() != "" {
		t.Errorf("%s", log)
	}
}

// errAnswered says that there was an answer where there should be none.
var errAnswered = errors.New("answered")

// dialUnix asks over a socket, and gives the error that says why there is no answer.
func dialUnix(path string) error {
	c, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(rawTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "GET /v1/health HTTP/1.0\r\nHost: stint\r\n\r\n"); err != nil {
		return err
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return err
	}
	return errAnswered
}
