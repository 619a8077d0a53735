package queue_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"

	"golang.org/x/sys/unix"
)

const day = 24 * time.Hour

// A prunedDir is a state directory with what tasks have left, as of now.
type prunedDir struct {
	*testing.T
	dir string
	now time.Time
	*queue.Store
}

func newPrunedDir(t *testing.T) *prunedDir {
	d := &prunedDir{T: t, dir: t.TempDir(), now: time.Now()}
	var err error
	d.Store, err = queue.Open(queue.Config{StateDir: d.dir, Retention: 30 * day, Unwatched: true, Now: func() time.Time { return d.now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(func() {}); err != nil {
			t.Error(err)
		}
	})
	return d
}

// task records a task whose newest record is so old.
func (d *prunedDir) task(id string, status state.Status, age time.Duration, more ...string) {
	rec := &ledger.Record{Kind: ledger.KindTask, ID: id}
	rec.Add(state.KeyStatus, string(status)).Add(state.KeySessionKey, "lane-"+id).Add(state.KeyAgent, "demo").Add(state.KeyPrompt, "p")
	for i := 0; i < len(more); i += 2 {
		rec.Add(more[i], more[i+1])
	}
	rec.Add(state.KeyUpdatedAt, state.FormatTime(d.now.Add(-age)))
	if err := d.Update(context.Background(), func(_ *fold.State, tx *ledger.Tx) error { tx.Append(rec); return nil }); err != nil {
		d.Fatal(err)
	}
}

// file writes a file below the state directory, of so many KiB.
func (d *prunedDir) file(path, text string, kib int) {
	path = filepath.Join(d.dir, path)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text+strings.Repeat("\n", kib<<10)), 0o600)
	}
	if err != nil {
		d.Fatal(err)
	}
}

// age makes a place so old; of a link it is the link.
func (d *prunedDir) age(path string, age time.Duration) {
	at, err := unix.TimeToTimespec(d.now.Add(-age))
	if err == nil {
		err = unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(d.dir, path), []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		d.Fatal(err)
	}
}

// run makes the directory of a run of that task, so old.
func (d *prunedDir) run(id, taskID string, age time.Duration) {
	d.file("runs/"+id+"/run.json", `{"taskId":"`+taskID+`"}`, 0)
	d.file("runs/"+id+"/stdout", "", 64)
	d.age("runs/"+id, age)
}

// prune returns the names of the places that went, sorted.
func (d *prunedDir) prune(olderThan time.Duration, dryRun bool) (names []string, r task.Pruned) {
	r, err := d.Prune(context.Background(), olderThan, dryRun)
	if err != nil {
		d.Error(err)
	}
	for _, l := range r.Removed {
		names = append(names, filepath.Base(l.Path))
		if _, err := os.Lstat(filepath.Join(d.dir, l.Path)); dryRun != (err == nil) {
			d.Errorf("dry run %v: %s: %v", dryRun, l.Path, err)
		}
	}
	slices.Sort(names)
	return names, r
}

// Whatever may still be needed stays, whatever its age; the rest goes by the end of its task.
func TestPrune(t *testing.T) {
	d := newPrunedDir(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Mkdir(outside, 0o700); err != nil {
		t.Fatal(err)
	}
	d.task("done-old", state.Done, 31*day)
	d.task("done-new", state.Done, 29*day)
	d.task("waits", state.Queued, 60*day, state.KeyRunID, "run-of-waiting", state.KeySessionID, "session-of-waiting")
	d.task("running", state.Running, 60*day, state.KeyRunID, "run-lost-its-record")
	const never, after30, after0 = 0, 1, 2
	goes := map[int][]string{after30: {"link", "session-old.jsonl", "used-long-ago"}, after0: {"session-new.jsonl"}}
	for _, c := range []struct {
		run, task string
		age       time.Duration
		goes      int
	}{
		{"ended-long-ago", "done-old", 32 * day, after30},
		{"ended-of-late", "done-new", 40 * day, after0}, // its task ended later than the run
		{"run-of-waiting", "waits", 60 * day, never},
		{"earlier-run-of-waiting", "waits", 61 * day, never},
		{"run-lost-its-record", "", 60 * day, never},
		{"verified-of-late", "done-old", time.Minute, after0},
		{"of-no-task", "unknown", 31 * day, after30},
		{"of-no-task-yet", "", time.Minute, never},
		{".gone-half", "waits", time.Minute, after30},
	} {
		d.run(c.run, c.task, c.age)
		goes[c.goes] = append(goes[c.goes], c.run)
	}
	slices.Sort(goes[after30])
	slices.Sort(goes[after0])
	if err := os.Symlink(outside, filepath.Join(d.dir, "runs/link")); err != nil {
		t.Fatal(err)
	}
	d.age("runs/link", 31*day)
	d.file("runs/ended-long-ago/files/closed/f", "", 0)
	d.age("runs/ended-long-ago", 32*day)
	if err := os.Chmod(filepath.Join(d.dir, "runs/ended-long-ago/files/closed"), 0); err != nil {
		t.Fatal(err)
	}
	d.task("in-session", state.Done, 60*day, state.KeySessionKey, "web", state.KeySessionID, "session-current")
	for _, id := range []string{"session-current", "session-of-waiting", "session-old", "session-new"} {
		d.file("sessions/"+id+".jsonl", "{}", 1)
		d.file("sessions/"+id+".lock", "", 0)
		d.age("sessions/"+id+".jsonl", 31*day)
	}
	d.age("sessions/session-new.jsonl", 29*day)
	d.file("checkouts/used-long-ago/index", "", 1)
	d.age("checkouts/used-long-ago", 31*day)

	want := goes[after30]
	would, _ := d.prune(30*day, true)
	got, r := d.prune(30*day, false)
	if !slices.Equal(got, want) || !slices.Equal(would, want) || r.Bytes < 3*64<<10 || r.Left < 6*64<<10 {
		t.Errorf("went %q, would %q, want %q; %d bytes, %d left", got, would, want, r.Bytes, r.Left)
	}
	if _, err := os.Lstat(outside); err != nil {
		t.Errorf("what a link leads to: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(d.dir, "sessions/session-old.lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock of a session that went: %v", err)
	}
	if got, _ := d.prune(0, false); !slices.Equal(got, goes[after0]) {
		t.Errorf("of all that have ended went %q, want %q", got, goes[after0])
	}
	left, err := os.ReadDir(filepath.Join(d.dir, "runs"))
	if err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") }) {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Of what is too much the oldest goes, by the end of its task, until there is room; what is needed counts
// and stays.
func TestPruneBySize(t *testing.T) {
	d := newPrunedDir(t)
	d.task("waits", state.Queued, 60*day)
	d.run("of-waiting", "waits", 60*day)
	for i, id := range []string{"third", "first", "second"} {
		d.task(id, state.Failed, []time.Duration{day, 3 * day, 2 * day}[i])
		d.run("of-"+id, id, 10*day)
	}
	for _, c := range []struct {
		room int64 // in runs of 64 KiB and a little
		want []string
	}{{0, nil}, {4, nil}, {2, []string{"of-first", "of-second"}}, {1, []string{"of-third"}}, {1, nil}} {
		d.Config.RetentionSize = c.room * 80 << 10
		if got, r := d.prune(30*day, false); !slices.Equal(got, c.want) || c.room > 0 && r.Left > d.Config.RetentionSize {
			t.Errorf("with room for %d went %q, want %q; %d bytes left", c.room, got, c.want, r.Left)
		}
	}
}

// A link in the place of all runs is not followed, and that is said.
func TestPruneNoDirectory(t *testing.T) {
	d := newPrunedDir(t)
	d.run("of-nobody", "", 60*day)
	aside := filepath.Join(t.TempDir(), "aside")
	if err := errors.Join(os.Rename(filepath.Join(d.dir, "runs"), aside), os.Symlink(aside, filepath.Join(d.dir, "runs"))); err != nil {
		t.Fatal(err)
	}
	r, err := d.Prune(context.Background(), 0, false)
	if err == nil || !strings.Contains(err.Error(), "runs is no directory") || len(r.Removed) > 0 {
		t.Errorf("%v, %v", r, err)
	}
}
