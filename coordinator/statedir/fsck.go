// Package statedir works on a state directory without a master: it checks and restores the
// ledger, compacts it, lists its archive, accepts tasks under the lock, and reads a copy as
// of an earlier record. What only reads needs no lock: a master may be at work.
package statedir

import (
	"cmp"
	"context"
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
	"stint/coordinator/schedule/due"
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
	"stint/state/jobs"
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

func (r *FsckReport) fault(kind string, f task.Finding) { r.Faults = append(r.Faults, Fault{f, kind}) }

func (r *FsckReport) faults(kind string, list []task.Finding) {
	for _, f := range list {
		r.fault(kind, f)
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
		r, settled := fsckOnce(dir, root)
		if settled = r.checkJobs(dir) && settled; settled || look == fsckLooks || !live() {
			r.faults(KindArchive, queue.FindingsOf(append(archive.Check(dir, ledger.TaskFiles), archive.Check(dir, ledger.JobFiles)...)))
			for _, pattern := range []string{"*.tmp", "*.torn*", "*.damaged*", "*.foreign-*", "*.swap", "stint-edit-*", ledger.TasksName + ".before*", "jobs.md.before*"} {
				paths, _ := filepath.Glob(filepath.Join(dir, pattern)) // the pattern is good
				for _, p := range paths {
					r.note("%s is left from before; remove it when you no longer need it", filepath.Base(p))
				}
			}
			for _, name := range tasksfile.OtherCopies(dir) {
				r.note("%s is not read, only tasks.md and jobs.md are; a sync program may have made this copy of a conflict", name)
			}
			slices.SortStableFunc(r.Faults, func(a, b Fault) int {
				return cmp.Or(-cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) // tasks.md before journal.md
			})
			return r, nil
		}
		if !queue.Sleep(ctx, fsckPause) {
			return nil, context.Cause(ctx)
		}
	}
}

// A fsck is one look at a state directory.
type fsck struct {
	*FsckReport
	dir            string
	tasks, journal []byte
	state          *fold.State // with what a master would take over; nil: nothing can be read
	settled        bool        // nothing is under way, as far as can be seen
}

// fsckOnce makes one look. tasks.md is read before the journal, which then has all that tasks.md has.
func fsckOnce(dir, root string) (r *FsckReport, settled bool) {
	c := &fsck{FsckReport: &FsckReport{}, dir: dir}
	path := filepath.Join(dir, ledger.TasksName)
	before, _ := os.Stat(path) // what is wrong with it comes out below
	var tasksErr, journalErr error
	snap, tasksErr := tasksfile.ReadSnapshot(context.Background(), durable.OS, dir, ledger.TaskFiles)
	c.tasks = snap.Data
	c.journal, journalErr = journal.ReadJournal(dir, ledger.TaskFiles)
	var bad *tasksfile.Error
	if errors.As(tasksErr, &bad) {
		bad.Lost = errors.Is(journalErr, fs.ErrNotExist)
	}
	c.unreadable(ledger.TasksName, tasksErr)
	c.unreadable(ledger.JournalName, journalErr)
	after, _ := os.Stat(path)
	c.settled = before == nil && after == nil ||
		before != nil && after != nil && os.SameFile(before, after) && before.Size() == after.Size() && before.ModTime().Equal(after.ModTime())
	switch noTasks, noJournal := errors.Is(tasksErr, fs.ErrNotExist), errors.Is(journalErr, fs.ErrNotExist); {
	case noTasks && noJournal:
		c.note("there is no ledger in %s yet", dir)
	case noJournal && tasksErr == nil:
		c.note("there is no journal: the next master rebuilds it from %s", ledger.TasksName)
		a := newAlone()
		c.faults(KindSection, queue.FindingsOf(repair.CheckFile(ledger.TasksName, c.tasks, a.check)))
		c.state, c.Records = a.state, len(a.sections)
	case noTasks:
		c.note("there is no %s: the next master writes it anew from the journal", ledger.TasksName)
	}
	if journalErr == nil {
		c.checkJournal()
	}
	if journalErr == nil && tasksErr == nil {
		c.checkTasks()
	}
	if c.state != nil {
		c.faults(KindWaits, queue.Homeless(c.state, root))
		entries, _ := archive.Read(nil, dir, ledger.TaskFiles) // what is wrong with it is told by archive.Check
		for _, e := range entries {
			if c.state.Number(e.ID) == 0 {
				c.state.Archive(e)
			}
		}
		for _, of := range c.state.AfterNobody() {
			c.fault(KindWaits, task.Finding{File: ledger.TasksName, Message: "task " + of[0] + ": " + explain.AfterNobody(of[1])})
		}
	}
	return c.FsckReport, c.settled
}

// unreadable makes a fault of a file that is there and cannot be read.
func (r *FsckReport) unreadable(name string, err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.fault(KindFile, task.Finding{File: name, Message: err.Error()})
	}
}

// checkJournal looks at every record of the journal and folds it.
func (c *fsck) checkJournal() {
	st := fold.New(queue.BytesReader(c.journal))
	c.state = st
	var last uint64
	accounts := map[string]bool{}
	found := ledger.CheckJournal(c.journal, func(s *ledger.Section) (more bool) {
		c.Records++
		if name, ok := strings.CutPrefix(string(s.ID), state.ControlAccount); ok && s.Kind == ledger.KindControl {
			accounts[name] = true
		}
		last = max(last, s.Seq)
		if err := st.Apply(s); err != nil {
			c.fault(KindRefused, task.Finding{File: ledger.JournalName, Line: s.Line, Message: fmt.Sprintf("record %d has no effect: %v", s.Seq, err)})
		}
		return true
	})
	for _, f := range found {
		if f.Torn > 0 {
			c.settled = false
			c.note("%s: the next master cuts it off", f.Error())
			continue
		}
		c.faults(KindJournal, queue.FindingsOf([]*ledger.SyntaxError{f}))
	}
	c.Seq = max(last, st.Seq()) // a compaction keeps the number, not the record
	c.Paused, c.PauseWhy = st.Paused()
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		if a := st.Account(name); a.Hold || !a.CoolUntil.IsZero() {
			c.Accounts = append(c.Accounts, a)
		}
	}
	doc := ledger.Parse(c.tasks)
	for i := range doc.Sections { // tasks.md gets a record only when the journal has it
		if s := &doc.Sections[i]; s.Seq > last {
			c.fault(KindJournal, task.Finding{
				File: ledger.TasksName, Line: s.Line,
				Message: fmt.Sprintf("record %d is not in the journal, which ends with record %d; the next master takes it from here", s.Seq, last),
			})
			break
		}
	}
}

// checkTasks asks what a master would take over, and whether tasks.md has the same tasks as the journal.
func (c *fsck) checkTasks() {
	t, records, err := Preview(c.dir, ledger.TaskFiles, c.tasks)
	if err != nil {
		c.fault(KindFile, task.Finding{File: ledger.TasksName, Message: err.Error()})
		return
	}
	for i := range records {
		if s, err := ledger.Encode(&records[i]); err == nil {
			_ = c.state.Apply(s) // what is wrong with it is a finding
		}
	}
	c.faults(KindSection, t.Findings)
	if t.Quarantined > 0 {
		c.fault(KindQuarantined, task.Finding{File: ledger.TasksName, Message: fmt.Sprintf("%d edits of long texts are quarantined as the work of a formatter; to accept them: stint edit --accept", t.Quarantined)})
	}
	if t.Missing > 0 {
		c.settled = false
		c.note("%s: the newest %d records are missing; a master appends them again", ledger.TasksName, t.Missing)
	}
	if t.Adopted > 0 {
		c.settled = false
		c.note("%s: %d edits are not taken over yet; a master does that", ledger.TasksName, t.Adopted)
	}
	if len(c.Faults) > 0 || t.Missing > 0 || t.Adopted > 0 {
		return
	}
	alone := newAlone()
	repair.CheckFile(ledger.TasksName, c.tasks, alone.check) // nothing in it is refused, or that was a finding
	got, err := texts(tasksOf(alone.state))
	want, werr := texts(tasksOf(c.state))
	c.compare(c.dir, ledger.TaskFiles, c.tasks, c.journal, got, want, errors.Join(err, werr))
}

// compare asks whether a file alone gives what its journal gives, got and want.
func (r *FsckReport) compare(dir string, files ledger.Files, text, journal []byte, got, want map[string][]byte, err error) {
	have, tidied := map[uint64]bool{}, 0
	doc := ledger.Parse(text)
	for i := range doc.Sections {
		have[doc.Sections[i].Seq] = true
	}
	ledger.CheckJournal(journal, func(s *ledger.Section) (more bool) {
		if !have[s.Seq] {
			tidied++
		}
		return true
	})
	if tidied > 0 { // it has fewer records, and gives what it has
		r.note("%s: %d records were taken out by hand; the journal has them", files.Ledger(), tidied)
		return
	}
	id, how := "", ""
	if err == nil {
		id, how, err = aloneDiffers(dir, files, got, want)
	}
	if err != nil {
		r.fault(KindDiffers, task.Finding{File: files.Ledger(), Message: err.Error()})
	} else if id != "" {
		line := 0
		if k := slices.IndexFunc(doc.Sections, func(s ledger.Section) bool { return s.Name() == string(files.Kind())+" "+id }); k >= 0 {
			line = doc.Sections[k].Line
		}
		r.fault(KindDiffers, task.Finding{File: files.Ledger(), Line: line, Message: how + "; the journal counts, and stint compact-tasks writes the section anew from it"})
	}
}

// CheckLedger returns what is wrong in one ledger file by itself: what cannot be
// read, and what a new state directory with this file alone would not take over.
func CheckLedger(name string, data []byte) []task.Finding {
	check, _ := checkOf(data)
	return queue.FindingsOf(repair.CheckFile(name, data, check))
}

// RepairLedger returns a ledger file without findings, and what [repair.Repair] did. journal may be nil.
func RepairLedger(name string, data, journal []byte) ([]byte, []task.Finding) {
	check, _ := checkOf(data)
	repaired, notes := repair.Repair(data, journal, check)
	for _, n := range notes {
		n.File = name
	}
	return repaired, queue.FindingsOf(notes)
}

// alone folds the records of one file as a new state directory would.
type alone struct {
	state    *fold.State
	sections []*ledger.Section // by the offset that they are folded under
}

func newAlone() *alone {
	a := &alone{}
	a.state = fold.New(a)
	return a
}

// SectionAt implements [fold.Reader].
func (a *alone) SectionAt(off int64) (*ledger.Section, error) { return a.sections[off], nil }

// check returns what is wrong with a record, and folds it if nothing is. What a
// person wrote is folded as the record that it would become.
func (a *alone) check(s *ledger.Section) error {
	own := *s
	if s.Seq == 0 {
		r := s.Record()
		r.Set(a.state.ImpliedChanges(r.Add(ledger.KeyBy, ledger.ByHand))...)
		enc, err := ledger.Encode(&r)
		if err == nil {
			err = a.state.CheckNext(enc)
		}
		if err != nil {
			return err
		}
		own = *enc
	}
	own.Off = int64(len(a.sections))
	a.sections = append(a.sections, &own)
	return a.state.Apply(&own)
}

// Preview returns what a master would do if tasks.md or jobs.md were these bytes. It changes nothing; a master may be
// at work. The records are those that it would make of edits; they have no seq yet.
func Preview(dir string, files ledger.Files, tasks []byte) (task.Reconciled, []ledger.Record, error) {
	if files == ledger.JobFiles {
		st, data, _, err := readJobs(dir, func(*ledger.Section, error) {})
		if err != nil {
			return task.Reconciled{}, nil, err
		}
		return preview(journal.Options{Dir: dir, Files: files, Rules: due.EditRules(func(f func(*jobs.State)) { f(st) })}, data, tasks)
	}
	data, entries, err := queue.ReadJournal(context.Background(), dir)
	if err != nil {
		return task.Reconciled{}, nil, err
	}
	st, err := queue.FoldJournal(context.Background(), data, entries, nil)
	if err != nil {
		return task.Reconciled{}, nil, err
	}
	return preview(journal.Options{Dir: dir, Rules: queue.EditRules(func(f func(*fold.State)) { f(st) })}, data, tasks)
}

// preview is Preview with the journal, which is nil if there is none, and the rules of its fold.
func preview(opts journal.Options, records, tasks []byte) (task.Reconciled, []ledger.Record, error) {
	r, err := journal.Preview(opts, records, tasks)
	if err != nil {
		return task.Reconciled{}, nil, err
	}
	return queue.ReconciledOf(r), r.Records, nil
}

// EditCheck returns a function that says whether a record that a person wrote can be taken over, as the journal
// stands now. It needs no lock. The errors are those of [fold.Save.Check].
func EditCheck(dir string) (func(*ledger.Section) error, error) {
	st, err := queue.FoldDir(context.Background(), dir)
	if err != nil {
		return nil, err
	}
	return st.CheckNext, nil
}
