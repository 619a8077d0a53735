package hold

import (
	"os"
	"path/filepath"
	"testing"
)

// A table that could not be read once is not missing for ever.
func TestReadOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "table")
	read := readOnce(name)
	if _, err := read(); err == nil {
		t.Error("there is nothing to read")
	}
	must(t, os.WriteFile(name, []byte("one"), 0o600))
	for range 2 {
		if text, err := read(); string(text) != "one" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		must(t, os.WriteFile(name, []byte("two"), 0o600))
	}
}

func TestFindCgroup(t *testing.T) {
	const hybrid = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw\n" +
		"32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n" +
		"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:7 master:1 - cgroup2 cgroup2 rw\n"
	const unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
	const container = "30 23 0:26 /docker/abc /sys/fs/my\\040group rw - cgroup2 cgroup2 rw\n"
	for _, c := range []struct{ name, mounts, self, want string }{
		{"root of a hybrid", hybrid, "9:name=systemd:/\n0::/\n", "/sys/fs/cgroup/unified"},
		{"below", hybrid, "4:memory:/x\n0::/user.slice/a b\n", "/sys/fs/cgroup/unified/user.slice/a b"},
		{"unified", unified, "0::/system.slice/stint.service\n", "/sys/fs/cgroup/system.slice/stint.service"},
		{"only a part is mounted", container, "0::/docker/abc/x\n", "/sys/fs/my group/x"},
		{"all that is mounted", container, "0::/docker/abc\n", "/sys/fs/my group"},
		{"another part is mounted", container, "0::/docker/abcd\n", ""},
		{"outside the namespace", unified, "0::/../x\n", ""},
		{"not mounted", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", "0::/\n", ""},
		{"version 1 only", hybrid, "9:name=systemd:/\n", ""},
		{"nothing", "", "", ""},
	} {
		if got := findCgroup(c.mounts, c.self); got != c.want {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
	if cg := PlanCgroup("a/../b"); cg != "" {
		t.Errorf("a run may choose its cgroup: %s", cg)
	}
}
