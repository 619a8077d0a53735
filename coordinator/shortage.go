package coordinator

import (
	"errors"
	"slices"
	"syscall"
)

// shortages are the errors of a machine that has used up something which comes back:
// room on the disk, open files, processes, memory.
var shortages = []error{
	syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM,
}

// IsShortage reports whether err says that the machine lacks something that comes
// back, so that the same may succeed a while later.
func IsShortage(err error) bool {
	return slices.ContainsFunc(shortages, func(s error) bool { return errors.Is(err, s) })
}
