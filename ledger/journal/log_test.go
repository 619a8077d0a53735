package journal_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/journal"
	"stint/ledger/reconcile"
)

// A world is a log in a directory together with what was folded from it.
type world struct {
	t    testing.TB
	dir  string
	fs   durable.FS
	log  *journal.Log
	mu   sync.Mutex
	fold []ledger.Record // guarded by mu
	said []string        // guarded by mu
	news chan struct{}
	gone string // what deleted was told last
}

func newWorld(t testing.TB) *world { return &world{t: t, dir: t.TempDir(), fs: durable.OS} }

// openWorld returns a world with a log that is open, in which those tasks are queued.
func openWorld(t testing.TB, watch bool, tasks ...string) *world {
	t.Helper()
	w := newWorld(t)
	w.open(watch)
	w.queue(tasks)
	return w
}

func (w *world) queue(tasks []string) {
	w.t.Helper()
	for _, id := range tasks {
		w.add(id, "status", "queued")
	}
	w.caughtUp()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) options(watch bool) journal.Options {
	w.fold, w.said, w.news = nil, nil, make(chan struct{}, 1000)
	return journal.Options{
		Dir: w.dir, FS: w.fs, Locker: &w.mu, Watch: watch,
		Apply: func(s *ledger.Section) error { return w.apply(&w.fold, s) },
		Rules: reconcile.Rules{
			Begin: func() (func(*ledger.Section) error, func(*ledger.Record) []ledger.Pair) {
				return func(s *ledger.Section) error {
					if s.Value("status") == "qeued" {
						return errors.New(`unknown status "qeued"; did you mean queued?`)
					}
					return nil
				}, nil
			},
			IsBusy:  func(name string) bool { return name == "Task busy" },
			Guarded: []string{"prompt", "verifyCommand"},
			KeepOnCopy: func(key string) bool {
				return strings.Contains(" prompt priority label model verifyCommand ", " "+key+" ")
			},
		},
		OnDelete:      w.deleted,
		OnRefoldStart: func() { w.fold = nil },
		OnRefoldEnd:   func() {},
		Notify: func(n ledger.Notice) {
			w.mu.Lock()
			w.said = append(w.said, n.Text)
			w.mu.Unlock()
			w.news <- struct{}{}
		},
	}
}

// apply adds a record to a fold.
func (w *world) apply(fold *[]ledger.Record, s *ledger.Section) error {
	if s.Value("status") == "QUEUED" {
		return errors.New("unknown status")
	}
	*fold = append(*fold, s.Record())
	return nil
}

// deleted notes which records have no section any more.
func (w *world) deleted(gone map[string]bool) []ledger.Record {
	names := strings.Join(slices.Sorted(maps.Keys(gone)), ", ")
	if names == w.gone {
		return nil
	}
	w.gone = names
	r := ledger.Record{Kind: ledger.KindControl, ID: "deleted"}
	return []ledger.Record{*r.Add("tasks", names)}
}

func (w *world) open(watch bool) {
	w.t.Helper()
	w.openWith(w.options(watch))
}

func (w *world) openWith(opts journal.Options) {
	w.t.Helper()
	var err error
	w.log, err = journal.Open(opts)
	must(w.t, err)
}

func (w *world) close() {
	w.t.Helper()
	must(w.t, w.log.Close())
}

// add appends one record and expects it to be acknowledged.
func (w *world) add(id string, fields ...string) {
	w.t.Helper()
	must(w.t, w.try(id, fields...))
}

func (w *world) try(id string, fields ...string) error { return w.change(record(id, fields...)) }

// change appends records as one change.
func (w *world) change(records ...*ledger.Record) error {
	return w.log.Update(context.Background(), func(tx *ledger.Tx) error {
		for _, r := range records {
			tx.Append(r)
		}
		return nil
	})
}

func record(id string, fields ...string) *ledger.Record {
	r := &ledger.Record{Kind: ledger.KindTask, ID: id}
	for i := 0; i < len(fields); i += 2 {
		r.Add(fields[i], fields[i+1])
	}
	return r
}

func (w *world) write(name, text string) {
	w.t.Helper()
	must(w.t, os.WriteFile(w.path(name), []byte(text), 0o600))
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) read(name string) string {
	w.t.Helper()
	data, err := os.ReadFile(w.path(name))
	must(w.t, err)
	return string(data)
}

// edit changes tasks.md as an editor that saves by rename does.
func (w *world) edit(f func(string) string) {
	w.t.Helper()
	old := w.read("tasks.md")
	now := f(old)
	if now == old {
		w.t.Fatal("the edit changes nothing")
	}
	w.write("tasks.md~", now)
	must(w.t, os.Rename(w.path("tasks.md~"), w.path("tasks.md")))
}

func replace(old, now string) func(string) string {
	return func(s string) string { return strings.Replace(s, old, now, 1) }
}

func appended(text string) func(string) string { return func(s string) string { return s + text } }

// lines returns the fold as "id key=value …" without what differs from run to run.
func (w *world) lines() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, r := range w.fold {
		_, byHand := r.Get(ledger.KeyAdopts)
		fmt.Fprintf(&b, "%d %s", r.Seq, r.ID)
		for _, f := range r.Fields {
			if f.Key != ledger.KeyAdopts && f.Key != ledger.KeyUnedited && !(byHand && f.Key == "updatedAt") {
				fmt.Fprintf(&b, " %s=%s", f.Key, f.Value)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (w *world) expect(want string) {
	w.t.Helper()
	if got := w.lines(); got != strings.TrimLeft(want, "\n") {
		w.t.Errorf("the fold is\n%s\nand not\n%s", got, want)
	}
}

// await waits until the log has said something that contains text.
func (w *world) await(text string) {
	w.t.Helper()
	for deadline := time.After(time.Minute); ; {
		w.mu.Lock()
		said := strings.Join(w.said, "\n")
		w.mu.Unlock()
		if strings.Contains(said, text) {
			return
		}
		select {
		case <-w.news:
		case <-deadline:
			w.t.Fatalf("never heard %q, but:\n%s", text, said)
		}
	}
}

// reopened closes the log, opens it again and expects the same fold: what is live is what is on the disk.
func (w *world) reopened() {
	w.t.Helper()
	live := w.lines()
	w.close()
	w.open(false)
	if again := w.lines(); again != live {
		w.t.Errorf("the live fold was\n%s\nand the fold of the files is\n%s", live, again)
	}
	w.close()
}

// TestTornTailAtEveryByte: cut anywhere, the journal gives a prefix of its
// changes, and a change of several records is there whole or not at all.
func TestTornTailAtEveryByte(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openWorld(t, false)
		w.add("a", "status", "queued", "prompt", "one\ntwo")
		must(t, w.change(record("a", "status", "failed"), record("followup", "status", "queued"), record("third", "status", "queued")))
		w.add("b", "status", "queued")
		w.close()
		records := w.read("journal.md")
		seen := map[int]bool{}
		for cut := range len(records) {
			v := newWorld(t)
			v.write("journal.md", records[:cut])
			v.open(false)
			n := len(v.fold)
			seen[n] = true
			if n != 0 && n != 1 && n != 4 && cut < len(records)-1 {
				t.Fatalf("cut at %d of %d: %d records", cut, len(records), n)
			}
			v.add("next", "status", "queued") // the tail was cut off: this must not be glued to it
			v.reopened()
			if len(v.fold) != n+1 {
				t.Fatalf("cut at %d: %d records after one more, want %d", cut, len(v.fold), n+1)
			}
		}
		if !seen[0] || !seen[1] || !seen[4] {
			t.Error("not every prefix was seen")
		}
	})
}

func TestTasksFileAloneRebuildsAll(t *testing.T) {
	t.Parallel()
	w := openWorld(t, false)
	for i := range 50 {
		w.add(fmt.Sprint("t", i), "status", "queued", "prompt", nasty[i%len(nasty)])
	}
	w.close()
	w.edit(appended("\n## Task mine\n- status: queued\n- prompt: by hand\n"))
	w.edit(replace("\n- status: queued", "\n- status: canceled"))
	w.open(false)
	want := w.lines()
	w.close()
	for _, openedBefore := range []bool{false, true} { // tasks.md is put beside no journal, or an empty one
		alone := newWorld(t)
		if openedBefore {
			alone.open(false)
			alone.close()
		}
		alone.write("tasks.md", w.read("tasks.md"))
		alone.open(false)
		if got := alone.lines(); got != want {
			t.Errorf("rebuilt:\n%s\nwant:\n%s", got[:200], want[:200])
		}
		alone.reopened()
	}
}

// until waits for something that comes without being told.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("never happened: %s", what)
		}
	}
}

// caughtUp waits until tasks.md has what was acknowledged last: that is appended a moment after the answer.
func (w *world) caughtUp() {
	w.t.Helper()
	records := strings.TrimRight(w.read("journal.md"), "\n")
	if i := strings.LastIndex(records, "\n## "); i >= 0 {
		w.until("tasks.md gets "+records[i+1:], func() bool { return strings.Contains(w.read("tasks.md"), records[i+1:]) })
	}
	w.log.Behind() // waits until the append has ended, too
}

// settle waits until a live log has nothing more to take over: an appended
// record is in tasks.md only when the file has been reconciled.
func (w *world) settle(live bool) {
	w.t.Helper()
	w.until("the log catches up with tasks.md", func() bool { return !live || !w.log.Behind() })
}

// everythingIsInTasks: each record of the journal stands in tasks.md, but for those.
func (w *world) everythingIsInTasks(but ...uint64) {
	w.t.Helper()
	seqs := func(name string) map[uint64]bool {
		m := map[uint64]bool{}
		doc := ledger.Parse([]byte(w.read(name)))
		for i := range doc.Sections {
			m[doc.Sections[i].Seq] = true
		}
		return m
	}
	have := seqs("tasks.md")
	for seq := range seqs("journal.md") {
		if !have[seq] && !slices.Contains(but, seq) {
			w.t.Errorf("record %d is not in tasks.md:\n%s", seq, w.read("tasks.md"))
		}
	}
}

// TestCutTasksTailIsCompleted: what a power cut leaves of the last record in tasks.md, with
// or without bytes behind it that nobody wrote, is completed, not rewritten.
func TestCutTasksTailIsCompleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openWorld(t, false)
		w.add("a", "status", "queued", "prompt", "x")
		w.add("b", "status", "queued", "prompt", "y\nz")
		w.close()
		whole, plain := w.read("tasks.md"), func(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\n\n", "\n")) }
		for cut := strings.Index(whole, "## Task b"); cut < len(whole)-1; cut++ {
			for _, void := range []string{"", strings.Repeat("\x00", 4096)} {
				w.write("tasks.md", whole[:cut]+void)
				w.open(false)
				w.expect("1 a status=queued prompt=x\n2 b status=queued prompt=y\nz\n")
				if f := w.log.Findings(); len(f) > 0 {
					t.Fatalf("cut at %d: %v", cut, f[0])
				}
				w.close()
				if got := w.read("tasks.md"); plain(got) != plain(whole) {
					t.Fatalf("cut at %d, tasks.md is\n%q\nand was\n%q", cut, got, whole)
				}
			}
		}
	})
}

// TestPromise7WhenTheDiskFailsWeStopSayingYes: after a failed fdatasync nothing is
// acknowledged any more, what was not acknowledged may be gone, and no follower gets it.
func TestPromise7WhenTheDiskFailsWeStopSayingYes(t *testing.T) {
	w := newObserved(t)
	w.add("a", "status", "queued")
	f := closing(t, w.log.Follow(0))
	w.disk.failSync.Store(true)
	if err := w.try("b", "status", "queued"); !errors.Is(err, syscall.EIO) {
		t.Fatalf("acknowledged although the sync failed: %v", err)
	}
	select {
	case <-w.log.Done():
	case <-time.After(time.Minute):
		t.Fatal("the log goes on after a failed sync")
	}
	if err := w.try("c", "status", "queued"); !errors.Is(err, journal.ErrClosed) {
		t.Fatalf("acknowledged after a failed sync: %v", err)
	}
	if !errors.Is(w.log.Err(), syscall.EIO) {
		t.Errorf("the log does not say why it stopped: %v", w.log.Err())
	}
	expectNext(t, f, "1 a")
	if _, err := f.Next(t.Context()); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("a follower after a failed sync: %v", err)
	}
	w.expect("1 a status=queued\n")
	w.close()
	if len(w.commits) != 2 || !errors.Is(w.commits[1].Err, syscall.EIO) {
		t.Errorf("the observer was told %+v", w.commits)
	}
}

// TestDiskFull: nothing half written stays, the answer says so, and the next
// record goes in when there is room.
func TestDiskFull(t *testing.T) {
	w := newObserved(t)
	w.add("a", "status", "queued")
	before := w.read("journal.md")
	w.disk.full.Store(true)
	if err := w.try("b", "status", "queued", "prompt", strings.Repeat("x", 1000)); !errors.Is(err, journal.ErrFull) {
		t.Fatalf("on a full disk: %v", err)
	}
	if got := w.read("journal.md"); got != before {
		t.Errorf("the journal was not cut back:\n%s", got)
	}
	w.disk.full.Store(false)
	w.add("c", "status", "queued")
	w.expect("1 a status=queued\n2 c status=queued\n")
	w.reopened()
	if len(w.commits) != 3 || !errors.Is(w.commits[1].Err, journal.ErrFull) {
		t.Errorf("the observer was told %+v", w.commits)
	}
}

func TestNewerFormatIsRefused(t *testing.T) {
	for name, text := range map[string]string{"tasks.md": "<!-- stint ledger 2 -->\n", "journal.md": "<!-- stint ledger 9 -->\n", "format": "7\n"} {
		w := newWorld(t)
		w.write(name, text)
		if _, err := journal.Open(w.options(false)); err == nil || !strings.Contains(err.Error(), "use the newer stint that wrote it") {
			t.Errorf("%s of a newer format: %v", name, err)
		}
		if w.read(name) != text {
			t.Errorf("%s was changed", name)
		}
	}
}

// queued makes n calls that wait for the log at the same time, in their order: it is busy until they do.
func (w *world) queued(n int, call func(i int)) {
	var wg sync.WaitGroup
	busy := make(chan struct{})
	wg.Go(func() {
		err := w.log.Update(context.Background(), func(*ledger.Tx) error {
			close(busy)
			for w.log.Waiting() < n {
				runtime.Gosched()
			}
			return nil
		})
		if err != nil {
			w.t.Error(err)
		}
	})
	<-busy
	for i := range n {
		wg.Go(func() { call(i) })
		for i+1 < n && w.log.Waiting() < i+1 {
			runtime.Gosched()
		}
	}
	wg.Wait()
}

// TestSameClaimNeverSharesABatch: of many who claim one key in the same moment,
// the second sees what the first has done.
func TestSameClaimNeverSharesABatch(t *testing.T) {
	w := openWorld(t, false)
	w.queued(64, func(i int) {
		err := w.log.Update(context.Background(), func(tx *ledger.Tx) error {
			part := &ledger.Tx{} // what another change has collected claims as much
			part.Claim("key")
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.fold) == 0 {
				part.Append(record(fmt.Sprint("t", i), "status", "queued"))
			}
			tx.Merge(part)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	if len(w.fold) != 1 {
		t.Errorf("%d records under one key", len(w.fold))
	}
	w.close()
}

// openNoting opens the log and notes where each record stands.
func (w *world) openNoting(offs *[]int64) {
	w.t.Helper()
	opts := w.options(false)
	opts.Apply = func(s *ledger.Section) error { *offs = append(*offs, s.Off); return nil }
	w.openWith(opts)
}

// TestSectionAt: what is read again and again is read in any order, also where
// the journal has grown since its neighbours were read.
func TestSectionAt(t *testing.T) {
	w := newWorld(t)
	var offs []int64
	w.openNoting(&offs)
	for n := range 300 {
		length := 100
		if n == 100 {
			length = 20_000
		}
		w.add(fmt.Sprint("t", n), "prompt", fmt.Sprint(n, strings.Repeat(" long", length)))
		for _, i := range []int{n, n * 7 % (n + 1), n / 2, n} {
			s, err := w.log.SectionAt(offs[i])
			if err != nil || s.Off != offs[i] || string(s.ID) != fmt.Sprint("t", i) || !strings.HasPrefix(s.Value("prompt"), fmt.Sprint(i, " long")) {
				t.Fatalf("record %d of %d: %+v, %v", i, n, s, err)
			}
		}
	}
	if _, err := w.log.SectionAt(3); err == nil {
		t.Error("a record where none begins")
	}
	w.close()
}

// TestSectionAtFarApart: the records of each task lie far from each other, as those of
// tasks that waited together do. The journal is still read about once.
func TestSectionAtFarApart(t *testing.T) {
	const n = 1000
	var offs []int64
	w, fsys := newWorld(t), newFailingFS()
	w.fs = fsys
	w.openNoting(&offs)
	var batch []*ledger.Record
	for i := range n {
		batch = append(batch, kilobyte(fmt.Sprint("t", i)))
	}
	for range 3 {
		must(t, w.change(batch...))
	}
	fsys.reads.Store(0)
	for i := n - 1; i >= 0; i-- {
		for _, off := range []int64{offs[i], offs[n+i], offs[2*n+i]} {
			if _, err := w.log.SectionAt(off); err != nil {
				t.Fatal(err)
			}
		}
	}
	if reads := fsys.reads.Load(); reads > n/5 {
		t.Errorf("%d reads for %d records", reads, 3*n)
	}
	w.close()
}

// TestWritersWithoutEnd: those who always come with one more change do not keep the others waiting.
func TestWritersWithoutEnd(t *testing.T) {
	const enough = 100
	if n := journal.Gather(enough); n == enough {
		t.Errorf("others went first %d times", n)
	}
}
