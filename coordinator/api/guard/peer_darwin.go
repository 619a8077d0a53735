package guard

import "golang.org/x/sys/unix"

// credOf does not tell the pid: agents are not found by their gates here.
func credOf(fd int) (uid, pid int, err error) {
	cred, err := unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	if err != nil {
		return 0, 0, err
	}
	return int(cred.Uid), 0, nil
}
