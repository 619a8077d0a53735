package guard

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerUID returns the user whose process made the connection, as the kernel
// recorded it at connect.
func peerUID(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Xucred
	var serr error
	if err := raw.Control(func(fd uintptr) {
		cred, serr = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if serr != nil {
		return 0, serr
	}
	return int(cred.Uid), nil
}

// peerPID is not asked for here: agents are not found by their gates.
func peerPID(*net.UnixConn) (int, error) { return 0, nil }
