// Package statedir works on a state directory without a master: it checks and restores the ledger, compacts it, lists its archive,
// accepts tasks under the lock, and reads a copy as of an earlier record. What only reads needs no lock: a master may be at work.
package statedir

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/archive"
	"stint/ledger/durable"
	"stint/ledger/journal"
	"stint/ledger/repair"
	"stint/ledger/tasksfile"
	"stint/state"
	"stint/state/explain"
	"stint/state/fold"
)

// Kinds of what fsck finds, for programs. More may be added.
const (
	KindFile        = "file"    // a file as a whole cannot be used
	KindSection     = "section" // a section of tasks.md is set aside
	KindQuarantined = "held"    // edits are quarantined as the work of a formatter
	KindJournal     = "journal" // bytes of the journal are damaged or lost
	KindRefused     = "refused" // a record has no effect
	KindDiffers     = "differs" // tasks.md alone has other tasks than the journal
	KindArchive     = "archive" // the archive is damaged
	KindWaits       = "waits"   // a task waits for a workspace, or for a task that is not there
)

// A Fault is a finding of [Fsck].
type Fault struct {
	task.Finding
	Kind string `json:"kind"`
}

// A FsckReport is what [Fsck] saw.
type FsckReport struct {
	Faults  []Fault  // what is wrong
	Notes   []string // what is worth knowing and not wrong
	Records int      // of the journal; without one, of tasks.md
	Seq     uint64   // of its newest record

	Accounts []state.Account // those on hold, or with a time before which nothing starts, by name
	Paused   bool            // no task is started
	PauseWhy string          // the reason that was given
}

func (r *FsckReport) fault(kind string, list ...task.Finding) {
	for _, f := range list {
		r.Faults = append(r.Faults, Fault{f, kind})
	}
}

func (r *FsckReport) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Fsck checks the ledger of a state directory. It changes nothing and takes no lock. live says whether a
// master is at work: then what looks unfinished is looked at again until it has settled. root is the
// configuration's workspace_root. The error says that the directory cannot be read at all, or is ctx's.
func Fsck(ctx context.Context, dir, root string, live func() bool) (*FsckReport, error) {
	const fsckLooks, fsckPause = 20, 100 * time.Millisecond // for a master to finish what it is just doing
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return nil, task.Invalid("stint doctor", "there is no state directory %s", dir)
	}
	for look := 1; ; look++ {
		r, settled := &FsckReport{}, true
		for _, files := range []ledger.Files{ledger.TaskFiles, ledger.JobFiles} {
			settled = r.look(dir, files, root) && settled
		}
		if settled || look == fsckLooks || !live() {
			r.unreadable("format", journal.CheckLayout(durable.OS, dir))
			r.fault(KindArchive, queue.FindingsOf(append(archive.Check(dir, ledger.TaskFiles, readable), archive.Check(dir, ledger.JobFiles, nil)...))...)
			for _, pattern := range []string{"tasks?*.md", "jobs?*.md", "*.tmp", "*.torn*", "*.damaged*", "*.foreign-*", "*.swap", "stint-edit-*", "*.md.before*", "*.md.compacted"} {
				names, _ := fs.Glob(os.DirFS(dir), pattern) // the pattern is good
				for _, name := range names {
					if name == ledger.JobFiles.Journal() || durable.IsTemp(name) || strings.HasSuffix(name, ".compacted") && live() {
						continue // a writer's, which may be at work; a master removes old ones, and a compaction its draft
					}
					r.note("%s is not read, only tasks.md and jobs.md are: it is left from before, or a sync program's copy of a conflict; remove it when you no longer need it", name)
				}
			}
			slices.SortStableFunc(r.Faults, func(a, b Fault) int {
				return cmp.Or(-cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) // tasks.md before journal.md
			})
			return r, nil
		}
		if task.Sleep(ctx, fsckPause) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// A fsck is one look at a ledger.
type fsck struct {
	*FsckReport
	dir           string
	files         ledger.Files
	text, journal []byte
	book          *book // with what a master would take over; nil: nothing can be read
	settled       bool  // nothing is under way, as far as can be seen
}

// look looks at a ledger once, and reports whether nothing is under way in it. The file is read before the
// journal, which then has all that the file has.
func (r *FsckReport) look(dir string, files ledger.Files, root string) (settled bool) {
	c, records := &fsck{FsckReport: r, dir: dir, files: files}, 0
	snap, textErr := tasksfile.ReadSnapshot(context.Background(), durable.OS, dir, files)
	c.text = snap.Data
	var journalErr error
	c.journal, journalErr = durable.ReadFile(durable.OS, filepath.Join(dir, files.Journal()))
	archived, _ := archive.Read(nil, dir, files) // what is wrong with it is told by archive.Check
	c.unreadable(files.Ledger(), textErr)
	c.unreadable(files.Journal(), journalErr)
	now, err := os.Stat(filepath.Join(dir, files.Ledger()))
	c.settled = err != nil && textErr != nil || err == nil && (durable.IDOf(now) == snap.ID || textErr != nil && !errors.Is(textErr, fs.ErrNotExist))
	switch noText, noJournal := errors.Is(textErr, fs.ErrNotExist), errors.Is(journalErr, fs.ErrNotExist); {
	case noText && noJournal && files == ledger.JobFiles: // of an older stint
	case noText && noJournal:
		c.note("there is no ledger in %s yet", dir)
	case noJournal && textErr == nil:
		c.note("there is no %s: the next master rebuilds it from %s", files.Journal(), files.Ledger())
		c.book = newBook(files, nil, archived)
		c.fault(KindSection, queue.FindingsOf(repair.CheckFile(files.Ledger(), c.text, c.book.check))...)
		records = len(c.book.sections)
	case noText:
		c.note("there is no %s: the next master writes it anew from the journal", files.Ledger())
	}
	if journalErr == nil {
		records = c.checkJournal(archived)
	}
	if journalErr == nil && textErr == nil {
		c.checkText()
	}
	if c.book != nil && files == ledger.TaskFiles {
		c.Records = records
		c.fault(KindWaits, queue.Homeless(c.book.tasks, root)...)
		for _, id := range c.book.tasks.OpenIDs() { // what waits for what there is not
			t, _ := c.book.tasks.Peek(id)
			for _, before := range t.After {
				if t.Status == state.Queued && c.book.tasks.Number(before) == 0 {
					c.fault(KindWaits, task.Finding{File: ledger.TasksName, Message: "task " + id + ": " + explain.AfterNobody(before)})
				}
			}
		}
	}
	return c.settled
}

// readable returns what keeps a record of the archive from being shown.
func readable(s *ledger.Section) error {
	_, err := fold.TaskOf(s)
	return err
}

// unreadable makes a fault of a file that is there and cannot be read.
func (r *FsckReport) unreadable(name string, err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.fault(KindFile, task.Finding{File: name, Message: err.Error()})
	}
}

// checkJournal looks at every record of the journal and folds it. It returns how many there are.
func (c *fsck) checkJournal(archived []ledger.ArchiveEntry) (records int) {
	c.book = newBook(c.files, queue.BytesReader(c.journal), archived)
	var last uint64
	found := ledger.CheckJournal(c.journal, func(s *ledger.Section) (more bool) {
		records++
		last = max(last, s.Seq)
		if err := c.book.fold.Apply(s); err != nil {
			c.fault(KindRefused, task.Finding{File: c.files.Journal(), Line: s.Line, Message: fmt.Sprintf("record %d has no effect: %v", s.Seq, err)})
		}
		return true
	})
	for _, f := range found {
		if f.File = c.files.Journal(); f.Torn > 0 {
			c.settled = false
			c.note("%s: the next master cuts it off", f.Error())
			continue
		}
		c.fault(KindJournal, queue.FindingsOf([]*ledger.SyntaxError{f})...)
	}
	if st := c.book.tasks; c.files == ledger.TaskFiles {
		c.Seq = max(last, st.Seq()) // a compaction keeps the number, not the record
		c.Paused, c.PauseWhy = st.Paused()
		for _, a := range st.Accounts() {
			if a.Hold || !a.CoolUntil.IsZero() {
				c.Accounts = append(c.Accounts, a.Account)
			}
		}
	}
	doc := ledger.Parse(c.text)
	for i := range doc.Sections { // the file gets a record only when the journal has it
		if s := &doc.Sections[i]; s.Seq > last {
			c.fault(KindJournal, task.Finding{
				File: c.files.Ledger(), Line: s.Line,
				Message: fmt.Sprintf("record %d is not in the journal, which ends with record %d; the next master takes it from here", s.Seq, last),
			})
			break
		}
	}
	return records
}

// checkText asks what a master would take over, and whether the file has the same tasks or jobs as the journal.
func (c *fsck) checkText() {
	name, before := c.files.Ledger(), len(c.Faults)
	t, records, err := Preview(c.dir, c.files, c.text)
	if err != nil {
		c.fault(KindFile, task.Finding{File: name, Message: err.Error()})
		return
	}
	for i := range records {
		if s, err := ledger.Encode(&records[i]); err == nil {
			_ = c.book.fold.Apply(s) // what is wrong with it is a finding
		}
	}
	c.fault(KindSection, t.Findings...)
	if t.Quarantined > 0 {
		c.fault(KindQuarantined, task.Finding{File: name, Message: fmt.Sprintf("%d edits of long texts are quarantined as the work of a formatter; to accept them: stint edit --accept", t.Quarantined)})
	}
	if t.Missing > 0 {
		c.settled = false
		c.note("%s: the newest %s missing; a master appends what is missing", name, ledger.Plural(t.Missing, "record is", "records are"))
	}
	if t.Adopted > 0 {
		c.settled = false
		c.note("%s: %s not taken over yet; a master does that", name, ledger.Plural(t.Adopted, "edit is", "edits are"))
	}
	if len(c.Faults) > before || t.Missing > 0 || t.Adopted > 0 {
		return
	}
	c.compare()
}

// compare asks whether a file alone gives what its journal gives.
func (c *fsck) compare() {
	name := c.files.Ledger()
	have, tidied := map[uint64]bool{}, 0
	doc := ledger.Parse(c.text)
	for i := range doc.Sections {
		have[doc.Sections[i].Seq] = true
	}
	ledger.CheckJournal(c.journal, func(s *ledger.Section) (more bool) {
		if !have[s.Seq] {
			tidied++
		}
		return true
	})
	if tidied > 0 { // it has fewer records, and gives what it has
		c.note("%s: %s taken out by hand, which the journal has", name, ledger.Plural(tidied, "record was", "records were"))
		return
	}
	alone := newBook(c.files, nil, nil)
	repair.CheckFile(name, c.text, alone.check) // nothing in it is refused, or that was a finding
	got, err := alone.all()
	want, werr := c.book.all()
	maps.DeleteFunc(got, func(id string, _ state.Task) bool { _, isArchived := c.book.fold.Archived(id); return isArchived })
	if err = errors.Join(err, werr); err != nil {
		c.fault(KindDiffers, task.Finding{File: name, Message: err.Error()})
	} else if ids := differing(got, want); len(ids) > 0 {
		line, section := 0, string(c.files.Kind())+" "+ids[0]
		if k := slices.IndexFunc(doc.Sections, func(s ledger.Section) bool { return s.Name() == section }); k >= 0 {
			line = doc.Sections[k].Line
		}
		c.fault(KindDiffers, task.Finding{
			File: name, Line: line,
			Message: section + " is not what the journal has; the journal counts, and stint compact-tasks writes the section anew from it",
		})
	}
}

// CheckLedger returns what is wrong in one ledger file by itself: what cannot be
// read, and what a new state directory with this file alone would not take over.
func CheckLedger(name string, data []byte) []task.Finding {
	return queue.FindingsOf(repair.CheckFile(name, data, newBook(filesOf(data), nil, nil).check))
}

// RepairLedger returns a ledger file without findings, and what [repair.Repair] did. journal may be nil.
func RepairLedger(name string, data, journal []byte) ([]byte, []task.Finding) {
	repaired, notes := repair.Repair(data, journal, newBook(filesOf(data), nil, nil).check)
	for _, n := range notes {
		n.File = name
	}
	return repaired, queue.FindingsOf(notes)
}

// Preview returns what a master would do if tasks.md or jobs.md were these bytes. It changes nothing; a master may be
// at work. The records are those that it would make of edits; they have no seq yet.
func Preview(dir string, files ledger.Files, text []byte) (task.Reconciled, []ledger.Record, error) {
	b, data, err := readBook(dir, files)
	if err != nil {
		return task.Reconciled{}, nil, err
	}
	return b.preview(dir, data, text)
}

// differing returns, in order, the ids of the tasks, or jobs as such, that only one of the two has, or another one.
func differing(a, b map[string]state.Task) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(id string) bool {
		one, _ := json.Marshal(a[id]) // it has nothing that JSON cannot hold
		other, _ := json.Marshal(b[id])
		return bytes.Equal(one, other)
	})
}
