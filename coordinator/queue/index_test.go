package queue_test

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stint/coordinator/queue"
	"stint/ledger"
	"stint/state/fold"
)

// TestStartFromTheCacheIsOneFromTheText: a store that goes on from the cache of a ledger has what one has that reads the text:
// the fold, the runs that an edit has taken from a task, and what was refused.
func TestStartFromTheCacheIsOneFromTheText(t *testing.T) {
	dir, index := t.TempDir(), ""
	open := func() *queue.Store {
		t.Helper()
		s, err := queue.Open(queue.Config{StateDir: dir, Unwatched: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	end := func(s *queue.Store) {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// look returns what a start makes of the ledger, and whether it has left the cache alone, as one that goes on from it.
	look := func() (dump string, orphans map[string]string, rejected []string, isSame bool) {
		t.Helper()
		s := open()
		var b bytes.Buffer
		s.View(func(st *fold.State) {
			if err := st.Dump(&b); err != nil {
				t.Error(err)
			}
		})
		orphans, rejected = s.Orphans(), s.Rejected()
		before, _ := os.Stat(index)
		end(s)
		after, err := os.Stat(index)
		return b.String(), orphans, rejected, err == nil && os.SameFile(before, after)
	}
	index = filepath.Join(dir, "index")
	s := open()
	add := func(id string, fields ...string) {
		t.Helper()
		r := ledger.Record{Kind: ledger.KindTask, ID: id}
		for i := 0; i < len(fields); i += 2 {
			r.Add(fields[i], fields[i+1])
		}
		if err := s.Update(context.Background(), func(_ *fold.State, tx *ledger.Tx) error { tx.Append(&r); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a", "b", "c", "d", "e"} { // a small ledger has no cache
		add(id, "status", "queued", "sessionKey", "web", "agent", "demo", "idempotencyKey", "key-"+id, "prompt", strings.Repeat("Keep the diff small.\n", 50_000))
	}
	add("a", "status", "running", "runId", "r1", "attempt", "1")
	add("b", "status", "running", "runId", "r2", "attempt", "1")
	end(s)
	tasks := filepath.Join(dir, ledger.TasksName)
	text, err := os.ReadFile(tasks)
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "\n## Task a\n- status: canceled\n\n"...) // while no master runs
	if err := os.WriteFile(tasks, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open()
	add("b", "status", "canceled", "by", "hand") // and while one does
	add("c", "status", "running", "attempt", "x")
	add("c", "status", "done")
	end(s)
	dump, orphans, rejected, isSame := look()
	if !isSame || len(orphans) != 2 || len(rejected) != 1 {
		t.Errorf("from the cache: %v, with the runs %v and %q", isSame, orphans, rejected)
	}
	if err := os.Remove(index); err != nil {
		t.Fatal(err)
	}
	again, runs, refused, isSame := look()
	if isSame || again != dump || !maps.Equal(runs, orphans) || !slices.Equal(refused, rejected) {
		t.Errorf("the text says\n%s%v %q, and the cache said\n%s%v %q", again, runs, refused, dump, orphans, rejected)
	}
}
