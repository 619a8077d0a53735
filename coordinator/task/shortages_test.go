package task_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	"stint/coordinator/task"
)

func TestShortageOf(t *testing.T) {
	for _, e := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM} {
		if got := task.ShortageOf(fmt.Errorf("mkdir: %w", e)); got != e {
			t.Errorf("%v is the shortage %v", e, got)
		}
	}
	for _, e := range []error{nil, syscall.ENOENT, syscall.EIO, context.Canceled} {
		if task.ShortageOf(e) != 0 {
			t.Errorf("%v is a shortage", e)
		}
	}
}
