package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/journal"
	"stint/ledger/mark"
	"stint/ledger/tasksfile"
)

var restoredNote = ledger.Record{Kind: ledger.KindControl, ID: "restored", Fields: []ledger.Pair{{Key: "from", Value: "copy.md"}}}

const backupDir = memDir + "/archive/before"

// A restoring is a ledger and an earlier copy of its tasks.md.
type restoring struct {
	fs         *memFS
	copy       []byte
	old, fresh string // what a log applies before and after the restore
}

// applies returns what a log on fsys applies when it is opened.
func applies(fsys *memFS) (string, error) {
	f := folding{fs: fsys}
	if err := f.open(); err != nil {
		return "", err
	}
	var b strings.Builder
	for _, a := range f.all {
		b.WriteString(a.text)
	}
	return b.String(), f.log.Close()
}

// newRestoring makes a ledger in which, since the copy, a task was added, one has
// ended, and a person has edited one that the copy has, too.
func newRestoring(t *testing.T) *restoring {
	t.Helper()
	r := &restoring{fs: newMemFS()}
	r.play(t, record("a", "status", "queued", "prompt", "one"), record("b", "status", "queued", "prompt", "two"))
	text, _ := r.fs.content("tasks.md")
	r.copy = []byte(text)
	note := ledger.Record{Kind: restoredNote.Kind, ID: restoredNote.ID, Fields: slices.Clone(restoredNote.Fields)}
	mark.Restored(&note, lastOf(text))
	r.play(t, record("a", "status", "done"), record("c", "status", "queued", "prompt", "three"))
	text, _ = r.fs.content("tasks.md")
	r.save(t, strings.Replace(text, "prompt: two", "prompt: by hand", 1))
	var err error
	r.old, err = applies(r.fs)
	must(t, err)
	if !strings.Contains(r.old, "by hand") {
		t.Fatalf("the edit was not taken over:\n%s", r.old)
	}
	after := newMemFS()
	after.put("tasks.md", string(r.copy))
	r.fresh, err = applies(after)
	must(t, err)
	s, err := ledger.Encode(&note)
	must(t, err)
	r.fresh += textOf(s)
	r.fs.trace = nil
	return r
}

func (r *restoring) play(t *testing.T, records ...*ledger.Record) {
	t.Helper()
	f := folding{fs: r.fs}
	must(t, f.open())
	must(t, errors.Join(f.submit(records...), f.log.Close()))
}

func (r *restoring) save(t *testing.T, text string) {
	t.Helper()
	must(t, durable.WriteFile(r.fs, filepath.Join(memDir, "tasks.md"), []byte(text)))
}

// oldOrFresh opens a log on what a crash has left, twice.
func (r *restoring) oldOrFresh(fsys *memFS, mustBeFresh bool) error {
	image := listing(fsys.frozen())
	first, err := applies(fsys)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, image)
	}
	second, err := applies(fsys)
	if first == r.fresh || first == r.old && !mustBeFresh {
		if first != second {
			return fmt.Errorf("the second start gives other records than the first (%w):\n%s\nafter\n%s", err, second, first)
		}
		return err
	}
	return fmt.Errorf("neither the old ledger nor the new one:\n%s\nbefore recovery:\n%s\nafter it:\n%s", first, image, listing(fsys.frozen()))
}

// TestRestoreCrash cuts the power after every operation of a restore, and once
// more in the recovery from that. STINT_TEST_SEED repeats a run.
func TestRestoreCrash(t *testing.T) {
	t.Parallel()
	first := uint64(intFromEnv(t, "STINT_TEST_SEED", int(time.Now().UnixNano())))
	r := newRestoring(t)
	d := diskOf(r.fs)
	must(t, journal.Restore(r.fs, memDir, ledger.TaskFiles, r.copy, restoredNote, backupDir))
	end, images, seeds := len(r.fs.trace), 0, uint64(intFromEnv(t, "STINT_TEST_RESTORES", 5))
	for op := 0; op <= end; op++ {
		for _, m := range modes {
			for seed := first; seed < first+seeds; seed++ {
				rng := rand.New(rand.NewPCG(seed, uint64(op)))
				if err := r.oldOrFresh(d.image(m, rng), op == end); err != nil {
					t.Fatalf("operation %d, mode %s, STINT_TEST_SEED=%d: %v", op, m.name, seed, err)
				}
				n, err := r.crashAgain(d, m, rng, op == end)
				if err != nil {
					t.Fatalf("operation %d, mode %s, STINT_TEST_SEED=%d, crash in recovery: %v", op, m.name, seed, err)
				}
				images += 1 + n
			}
		}
		if op < end {
			d.apply(&r.fs.trace[op])
		}
	}
	t.Logf("restore: images=%d", images)
}

// crashAgain crashes in the recovery from a crash: after each of its first
// operations, which finish the restore. After kill -9 that is tried in every mode,
// because what the killed process had not synced can get lost then.
func (r *restoring) crashAgain(d *disk, m mode, rng *rand.Rand, mustBeFresh bool) (images int, err error) {
	d, trace, err := recoverOn(d, m, rng)
	if err != nil {
		return 0, err
	}
	for op := range min(len(trace), 6) {
		d.apply(&trace[op])
		again := modes
		if !m.kill {
			again = modes[rng.IntN(len(modes)):][:1]
		}
		for _, m := range again {
			images++
			if err := r.oldOrFresh(d.image(m, rng), mustBeFresh); err != nil {
				return images, err
			}
		}
	}
	return images, nil
}

// TestRestoreFaults lets each call fail, once or from there on. Where Restore says that all is well, it is.
func TestRestoreFaults(t *testing.T) {
	for _, forever := range []bool{false, true} {
		for at := 1; ; at++ {
			r := newRestoring(t)
			faulty := (&faultyFS{at: at, errno: syscall.EIO, forever: forever}).on(r.fs)
			err := journal.Restore(faulty, memDir, ledger.TaskFiles, r.copy, restoredNote, backupDir)
			if ferr := r.oldOrFresh(r.fs, err == nil); ferr != nil {
				t.Fatalf("call %d failed (%s), and Restore said %v: %v", at, faulty.did, err, ferr)
			}
			if faulty.did == "" {
				break
			}
		}
	}
}

func TestRestoreKeepsWhatWasBefore(t *testing.T) {
	r := newRestoring(t)
	tasks, _ := r.fs.content("tasks.md")
	records, _ := r.fs.content("journal.md")
	must(t, journal.Restore(r.fs, memDir, ledger.TaskFiles, r.copy, restoredNote, backupDir))
	for name, want := range map[string]string{"tasks.md": tasks, "journal.md": records} {
		if got, _ := r.fs.content("archive/before/" + name); got != want {
			t.Errorf("%s is kept as\n%s\nwant\n%s", name, got, want)
		}
	}
	now, _ := r.fs.content("tasks.md")
	if !strings.HasPrefix(now, string(r.copy)) || strings.Count(now, "## ") != strings.Count(string(r.copy), "## ")+1 {
		t.Errorf("tasks.md is\n%s\nwant the copy and one record", now)
	}
	if before, after := lastOf(records), lastOf(now); after <= before {
		t.Errorf("the restore has number %d, and %d was given before", after, before)
	}
	// Restoring what was kept undoes it, and gives no number twice.
	must(t, journal.Restore(r.fs, memDir, ledger.TaskFiles, []byte(tasks), restoredNote, backupDir+"2"))
	got, err := applies(r.fs)
	if err != nil || !strings.HasPrefix(got, r.old) {
		t.Errorf("%v\n%s\nwant\n%s", err, got, r.old)
	}
	r.play(t, record("d", "status", "queued", "prompt", "four"))
	now, _ = r.fs.content("tasks.md")
	seen := map[uint64]bool{}
	for _, s := range ledger.Parse([]byte(records + now[len(tasks):])).Sections {
		if seen[s.Seq] {
			t.Errorf("record %d is there twice", s.Seq)
		}
		seen[s.Seq] = true
	}
}

// lastOf returns the number of the last record.
func lastOf(text string) uint64 {
	list := ledger.Parse([]byte(text)).Sections
	return list[len(list)-1].Seq
}

// TestRestoredBufferOfBefore: what a restore has taken back stays so when a buffer of before is
// saved, and when the journal is lost then. A restore of what was kept undoes it.
func TestRestoredBufferOfBefore(t *testing.T) {
	r := newRestoring(t)
	buffer, _ := r.fs.content("tasks.md")
	must(t, journal.Restore(r.fs, memDir, ledger.TaskFiles, r.copy, restoredNote, backupDir))
	r.save(t, buffer)
	f := folding{fs: r.fs}
	must(t, errors.Join(f.open(), f.log.Close()))
	if said := strings.Join(f.said, "\n"); !strings.Contains(said, "sections are from before the compaction or the restore; what is there has no effect") {
		t.Errorf("heard %s", said)
	}
	must(t, r.fs.Remove(memDir+"/journal.md"))
	if got, err := applies(r.fs); err != nil || strings.Contains(got, "three") || strings.Contains(got, "done") {
		t.Errorf("without the journal: %v\n%s", err, got)
	}
	must(t, journal.Restore(r.fs, memDir, ledger.TaskFiles, []byte(buffer), restoredNote, backupDir+"2"))
	must(t, r.fs.Remove(memDir+"/journal.md"))
	if got, err := applies(r.fs); err != nil || !strings.Contains(got, "three") {
		t.Errorf("after the second restore: %v\n%s", err, got)
	}
}

// TestPromise1RecordsOfARestoredLedger: after a restore tasks.md has what the journal has, and
// repairs it as before; a journal of before does not undo the restore.
func TestPromise1RecordsOfARestoredLedger(t *testing.T) {
	r := newRestoring(t)
	before, _ := r.fs.content("journal.md")
	must(t, journal.Restore(r.fs, memDir, ledger.TaskFiles, r.copy, restoredNote, backupDir))
	want, err := applies(r.fs)
	must(t, err)
	restored, _ := r.fs.content("journal.md")
	for name, damaged := range map[string]string{
		"a byte is lost":   strings.Replace(restored, "- status: queued", "- st\x00tus: queued", 1),
		"a record is lost": strings.Replace(restored, sectionOf(restored, 2), "", 1),
		"of before":        before,
	} {
		must(t, durable.WriteFile(r.fs, memDir+"/journal.md", []byte(damaged)))
		if got, err := applies(r.fs); err != nil || got != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
}

// TestRestoreSeesASave has an editor save while the restore is being prepared.
func TestRestoreSeesASave(t *testing.T) {
	r := newRestoring(t)
	hooked := &opsFS{r.fs, func(op, name string) error {
		if op == "create" && filepath.Base(name) == "tasks.md.restored.tmp" {
			r.save(t, "saved meanwhile\n")
		}
		return nil
	}}
	if err := journal.Restore(hooked, memDir, ledger.TaskFiles, r.copy, restoredNote, backupDir); !errors.Is(err, tasksfile.ErrChanged) {
		t.Fatal(err)
	}
	if now, _ := r.fs.content("tasks.md"); now != "saved meanwhile\n" {
		t.Errorf("tasks.md is %q", now)
	}
}

func TestRestoreRefusesTheLastNumber(t *testing.T) {
	r := newRestoring(t)
	copied := append(bytes.Clone(r.copy), fmt.Sprintf("## Task z\n- seq: %d\n- status: draft\n<!-- end %d -->\n", uint64(1)<<53, uint64(1)<<53)...)
	if err := journal.Restore(r.fs, memDir, ledger.TaskFiles, copied, restoredNote, backupDir); err == nil || !strings.Contains(err.Error(), "last number") {
		t.Fatal(err)
	}
	if err := r.oldOrFresh(r.fs, false); err != nil {
		t.Error(err)
	}
}
