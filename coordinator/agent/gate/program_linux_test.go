package gate

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A gate of its own is used only if nobody but the user and root can have written it, if it is of this build,
// and as long as it is the file that was looked at.
func TestFindProgram(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "stint-gate")
	write := func(text string, mode fs.FileMode) {
		t.Helper()
		must(t, os.RemoveAll(path))
		must(t, os.WriteFile(path, []byte(text), 0o700))
		must(t, os.Chmod(path, mode))
	}
	const good, marker = "#!/bin/sh\necho asked $1 >>%/asked; echo the build\n", "the build\n"
	text := strings.ReplaceAll(good, "%", dir)
	for _, c := range []struct {
		name  string
		place func()
		why   string // "": it is used
		asked bool
	}{
		{"nothing", func() {}, "", false},
		{"of this build", func() { write(text, 0o755) }, "", true},
		{"of another build", func() { write(strings.ReplaceAll(text, "the build", "the old build"), 0o755) }, "another build", true},
		{"fails", func() { write(text+"exit 1\n", 0o755) }, "another build", true},
		{"cannot be executed", func() { write(text, 0o600) }, "permission denied", false},
		{"writable by the group", func() { write(text, 0o775) }, "nobody can write who", false},
		{"writable by all", func() { write(text, 0o757) }, "nobody can write who", false},
		{"with the rights of its owner", func() { write(text, 0o755|fs.ModeSetuid) }, "nobody can write who", false},
		{"a link", func() {
			write(text, 0o755)
			must(t, os.Rename(path, path+".to"))
			must(t, os.Symlink(path+".to", path))
		}, "too many levels", false},
		{"a FIFO", func() { must(t, os.RemoveAll(path)); must(t, syscall.Mkfifo(path, 0o700)) }, "nobody can write who", false},
		{"a directory", func() { must(t, os.RemoveAll(path)); must(t, os.Mkdir(path, 0o700)) }, "nobody can write who", false},
		{"another user's", func() {
			write(text, 0o755)
			if os.Geteuid() == 0 {
				must(t, os.Chown(path, 65534, 65534))
			} else {
				must(t, os.Chmod(path, 0o777)) // only root can give a file away
			}
		}, "nobody can write who", false},
	} {
		must(t, os.RemoveAll(filepath.Join(dir, "asked")))
		c.place()
		p, err := findProgram(path, marker)
		if (err == nil) != (c.why == "") || err != nil && (p != nil || !strings.Contains(err.Error(), c.why)) {
			t.Errorf("%s: %v, %v", c.name, p, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "asked")); (err == nil) != c.asked {
			t.Errorf("%s: asked %v", c.name, err == nil)
		}
	}

	write(text, 0o755)
	p, err := findProgram(path, marker)
	must(t, err)
	must(t, os.Rename(path, path+".old"))
	write("#!/bin/sh\necho planted\n", 0o755)
	if said, err := exec.Command(p.path(), "x").Output(); string(said) != marker || !p.unchanged() {
		t.Errorf("what was put in its place was started: %q, %v", said, err)
	}
	must(t, os.WriteFile(path+".old", []byte("#!/bin/sh\necho overwritten\n"), 0o755))
	if p.unchanged() {
		t.Error("it was written to, and would be started")
	}
	must(t, p.file.Close())
}
