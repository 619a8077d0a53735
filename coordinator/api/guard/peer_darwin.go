package guard

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// peerOf returns the user whose process made the connection, as the kernel recorded it at
// connect. For the pid it is not asked here: agents are not found by their gates.
func peerOf(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Xucred
	if cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	}); cerr != nil || err != nil {
		return 0, 0, errors.Join(cerr, err)
	}
	return int(cred.Uid), 0, nil
}
