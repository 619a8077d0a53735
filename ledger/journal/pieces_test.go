package journal

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/reconcile"
	"stint/ledger/tasksfile"
)

// TestHole: a file with more zero bytes than a power cut leaves is refused with a
// sentence, after a bounded part of it was read.
func TestHole(t *testing.T) {
	const text = ledger.Preamble + "## Task a\n- status: queued\n\n"
	open := func(dir string) error {
		var mu sync.Mutex
		l, err := Open(Options{Dir: dir, Locker: &mu, Apply: func(*ledger.Section) error { return nil }})
		if err == nil {
			err = l.Close()
		}
		return err
	}
	tests := []struct {
		name, file string
		size       int64
		read       func(dir string) error
		want       string
	}{
		{"tasks.md", ledger.TasksName, 2 << 30, open, "tasks.md has more than 64 MiB of zero bytes from byte "},
		{"too large", ledger.TasksName, 2<<30 + 1, open, "tasks.md has 2147483649 bytes, more than a ledger may have; move it away"},
		{"journal", ledger.JournalName, 2 << 30, open, "journal.md has more than 64 MiB of zero bytes from byte "},
		{"format", "format", 2 << 30, open, "format has more than 64 MiB of zero bytes"},
		{"fsck", ledger.TasksName, 2 << 30, func(dir string) error {
			_, err := tasksfile.ReadSnapshot(t.Context(), durable.OS, dir)
			return err
		}, "from byte "},
		{"any other", "copy.md", 2 << 30, func(dir string) error { _, err := ReadLedger(filepath.Join(dir, "copy.md")); return err }, "copy.md has more than 64 MiB"},
	}
	for _, tt := range tests {
		dir := t.TempDir()
		path := filepath.Join(dir, tt.file)
		text := text
		if tt.file == ledger.JournalName {
			text = ledger.EmptyJournal + text[len(ledger.Preamble):]
		}
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Truncate(path, tt.size)); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := tt.read(dir)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 6*durable.MaxVoid>>20 {
			t.Errorf("%s: it took %d MiB", tt.name, used)
		}
	}
}

// TestReadingEndsWithItsContext: what takes long with a large tasks.md ends in between.
func TestReadingEndsWithItsContext(t *testing.T) {
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	data := []byte("## Task a\n- status: queued\n")
	if _, err := durable.ReadPieces(ctx, bytes.NewReader(data), "x", int64(len(data))); !errors.Is(err, stopped) {
		t.Errorf("read: %v", err)
	}
	if _, err := ledger.ParseContext(ctx, data); !errors.Is(err, stopped) {
		t.Errorf("parsed: %v", err)
	}
	if _, err := reconcile.Compare(ctx, ledger.Parse(data), nil, reconcile.Input{Seen: math.MaxUint64}); !errors.Is(err, stopped) {
		t.Errorf("planned: %v", err)
	}
}
