package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stint/coordinator"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// An imaged is a master or a copy.
type imaged interface {
	Seq() uint64
	TaskIDs(done, n int) []string
	TaskRecord(id string) (task.TaskRecord, error)
}

// images returns all tasks.
func images(t *testing.T, from imaged) map[string]task.TaskRecord {
	t.Helper()
	all, done := map[string]task.TaskRecord{}, 0
	for ids := from.TaskIDs(0, 3); len(ids) > 0; ids = from.TaskIDs(done, 3) {
		for _, id := range ids {
			i, err := from.TaskRecord(id)
			check(t, err)
			all[id] = i
		}
		done += len(ids)
	}
	if done != len(all) {
		t.Fatalf("%d ids of %d tasks", done, len(all))
	}
	return all
}

func readSnapshot(t *testing.T, dir string, upTo uint64) *statedir.Snapshot {
	t.Helper()
	c, err := statedir.ReadSnapshot(t.Context(), dir, upTo)
	fatal(t, err)
	return c
}

// unrun opens a master that does nothing by itself, and is closed with its test.
func unrun(t *testing.T, w *world) *coordinator.Coordinator {
	t.Helper()
	c, err := coordinator.OpenUnwatched(w.cfg)
	fatal(t, err)
	t.Cleanup(func() { check(t, c.Close()) })
	return c
}

// sameImages compares tasks but for where their records are.
func sameImages(was, is map[string]task.TaskRecord) string {
	return cmp.Diff(was, is, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(state.Task{}, "Seq", "Archived"))
}

// TestImage: a copy gets what the task and its runs are asked for alone, from the master
// as from its files; how each run ended is in it.
func TestImage(t *testing.T) {
	w := newWorld(t)
	w.outcomes(
		task.Outcome{Class: state.ClassNetwork, ExitCode: 7, Error: "no", Session: "n1"},
		task.Outcome{Result: "fine", Session: "n1", Usage: tokens(5, 1)},
	)
	w.open()
	done := w.wait(w.submit(task.TaskSpec{Prompt: "once", IdempotencyKey: "k", SessionKey: "web"}).ID)
	held := w.submit(task.TaskSpec{Prompt: "later", Hold: true})
	write(t, filepath.Join(w.c.RunDir(done.RunID), "stdout"), "said")
	got := images(t, w.c)
	if diff := cmp.Diff(got, images(t, readSnapshot(t, w.dir, 0)), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the master (-) and its files (+): %s", diff)
	}
	want, runs := w.task(done.ID), got[done.ID].Runs
	if diff := cmp.Diff(want, got[done.ID].Task, cmpopts.EquateEmpty()); diff != "" || !got[done.ID].HoldsKey {
		t.Errorf("the task: %s", diff)
	}
	if alone, err := w.c.Runs(t.Context(), done.ID); err != nil || !cmp.Equal(alone, runs) {
		t.Errorf("the runs: %+v, %v", alone, err)
	}
	if len(runs) != 2 || runs[0].Reason != state.ClassNetwork || *runs[0].ExitCode != 7 || runs[1].Reason != "" || *runs[1].ExitCode != 0 ||
		runs[1].Stdout != 4 || !runs[1].Kept || runs[1].Usage != tokens(5, 1) {
		t.Errorf("the runs: %+v", runs)
	}
	if i := got[held.ID]; len(i.Runs) > 0 || i.HoldsKey || i.Task.Prompt != "later" || i.Task.Seq != held.Seq {
		t.Errorf("a task that never ran: %+v", i)
	}
	for _, from := range []imaged{w.c, readSnapshot(t, w.dir, 0)} {
		if _, err := from.TaskRecord("nobody"); code(err) != task.CodeNotFound {
			t.Errorf("of no task: %v", err)
		}
	}
}

// drawRecords returns random records of a few tasks, as stint and people write them: of
// runs and their ends, of edits, retries and deletions. now goes on with each.
func drawRecords(r *rand.Rand, n int, now time.Time) (list []*ledger.Record) {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	runs := 0
	for i := range n {
		now = now.Add(time.Duration(r.IntN(90)) * time.Minute)
		rec := &ledger.Record{Kind: ledger.KindTask, ID: pick("a", "b", "c", "d", "e")}
		switch kind := r.IntN(10); {
		case kind < 4:
			runs++
			rec.Add("status", "running").Add("runId", fmt.Sprint("r", runs)).Add("attempt", pick("1", "2")).Add("phase", pick("", "", "verify", "evaluate")).
				Add("iteration", pick("", "1", "2")).Add("reason", "").Add("exitCode", "").Add("startedAt", state.FormatTime(now))
		case kind < 8:
			rec.Add("status", pick("done", "failed", "queued", "canceled", "dead", "done")).AddIf("reason", pick("", "exit", "verify", "interrupted", "orphaned", "network")).
				AddIf("exitCode", pick("", "0", "1")).AddIf("verifyExitCode", pick("", "0", "1", "-1")).AddIf("inputTokens", pick("", "10", "20")).
				AddIf("by", pick("", "", "", "hand", "client")).Add("result", fmt.Sprint("answer ", i))
			if r.IntN(2) == 0 {
				rec.Add("phase", "").Add("attempt", pick("0", "1"))
			}
		case kind < 9:
			rec.Add(pick("prompt", "label", "agent", "model", "account", "verifyCommand", "idempotencyKey"), pick("", "x", "y")).AddIf("by", pick("", "hand", "client"))
		default:
			if rec.ID = fold.ControlDeleted; r.IntN(2) == 0 {
				rec.ID = state.ControlDispatch
			}
			rec.Kind = ledger.KindControl
			rec.Add(fold.KeyTasks, pick("a", "b c", "e")).Add(state.KeyPaused, pick("true", "false"))
			list = append(list, rec)
			continue
		}
		list = append(list, rec.Add("updatedAt", state.FormatTime(now)))
	}
	return list
}

// TestReadSnapshotUpTo: up to each record a copy has what the master had then, and knows
// which tasks are changed later.
func TestReadSnapshotUpTo(t *testing.T) {
	w := newWorld(t)
	c := unrun(t, w)
	had := map[uint64]map[string]task.TaskRecord{}
	last := map[string]uint64{} // record of each task
	add := func(r *rand.Rand, n int) {
		for _, rec := range drawRecords(r, n, time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)) {
			check(t, c.Append(rec))
			if had[c.Seq()] = images(t, c); rec.Kind == ledger.KindTask {
				last[rec.ID] = c.Seq()
			}
		}
	}
	compare := func() {
		t.Helper()
		for seq, want := range had {
			got := readSnapshot(t, w.dir, seq)
			if diff := cmp.Diff(want, images(t, got), cmpopts.EquateEmpty()); diff != "" || got.Seq() != seq {
				t.Fatalf("up to %d it has %d: %s", seq, got.Seq(), diff)
			}
			for id, n := range last {
				if got.ChangedLater(id) != (n > seq) {
					t.Errorf("up to %d: %s, whose last record is %d: %v", seq, id, n, got.ChangedLater(id))
				}
			}
		}
	}
	add(rand.New(rand.NewPCG(1, 8)), 30)
	compare()
	all, newest := had[c.Seq()], c.Seq()
	if got := readSnapshot(t, w.dir, 0); got.Seq() != newest || sameImages(all, images(t, got)) != "" {
		t.Errorf("as it is: %d", got.Seq())
	}
	_, err := c.Compact(t.Context(), 0, false, false)
	check(t, err)
	before := readSnapshot(t, w.dir, newest) // of the archive alone
	for id, i := range images(t, before) {
		if !i.Task.Status.Terminal() || before.ChangedLater(id) || sameImages(map[string]task.TaskRecord{id: all[id]}, map[string]task.TaskRecord{id: i}) != "" {
			t.Errorf("before the compaction there is %+v", i)
		}
		delete(all, id)
	}
	if later := slices.DeleteFunc(slices.Collect(maps.Keys(all)), before.ChangedLater); before.Seq() != 0 || len(all) == 0 || len(later) > 0 {
		t.Errorf("before the compaction: %d, without a later record: %v", before.Seq(), later)
	}
	clear(had)
	clear(last)
	add(rand.New(rand.NewPCG(2, 8)), 30)
	compare()
}

// TestReadSnapshotOfNothing says so; and a copy is not gone on with for nobody.
func TestReadSnapshotOfNothing(t *testing.T) {
	if _, err := statedir.ReadSnapshot(t.Context(), t.TempDir(), 0); code(err) != task.CodeNotFound {
		t.Errorf("%v", err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, ledger.JournalName), ledger.VersionLine+"\n\n"+strings.Repeat("\n", 100))
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	if _, err := statedir.ReadSnapshot(ctx, dir, 0); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
}

// TestReadSnapshotBesideCompactions: journal and archive are always of one another, though a
// master compacts meanwhile.
func TestReadSnapshotBesideCompactions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := unrun(t, w)
	var stop atomic.Bool
	stopped := make(chan error, 1)
	go func() {
		var err error
		for i := 0; err == nil && !stop.Load(); i++ {
			draft := ledger.Record{Kind: ledger.KindTask, ID: fmt.Sprint("t", i)}
			queued, done := draft, draft // the first of an archived task, without a status, would be refused
			err = c.Append(draft.Add("prompt", "p"), queued.Add("status", "queued"), done.Add("status", "done").Add("updatedAt", "2026-11-21T00:00:00Z"))
			if err == nil {
				_, err = c.Compact(context.Background(), time.Hour, false, false)
			}
		}
		stopped <- err
	}()
	for begun, most := time.Now(), 0; most < 40 && time.Since(begun) < 20*time.Second; {
		n := 0
		for id, i := range images(t, readSnapshot(t, w.dir, 0)) {
			if n++; i.Task.Prompt != "p" || i.Task.Status != state.Done {
				t.Fatalf("%s: %+v", id, i.Task)
			}
		}
		if n < most {
			t.Fatalf("%d tasks, and there were %d", n, most)
		}
		most = n
	}
	stop.Store(true)
	check(t, <-stopped)
}

// TestACopyKeepsNobodyAwake: who copies is no client, for whom an idle master stays.
func TestACopyKeepsNobodyAwake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.cfg.IdleExit = 30 * time.Second
		w.openUnwatched()
		for begun := time.Now(); w.live; {
			select {
			case err := <-w.ran:
				if took := time.Since(begun); err != nil || took > 2*w.cfg.IdleExit {
					t.Errorf("it went away after %s: %v", took, err)
				}
				w.ran <- nil
				w.close()
			case <-time.After(5 * time.Second):
				images(t, w.c)
				w.c.Accounts()
				check(t, w.c.Follow(w.c.Seq()).Close())
			}
		}
	})
}

// TestCompaction: archived tasks are still known, nobody is told of them again, and a retry brings one back.
func TestCompaction(t *testing.T) {
	w := openWorld(t)
	spec := task.TaskSpec{Prompt: "once", IdempotencyKey: "k", SessionKey: "web"}
	one := w.done(spec)
	later := w.submit(task.TaskSpec{Prompt: "later", NotBefore: time.Now().Add(time.Hour)})
	changes, stop := w.c.Subscribe(10)
	defer stop()
	if r, err := w.c.Compact(t.Context(), 24*time.Hour, false, false); err != nil || r.Archived != 0 || r.Merged != 3 {
		t.Errorf("what has just ended was archived: %+v, %v", r, err)
	}
	w.moveOut()
	if r, err := statedir.Fsck(t.Context(), w.cfg.StateDir, "", func() bool { return true }); err != nil || r.Seq != w.c.Seq() {
		t.Errorf("the newest record is %d, fsck says %+v, %v", w.c.Seq(), r, err)
	}
	spec.Prompt = "another body"
	_, err := w.try(spec)
	if _, cerr := w.c.Cancel(t.Context(), one.ID, "user"); code(err) != task.CodeConflict || code(cerr) != task.CodeConflict {
		t.Errorf("its key with another body: %v; canceled: %v", err, cerr)
	}
	if next := w.done(task.TaskSpec{Prompt: "next", SessionKey: "web"}); next.SessionID != one.SessionID {
		t.Errorf("its session is forgotten: %s and %s", next.SessionID, one.SessionID)
	}
	if c := <-changes; c.Task.ID == one.ID || c.Task.ID == later.ID {
		t.Errorf("a compaction was told as a change: %+v", c)
	}
	w.retry(one.ID)
	if got := w.wait(one.ID); got.Archived != "" || got.Prompt != "once" || got.Status != state.Done {
		t.Errorf("brought back: %+v", got)
	}
}

// TestCompactionByItself: the master compacts a journal that is too large.
func TestCompactionByItself(t *testing.T) {
	w := openWorld(t)
	for range 5 {
		w.done(task.TaskSpec{Prompt: strings.Repeat("long ", 1000)})
	}
	w.close()
	w.cfg.CompactSize = 10_000
	w.open()
	for end := time.Now().Add(20 * time.Second); len(w.c.List(state.Filter{})) > 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	w.close()
	list, err := statedir.ListArchive(w.dir, state.Filter{Limit: 3})
	if size := len(read(t, w.dir, ledger.JournalName)); err != nil || len(list) != 3 || size > 10_000 {
		t.Errorf("%d archived tasks, %v, journal of %d bytes", len(list), err, size)
	}
	w.open()
}

// TestPagesOverCompaction: the place in a list outlives the task that it names, a
// compaction and a restart; a place that no list has is refused.
func TestPagesOverCompaction(t *testing.T) {
	w := openWorld(t)
	waits := task.TaskSpec{Prompt: "later", NotBefore: time.Now().Add(time.Hour)}
	old := w.submit(waits)
	w.wait(w.submit(task.TaskSpec{Prompt: "once"}).ID)
	newest := w.submit(waits)
	page := func(before uint64) (ids []string, last uint64) {
		rows, err := w.c.Rows(state.Filter{Limit: 2, Before: before}, func(t *state.Task) ([]byte, error) { return []byte(t.ID), nil })
		check(t, err)
		for _, r := range rows {
			if last = r.First; r.Task != nil {
				r.Encoded = []byte(r.Task.ID)
			}
			ids = append(ids, string(r.Encoded))
		}
		return ids, last
	}
	ids, last := page(0)
	if len(ids) != 2 || ids[0] != newest.ID {
		t.Fatalf("the first page is %v", ids)
	}
	w.moveOut()
	next := func(when string) {
		if ids, _ := page(last); len(ids) != 1 || ids[0] != old.ID {
			t.Errorf("%s the page that follows is %v, want %s", when, ids, old.ID)
		}
	}
	next("after a compaction")
	w.restart()
	next("after a restart")
	if _, err := w.c.Rows(state.Filter{Before: last + 1000}, nil); code(err) != task.CodeInvalid || fieldOf(err) != "cursor" {
		t.Errorf("a place that no list has: %v", err)
	}
}
