package durable

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// renameat2 has the number of that system call, which the standard library does
// not name. 0: not known here.
var renameat2 = map[string]uintptr{
	"386": 353, "amd64": 316, "arm": 382, "arm64": 276, "loong64": 276, "mips64": 5311, "mips64le": 5311,
	"ppc64": 357, "ppc64le": 357, "riscv64": 276, "s390x": 347,
}[runtime.GOARCH]

const (
	renameExchange = 2    // RENAME_EXCHANGE
	atCWD          = -100 // AT_FDCWD
)

func exchange(a, b string) error {
	if renameat2 == 0 {
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: syscall.ENOSYS}
	}
	from, err := syscall.BytePtrFromString(a)
	if err != nil {
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
	to, err := syscall.BytePtrFromString(b)
	if err != nil {
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
	cwd := atCWD
	for {
		_, _, errno := syscall.Syscall6(renameat2, uintptr(cwd), uintptr(unsafe.Pointer(from)), uintptr(cwd), uintptr(unsafe.Pointer(to)), renameExchange, 0)
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return &os.LinkError{Op: "exchange", Old: a, New: b, Err: errno}
		}
	}
}
