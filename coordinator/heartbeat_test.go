package coordinator_test

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestPromise7TheStateDirectoryIsGone: a master whose directory somebody has moved
// away ends, and does not go on to acknowledge what nobody would find.
func TestPromise7TheStateDirectoryIsGone(t *testing.T) {
	w := newWorld(t)
	w.cfg.HeartbeatInterval = time.Millisecond
	w.open()
	defer w.stop()
	if err := os.Rename(w.dir, w.dir+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := <-w.ran; err == nil || !strings.Contains(err.Error(), w.dir+" was removed or moved away") {
		t.Error(err)
	}
	if err := w.c.Close(); err != nil {
		t.Log(err) // what cannot be written any more is told
	}
}
