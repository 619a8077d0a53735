package journal_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/journal"
	"stint/ledger/reconcile"
	"stint/ledger/tasksfile"
)

// TestTooLarge: a file with more bytes than a ledger can have is refused with a sentence, and not read.
func TestTooLarge(t *testing.T) {
	for name, text := range map[string]string{ledger.TasksName: ledger.Preamble, ledger.JournalName: ledger.EmptyJournal} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		must(t, errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Truncate(path, durable.MaxFile+1)))
		var mu sync.Mutex
		_, err := journal.Open(journal.Options{Dir: dir, Locker: &mu, Apply: func(*ledger.Section) error { return nil }})
		if want := name + " has 2147483649 bytes, more than a ledger may have; move it away"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := journal.ReadLedger(path); err == nil || !strings.Contains(err.Error(), "more than stint reads of a file") {
			t.Errorf("read as a copy: %v", err)
		}
	}
}

// TestVoidBehindBothFiles: zero bytes that nobody has written are cut off at a start, however many there are.
func TestVoidBehindBothFiles(t *testing.T) {
	dir := t.TempDir()
	must(t, errors.Join(os.WriteFile(filepath.Join(dir, ledger.TasksName), []byte(ledger.Preamble), 0o600),
		os.WriteFile(filepath.Join(dir, ledger.JournalName), []byte(ledger.EmptyJournal+"## Task a\n- seq: 1\n<!-- end 1 -->\n\n"), 0o600)))
	for _, name := range []string{ledger.TasksName, ledger.JournalName} {
		must(t, os.Truncate(filepath.Join(dir, name), 80<<20))
	}
	var mu sync.Mutex
	l, err := journal.Open(journal.Options{Dir: dir, Locker: &mu, Apply: func(*ledger.Section) error { return nil }})
	must(t, err)
	must(t, l.Close())
	for _, name := range []string{ledger.TasksName, ledger.JournalName} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || len(data) > 1<<10 || !strings.Contains(string(data), "## Task a\n- seq: 1\n") {
			t.Errorf("%s has %d bytes, %v", name, len(data), err)
		}
	}
}

// TestReadingEndsWithItsContext: what takes long with a large tasks.md ends in between.
func TestReadingEndsWithItsContext(t *testing.T) {
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	data := []byte("## Task a\n- status: queued\n")
	if _, err := durable.ReadPieces(ctx, bytes.NewReader(data), int64(len(data))); !errors.Is(err, stopped) {
		t.Errorf("read: %v", err)
	}
	if _, err := ledger.ParseContext(ctx, data); !errors.Is(err, stopped) {
		t.Errorf("parsed: %v", err)
	}
	if _, err := reconcile.Compare(ctx, &reconcile.Texts{Doc: ledger.Parse(data)}, reconcile.Input{Seen: math.MaxUint64}); !errors.Is(err, stopped) {
		t.Errorf("planned: %v", err)
	}
}

// TestTasksFileEndsLikeTheJournal: a start need not parse a tasks.md that nobody has changed,
// whether an empty line is at its end, as older versions wrote it, or not.
func TestTasksFileEndsLikeTheJournal(t *testing.T) {
	w := newWorld(t)
	endsLike := func(when string) {
		t.Helper()
		head := int64(len(ledger.JournalLine) + 1)
		f, err := os.Open(w.path(ledger.JournalName))
		must(t, err)
		see, err := tasksfile.New(durable.OS, w.dir, ledger.TaskFiles).EndsWith(io.NewSectionReader(f, head, int64(len(w.read(ledger.JournalName)))-head))
		if err = errors.Join(err, f.Close()); see == nil || err != nil {
			t.Errorf("%s: differs, %v:\n%q", when, err, w.read(ledger.TasksName))
		}
	}
	for _, id := range []string{"a", "b"} {
		w.open(false)
		w.close()
		endsLike("before " + id)
		w.open(false)
		w.add(id, "status", "queued")
		w.add(id, "status", "running")
		w.close()
		endsLike("with " + id)
		must(t, appendFile(w.path(ledger.TasksName), "\n"))
		endsLike("with an empty line behind " + id)
	}
}
