package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"stint/coordinator/task"
	"stint/ledger/durable"
)

// Listen makes the unix socket of a master at path, for its user alone: mode 0600 in a directory of mode 0700, which is made
// when it is missing and must be ours. A socket that is there already is taken for the leftover of a dead master and replaced,
// so the caller must hold the master's lock. Connections from other users than ours and root are closed. While it is accepted
// from, a socket that somebody has removed or replaced is made anew within some seconds. Close removes the socket, unless
// another has taken its place by then.
func Listen(path string) (net.Listener, error) {
	n := 103 // the room of sockaddr_un without the NUL at its end
	if runtime.GOOS == "linux" {
		n = 107
	}
	if len(path) > n {
		return nil, task.Invalid("set XDG_RUNTIME_DIR to a shorter directory", "the socket's path has %d bytes, and the system allows %d: %s", len(path), n, path)
	}
	if err := ownDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	switch fi, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("api: %w", err)
	case fi.Mode().Type() != fs.ModeSocket:
		return nil, task.Invalid("move it elsewhere", "%s", path+" is in the way: it is not a socket")
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("api: leftover socket: %w", err)
		}
	}
	ln, info, err := listen(path)
	if err != nil {
		return nil, err
	}
	return &listener{UnixListener: ln, path: path, info: info, uid: os.Getuid(), look: lookInterval}, nil
}

// lookInterval is how often a listener looks whether its socket is still there.
const lookInterval = 2 * time.Second

func listen(path string) (*net.UnixListener, fs.FileInfo, error) {
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, nil, fmt.Errorf("api: %w", err)
	}
	ln.SetUnlinkOnClose(false) // Close looks first whether it is still ours
	err = os.Chmod(path, durable.FileMode)
	var info fs.FileInfo
	if err == nil {
		info, err = os.Lstat(path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("api: %w", errors.Join(err, ln.Close()))
	}
	return ln, info, nil
}

// ownDir makes dir, or sees to it that the one that is there is for us alone.
func ownDir(dir string) error {
	err := os.MkdirAll(dir, durable.DirMode)
	fi, missing := os.Lstat(dir)
	if err = cmp.Or(err, missing); err != nil {
		return fmt.Errorf("api: directory of the socket: %w", err)
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.IsDir():
		return task.Invalid("set XDG_RUNTIME_DIR to a directory of yours", "%s", "the socket's directory "+dir+" is not a directory of its own but a link")
	case !ok || int(st.Uid) != os.Getuid():
		return task.Invalid("set XDG_RUNTIME_DIR to a directory of yours", "%s", "the socket's directory "+dir+" belongs to another user")
	case fi.Mode().Perm()&0o077 != 0:
		return task.Invalid("chmod 700 "+dir, "the socket's directory %s is open to other users (mode %04o)", dir, fi.Mode().Perm())
	}
	return nil
}

// A listener accepts connections of its own user only.
type listener struct {
	*net.UnixListener             // Accept and Close change it with mu held
	info              fs.FileInfo // of the socket that we made; Accept and Close change it with mu held
	path              string
	uid               int
	look              time.Duration // between two looks at the socket

	mu     sync.Mutex
	closed bool
}

// Accept returns the next connection of a user who may call.
func (l *listener) Accept() (net.Conn, error) {
	for {
		_ = l.SetDeadline(time.Now().Add(l.look)) // of one that is closed, Accept tells
		c, err := l.AcceptUnix()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			l.renew()
			continue
		}
		if err != nil {
			return nil, err
		}
		uid, _, err := peerOf(c)
		if err == nil && mayCall(uid, l.uid) {
			return c, nil
		}
		_ = c.Close() // a stranger, or one that has gone already
	}
}

// mayCall reports whether a process of user uid may call the master of user own, or be it.
func mayCall(uid, own int) bool { return uid == own || uid == 0 }

// ErrForeign is what [Dial] wraps when another user listens at the socket. Nothing was sent.
var ErrForeign = errors.New("another user's socket")

// Dial connects to the socket of a master at path, if the user or root listens there. The
// path is known to all, and another user may have taken it while no master ran.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	uid, _, err := peerOf(c.(*net.UnixConn))
	if err == nil {
		err = checkOwner(path, uid, os.Geteuid())
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// checkOwner returns an error unless what listens at path for user uid may be the master of user own.
func checkOwner(path string, uid, own int) error {
	if mayCall(uid, own) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrForeign, task.Invalid("set XDG_RUNTIME_DIR to a directory of yours",
		"the socket %s belongs to user %d, not to you: what listens there is not your master, and was sent nothing", path, uid))
}

// renew makes the socket anew if it is gone, as after a cleanup of the temporary directory, or if another
// hand has put something else there or in the place of its directory, which is moved aside: else nobody could
// reach the master until it ends. What cannot be made now is tried again at the next look.
func (l *listener) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	fi, err := os.Lstat(l.path)
	if l.closed || err == nil && os.SameFile(fi, l.info) {
		return
	}
	dir, aside := filepath.Dir(l.path), time.Now().UTC().Format(".foreign-20060102T150405.000Z")
	if ownDir(dir) != nil && (os.Rename(dir, dir+aside) != nil || ownDir(dir) != nil) {
		return
	}
	if err := os.Rename(l.path, l.path+aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	ln, info, err := listen(l.path)
	if err != nil {
		return
	}
	_ = l.UnixListener.Close() // nobody can come by it any more
	l.UnixListener, l.info = ln, info
}

// Close ends Accept and removes the socket. It may be called again.
func (l *listener) Close() (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if fi, serr := os.Lstat(l.path); serr == nil && os.SameFile(fi, l.info) {
		err = os.Remove(l.path)
	}
	return errors.Join(err, l.UnixListener.Close())
}
