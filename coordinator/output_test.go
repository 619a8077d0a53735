package coordinator

import (
	"io"
	"os"
	"path/filepath"
	"strings"
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

// TestOutputIsCutWhileItIsRead: what a read gives before the cut and what it gives after it
// cannot be told apart, so none of it is given.
func TestOutputIsCutWhileItIsRead(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const hole = 1 << 20
	if _, err := f.WriteString(strings.Repeat("x", hole)); err != nil {
		t.Fatal(err)
	}
	out := &Output{File: &cutFile{f, func() {
		if err := f.Truncate(0); err != nil {
			t.Error(err)
		}
		if _, err := f.WriteAt([]byte("more\x00"), hole); err != nil {
			t.Error(err)
		}
	}}}
	got, err := io.ReadAll(out)
	if want := "\n[1048576 bytes of this output were not kept]\nmore\x00"; err != nil || string(got) != want {
		t.Errorf("%d bytes, %q, %v", len(got), got[:min(len(got), 100)], err)
	}
}
