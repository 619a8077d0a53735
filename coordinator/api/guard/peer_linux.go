package guard

import (
	"net"

	"golang.org/x/sys/unix"
)

// peerUID returns the user whose process made the connection, as the kernel
// recorded it at connect.
func peerUID(c *net.UnixConn) (int, error) {
	cred, err := peerOf(c)
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}

// peerPID returns the process that made the connection; 0 if it cannot be seen from
// here.
func peerPID(c *net.UnixConn) (int, error) {
	cred, err := peerOf(c)
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

func peerOf(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var serr error
	if err := raw.Control(func(fd uintptr) {
		cred, serr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, serr
}
