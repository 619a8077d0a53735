package journal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// rotten is a world whose journal has five records, two of them of one change, and is then damaged.
func rotten(t *testing.T, damage func(records string) string) *world {
	t.Helper()
	w := openWorld(t, false, "t0")
	w.add("t1", "status", "queued", "prompt", "one\n\ntwo")
	must(t, w.change(record("t1", "status", "failed"), record("t2", "status", "queued")))
	w.add("t3", "status", "queued")
	w.close()
	w.write("journal.md", damage(w.read("journal.md")))
	must(t, os.Chtimes(w.path("tasks.md"), time.Time{}, time.Now().Add(-time.Hour))) // no start waits for it to rest
	return w
}

const unrotten = "1 t0 status=queued\n2 t1 status=queued prompt=one\n\ntwo\n3 t1 status=failed\n4 t2 status=queued\n5 t3 status=queued\n"

// TestPromise1DamagedJournalIsMended: whichever byte of the journal is lost, the
// records come back from tasks.md, what was damaged is kept, and that is said.
func TestPromise1DamagedJournalIsMended(t *testing.T) {
	t.Parallel()
	size := len(rotten(t, asIs).read("journal.md"))
	for at := range size - 1 { // without the empty line at the end nothing is missing
		w := rotten(t, func(j string) string {
			return j[:at] + "\x00" + j[at+1:]
		})
		w.open(false)
		if got := w.lines(); got != unrotten {
			t.Fatalf("byte %d lost: the fold is\n%s", at, got)
		}
		if f := w.log.Findings(); len(f) > 0 {
			t.Fatalf("byte %d lost: %v", at, f[0])
		}
		if !strings.Contains(strings.Join(w.said, "\n"), "put back from tasks.md") {
			t.Fatalf("byte %d lost: all that was said is %q", at, w.said)
		}
		w.reopened()
		kept := ""
		for _, pattern := range []string{"journal.md.foreign-*", "journal.md.torn"} {
			names, _ := filepath.Glob(w.path(pattern))
			for _, name := range names {
				kept += w.read(filepath.Base(name))
			}
		}
		if !strings.Contains(kept, "\x00") {
			t.Fatalf("byte %d lost: what was damaged was not kept", at)
		}
		if len(w.said) > 0 {
			t.Fatalf("byte %d lost: there is still something to mend: %q", at, w.said)
		}
	}
}

// TestDamageThatCannotBeMended stays where it is and is reported at every start;
// all else is kept, and what tasks.md has is put back.
func TestDamageThatCannotBeMended(t *testing.T) {
	w := rotten(t, func(j string) string {
		j = strings.Replace(j, "## Task t0", "?? Task t0", 1)
		return strings.Replace(j, "- seq: 3", "- ???: 3", 1)
	})
	w.edit(func(s string) string {
		from := strings.Index(s, "## Task t0")
		return s[:from] + s[strings.Index(s, "## Task t1"):]
	})
	for range 2 {
		w.open(false)
		if got := w.lines(); got != strings.TrimPrefix(unrotten, "1 t0 status=queued\n") {
			t.Errorf("the fold is\n%s", got)
		}
		f := w.log.Findings()
		if len(f) != 1 || f[0].Error() != "journal.md:3: 54 bytes at offset 26 are damaged and are passed over" {
			t.Errorf("findings: %v", f)
		}
		w.close()
	}
}

// TestDamageWithoutTasksFile: nothing is written where nothing can be mended.
func TestDamageWithoutTasksFile(t *testing.T) {
	t.Parallel()
	w := rotten(t, func(j string) string { return strings.Replace(j, "- seq: 2", "- ???: 2", 1) })
	before := w.read("journal.md")
	w.write("tasks.md", "")
	w.open(false)
	if got := w.lines(); strings.Count(got, "\n") != 4 || len(w.log.Findings()) != 1 {
		t.Errorf("the fold is\n%s\nfindings: %v", got, w.log.Findings())
	}
	w.close()
	if w.read("journal.md") != before {
		t.Error("the journal was changed")
	}
}

// TestPowerCutTails: what a power cut leaves behind the last change goes; bytes
// that somebody wrote are kept aside, zeros are nothing.
func TestPowerCutTails(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("\x00", 4096)
	for _, tc := range []struct{ tail, torn string }{
		{zeros, ""},
		{"\n" + zeros + "\n", ""},
		{"## Task t4\n- seq: 6\n- st", "## Task t4\n- seq: 6\n- st"},
		{"## Task t4\n- seq: 6" + zeros, "## Task t4\n- seq: 6" + zeros},
		{"## Task t4\n- seq: 6\n- status: queued\n<!-- end 6, 1 more -->\n\n", "## Task t4\n- seq: 6\n- status: queued\n<!-- end 6, 1 more -->\n\n"},
		// A change whose beginning is lost is no change.
		{zeros + "\n<!-- end 6, 1 more -->\n\n## Task t5\n- seq: 7\n- status: queued\n<!-- end 7 -->\n\n", ""},
	} {
		var whole string
		w := rotten(t, func(j string) string {
			whole = j
			return j + tc.tail
		})
		w.open(false)
		if got := w.lines(); got != unrotten || len(w.log.Findings()) > 0 {
			t.Errorf("tail %.40q: the fold is\n%s\nfindings: %v", tc.tail, got, w.log.Findings())
		}
		w.reopened()
		if strings.TrimSpace(w.read("journal.md")) != strings.TrimSpace(whole) {
			t.Errorf("tail %.40q: the journal is\n%s", tc.tail, w.read("journal.md"))
		}
		torn, err := os.ReadFile(w.path("journal.md.torn"))
		if string(torn) != tc.torn || (err != nil) != (tc.torn == "") {
			t.Errorf("tail %.40q: kept aside is %.40q, %v", tc.tail, torn, err)
		}
	}
}
