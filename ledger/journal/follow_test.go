package journal_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"stint/ledger"
	"stint/ledger/follow"
	"stint/ledger/journal"
)

// next returns the number and id of the next record.
func next(t *testing.T, f *follow.Follower) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := f.Next(ctx)
	must(t, err)
	return fmt.Sprintf("%d %s", s.Seq, s.ID)
}

// noRecord expects that no record comes for a moment.
func noRecord(t *testing.T, f *follow.Follower) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if s, err := f.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("there is %v, %v", s, err)
	}
}

// closing closes a follower when its test ends.
func closing(t *testing.T, f *follow.Follower) *follow.Follower {
	t.Helper()
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func expectNext(t *testing.T, f *follow.Follower, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := next(t, f); got != w {
			t.Fatalf("the next record is %s, not %s", got, w)
		}
	}
}

// TestFollow: both kinds of follower give what is there after a seq, wait for
// what comes, and go on over a compaction.
func TestFollow(t *testing.T) {
	t.Parallel()
	w := filled(t)
	inside, after, outside := w.log.Follow(0), w.log.Follow(3), follow.Dir(nil, w.dir, 4)
	behind := follow.Dir(nil, w.dir, 0)
	for _, f := range []*follow.Follower{inside, after, outside, behind} {
		closing(t, f)
	}
	expectNext(t, inside, "1 a", "2 b", "3 c", "4 a", "5 b")
	expectNext(t, after, "4 a", "5 b")
	expectNext(t, outside, "5 b")
	expectNext(t, behind, "1 a")
	for _, f := range []*follow.Follower{inside, after, outside} {
		noRecord(t, f)
	}
	w.add("d", "status", "queued")
	w.caughtUp()
	for _, f := range []*follow.Follower{inside, after, outside} {
		expectNext(t, f, "6 d")
	}
	noRecord(t, inside)
	noRecord(t, after)
	w.compact("b")
	w.add("e", "status", "queued")
	for _, f := range []*follow.Follower{inside, after, outside} {
		expectNext(t, f, "7 compaction", "11 e")
		noRecord(t, f)
	}
	expectNext(t, behind, "2 b", "3 c", "4 a", "5 b", "6 d", "7 compaction", "11 e") // it has the old file open
	late := closing(t, follow.Dir(nil, w.dir, 3))
	expectNext(t, late, "7 compaction", "8 a", "9 c", "10 d", "11 e") // what it missed comes merged
	amid := closing(t, follow.Dir(nil, w.dir, 8))
	expectNext(t, amid, "9 c", "10 d", "11 e")
	w.close()
	if _, err := inside.Next(t.Context()); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("a follower of a closed log: %v", err)
	}
}

// TestPlaceOfAFollower: who ends at any record and goes on from its place gets what it
// would have got, and nothing of what it had read before a compaction.
func TestPlaceOfAFollower(t *testing.T) {
	w := filled(t)
	had := closing(t, follow.Dir(nil, w.dir, 0))
	expectNext(t, had, "1 a", "2 b", "3 c", "4 a", "5 b")
	w.compact("b")
	expectNext(t, had, "6 compaction")
	if at := had.Place(); at != 8 {
		t.Errorf("who had all goes on from %d, not from the last merged record", at)
	}
	w.add("e", "status", "queued")
	expectNext(t, had, "9 e")
	at := uint64(3)
	for _, want := range []string{"6 compaction", "7 a", "8 c", "9 e"} {
		f := follow.Dir(nil, w.dir, at)
		if want == "7 a" {
			expectNext(t, f, "6 compaction") // once more: it had got nothing else
		}
		expectNext(t, f, want)
		if at = f.Place(); (at == 3) != (want == "6 compaction") {
			t.Errorf("behind %s the place is %d", want, at)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	w.close()
}

// TestFollowerThatLagsHoldsBackCompaction: a record counts as read when the reader asks for the next one.
func TestFollowerThatLagsHoldsBackCompaction(t *testing.T) {
	t.Parallel()
	w := filled(t)
	f := closing(t, w.log.Follow(4))
	expectNext(t, f, "5 b")
	done, planned := make(chan error, 1), make(chan struct{})
	w.planning = func() { close(planned) }
	go func() {
		_, err := w.log.Compact(t.Context(), w.plan())
		done <- err
	}()
	select {
	case <-planned:
		t.Fatal("compacted before the reader had done with the last record")
	case <-time.After(100 * time.Millisecond):
	}
	expectNext(t, f, "6 compaction")
	must(t, <-done)
	w.close()
}

// TestFollowDirSeesWholeChanges: a journal that grows byte by byte, whose writer
// takes back what it could not write whole and writes something else there.
func TestFollowDirSeesWholeChanges(t *testing.T) {
	t.Parallel()
	w := openWorld(t, false, "a")
	must(t, w.change(record("b", "status", "queued", "prompt", "x\n\ny"), record("c", "status", "queued")))
	w.add("d", "status", "queued")
	w.close()
	records := w.read("journal.md")
	dir := t.TempDir()
	path := filepath.Join(dir, "journal.md")
	f := closing(t, follow.Dir(nil, dir, 0))
	noRecord(t, f) // there is no file yet
	var got []string
	look := func() {
		for {
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // what is there comes all the same
			s, err := f.Next(ctx)
			if err != nil {
				return
			}
			got = append(got, string(s.ID))
			if string(s.ID) == "b" && !strings.Contains(records[:mustSize(t, path)], "## Task c\n- seq: 3\n- status: queued\n<!-- end 3 -->\n") {
				t.Fatal("half a change was given")
			}
		}
	}
	for n := 1; n <= len(records); n++ {
		must(t, os.WriteFile(path, []byte(records[:n]), 0o600))
		look()
	}
	if want := []string{"a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("the records are %v", got)
	}
	cut := strings.Index(records, "## Task d") // taken back: the disk was full
	must(t, os.Truncate(path, int64(cut)))
	look()
	must(t, os.WriteFile(path, []byte(records[:cut]+strings.ReplaceAll(records[cut:], "Task d", "Task other")), 0o600))
	look()
	if got[len(got)-1] != "other" || len(got) != 5 {
		t.Errorf("when a record was taken back: %v", got)
	}
}

func mustSize(t *testing.T, name string) int64 {
	fi, err := os.Stat(name)
	must(t, err)
	return fi.Size()
}

// TestFollowMissesNothing: readers of both kinds, slow and fast, beside writers and
// compactions, see every number that no compaction has merged, in order.
func TestFollowMissesNothing(t *testing.T) {
	t.Parallel()
	w := openShelf(t, true)
	const records = 2000
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	read := func(f *follow.Follower, seed uint64) {
		rng, last, seen := rand.New(rand.NewPCG(seed, 1)), uint64(0), map[string]bool{}
		for len(seen) < records {
			s, err := f.Next(ctx)
			if err != nil {
				t.Errorf("after %d of %d tasks: %v", len(seen), records, err)
				break
			}
			if s.Seq <= last {
				t.Errorf("record %d came after %d", s.Seq, last)
			}
			if last = s.Seq; s.Kind == ledger.KindTask {
				seen[string(s.ID)] = true
			}
			if rng.IntN(100) == 0 {
				time.Sleep(time.Millisecond) // a slow reader
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	var wg sync.WaitGroup
	for i := range uint64(3) {
		wg.Go(func() { read(w.log.Follow(0), i) })
		wg.Go(func() { read(follow.Dir(nil, w.dir, 0), i) })
	}
	for i := range records {
		w.add(fmt.Sprint("t", i), "status", "queued", "prompt", strings.Repeat("line\n", i%50))
		if i%500 == 499 {
			wg.Go(func() {
				_, err := w.log.Compact(ctx, w.plan())
				for refused := (*journal.RefusedError)(nil); errors.As(err, &refused); { // tasks.md never rests
					_, err = w.log.Compact(ctx, w.plan())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if n := strings.Count(w.meaning(), "\n"); n != records {
		t.Errorf("%d tasks of %d", n, records)
	}
	w.settle(true)
	w.caughtUp()
	w.isSound()
	w.reopened()
}

// TestFollowDamage: what is damaged is passed over, as on replay; a journal of a newer format is refused.
func TestFollowDamage(t *testing.T) {
	w := openWorld(t, false)
	for i := range 3 {
		w.add(fmt.Sprint("t", i), "status", "queued")
	}
	w.close()
	dir := t.TempDir()
	put := func(text string) *follow.Follower {
		must(t, os.WriteFile(filepath.Join(dir, "journal.md"), []byte(text), 0o600))
		f := closing(t, follow.Dir(nil, dir, 0))
		return f
	}
	f := put(strings.Replace(w.read("journal.md"), "- status: queued\n<!-- end 2", "status\n<!-- end 2", 1))
	expectNext(t, f, "1 t0", "3 t2")
	noRecord(t, f)
	if _, err := put("<!-- stint ledger 9 -->\n").Next(t.Context()); err == nil || !strings.Contains(err.Error(), "newer stint") {
		t.Errorf("a newer format: %v", err)
	}
	f = put(ledger.VersionLine + "\n")
	must(t, f.Close())
	if _, err := f.Next(t.Context()); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
