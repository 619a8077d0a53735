package admission

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"stint/coordinator/queue"
)

// TestLookIsNeverOlderThanTheQuestion: while many ask for a workspace all the time, and share their looks, whoever
// changes where its name leads and asks then gets the new place.
func TestLookIsNeverOlderThanTheQuestion(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a, link := &Admission{tasks: &queue.Store{}}, filepath.Join(dir, "link")
	var asked atomic.Int64
	var ended atomic.Bool
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for !ended.Load() {
				_ = a.lookTogether(link, "")
				asked.Add(1)
			}
		})
	}
	for i := 0; i < 200 || asked.Load() < 1000; i++ {
		place := filepath.Join(dir, strconv.Itoa(i))
		for _, err := range []error{os.Mkdir(place, 0o700), os.Symlink(place, link+"~"), os.Rename(link+"~", link)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := a.lookTogether(link, ""); got.path != place || got.err != nil {
			t.Errorf("%s leads to %s: %v", place, got.path, got.err)
			break
		}
	}
	ended.Store(true)
	all.Wait()
}
