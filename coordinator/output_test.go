package coordinator

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A cutFile is cut after each read.
type cutFile struct {
	*os.File
	cut func()
}

func (c *cutFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.File.ReadAt(p, off)
	c.cut()
	return n, err
}

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

// TestOutputIsCutWhileItIsRead: where a read has NULs, what it gives from before the cut and
// what it gives from after it cannot be told apart, so none of it is given. Without one, all
// of it was printed.
func TestOutputIsCutWhileItIsRead(t *testing.T) {
	const hole = 1 << 20
	for text, want := range map[string]string{
		"xx":    strings.Repeat("x", 512) + "\n[1048064 bytes of this output were not kept]\nmore\x00",
		"x\x00": "\n[1048576 bytes of this output were not kept]\nmore\x00",
	} {
		f := newFile(t, strings.Repeat(text, hole/2))
		out := &Output{File: &cutFile{f, func() {
			must(t, f.Truncate(0))
			_, err := f.WriteAt([]byte("more\x00"), hole)
			must(t, err)
		}}}
		got, err := io.ReadAll(out) // 512 bytes at first
		if err != nil || string(got) != want {
			t.Errorf("%d bytes, %q, %v", len(got), got[:min(len(got), 100)], err)
		}
	}
}

// TestOutputHasAHole: one read takes the end of the file as well, or there is nothing but
// the hole.
func TestOutputHasAHole(t *testing.T) {
	const mib = 1 << 20
	f := newFile(t, strings.Repeat("x", mib))
	_, err := f.WriteAt([]byte("end"), 3*mib)
	must(t, err)
	wantOutput(t, f, strings.Repeat("x", mib)+"\n[2097152 bytes of this output were not kept]\nend")
	must(t, f.Truncate(0))
	must(t, f.Truncate(8*mib))
	wantOutput(t, f, "\n[8388608 bytes of this output were not kept]\n")
}

func wantOutput(t *testing.T, f *os.File, want string) {
	t.Helper()
	got, err := io.ReadAll(bufio.NewReaderSize(&Output{File: f}, 8<<20))
	if err != nil || string(got) != want {
		t.Errorf("%d bytes of %d, the last of them %q: %v", len(got), len(want), got[max(0, len(got)-100):], err)
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
