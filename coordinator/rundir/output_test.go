package rundir

import (
	"io"
	"os"
	"path/filepath"
	"slices"
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

// TestTidy: of a run that has ended the lock goes, and an empty stderr, which readers find empty
// all the same; one with text in it stays, and so does what is no file.
func TestTidy(t *testing.T) {
	for said, want := range map[string][]string{"": {"stdout"}, "warning\n": {"stderr", "stdout"}} {
		dir := t.TempDir()
		for name, text := range map[string]string{"stdout": "", StderrName: said, "lock": "1 2\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		Tidy(dir)
		var left []string
		list, _ := os.ReadDir(dir)
		for _, e := range list {
			left = append(left, e.Name())
		}
		o, err := OpenOutputs([]string{filepath.Join(dir, StderrName)}, nil, false)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(io.NewSectionReader(o, 0, o.Size()))
		if !slices.Equal(left, want) || string(text) != said || err != nil || o.Close() != nil {
			t.Errorf("%q: left %q, read %q, %v", said, left, text, err)
		}
	}
}
