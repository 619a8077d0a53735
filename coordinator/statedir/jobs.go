package statedir

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

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
	"stint/state/jobs"
)

// filesOf returns which ledger the text of one is: its records say so, or its title.
func filesOf(data []byte) ledger.Files {
	doc := ledger.Parse(data)
	for i := range doc.Sections {
		if k := doc.Sections[i].Kind; k != ledger.KindControl {
			return map[ledger.Kind]ledger.Files{ledger.KindJob: ledger.JobFiles}[k]
		}
	}
	if bytes.Contains(data, []byte("\n# Jobs\n")) {
		return ledger.JobFiles
	}
	return ledger.TaskFiles
}

// checkOf returns the check of the records of a ledger file by itself, and what folds the due jobs of it.
func checkOf(data []byte) (func(*ledger.Section) error, *jobs.State) {
	st := jobs.New()
	if filesOf(data) == ledger.TaskFiles {
		return newAlone().check, st
	}
	return func(s *ledger.Section) error {
		if s.Seq == 0 {
			if err := st.NewSave().Check(s); err != nil {
				return err
			}
		}
		return st.Apply(s)
	}, st
}

// jobsOf returns the jobs of a state by id, as tasks whose prompt has all that is known of them.
func jobsOf(st *jobs.State) (map[string]state.Task, error) {
	all := map[string]state.Task{}
	for _, j := range st.List(jobs.Filter{}) {
		text, err := json.Marshal(j)
		if err != nil {
			return nil, err
		}
		all[j.ID] = state.Task{ID: j.ID, Status: state.Status(j.Status), Title: j.Action + " " + j.ObjectID, Prompt: string(text), CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt}
	}
	return all, nil
}

// readJobs folds the journal of due jobs, and what is wrong in that goes to refused and found. data is
// nil if there is none.
func readJobs(dir string, refused func(*ledger.Section, error)) (st *jobs.State, data []byte, found []*ledger.SyntaxError, err error) {
	st = jobs.New()
	data, err = journal.ReadJournal(dir, ledger.JobFiles)
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil, nil, nil
	}
	entries, aerr := archive.Read(nil, dir, ledger.JobFiles)
	if err = errors.Join(err, aerr); err != nil {
		return st, nil, nil, err
	}
	for _, e := range entries {
		st.Archive(e)
	}
	found = ledger.CheckJournal(data, func(s *ledger.Section) bool {
		if err := st.Apply(s); err != nil {
			refused(s, err)
		}
		return true
	})
	return st, data, found, nil
}

// checkJobs looks at the ledger of due jobs, and reports whether nothing is under way in it.
func (r *FsckReport) checkJobs(dir string) (settled bool) {
	const files = ledger.JobFiles
	snap, tasksErr := tasksfile.ReadSnapshot(context.Background(), durable.OS, dir, files)
	st, data, found, err := readJobs(dir, func(s *ledger.Section, err error) {
		r.fault(KindRefused, task.Finding{File: files.Journal(), Line: s.Line, Message: fmt.Sprintf("record %d has no effect: %v", s.Seq, err)})
	})
	r.unreadable(files.Ledger(), tasksErr)
	r.unreadable(files.Journal(), err)
	settled = true
	for _, f := range found {
		if f.File = files.Journal(); f.Torn > 0 {
			settled = false
			r.note("%s: the next master cuts it off", f.Error())
			continue
		}
		r.faults(KindJournal, queue.FindingsOf([]*ledger.SyntaxError{f}))
	}
	switch {
	case tasksErr != nil || err != nil:
	case data == nil:
		r.note("there is no %s: the next master rebuilds it from %s", files.Journal(), files.Ledger())
		r.faults(KindSection, CheckLedger(files.Ledger(), snap.Data))
	default:
		rules := due.EditRules(func(f func(*jobs.State)) { f(st) })
		report, _, err := preview(journal.Options{Dir: dir, Files: files, Rules: rules}, data, snap.Data)
		r.unreadable(files.Ledger(), err)
		r.faults(KindSection, report.Findings)
		if n := report.Adopted + report.Missing; n > 0 {
			settled = false
			r.note("%s: %d edits are not taken over, or records are missing; a master does that", files.Ledger(), n)
		} else if err == nil && len(report.Findings)+len(found) == 0 {
			check, alone := checkOf(snap.Data)
			repair.CheckFile(files.Ledger(), snap.Data, check)
			got, err := texts(jobsOf(alone))
			want, werr := texts(jobsOf(st))
			r.compare(dir, files, snap.Data, data, got, want, errors.Join(err, werr))
		}
	}
	return settled
}
