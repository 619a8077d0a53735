package journal_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"stint/ledger"
	"stint/ledger/journal"
)

// A faultyFS lets the n-th call fail, or all from there on.
type faultyFS struct {
	opsFS
	at      int
	errno   syscall.Errno
	forever bool

	mu    sync.Mutex // guards what follows
	calls int
	did   string // the first call that failed
	sync  bool   // a sync of the journal has failed since the log was opened
}

// forget is called when a log is opened anew: it may say yes again.
func (f *faultyFS) forget() {
	if f != nil {
		f.mu.Lock()
		f.sync = false
		f.mu.Unlock()
	}
}

func (f *faultyFS) on(fsys *memFS) *faultyFS {
	f.opsFS = opsFS{fsys, f.fail}
	return f
}

// fail counts a call and gives its error.
func (f *faultyFS) fail(call, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if call == "wrote" {
		return nil
	}
	f.calls++
	if f.calls != f.at && !(f.forever && f.calls > f.at) {
		return nil
	}
	if f.did == "" {
		f.did = call + " " + path
	}
	if strings.HasSuffix(call, "sync") && strings.HasSuffix(path, "/journal.md") {
		f.sync = true
	}
	return &fs.PathError{Op: call, Path: path, Err: f.errno}
}

// note writes down what a client was told about a change.
func (a *answers) note(records []*ledger.Record, err error, faults *faultyFS) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range records {
		s, bad := ledger.Encode(r)
		if bad != nil {
			panic(bad)
		}
		text := textOf(s)
		a.sent = append(a.sent, text)
		switch {
		case err == nil:
			a.kept = append(a.kept, text)
		case errors.Is(err, journal.ErrFull):
			a.refused = append(a.refused, text)
		}
	}
	faults.mu.Lock()
	defer faults.mu.Unlock()
	if faults.sync && err == nil {
		a.false = append(a.false, fmt.Sprintf("%v was acknowledged after a failed sync", records))
	}
}

var errnos = []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EMFILE, syscall.EROFS, syscall.EINTR}

// TestPromise7EveryCallFails plays the scenes and lets each call of the file system fail, once or with all
// that follow. Nobody is told that something was kept that was not: when the disk is well again, or after a
// power cut, all that was acknowledged is there, once. Each call fails with one of the errors; with
// STINT_TEST_FAULTS=all with each, with 4 only each fourth call does; STINT_TEST_SEED repeats a run.
func TestPromise7EveryCallFails(t *testing.T) {
	t.Parallel()
	seed := uint64(intFromEnv(t, "STINT_TEST_SEED", 1))
	points, every := 0, 2*len(errnos)
	switch {
	case os.Getenv("STINT_TEST_FAULTS") == "all":
		every = 1
	case os.Getenv("STINT_TEST_FAULTS") != "":
		every *= intFromEnv(t, "STINT_TEST_FAULTS", 1)
	case testing.Short():
		every *= 16
	}
	for _, c := range scenes {
		for i, errno := range errnos {
			points += failEverywhere(t, c.name, seed, sweep{errno, false, 1 + 2*i%every, every})
			points += failEverywhere(t, c.name, seed, sweep{errno, true, 1 + (2*i+1)%every, every})
		}
	}
	t.Logf("faults: points=%d scenarios=%d seed=%d", points, len(scenes), seed)
}

// A sweep is a fault at call from, from+step and so on.
type sweep struct {
	errno      syscall.Errno
	forever    bool
	from, step int
}

// failEverywhere lets one call after the other fail until the scene passes
// untouched, and gives how many calls that were.
func failEverywhere(t *testing.T, name string, seed uint64, w sweep) (points int) {
	t.Helper()
	for n := w.from; ; n += w.step {
		f := &faultyFS{at: n, errno: w.errno, forever: w.forever}
		s := played(t, name, seed, f)
		if err := s.told.check(s); err != nil {
			t.Fatalf("%s, seed %d: call %d (%s) fails with %v, forever: %v: %v", name, seed, n, f.did, w.errno, w.forever, err)
		}
		if f.did == "" {
			return points
		}
		points++
	}
}

// check holds the files to what the clients were told.
func (a *answers) check(s *scene) error {
	if len(a.false) > 0 {
		return failed(corrupted, "%s", a.false[0])
	}
	d := &disk{}
	for i := range s.fs.trace {
		d.apply(&s.fs.trace[i])
	}
	for _, m := range modes[:2] { // the process ends; the power is cut
		fsys := d.image(m, s.rng)
		f := folding{fs: fsys}
		image := fsys.frozen()
		if err := a.recovered(&f); err != nil {
			return fmt.Errorf("%s: %w\nbefore recovery:\n%safter it:\n%s", m.name, err, listing(image), listing(fsys.frozen()))
		}
	}
	return nil
}

func (a *answers) recovered(f *folding) error {
	if err := f.open(); err != nil {
		return failed(corrupted, "the log does not open on a good disk: %v", err)
	}
	if err := f.log.Close(); err != nil {
		return err
	}
	if len(f.gone) > 0 {
		return failed(lost, "taken as deleted by hand: %v", f.gone)
	}
	if a.compacted {
		return a.merged(f)
	}
	sent, kept := slices.Clone(a.sent), slices.Clone(a.kept)
	for _, r := range withoutHand(f.all) {
		i := slices.Index(sent, r.text)
		if i < 0 || slices.Contains(a.refused, r.text) {
			return failed(corrupted, "this was not submitted, is there twice, or was refused: %q", r.text)
		}
		sent = slices.Delete(sent, i, i+1)
		if i := slices.Index(kept, r.text); i >= 0 {
			kept = slices.Delete(kept, i, i+1)
		}
	}
	if len(kept) > 0 {
		return failed(lost, "this was acknowledged: %q", kept[0])
	}
	if err := f.again(); err != nil {
		return err
	}
	return f.alone()
}

// merged is what can be said after a compaction: each task of which a change was
// acknowledged is in the journal or in the archive.
func (a *answers) merged(f *folding) error {
	records, _ := f.fs.content("journal.md")
	have := tasksIn(records)
	for _, text := range a.kept {
		id, _, _ := strings.Cut(strings.TrimPrefix(text, "## "), "\n")
		archived := slices.ContainsFunc(f.archived, func(e string) bool { return strings.HasPrefix("Task "+e, id+" ") })
		if have[id] == nil && !archived {
			return failed(lost, "this was acknowledged: %q", text)
		}
	}
	return errors.Join(f.again(), f.alone())
}
