package coordinator_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/ledger/durable"
	"stint/ledger/journal"
)

// TestPromise7TheStateDirectoryIsGone: a master whose directory somebody has moved
// away ends, and does not go on to acknowledge what nobody would find.
func TestPromise7TheStateDirectoryIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.HeartbeatInterval = time.Millisecond
	w.open()
	if err := os.Rename(w.dir, w.dir+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := <-w.ran; !errors.Is(err, journal.ErrGone) || !strings.Contains(err.Error(), w.dir) {
		t.Error(err)
	}
	w.ran <- nil
	if err := w.quit(); err != nil {
		t.Log(err) // what cannot be written any more is told
	}
}

// TestOpenRemovesOldTemps: what killed writers have left goes with the next master, but not
// what a command may be writing just now.
func TestOpenRemovesOldTemps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	beats := t.TempDir()
	w.cfg.HeartbeatPath = filepath.Join(beats, "beat.json")
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	young := durable.TempName(filepath.Join(w.dir, "token"))
	long := time.Now().Add(-2 * time.Hour)
	old := []string{durable.TempName(filepath.Join(w.dir, "token")), durable.TempName(w.cfg.HeartbeatPath)}
	for _, name := range append(old, young) {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range old {
		if err := os.Chtimes(name, long, long); err != nil {
			t.Fatal(err)
		}
	}
	w.open()
	for _, name := range append(old, young) {
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) != (name != young) {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
	}
}
