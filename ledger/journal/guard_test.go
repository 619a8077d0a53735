package journal_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/journal"
)

// foreignHands are what another hand can do to the journal while a log has it open, or
// while none has. older is a copy of the journal of an hour ago.
var foreignHands = []struct {
	name string
	do   func(w *world, older string) error
}{
	{"removed", func(w *world, _ string) error { return os.Remove(w.path("journal.md")) }},
	{"replaced by an older copy", func(w *world, older string) error {
		return errors.Join(os.WriteFile(w.path("j"), []byte(older), 0o600), os.Rename(w.path("j"), w.path("journal.md")))
	}},
	{"overwritten with an older copy", func(w *world, older string) error {
		return os.WriteFile(w.path("journal.md"), []byte(older), 0o600)
	}},
	{"edited by sed -i", func(w *world, _ string) error {
		text := strings.ReplaceAll(w.read("journal.md"), "prompt: first", "prompt: other")
		return errors.Join(os.WriteFile(w.path("j"), []byte(text), 0o600), os.Rename(w.path("j"), w.path("journal.md")))
	}},
	{"emptied", func(w *world, _ string) error { return os.Truncate(w.path("journal.md"), 0) }},
	{"cut in the middle", func(w *world, _ string) error { return os.Truncate(w.path("journal.md"), 150) }},
	{"cut at its end", func(w *world, _ string) error {
		return os.Truncate(w.path("journal.md"), int64(len(w.read("journal.md"))-10))
	}},
	{"a record cut out of it", func(w *world, _ string) error {
		text := w.read("journal.md")
		from := strings.LastIndex(text, "\n## Task a\n")
		to := from + 1 + strings.Index(text[from+1:], "\n## ")
		return os.WriteFile(w.path("journal.md"), []byte(text[:from]+text[to:]), 0o600)
	}},
	{"a byte behind it", func(w *world, _ string) error { return appendFile(w.path("journal.md"), "x") }},
	{"a hole behind it", func(w *world, _ string) error {
		return os.Truncate(w.path("journal.md"), int64(len(w.read("journal.md"))+4096))
	}},
	{"a record behind it", func(w *world, _ string) error { return appendFile(w.path("journal.md"), numbered("forged", "9", "x")) }},
	{"overwritten with other bytes", func(w *world, _ string) error {
		return os.WriteFile(w.path("journal.md"), []byte(strings.Repeat("nothing of ours\n", 400)), 0o600)
	}},
	{"edited in its place to what no fold takes", func(w *world, _ string) error {
		text := strings.ReplaceAll(w.read("journal.md"), "status: queued", "status: QUEUED")
		return os.WriteFile(w.path("journal.md"), []byte(text), 0o600)
	}},
	{"exchanged with tasks.md", func(w *world, _ string) error { return durable.OS.Exchange(w.path("journal.md"), w.path("tasks.md")) }},
	{"moved onto tasks.md", func(w *world, _ string) error { return os.Rename(w.path("journal.md"), w.path("tasks.md")) }},
	{"tasks.md moved onto it", func(w *world, _ string) error { return os.Rename(w.path("tasks.md"), w.path("journal.md")) }},
	{"tasks.md copied onto it", func(w *world, _ string) error {
		return os.WriteFile(w.path("journal.md"), []byte(w.read("tasks.md")), 0o600)
	}},
	{"copied into each other", func(w *world, _ string) error {
		tasks := w.read("tasks.md")
		return errors.Join(os.WriteFile(w.path("tasks.md"), []byte(w.read("journal.md")), 0o600), os.WriteFile(w.path("journal.md"), []byte(tasks), 0o600))
	}},
	{"linked to tasks.md, and written there", func(w *world, _ string) error {
		return errors.Join(os.Link(w.path("journal.md"), w.path("l")), os.Rename(w.path("l"), w.path("tasks.md")), appendFile(w.path("tasks.md"), "x\n"))
	}},
	{"removed, and tasks.md emptied", func(w *world, _ string) error {
		return errors.Join(os.Rename(w.path("journal.md"), w.path("j")), os.Truncate(w.path("tasks.md"), 0))
	}},
	{"a directory", func(w *world, _ string) error {
		return errors.Join(os.Mkdir(w.path("j"), 0o700), durable.OS.Exchange(w.path("j"), w.path("journal.md")))
	}},
	{"a FIFO", func(w *world, _ string) error {
		return errors.Join(syscall.Mkfifo(w.path("j"), 0o600), durable.OS.Exchange(w.path("j"), w.path("journal.md")))
	}},
	{"a symbolic link", func(w *world, older string) error {
		return errors.Join(os.WriteFile(w.path("j"), []byte(older), 0o600), os.Symlink(w.path("j"), w.path("l")), os.Rename(w.path("l"), w.path("journal.md")))
	}},
}

func appendFile(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// spoil makes a ledger with three tasks, one of which a person wrote, and an older copy of
// its journal, and lets another hand do something to it.
func (w *shelf) spoil(do func(w *world, older string) error, live bool) (want string) {
	w.t.Helper()
	w.open(true)
	w.add("a", "status", "queued", "prompt", "first")
	older := w.read("journal.md")
	w.edit(appended("\nMy notes.\n\n## Task mine\n- status: queued\n"))
	w.await("mine: written by hand")
	w.settle(true)
	w.add("a", "status", "running", "runId", "r1")
	w.add("b", "status", "queued", "prompt", "second")
	w.caughtUp()
	want = w.lines()
	if !live {
		w.close()
	}
	must(w.t, do(w.world, older))
	return want
}

// TestPromise1ForeignHands: whatever another hand does to the journal while a log is open, what was
// acknowledged before and is acknowledged afterwards is there after a restart, once, and nothing of it is
// taken for a person's. If no log is open, the next one finds all records, or returns what to do.
func TestPromise1ForeignHands(t *testing.T) {
	t.Parallel()
	for _, hand := range foreignHands {
		for _, open := range []string{"and goes on", "until a restart", "no more"} {
			t.Run(hand.name+"/"+open, func(t *testing.T) {
				t.Parallel()
				w := newShelf(t)
				want := w.spoil(hand.do, open != "no more")
				switch open {
				case "and goes on":
					w.add("c", "status", "queued", "prompt", "third")
					w.add("b", "status", "running")
					want += "5 c status=queued prompt=third\n6 b status=running\n"
					if hand.name == "removed, and tasks.md emptied" {
						w.await("records were missing")
					}
					w.expect(want)
					fallthrough
				case "until a restart":
					w.close()
					w.moveAway("tasks.md")
				case "no more":
					want = w.foundAtStart(hand.name, want)
				}
				w.open(false)
				w.expect(want)
				w.add("d", "status", "queued")
				w.reopened()
			})
		}
	}
}

// foundAtStart returns what the next log finds, and moves away what it refuses.
func (w *shelf) foundAtStart(hand, want string) string {
	w.t.Helper()
	switch hand {
	case "a directory", "a FIFO", "a symbolic link", "copied into each other":
		w.moveAway("journal.md")
	case "linked to tasks.md, and written there":
		w.moveAway("tasks.md")
	case "edited by sed -i": // tasks.md has another text, and that counts
		return strings.Replace(want, "first", "other", 1) + "5 a by=hand edits=1 prompt=first\n"
	case "removed, and tasks.md emptied": // nothing has it any more
		return ""
	case "a record behind it":
		return want + "9 forged status=queued prompt=x\n"
	}
	return want
}

// moveAway moves a file away that Open refuses, as the error asks for.
func (w *shelf) moveAway(name string) {
	w.t.Helper()
	err := w.tryOpen(false)
	if err == nil {
		w.close()
		return
	}
	if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "move it away") {
		w.t.Fatalf("the error is %v", err)
	}
	must(w.t, os.Rename(w.path(name), w.path("away")))
}

// TestTwoForeignHands: what one hand writes into the journal and what another puts in its
// place at the same moment are both kept aside.
func TestTwoForeignHands(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"a file":      func(path string) error { return os.WriteFile(path, []byte("other words\n"), 0o600) },
		"a directory": func(path string) error { return os.MkdirAll(path+"/other words", 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			w := openShelf(t, false, "a")
			path := w.path("journal.md")
			must(t, errors.Join(appendFile(path, "first words\n"), os.Remove(path), put(path)))
			w.add("b", "status", "queued")
			w.reopened()
			aside, err := filepath.Glob(path + ".foreign-*")
			if err != nil || len(aside) != 2 {
				t.Fatalf("kept aside are %q, %v", aside, err)
			}
			if text, err := os.ReadFile(aside[0]); string(text) != "first words\n" {
				t.Errorf("the first one is %q, %v", text, err)
			}
		})
	}
}

// TestPromise1BothFilesLose: a log has what both files lose at once, because they are
// emptied or a backup is copied over them, be it from before the start or from a compaction.
func TestPromise1BothFilesLose(t *testing.T) {
	t.Parallel()
	for _, spoiled := range []string{"backup", "emptied", "emptied after a start", "emptied after a compaction"} {
		t.Run(spoiled, func(t *testing.T) {
			t.Parallel()
			w := openShelf(t, true)
			w.add("a", "status", "queued", "prompt", "first")
			w.caughtUp()
			files := map[string]string{"journal.md": "", "tasks.md": ""}
			if spoiled == "backup" {
				files = map[string]string{"journal.md": w.read("journal.md"), "tasks.md": w.read("tasks.md")}
			}
			w.add("a", "status", "done")
			w.add("b", "status", "queued", "prompt", "second")
			w.caughtUp()
			switch spoiled {
			case "emptied after a start":
				w.close()
				w.open(true)
			case "emptied after a compaction":
				w.compact()
			}
			want := w.lines()
			for name, text := range files {
				w.write(name, text)
			}
			w.add("c", "status", "queued")
			if got := w.lines(); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != strings.Count(want, "\n")+1 {
				t.Errorf("the fold is\n%s\nand was\n%s", got, want)
			}
			w.settle(true)
			w.reopened()
			w.everythingIsInTasks()
		})
	}
}

// TestJournalThatCannotBePutBack: the log stops and says why rather than go on without
// what was acknowledged. What can be found is not touched.
func TestJournalThatCannotBePutBack(t *testing.T) {
	t.Parallel()
	for _, r := range []struct{ unreadable, why string }{
		{"tasks.md", "what it lacks may be in tasks.md, which cannot be read"},
		{"", "of the numbers 1 to 1 nothing was found"},
		{"archive", "is a directory"},
	} {
		w := openShelf(t, false)
		w.add("big", "prompt", strings.Repeat("long ", 2<<20)) // so that the log does not remember it
		w.add("b", "status", "queued")
		w.caughtUp()
		w.close()
		w.open(false)
		before := w.read("tasks.md")
		switch r.unreadable {
		case "":
			w.edit(func(text string) string {
				i := strings.Index(text, "## Task big")
				return text[:i] + text[strings.Index(text, "## Task b\n"):]
			})
		case "tasks.md":
			must(t, errors.Join(syscall.Mkfifo(w.path("fifo"), 0o600), os.Rename(w.path("fifo"), w.path("tasks.md"))))
		case "archive":
			must(t, os.MkdirAll(w.path("archive/tasks-2026-11.md"), 0o700))
		}
		must(t, os.Truncate(w.path("journal.md"), 0))
		if err := w.try("c", "status", "queued"); err == nil || !strings.Contains(err.Error(), r.why) {
			t.Errorf("%s: it is acknowledged, or not said why: %v", r.unreadable, err)
		}
		_ = w.log.Close() // it has stopped
		if left, _ := filepath.Glob(w.path("journal.md.foreign-*")); len(left) > 1 {
			t.Errorf("%s: our own file is taken for another hand's: %q", r.unreadable, left)
		}
		if r.unreadable == "" {
			continue
		}
		must(t, os.RemoveAll(w.path(r.unreadable)))
		w.write("tasks.md", before)
		w.open(false)
		if got := w.lines(); !strings.HasPrefix(got, "1 big ") || !strings.Contains(got, "\n2 b status=queued\n") {
			t.Errorf("%s: afterwards the fold is %.200s", r.unreadable, got)
		}
		w.close()
	}
}

// TestJournalCutWhileItIsRead: another hand that cuts the journal again while the fold is
// made anew changes nothing of what the fold has.
func TestJournalCutWhileItIsRead(t *testing.T) {
	t.Parallel()
	w := newShelf(t)
	cut := func() {
		if err := os.Truncate(w.path("journal.md"), 0); err != nil {
			t.Error(err)
		}
	}
	w.open(true)
	w.add("a", "status", "queued")
	w.add("a", "status", "running")
	w.caughtUp()
	w.mu.Lock() // the log may notice the cut by itself
	w.anew = func() {
		if w.folds < 3 {
			cut()
		}
	}
	w.mu.Unlock()
	cut()
	w.add("b", "status", "queued")
	w.expect("1 a status=queued\n2 a status=running\n3 b status=queued\n")
	if w.folds != 3 {
		t.Errorf("the fold was made anew %d times, want 3", w.folds)
	}
	w.reopened()
}

// damageFirst damages the journal's first record in its place, where a reader misses it.
func (w *world) damageFirst() (off int64) {
	w.t.Helper()
	off = int64(strings.Index(w.read("journal.md"), "## Task "))
	f, err := os.OpenFile(w.path("journal.md"), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("#* Tusk"), off)
		err = errors.Join(err, f.Close())
	}
	must(w.t, err)
	if _, err := w.log.SectionAt(off); err == nil {
		w.t.Fatal("a damaged record is read")
	}
	return off
}

// TestNoRoomToPutTheJournalBack: the log stops, damage is not forgotten, and what the log
// has tried takes no room.
func TestNoRoomToPutTheJournalBack(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(w *world) error{
		"removed": func(w *world) error { return os.Remove(w.path("journal.md")) },
		"damaged": func(w *world) error { w.damageFirst(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			full := newFailingFS()
			w.fs = full
			w.open(false)
			w.add("a", "status", "queued")
			w.caughtUp()
			must(t, spoil(w))
			full.full.Store(true)
			if err := w.try("b", "status", "queued"); !errors.Is(err, syscall.ENOSPC) || w.log.Err() == nil {
				t.Errorf("submit: %v, and the log goes on", err)
			}
			_ = w.log.Close() // it has stopped
			if left, err := filepath.Glob(w.path("journal.md?*")); len(left) > 0 {
				t.Errorf("%v is left: %v", left, err)
			}
			full.full.Store(false)
			w.open(false)
			w.expect("1 a status=queued\n")
			w.reopened()
			w.everythingIsInTasks()
		})
	}
}

// TestRefusedForWhatCannotBeRead: a record is not left out of the fold because what it
// builds upon could not be read in that moment, as while an editor saves the journal.
func TestRefusedForWhatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	opts := w.options(false)
	apply, saving := opts.Apply, false
	opts.Apply = func(s *ledger.Section) error {
		if !saving || string(s.ID) != "b" {
			return apply(s)
		}
		saving = false
		text := w.read("journal.md")
		if err := os.Truncate(w.path("journal.md"), 0); err != nil {
			t.Error(err)
		}
		_, err := w.log.SectionAt(int64(strings.Index(text, "## Task a")))
		return errors.Join(err, os.WriteFile(w.path("journal.md"), []byte(text), 0o600))
	}
	w.openWith(opts)
	w.add("a", "status", "queued")
	saving = true
	w.add("b", "status", "queued")
	w.expect("1 a status=queued\n2 b status=queued\n")
	w.reopened()
}

// TestHalfAChangePutBack: of a change of two records tasks.md has the first alone, and the
// journal none: what is put back has the same effect at once and after every restart.
func TestHalfAChangePutBack(t *testing.T) {
	t.Parallel()
	w := openShelf(t, false, "a")
	older := w.read("journal.md")
	err := w.change(record("b", "status", "queued"), record("c", "status", "queued"))
	w.caughtUp()
	w.close()
	w.edit(func(text string) string {
		const more = "1 more -->\n"
		return text[:strings.Index(text, more)+len(more)]
	})
	must(t, errors.Join(err, os.WriteFile(w.path("journal.md"), []byte(older), 0o600)))
	w.open(false)
	w.add("d", "status", "queued")
	w.expect("1 a status=queued\n2 b status=queued\n3 d status=queued\n")
	w.reopened()
}

// TestJournalDamagedInPlace: a record whose bytes another hand has changed is there again
// when the first reader has missed it.
func TestJournalDamagedInPlace(t *testing.T) {
	w := openShelf(t, true, "a", "b")
	before := w.read("journal.md")
	off := w.damageFirst()
	w.add("c", "status", "queued")
	if s, err := w.log.SectionAt(off); err != nil || string(s.ID) != "a" {
		t.Errorf("afterwards there is %v, %v", s, err)
	}
	if after := w.read("journal.md"); !strings.HasPrefix(after, before) {
		t.Errorf("the journal is now\n%s", after)
	}
	w.expect("1 a status=queued\n2 b status=queued\n3 c status=queued\n")
	w.reopened()
}

// TestPromise1BothFilesLackIt: what only the journal has, because a person is just writing
// into tasks.md, is there again if the journal is emptied in that moment.
func TestPromise1BothFilesLackIt(t *testing.T) {
	t.Parallel()
	w := openShelf(t, true, "a")
	w.edit(appended("\n## Task ha"))
	w.add("b", "status", "queued", "prompt", "second")
	if strings.Contains(w.read("tasks.md"), "second") {
		t.Fatal("tasks.md has it")
	}
	must(t, os.Truncate(w.path("journal.md"), 0))
	w.add("c", "status", "queued")
	w.edit(appended("lf\n"))
	w.await("half: written by hand")
	w.expect("1 a status=queued\n2 b status=queued prompt=second\n3 c status=queued\n4 half by=hand\n")
	w.reopened()
}

// TestPromise4AppendInPieces: what a person, or a program, appends in pieces is taken over
// as one section, and nothing of stint's stands between: submits are answered meanwhile.
func TestPromise4AppendInPieces(t *testing.T) {
	t.Parallel()
	for _, pieces := range [][]string{
		{"## Task fix-l", "ogin\n- status: que", "ued\n"},
		{"## Task fix-login\n", "- status: queued\n"},
		{"## Task fix-login\n\n", "- status: queued\n"},
		{"\n## Task fix-login\n- status:", " queued"},
	} {
		t.Run(pieces[0], func(t *testing.T) {
			t.Parallel()
			w := openWorld(t, true, "a")
			for i, piece := range pieces {
				must(t, appendFile(w.path("tasks.md"), piece))
				for begun := time.Now(); time.Since(begun) < 8*time.Second/10; { // longer than a save rests
					w.add("b", "status", "queued")
				}
				if text := w.read("tasks.md"); i < len(pieces)-1 && !strings.HasSuffix(text, piece) {
					t.Fatalf("something stands behind the piece %q:\n%s", piece, text[max(0, len(text)-300):])
				}
			}
			w.await("fix-login: written by hand")
			w.settle(true)
			if f := w.log.Findings(); len(f) > 0 {
				t.Errorf("findings: %v", f)
			}
			w.reopened()
			w.everythingIsInTasks()
		})
	}
}

// TestStateDirectoryGone: without its directory a log stops within one look, and says so.
func TestStateDirectoryGone(t *testing.T) {
	t.Parallel()
	for _, with := range []string{"nothing", "a submit"} {
		w := openWorld(t, true, "a")
		must(t, os.Rename(w.dir, w.dir+".moved"))
		if with == "a submit" {
			if err := w.try("b", "status", "queued"); err == nil {
				t.Error("a record of a directory that is gone was acknowledged")
			}
		}
		select {
		case <-w.log.Done():
		case <-time.After(time.Minute):
			t.Fatal("the log goes on")
		}
		if err := w.log.Err(); !errors.Is(err, journal.ErrGone) || !strings.Contains(err.Error(), w.dir) {
			t.Errorf("it stopped with %v", err)
		}
		_ = w.log.Close() // tasks.md cannot be synced
	}
}

// TestOlderJournalOfBeforeACompaction: a journal from before the compaction is put beside
// the tasks.md that came of it.
func TestOlderJournalOfBeforeACompaction(t *testing.T) {
	t.Parallel()
	w := openShelf(t, false)
	w.add("a", "status", "queued", "prompt", "first")
	w.add("a", "status", "running")
	w.add("x", "status", "done")
	older := w.read("journal.md")
	if _, err := w.log.Compact(t.Context(), w.plan("x")); err != nil {
		t.Fatal(err)
	}
	w.add("b", "status", "queued")
	w.caughtUp()
	want, archived := w.lines(), len(w.archived)
	w.close()
	w.write("journal.md", older)
	w.open(false)
	w.expect(want)
	if len(w.archived) != archived {
		t.Errorf("%d tasks are in the archive, not %d", len(w.archived), archived)
	}
	aside, err := filepath.Glob(w.path("journal.md.foreign-*"))
	if err != nil || len(aside) != 1 {
		t.Fatalf("the older journal is in %v, %v", aside, err)
	}
	if data, err := os.ReadFile(aside[0]); err != nil || !strings.Contains(string(data), "- prompt: first") {
		t.Errorf("put aside: %q, %v", data, err)
	}
	w.reopened()
}

// TestJournalPutBackDuringASave: the journal is put back while a save is taken over, and
// its records have other places then: what the save lacks is appended whole.
func TestJournalPutBackDuringASave(t *testing.T) {
	t.Parallel()
	w, fs := openOnce(t, "datasync", "journal.md")
	w.add("a", "status", "queued", "prompt", "first")
	w.add("b", "status", "queued", "prompt", "second")
	w.edit(func(s string) string {
		return strings.Replace(s, "prompt: first", "prompt: a text that is much longer", 1)
	})
	w.settle(true)
	w.caughtUp()
	old := w.read("tasks.md")
	w.add("c", "status", "queued", "prompt", "third")
	w.caughtUp()
	fs.next(func() error { return os.Truncate(w.path("journal.md"), 0) })
	w.edit(func(string) string { return old + "\n## Task mine\n- status: queued\n" })
	w.await("mine: written by hand")
	w.settle(true)
	w.add("d", "status", "queued")
	w.caughtUp()
	if text := w.read("tasks.md"); strings.Count(text, "<!-- end 3 -->") != 1 {
		t.Errorf("a piece of a record was appended:\n%s", text)
	}
	w.everythingIsInTasks()
	w.reopened()
}
