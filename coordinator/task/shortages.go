package task

import (
	"errors"
	"syscall"
)

// shortages are the errors of a machine that has used up something which comes back:
// room on the disk, open files, processes, memory.
var shortages = []syscall.Errno{
	syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM,
}

// ShortageOf returns the error of the system by which err says that the machine lacks
// something that comes back, so that the same may succeed a while later; 0 if it does not.
func ShortageOf(err error) syscall.Errno {
	for _, s := range shortages {
		if errors.Is(err, s) {
			return s
		}
	}
	return 0
}
