package api

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"stint/coordinator/api/client"
	"stint/coordinator/api/guard"
	"stint/coordinator/task"
)

// asNobody calls do as another user who has no rights, and returns what it returns. The
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
	s := serveKernel(t, m, options)
	over := serve(t, m, Options{})
	path := s.file
	open := func(name string) { // as if somebody had let others in there
		must(t, os.Chmod(name, 0o777))
	}
	open(filepath.Dir(filepath.Dir(path)))
	must(t, os.WriteFile(path+".open", nil, 0o600))
	open(path + ".open")
	if err := asNobody(t, func() error { _, err := os.ReadFile(path + ".open"); return err }); err != nil {
		t.Fatal(err) // what is refused below would be for another cause
	}
	socket := func() error { return knock("unix", over.socket, "GET /v1/health HTTP/1.0\r\nHost: stint\r\n\r\n") }
	for what, do := range map[string]func() error{
		"read the token":        func() error { _, err := os.ReadFile(path); return err },
		"write the token":       func() error { return os.WriteFile(path, []byte("x"), 0o600) },
		"change its mode":       func() error { return os.Chmod(path, 0o666) },
		"connect to the socket": socket,
	} {
		if err := asNobody(t, do); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("another user can %s: %v", what, err)
		}
	}
	open(filepath.Dir(over.socket))
	open(over.socket)
	if err := asNobody(t, socket); !hungUp(err) {
		t.Errorf("the socket answers another user: %v", err)
	}
	good := s.fill(withHeader("x: y"))
	if err := knock("tcp", s.addr, good); !errors.Is(err, errAnswered) {
		t.Errorf("our own user is not let in: %v", err)
	}
	for _, request := range []string{good, "GET / HTTP/1.0\r\nHost: " + s.addr + "\r\n\r\n", "x\r\n\r\n"} {
		if err := asNobody(t, func() error { return knock("tcp", s.addr, request) }); !hungUp(err) {
			t.Errorf("another user is answered over TCP: %v", err)
		}
	}
	if log.String() != "" {
		t.Errorf("%s", log)
	}
}

// TestPromise11OtherUsersSocket: another user listens where our master would. He is told
// nothing, and does not pass for it.
func TestPromise11OtherUsersSocket(t *testing.T) {
	if os.Getuid() != 0 {
		missing(t, "only root can be somebody else")
	}
	dir, err := os.MkdirTemp("", "stint") // a short path
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o777))
	socket := filepath.Join(dir, "s.sock")
	var ln net.Listener
	must(t, asNobody(t, func() (err error) { ln, err = net.Listen("unix", socket); return err }))
	told := make(chan string)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			told <- err.Error()
			return
		}
		text, _ := io.ReadAll(c) // what came until it was closed
		_ = c.Close()
		told <- string(text)
	}()
	c := client.Dial(socket)
	defer c.Close()
	_, err = c.Submit(t.Context(), task.TaskSpec{Prompt: "secret plans"})
	if !errors.Is(err, guard.ErrForeign) || errors.Is(err, client.ErrNoMaster) {
		t.Errorf("submit: %v", err)
	}
	if got := <-told; got != "" {
		t.Errorf("he was told %q", got)
	}
	_ = ln.Close() // it has done its work
}

// errAnswered says that there was an answer where there should be none.
var errAnswered = errors.New("answered")

// hungUp reports whether an error says that the server has ended a connection unasked.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// knock sends a request, and returns the error that says why there is no answer.
func knock(network, address, request string) error {
	c, err := net.DialTimeout(network, address, rawTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(rawTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return err
	}
	return errAnswered
}
