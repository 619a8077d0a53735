package journal_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// noWatches is set in a process that may watch nothing.
const noWatches = "STINT_TEST_NO_WATCHES"

// TestWatchesExhausted takes an edit over where the user has no inotify watches
// left. The limit is set in a user namespace, where it is nobody else's.
func TestWatchesExhausted(t *testing.T) {
	t.Parallel()
	if os.Getenv(noWatches) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWatchesExhausted$", "-test.v")
		cmd.Env = append(os.Environ(), noWatches+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		}
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, said)
		}
		return
	}
	must(t, os.WriteFile("/proc/sys/user/max_inotify_watches", []byte("0"), 0))
	w := openWorld(t, true)
	w.await("cannot watch")
	w.add("a", "status", "queued")
	w.caughtUp()
	w.edit(appended("## Task mine\n- status: queued\n"))
	w.await("mine: written by hand")
	w.settle(true)
	w.reopened()
}
