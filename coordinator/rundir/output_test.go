package rundir

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What a command has put in the place of its output is not waited for, nor followed.
func TestOpenOutputTakesOnlyFiles(t *testing.T) {
	dir := t.TempDir()
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	must(t, os.Symlink("file", filepath.Join(dir, "link")))
	for name, good := range map[string]bool{"file": true, "pipe": false, "link": false, ".": false} {
		f, err := OpenOutput(dir, name)
		if (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			must(t, f.Close())
		}
	}
}

func newFile(t *testing.T, text string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	_, err = f.WriteString(text)
	must(t, err)
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
