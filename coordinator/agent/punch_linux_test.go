package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"stint/coordinator"
)

// TestPunchLosesNothing: what is appended while the begin is cut out time and again stands
// where it would stand without that.
func TestPunchLosesNothing(t *testing.T) {
	const lines, block = 100_000, 4096
	path := filepath.Join(t.TempDir(), stdoutName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	defer func() { _ = f.Close() }()
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, block); err != nil {
		missing(t, "the file system makes no holes: "+err.Error())
	}
	written := make(chan error, 1)
	go func() { written <- appendNumbers(path, lines) }()
	for done := false; !done; {
		select {
		case err := <-written:
			must(t, err)
			done = true
		default:
		}
		if from := (fileSize(t, f) - 1) / block * block; from > 0 {
			must(t, punch(f, from))
		}
	}
	from, _ := coordinator.DataAt(f, 0)
	kept, err := io.ReadAll(io.NewSectionReader(f, from, lines*8))
	if size := fileSize(t, f); err != nil || from == 0 || size != lines*8 {
		t.Errorf("it has %d bytes, %d of them were cut out: %v", size, from, err)
	}
	for i := from / 8; len(kept) > 0; i++ {
		if want := fmt.Sprintf("%07d\n", i); !strings.HasPrefix(string(kept[:min(8, len(kept))]), want) {
			t.Fatalf("%q, want %q", kept[:min(8, len(kept))], want)
		}
		kept = kept[8:]
	}
}

// appendNumbers appends lines of 8 bytes, each with a write of its own.
func appendNumbers(path string, lines int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	for i := 0; i < lines && err == nil; i++ {
		_, err = fmt.Fprintf(f, "%07d\n", i)
	}
	return errors.Join(err, f.Close())
}

func fileSize(t *testing.T, f *os.File) int64 {
	t.Helper()
	fi, err := f.Stat()
	must(t, err)
	return fi.Size()
}

// TestPunchFails: only where there are no holes at all a file is written anew. Else it is
// left as it is, for the next time.
func TestPunchFails(t *testing.T) {
	fd, err := unix.MemfdCreate(stdoutName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	must(t, err)
	f := os.NewFile(uintptr(fd), stdoutName)
	defer func() { _ = f.Close() }()
	want := strings.Repeat("x", 8192)
	_, err = f.WriteString(want)
	must(t, err)
	_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	must(t, err)
	err = punch(f, 4096)
	got, readErr := io.ReadAll(io.NewSectionReader(f, 0, 8192))
	if !errors.Is(err, unix.EPERM) || readErr != nil || string(got) != want {
		t.Errorf("%v; %d bytes are left, %v", err, len(got), readErr)
	}
}
