package guard

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// peerOf returns user and process that made the connection, as the kernel recorded them at
// connect; pid is 0 if it cannot be seen from here.
func peerOf(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil || err != nil {
		return 0, 0, errors.Join(cerr, err)
	}
	return int(cred.Uid), int(cred.Pid), nil
}
