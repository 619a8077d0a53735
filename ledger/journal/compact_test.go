package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/ledger"
	"stint/ledger/archive"
	"stint/ledger/durable"
	"stint/ledger/follow"
	"stint/ledger/journal"
	"stint/ledger/plain"
)

// A shelf is a world that can be compacted.
type shelf struct {
	*world
	archived []ledger.ArchiveEntry // guarded by mu
	isCached bool                  // the log keeps a cache
	folds    int                   // how often the fold began anew; guarded by mu
	anew     func()                // is called when it does; guarded by mu
	planning func()                // is called at each plan, on the compaction's goroutine
}

func newShelf(t testing.TB) *shelf { return &shelf{world: newWorld(t)} }

func openShelf(t testing.TB, watch bool, tasks ...string) *shelf {
	t.Helper()
	w := newShelf(t)
	w.open(watch)
	w.queue(tasks)
	return w
}

func (w *shelf) open(watch bool) {
	w.t.Helper()
	must(w.t, w.tryOpen(watch))
}

func (w *shelf) tryOpen(watch bool) (err error) {
	opts := w.options(watch)
	w.archived = nil
	if w.isCached {
		opts.Code = func(c *plain.Coder) { code(c, &w.fold); code(c, &w.archived) }
	}
	opts.Archived = func(e ledger.ArchiveEntry) { w.archived = append(w.archived, e) }
	opts.OnRefoldStart = func() {
		w.fold, w.archived = nil, nil
		w.folds++
		if w.anew != nil {
			w.anew()
		}
	}
	opts.Now = func() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }
	w.log, err = journal.Open(opts)
	return err
}

// A shelfFold is another fold of a shelf.
type shelfFold struct {
	w        *shelf
	fold     []ledger.Record
	archived []ledger.ArchiveEntry
}

// Archive implements [journal.Fold].
func (f *shelfFold) Archive(e ledger.ArchiveEntry) { f.archived = append(f.archived, e) }

// Apply implements [journal.Fold].
func (f *shelfFold) Apply(s *ledger.Section) error { return f.w.world.apply(&f.fold, s) }

// plan keeps one record of each id with the last value of each field, in the order
// of age, and moves the given ids out.
func (w *shelf) plan(out ...string) journal.Compaction {
	return journal.Compaction{
		New: func(journal.Reader) journal.Fold { return &shelfFold{w: w} },
		Plan: func(f journal.Fold, moveOut func(ledger.Moved) error) (ledger.Keep, error) {
			if w.planning != nil {
				w.planning()
			}
			var kept ledger.Keep
			for _, r := range merge(f.(*shelfFold).fold) {
				if !slices.Contains(out, r.ID) {
					kept.Add(r)
					continue
				}
				status, _ := r.Get("status")
				key, _ := r.Get("idempotencyKey")
				if err := moveOut(ledger.Moved{Record: r, Entry: ledger.ArchiveEntry{ID: r.ID, Status: status, Key: key}}); err != nil {
					return nil, err
				}
			}
			return kept, nil
		},
		Take: func(f journal.Fold) {
			w.fold, w.archived = f.(*shelfFold).fold, f.(*shelfFold).archived
			w.folds++
			if w.anew != nil {
				w.anew()
			}
		},
	}
}

// merge returns a record of each task, by age.
func merge(fold []ledger.Record) (list []ledger.Record) {
	at := map[string]int{}
	for _, r := range fold {
		if enc, err := ledger.Encode(&r); err != nil || r.Kind == ledger.KindControl || enc.IsNote() {
			continue
		}
		i, known := at[r.ID]
		if !known {
			i = len(list)
			at[r.ID] = i
			list = append(list, ledger.Record{Kind: r.Kind, ID: r.ID})
		}
		for _, f := range r.Fields {
			j := slices.IndexFunc(list[i].Fields, func(p ledger.Pair) bool { return p.Key == f.Key })
			switch {
			case isEngines(f.Key):
			case j >= 0:
				list[i].Fields[j].Value = f.Value
			default:
				list[i].Add(f.Key, f.Value)
			}
		}
	}
	return list
}

// meaning returns what the records say of each task, and what is in the archive.
func (w *shelf) meaning() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, r := range merge(w.fold) {
		fmt.Fprintf(&b, "%s %q\n", r.ID, r.Fields)
	}
	return b.String()
}

func (w *shelf) compact(out ...string) ledger.CompactReport {
	w.t.Helper()
	r, err := w.log.Compact(w.t.Context(), w.plan(out...))
	must(w.t, err)
	return r
}

// refuse expects that a compaction is refused with these words, and changes nothing.
func (w *shelf) refuse(words string) {
	w.t.Helper()
	records, tasks := w.read("journal.md"), w.read("tasks.md")
	_, err := w.log.Compact(w.t.Context(), w.plan())
	var refused *journal.RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), words) {
		w.t.Errorf("the error is %v, not one with %q", err, words)
	}
	if w.read("journal.md") != records || w.read("tasks.md") != tasks {
		w.t.Error("a refused compaction has changed something")
	}
}

// lessThan returns the lines of a meaning but for those of some ids.
func lessThan(meaning string, ids ...string) string {
	var b strings.Builder
	for line := range strings.Lines(meaning) {
		if id, _, _ := strings.Cut(line, " "); !slices.Contains(ids, id) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// isSound: both files have the same records in the same order, tasks.md alone gives
// the same, and it has no findings.
func (w *shelf) isSound() {
	w.t.Helper()
	doc := ledger.Parse([]byte(w.read("tasks.md")))
	if len(doc.Findings) > 0 {
		w.t.Errorf("tasks.md has a finding: %v", doc.Findings[0])
	}
	var tasks, records []uint64
	for i := range doc.Sections {
		tasks = append(tasks, doc.Sections[i].Seq)
	}
	doc = ledger.Parse([]byte(w.read("journal.md")))
	for i := range doc.Sections {
		records = append(records, doc.Sections[i].Seq)
	}
	if !slices.Equal(tasks, records) {
		w.t.Errorf("tasks.md has the records %d, the journal %d", tasks, records)
	}
	alone := newShelf(w.t)
	alone.write("tasks.md", w.read("tasks.md"))
	alone.open(false)
	if diff := cmp.Diff(w.meaning(), alone.meaning()); diff != "" {
		w.t.Errorf("tasks.md alone gives other tasks (+):\n%s", diff)
	}
	alone.close()
}

// TestHasDoubled: a journal has doubled when it has twice what the last compaction left, also after a restart.
func TestHasDoubled(t *testing.T) {
	w := filled(t)
	want := func(when string, is bool) {
		t.Helper()
		w.mu.Lock()
		defer w.mu.Unlock()
		if got := w.log.HasDoubled(); got != is {
			t.Errorf("%s: %v", when, got)
		}
	}
	want("never compacted", true)
	w.compact("b")
	want("just compacted", false)
	left := strings.Count(w.read("journal.md"), "\n- seq: ") - 1
	for i := range left {
		w.add("e", "status", "queued")
		want(fmt.Sprintf("%d records more", i+1), false)
	}
	w.caughtUp()
	w.close()
	w.open(false)
	want("restarted", false)
	w.add("e", "status", "running")
	want("doubled", true)
	w.close()
}

// filled is a shelf with three tasks, of which b has ended.
func filled(t testing.TB) *shelf {
	w := openShelf(t, false)
	w.add("a", "status", "queued", "prompt", "one\n\n  two \x00\n", "color", "red")
	w.add("b", "status", "queued", "idempotencyKey", "k")
	w.add("c", "status", "queued")
	w.add("a", "status", "running")
	w.add("b", "status", "done", "result", "well", "updatedAt", "2026-01-02T03:04:05.000Z")
	w.caughtUp()
	return w
}

// TestPromise4CompactionSeesASaveOfTheSameSize, which nobody has had the time to see.
func TestPromise4CompactionSeesASaveOfTheSameSize(t *testing.T) {
	w, fs := openOnce(t, "write", "tasks.md")
	w.add("a", "status", "queued")
	w.caughtUp()
	saved := strings.Replace(w.read("tasks.md"), "\n- status: queued", "\n- status: failed", 1)
	fs.next(func() error { return os.WriteFile(w.path("tasks.md"), []byte(saved), 0o600) }) // in place
	w.add("b", "status", "queued")
	w.until("b is in tasks.md", func() bool { return strings.Contains(w.read("tasks.md"), "## Task b") })
	w.compact()
	if !strings.Contains(w.meaning(), `a [{"status" "failed"}`) {
		t.Errorf("the edit is gone:\n%s", w.meaning())
	}
	w.isSound()
	w.close()
}

// TestPromise4CompactionSeesALateSave: a save that comes when the compaction has read the
// file, and has yet to write its journal, counts.
func TestPromise4CompactionSeesALateSave(t *testing.T) {
	t.Parallel()
	w, fs := openOnce(t, "create", "journal.md.new")
	w.add("a", "status", "queued", "label", "x")
	w.caughtUp()
	fs.next(func() error {
		text := strings.Replace(w.read("tasks.md"), "- label: x", "- label: mine", 1)
		return os.WriteFile(w.path("tasks.md"), []byte(text), 0o600)
	})
	w.compact()
	if !strings.Contains(w.meaning(), `"label" "mine"`) {
		t.Errorf("the edit is gone:\n%s", w.meaning())
	}
	w.isSound()
	w.close()
}

func TestCompaction(t *testing.T) {
	t.Parallel()
	w := filled(t)
	before, old := w.meaning(), w.read("journal.md")
	r := w.compact("b")
	if r.Before != int64(len(old)) || r.After != int64(len(w.read("journal.md"))) || r.Merged != 2 || r.Archived != 1 || r.Archive != "tasks-2026-11.md" {
		t.Errorf("the report is %+v", r)
	}
	want := lessThan(before, "b")
	if diff := cmp.Diff(want, w.meaning()); diff != "" {
		t.Errorf("the fold (+) is not the old one:\n%s", diff)
	}
	if got, want := w.lines(), "6 compaction through=5 merged=2 archive=tasks-2026-11.md size="+fmt.Sprint(len(w.read("archive/tasks-2026-11.md")))+" updatedAt=2026-11-21T12:00:00.000Z\n7 a "; !strings.HasPrefix(got, want) {
		t.Errorf("the journal begins with %q", got)
	}
	w.isSound()
	w.add("d", "status", "queued") // numbers go on
	w.caughtUp()
	if !strings.Contains(w.lines(), "\n9 d status=queued") || w.folds != 1 || w.log.Behind() {
		t.Errorf("after one more record: %d folds, behind %v\n%s", w.folds, w.log.Behind(), w.lines())
	}
	w.isSound()
	if archive := w.read("archive/tasks-2026-11.md"); strings.Count(archive, "\n## ") != 1 {
		t.Errorf("the archive has more than the one record of b:\n%s", archive)
	}
	w.checkArchived("b", "done", "k", "well")
	w.reopened()
}

// TestSubmitsGoOnWhileACompactionIsPlanned, and what they bring stands behind the merged records, in both files.
func TestSubmitsGoOnWhileACompactionIsPlanned(t *testing.T) {
	t.Parallel()
	w := filled(t)
	f := closing(t, w.log.Follow(5))
	noRecord(t, f)
	want := lessThan(w.meaning(), "b")
	held, release := make(chan struct{}), make(chan struct{})
	w.planning = func() {
		close(held)
		<-release
	}
	done := make(chan error, 1)
	go func() {
		_, err := w.log.Compact(t.Context(), w.plan("b"))
		done <- err
	}()
	<-held
	w.add("d", "status", "queued") // it is acknowledged
	w.add("c", "status", "running")
	expectNext(t, f, "80 d", "81 c") // the numbers before are set aside for merged records
	if strings.Contains(w.read("journal.md"), "compaction") || len(done) > 0 {
		t.Error("the compaction did not wait")
	}
	close(release)
	must(t, <-done)
	want = strings.Replace(want, `c [{"status" "queued"}`, `c [{"status" "running"}`, 1) + "d [{\"status\" \"queued\"}]\n"
	if diff := cmp.Diff(want, w.meaning()); diff != "" {
		t.Errorf("the fold (+) is not the old one:\n%s", diff)
	}
	w.add("e", "status", "queued")
	w.caughtUp()
	w.isSound()
	expectNext(t, f, "82 e") // whoever had read all sees no merged record
	w.reopened()
}

// TestPromise4EditWhileACompactionIsPlanned is taken over, whoever sees it first.
func TestPromise4EditWhileACompactionIsPlanned(t *testing.T) {
	t.Parallel()
	for _, seen := range []bool{false, true} {
		w := filled(t)
		w.planning = func() {
			w.planning = nil
			w.add("d", "status", "queued")
			w.edit(replace("- color: red", "- color: mine"))
			if seen {
				w.reconcile()
				w.add("e", "status", "queued")
			}
		}
		w.compact("b")
		if got := w.meaning(); !strings.Contains(got, `"color" "mine"`) || !strings.Contains(got, "d [") || seen != strings.Contains(got, "e [") {
			t.Errorf("seen %v: something is gone:\n%s", seen, got)
		}
		w.caughtUp()
		w.isSound()
		w.reopened()
	}
}

// TestCompactionKeepsThePlaceOfText in a file of which most is read only to be left out: what stays is where its first section
// was, and so is all text.
func TestCompactionKeepsThePlaceOfText(t *testing.T) {
	t.Parallel()
	w := openShelf(t, false)
	const tasks = 400
	var out []string
	var text strings.Builder
	want := ""
	for i := range tasks {
		id := fmt.Sprint("t", i)
		w.add(id, "status", "queued", "prompt", strings.Repeat("word ", 40))
		w.add(id, "status", "running")
		if i%3 > 0 {
			out = append(out, id)
		} else {
			want += "## Task " + id + "\n"
		}
		if i%100 == 50 {
			want += fmt.Sprintf("Text %d.\n", i)
		}
	}
	w.caughtUp()
	w.edit(func(old string) string {
		for line := range strings.Lines(old) {
			if id, isHeading := strings.CutPrefix(line, "## Task t"); isHeading && strings.HasSuffix(id, "51\n") && !strings.Contains(text.String(), line) {
				fmt.Fprintf(&text, "Text %s.\n\n", strings.Replace(strings.TrimSpace(id), "51", "50", 1))
			}
			text.WriteString(line)
		}
		return text.String()
	})
	w.reconcile()
	w.compact(out...)
	w.caughtUp()
	got := ""
	for line := range strings.Lines(w.read("tasks.md")) {
		if strings.HasPrefix(line, "## Task t") || strings.HasPrefix(line, "Text ") {
			got += line
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headings and text (+):\n%s", diff)
	}
	w.isSound()
	w.reopened()
}

// TestCompactionIsCalledOff while it is planned: nothing has changed but for what came meanwhile.
func TestCompactionIsCalledOff(t *testing.T) {
	t.Parallel()
	w := filled(t)
	ctx, cancel := context.WithCancel(t.Context())
	var want string
	w.planning = func() {
		w.add("d", "status", "queued")
		want = w.read("journal.md")
		cancel()
	}
	if _, err := w.log.Compact(ctx, w.plan("b")); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	w.caughtUp()
	if w.read("journal.md") != want {
		t.Errorf("the journal has changed:\n%s", w.read("journal.md"))
	}
	for _, name := range []string{"journal.md.new", "tasks.md.compacted"} {
		if _, err := os.Stat(w.path(name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	w.planning = nil
	w.compact("b")
	w.caughtUp()
	w.isSound()
	w.reopened()
}

// TestCloseEndsACompaction that is planned, and waits for it.
func TestCloseEndsACompaction(t *testing.T) {
	t.Parallel()
	w := filled(t)
	want, how, closed := w.lines(), w.plan(), make(chan error, 1)
	how.Plan = func(_ journal.Fold, out func(ledger.Moved) error) (keep ledger.Keep, err error) {
		go func() { closed <- w.log.Close() }()
		for err == nil {
			err = out(ledger.Moved{Record: *record("b", "status", "done"), Entry: ledger.ArchiveEntry{ID: "b"}})
		}
		return keep, err
	}
	if _, err := w.log.Compact(t.Context(), how); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("the error is %v", err)
	}
	must(t, <-closed)
	w.open(false)
	if got := w.lines(); got != want {
		t.Errorf("it was\n%s\nand is\n%s", want, got)
	}
	w.close()
}

func (w *shelf) reopened() {
	w.t.Helper()
	live, archived := w.lines(), slices.Clone(w.archived)
	w.close()
	w.open(false)
	if again := w.lines(); again != live || !slices.Equal(w.archived, archived) {
		w.t.Errorf("the live fold was\n%s\nand the fold of the files is\n%s\narchived: %v, and then %v", live, again, archived, w.archived)
	}
	w.close()
}

// checkArchived: the archive has that task, whole.
func (w *shelf) checkArchived(id, status, key, result string) {
	w.t.Helper()
	list, err := archive.Read(nil, w.dir, ledger.TaskFiles)
	must(w.t, err)
	i := slices.IndexFunc(list, func(e ledger.ArchiveEntry) bool { return e.ID == id })
	if i < 0 || list[i].Status != status || list[i].Key != key || !slices.Contains(w.archived, list[i]) {
		w.t.Fatalf("of %s the archive has %+v, and the fold was given %+v", id, list, w.archived)
	}
	s, err := archive.ReadRecord(nil, w.dir, list[i])
	must(w.t, err)
	if s.Value("result") != result || s.Value(ledger.KeyArchived) != "2026-11-21T12:00:00.000Z" {
		w.t.Errorf("the archive's record is\n%s", s.Raw)
	}
}

// TestCompactionTwice: what one compaction has merged the next one does not archive
// again, the archive grows, and with nothing to do nothing is done.
func TestCompactionTwice(t *testing.T) {
	t.Parallel()
	w := filled(t)
	w.compact("b")
	tasks := w.read("tasks.md")
	if r := w.compact(); r.Before != r.After || r.Archive != "" || w.read("tasks.md") != tasks {
		t.Errorf("with nothing to do: %+v", r)
	}
	w.add("c", "status", "done", "result", "ok")
	w.caughtUp()
	w.compact("c")
	w.checkArchived("b", "done", "k", "well")
	w.checkArchived("c", "done", "", "ok")
	archive := w.read("archive/tasks-2026-11.md")
	for text, n := range map[string]int{"- seq: 1\n": 0, "- seq: 6\n": 1, "- seq: 9\n": 0, "- seq: 10\n": 1, "- through: 5\n": 0} {
		if got := strings.Count(archive, text); got != n {
			t.Errorf("%q stands %d times in the archive, not %d times:\n%s", text, got, n, archive)
		}
	}
	if strings.Contains(archive, "\n## Task a\n") {
		t.Errorf("the merged record of a is in the archive:\n%s", archive)
	}
	w.isSound()
	w.reopened()
}

// TestLostIndex: the index of the archive is a cache.
func TestLostIndex(t *testing.T) {
	t.Parallel()
	w := filled(t)
	w.edit(appended("\n## Task mine\n- status: queued\n"))
	w.compact("b")
	w.add("c", "status", "done")
	w.compact("c", "mine")
	want := slices.Clone(w.archived)
	buffer := "## Task mine\n- status: queued\n"
	w.close()
	must(t, os.Remove(w.path("archive/index")))
	for range 2 {
		w.open(false)
		if said := strings.Join(w.said, "\n"); !strings.Contains(said, "is not whole: the archive's files have 3 tasks") {
			t.Errorf("at a start: %s", said)
		}
		for i := range want {
			want[i].UpdatedAt = w.archived[i].UpdatedAt // the fold of this test gave none
		}
		if diff := cmp.Diff(want, w.archived); diff != "" {
			t.Errorf("the index from the files: %s", diff)
		}
		w.close()
	}
	w.edit(func(string) string { return buffer })
	w.open(false)
	if strings.Contains(w.lines(), "by=hand") {
		t.Errorf("a section that was adopted before the compaction was adopted again:\n%s", w.lines())
	}
	w.close()
	w.open(false)
	if len(w.archived) != len(want) {
		t.Errorf("the archive has %v, which the journal has notes about, and not %v", w.archived, want)
	}
	w.close()
}

// TestTextStaysInPlace: of a tasks.md that a person lives in only sections are touched.
func TestTextStaysInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const mine = "## Task mine\n- status: queued\nsome words of mine\n- prompt: |\n  two\n\n  lines\n\nand more\n"
		for _, crlf := range []bool{false, true} {
			w := openShelf(t, false, "a", "b")
			w.close()
			w.edit(func(s string) string {
				s = strings.Replace(s, "## Task b", "text between  \n\n```\n## Task no\n```\n## Task b", 1)
				return s + "below\n\n" + mine + "\n# Own heading\n- a list\n\n    code\nlast line, no newline"
			})
			w.open(false)
			w.add("a", "status", "done")
			w.caughtUp()
			w.close()
			if crlf {
				w.edit(func(s string) string { return "\ufeff" + strings.ReplaceAll(s, "\n", "\r\n") })
			}
			w.open(false)
			text := plainText(w.read("tasks.md"))
			want := w.meaning()
			for range 2 {
				w.compact()
				if diff := cmp.Diff(text, plainText(w.read("tasks.md"))); diff != "" {
					t.Errorf("CRLF %v: the text has changed:\n%s", crlf, diff)
				}
				if diff := cmp.Diff(want, w.meaning()); diff != "" {
					t.Errorf("the tasks have changed:\n%s", diff)
				}
				w.isSound()
				w.add("a", "label", "x")
				w.caughtUp()
				want = w.meaning()
			}
			got := w.read("tasks.md")
			for _, order := range [][2]string{{"## Task a", "text between"}, {"text between", "## Task b"}, {"below", "## Task mine"}, {"## Task mine", "some words of mine\n"}, {"and more", "# Own heading"}} {
				if !crlf && strings.Index(got, order[0]) > strings.Index(got, order[1]) {
					t.Errorf("%q does not stand above %q:\n%s", order[0], order[1], got)
				}
			}
			w.reopened()
		}
	})
}

// plainText returns the lines of a ledger that are in no section, without empty ones.
func plainText(s string) string {
	doc := ledger.Parse([]byte(s))
	var b strings.Builder
	pos := 0
	lines := func(text string) {
		for line := range strings.Lines(text) {
			if strings.TrimSpace(line) != "" {
				b.WriteString(line)
			}
		}
	}
	for i := range doc.Sections {
		sec := &doc.Sections[i]
		lines(s[pos:sec.Off])
		if pos = int(sec.Off) + len(sec.Raw); sec.Seq == 0 {
			for line := range strings.Lines(string(sec.Raw)) {
				if strings.Contains(line, "words") || strings.Contains(line, "more") {
					b.WriteString(line)
				}
			}
		}
	}
	lines(s[pos:])
	return strings.TrimSuffix(b.String(), "\n")
}

// TestBufferFromBeforeCompaction: a buffer that was loaded before the compaction and is
// saved after it is a stale one. What was merged comes back to the file, what the archive
// has does not come to life, and only sections that are new in it count.
func TestBufferFromBeforeCompaction(t *testing.T) {
	t.Parallel()
	w := filled(t)
	w.edit(appended("\n## Task mine\n- status: queued\n"))
	w.reconcile()
	buffer := w.read("tasks.md")
	w.compact("b", "mine")
	want := w.meaning() + "new [{\"status\" \"queued\"}]\n"
	w.edit(func(string) string {
		return strings.Replace(buffer, "- color: red\n", "- color: blue\n", 1) + "\n## Task new\n- status: queued\n"
	})
	for range 2 {
		w.reconcile()
		if diff := cmp.Diff(want, w.meaning()); diff != "" {
			t.Errorf("after the save (+):\n%s", diff)
		}
		saved := w.read("tasks.md")
		w.edit(func(string) string { return saved + "\n" }) // the same buffer once more
	}
	w.await("from before the compaction or the restore; what is there has no effect")
	w.reopened()
	for _, lost := range []string{"journal.md", "archive"} { // tasks.md alone has the same
		must(t, errors.Join(os.RemoveAll(w.path("journal.md")), os.RemoveAll(w.path(lost))))
		w.open(false)
		if diff := cmp.Diff(want, w.meaning()); diff != "" {
			t.Errorf("without %s (+):\n%s", lost, diff)
		}
		w.close()
	}
}

func TestCompactionIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := filled(t)
		w.edit(appended("\n## Task x\n- status: qeued\n"))
		w.refuse(`unknown status "qeued"; did you mean queued?; repair it first: stint fsck`)
		w.edit(replace("qeued", "queued"))
		w.reconcile()
		w.edit(appended("A note.\n"))
		past := time.Now().AddDate(-1, 0, 0)
		must(t, os.Chtimes(w.path("tasks.md"), past, past)) // mv, cp -p and rsync -t keep a file's time
		quiet := w.plan()
		quiet.Quiet = time.Hour
		if _, err := w.log.Compact(t.Context(), quiet); err == nil || !strings.Contains(err.Error(), "was saved by another hand less than 1h0m0s ago") {
			t.Errorf("just after a save: %v", err)
		}
		w.compact()
		w.add("a", "status", "done")
		w.caughtUp()
		f := w.log.Follow(0)
		w.refuse("a reader of the journal has not read everything")
		must(t, f.Close())
		broken := w.plan()
		broken.Plan = func(journal.Fold, func(ledger.Moved) error) (ledger.Keep, error) { return nil, errBroken }
		_, err := w.log.Compact(t.Context(), broken)
		if !errors.Is(err, errBroken) {
			t.Errorf("the plan's error became %v", err)
		}
		dry := w.plan()
		dry.Dry = true
		records := w.read("journal.md")
		r, err := w.log.Compact(t.Context(), dry)
		if err != nil || r.After >= r.Before || r.Merged != 4 || w.read("journal.md") != records {
			t.Errorf("a dry run returns %+v, %v", r, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.log.Compact(ctx, w.plan()); !errors.Is(err, context.Canceled) {
			t.Errorf("when nobody waits any more: %v", err)
		}
		w.close()
		w.open(false)
		w.close()
	})
}

// TestIndexOfAnotherCompaction: what a compaction that did not come to its end has
// written into the index does not count, whole or torn.
func TestIndexOfAnotherCompaction(t *testing.T) {
	t.Parallel()
	w := filled(t)
	w.compact("b")
	w.close()
	index := w.read("archive/index")
	for _, more := range []string{`{"through":99,"lines":1}` + "\n" + `{"id":"a","status":"done"}` + "\n", `{"through":99,"lines":1}` + "\n" + `{"id":"a`, `{"through":9`, `{`} {
		w.write("archive/index", index+more)
		w.open(false)
		if len(w.archived) != 1 || w.archived[0].ID != "b" {
			t.Errorf("with %q the archive has %+v", more, w.archived)
		}
		if said := strings.Join(w.said, "\n"); strings.Contains(said, "not whole") {
			t.Errorf("with %q: %s", more, said)
		}
		w.add("c", "status", "done")
		w.caughtUp()
		w.compact()
		if len(w.archived) != 1 || !strings.Contains(w.read("archive/index"), "\n{\"through\":") {
			t.Errorf("with %q the archive then has %+v:\n%s", more, w.archived, w.read("archive/index"))
		}
		w.reopened()
		index = w.read("archive/index")
	}
}

// TestCompactionIsCutOff: a kill behind the archive's index and before the journal is
// renamed leaves every task of the journal where it is, also when the index is lost, too.
func TestCompactionIsCutOff(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} {
		w := filled(t)
		out, before := "b", 0
		if !first {
			w.compact(out)
			w.add("c", "status", "done")
			w.caughtUp()
			out, before = "c", 1
		}
		records, tasks := w.read("journal.md"), w.read("tasks.md")
		w.compact(out)
		w.close()
		if entries, err := archive.Read(nil, w.dir, ledger.TaskFiles); err != nil || len(entries) != before+1 {
			t.Fatalf("the archive has %v, %v", entries, err)
		}
		w.write("journal.md", records)
		w.write("tasks.md", tasks)
		if entries, err := archive.Read(nil, w.dir, ledger.TaskFiles); err != nil || len(entries) != before {
			t.Errorf("cut off: the archive has %v, %v", entries, err)
		}
		if !first {
			must(t, os.Remove(w.path("archive/index")))
		}
		if w.open(false); len(w.archived) != before || before > 0 && w.archived[0].ID != "b" {
			t.Errorf("the fold was told of %v", w.archived)
		}
		w.close()
	}
}

// TestPromise4FormatterWhileACompactionWaits: what is quarantined while a compaction waits for a reader waits for a person.
func TestPromise4FormatterWhileACompactionWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openShelf(t, false)
		for i := range 5 {
			w.add(fmt.Sprint("t", i), "status", "queued", "prompt", "a __word__")
		}
		w.caughtUp()
		f := w.log.Follow(0)
		failed := make(chan error, 1)
		go func() {
			_, err := w.log.Compact(t.Context(), w.plan())
			failed <- err
		}()
		synctest.Wait()
		w.edit(func(s string) string { return strings.ReplaceAll(s, "__", "**") })
		w.reconcile()
		must(t, f.Close())
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "5 tasks' prompts changed in one save (a formatter?)") {
			t.Errorf("the error is %v", err)
		}
		if !strings.Contains(w.read("tasks.md"), "a **word**") {
			t.Error("the save is gone")
		}
		w.close()
	})
}

// TestCompactionsTakeTurns: a log is compacted when no other one of the process is, and nobody has to wait for that.
func TestCompactionsTakeTurns(t *testing.T) {
	t.Parallel()
	w, other := filled(t), filled(t)
	other.planning = func() { t.Error("two are at work") }
	w.planning = func() {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := other.log.Compact(ctx, other.plan("b")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error of the second one is %v", err)
		}
	}
	w.compact("b")
	other.planning = nil
	other.compact("b")
	w.close()
	other.close()
}

// TestCompactionLetsGo: the reader of the new fold keeps nothing of the compaction in memory.
func TestCompactionLetsGo(t *testing.T) {
	t.Parallel()
	w := filled(t)
	how, names := w.plan("b"), 0
	var last journal.Reader
	how.New = func(r journal.Reader) journal.Fold { last = r; return &shelfFold{w: w} }
	how.Take = func(journal.Fold) { names = journal.Remembers(last) }
	_, err := w.log.Compact(t.Context(), how)
	if must(t, err); names != 1 || journal.Remembers(last) != 0 {
		t.Errorf("%d names at the end, %d afterwards", names, journal.Remembers(last))
	}
	w.close()
}

// TestCompactionOfAFileFromTheFuture: by the time of tasks.md it would not be at rest for years.
func TestCompactionOfAFileFromTheFuture(t *testing.T) {
	t.Parallel()
	w := filled(t)
	w.close()
	w.edit(appended("\nA note.\n"))
	future := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	must(t, os.Chtimes(w.path("tasks.md"), future, future))
	w.open(false)
	quiet := w.plan("b")
	quiet.Quiet = time.Hour
	_, err := w.log.Compact(t.Context(), quiet)
	must(t, err)
	w.close()
}

// TestRecordsAreNotAppendedTwice: a save that is taken over while a compaction is planned brings what came meanwhile.
func TestRecordsAreNotAppendedTwice(t *testing.T) {
	t.Parallel()
	w := filled(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.planning = func() {
		w.add("late", "status", "queued")
		w.edit(appended("\nA note.\n"))
		w.reconcile()
		cancel()
	}
	if _, err := w.log.Compact(ctx, w.plan("b")); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	w.reconcile()
	w.isSound()
	w.close()
}

// TestCompactionWaitsForANewReader, which has come when the others had been waited for.
func TestCompactionWaitsForANewReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := filled(t)
		w.close()
		var reader *follow.Follower
		w.fs = &opsFS{durable.OS, func(op, name string) error {
			if op == "datasync" && name == w.path("journal.md.new") && reader == nil {
				reader = w.log.Follow(0)
			}
			return nil
		}}
		w.open(false)
		w.planning = func() { w.add("late", "status", "queued", "prompt", strings.Repeat("long ", 20<<10)) }
		if _, err := w.log.Compact(t.Context(), w.plan("b")); err == nil || !strings.Contains(err.Error(), "a reader of the journal has not read everything") {
			t.Errorf("the error is %v", err)
		}
		must(t, reader.Close())
		w.close()
	})
}

// TestDeletedOnceMore: a task whose sections were deleted before a compaction has moved it out can be brought back, and deleted again.
func TestDeletedOnceMore(t *testing.T) {
	t.Parallel()
	w := filled(t)
	sections := regexp.MustCompile(`(?s)## Task b\n.*?<!-- end \d+ -->\n+`)
	for range 2 {
		w.add("c", "status", "running") // the newest record is another task's
		w.caughtUp()
		w.edit(func(s string) string { return sections.ReplaceAllString(s, "") })
		w.reconcile()
		if w.gone != "Task b" {
			t.Errorf("gone: %q", w.gone)
		}
		w.gone = ""
		w.compact("b")
		w.add("b", "status", "queued")
	}
	w.close()
}
