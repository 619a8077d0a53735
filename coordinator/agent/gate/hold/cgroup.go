package hold

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A Cgroup is the directory of a run's cgroup (version 2); "" means that the run has none, and then all its methods do
// nothing: no directory is called so.
// The agent is born in it, and what is in it can be killed at one blow, however fast it forks. Only root can leave it.
type Cgroup string

// PlanCgroup returns the place of a run's cgroup, below that of this process, and "" on a system without. It
// makes nothing: whether it may be made is seen by the gate when it tries.
func PlanCgroup(runID string) Cgroup {
	own := OwnCgroup()
	if own == "" || strings.ContainsAny(runID, "/\n") {
		return ""
	}
	return Cgroup(filepath.Join(own, CgroupName(runID)))
}

// CgroupName is the last part of the path of a run's cgroup.
func CgroupName(runID string) string { return "stint-" + runID }

// OwnCgroup returns the directory of the cgroup in which this process is, "" if that cannot be told.
func OwnCgroup() string {
	mounts, err1 := mountTable()
	self, err2 := os.ReadFile("/proc/self/cgroup")
	if errors.Join(err1, err2) != nil {
		return "" // no Linux, or no /proc
	}
	return findCgroup(string(mounts), string(self))
}

// mountTable is read once: the place of the cgroups does not change, and the kernel
// takes longer to write this table than for all else that is read for a run.
var mountTable = readOnce("/proc/self/mountinfo")

// mountBlanks puts back the blanks of a path in mountinfo.
var mountBlanks = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// findCgroup reads the two tables of /proc/self: mountinfo says where the tree of
// cgroup v2 is mounted, cgroup where in that tree this process is.
func findCgroup(mounts, self string) string {
	var path string
	for line := range strings.Lines(self) {
		if p, ok := strings.CutPrefix(line, "0::"); ok {
			path = strings.TrimSuffix(p, "\n")
		}
	}
	if path == "" || strings.Contains(path+"/", "/../") {
		return "" // no cgroup v2, or one outside what can be seen from here
	}
	for line := range strings.Lines(mounts) {
		mount, kind, _ := strings.Cut(line, " - ")
		f := strings.Fields(mount)
		if len(f) < 6 || !strings.HasPrefix(kind, "cgroup2 ") {
			continue
		}
		below, ok := strings.CutPrefix(path+"/", strings.TrimSuffix(f[3], "/")+"/")
		if ok {
			return filepath.Join(mountBlanks.Replace(f[4]), below)
		}
	}
	return ""
}

// Make makes the cgroup and opens it for the agent to be born in. An error says
// that there can be none here: no right to make it, or a kernel before 5.14.
func (c Cgroup) Make() (*os.File, error) {
	if err := os.Mkdir(string(c), 0o755); err != nil && !errors.Is(err, fs.ErrExist) { // one may be there of the run's earlier turn
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(string(c), "cgroup.kill")); err != nil {
		return nil, errors.Join(err, syscall.Rmdir(string(c)))
	}
	return os.Open(string(c))
}

// Kill kills all that is in the cgroup and below. One that is gone is no error.
func (c Cgroup) Kill() error {
	if c == "" {
		return nil
	}
	err := os.WriteFile(filepath.Join(string(c), "cgroup.kill"), []byte("1"), 0)
	if cgroupGone(err) {
		return nil
	}
	return err
}

// Empty reports whether nothing lives in the cgroup and below; false too when that cannot be told.
func (c Cgroup) Empty() bool {
	if c == "" {
		return true
	}
	events, err := os.ReadFile(filepath.Join(string(c), "cgroup.events"))
	if err != nil {
		return cgroupGone(err)
	}
	return bytes.Contains(events, []byte("populated 0\n"))
}

// Remove takes an empty cgroup away, with those that the agent has made below it.
func (c Cgroup) Remove() error {
	var err error
	for range 20 {
		if err = removeCgroups(string(c)); err == nil || cgroupGone(err) {
			return nil
		}
		time.Sleep(5 * time.Millisecond) // the kernel may still be busy with the last exit
	}
	return fmt.Errorf("the run's cgroup: %w", err)
}

// removeCgroups removes a directory of cgroups from below: the files in them go with them.
func removeCgroups(dir string) error {
	if syscall.Rmdir(dir) == nil {
		return nil // nearly always: nothing is below it
	}
	entries, _ := os.ReadDir(dir) // what cannot be read or removed keeps dir from being removed
	for _, e := range entries {
		if e.IsDir() {
			_ = removeCgroups(filepath.Join(dir, e.Name()))
		}
	}
	return syscall.Rmdir(dir)
}

// cgroupGone reports whether an error only says that a cgroup is not there (any more).
func cgroupGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}

// HoldsSelf reports whether this process is in the cgroup or below it.
func (c Cgroup) HoldsSelf() bool {
	own := OwnCgroup()
	return c != "" && own != "" && strings.HasPrefix(own+"/", string(c)+"/")
}
