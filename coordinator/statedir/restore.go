package statedir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"stint/coordinator/queue"
	"stint/coordinator/schedule/due"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/journal"
	"stint/ledger/mark"
	"stint/ledger/repair"
	"stint/state"
)

// A Restoration is what going back to an earlier copy of tasks.md means.
type Restoration struct {
	From     string         `json:"from"`             // absolute path of the copy
	File     string         `json:"-"`                // name of the ledger: tasks.md, or jobs.md, whose jobs are tasks here
	Tasks    int            `json:"tasks"`            // in the copy
	Gone     []state.Task   `json:"gone"`             // that the copy does not have
	Changed  []state.Task   `json:"changed"`          // as they are in the copy
	Back     []state.Task   `json:"back"`             // that only the copy has
	Running  []string       `json:"running"`          // ids of tasks that run now
	Findings []task.Finding `json:"findings"`         // what is wrong in the copy
	Backup   string         `json:"backup,omitempty"` // where the ledger of before was put; "" if nothing was done
}

// A RestorePlan is a copy of tasks.md that was read, for [RestorePlan.Compare].
type RestorePlan struct {
	path  string
	files ledger.Files
	data  []byte
	tasks map[string]state.Task
	found []task.Finding
}

// ReadRestore reads a copy of tasks.md. The error says why a ledger of dir cannot
// be made of it at all; what is wrong in single sections are findings.
func ReadRestore(dir, path string) (*RestorePlan, error) {
	refuse := func(hint, format string, args ...any) (*RestorePlan, error) {
		return nil, task.Invalid(hint, path+" "+format, args...)
	}
	data, err := journal.ReadLedger(path)
	if err != nil {
		return nil, task.Invalid("name a copy of "+ledger.TasksName, "cannot read the copy: %v", err)
	}
	fi, _ := os.Stat(path) // it was just read
	for _, files := range []ledger.Files{ledger.TaskFiles, ledger.JobFiles} {
		if own, err := os.Stat(filepath.Join(dir, files.Ledger())); err == nil && os.SameFile(fi, own) {
			return refuse("name a copy of it; what is in "+files.Ledger()+" itself counts already", "is the ledger itself")
		}
	}
	if ledger.IsJournal(data) {
		return refuse("name a copy of "+ledger.TasksName, "is a journal and not a ledger, as its first line says")
	}
	p := &RestorePlan{path: path, files: filesOf(data), data: data}
	doc := ledger.Parse(data)
	if doc.Version > ledger.FormatVersion {
		return refuse("use the newer stint that wrote it", "has format %d, this stint knows formats up to %d", doc.Version, ledger.FormatVersion)
	}
	if len(doc.Sections) == 0 {
		return refuse("name a copy of "+ledger.TasksName, "has no record that can be read")
	}
	alone := newBook(p.files, nil, nil)
	p.found = queue.FindingsOf(repair.CheckFile(filepath.Base(path), data, alone.check))
	p.tasks, err = alone.all()
	return p, err
}

// Compare returns what restoring the copy would change in the ledger of dir now. It needs no lock.
func (p *RestorePlan) Compare(dir string) (*Restoration, error) {
	r := &Restoration{
		From: p.path, File: p.files.Ledger(), Tasks: len(p.tasks), Findings: p.found,
		Gone: []state.Task{}, Changed: []state.Task{}, Back: []state.Task{}, Running: []string{}, // JSON has no null
	}
	b, _, err := readBook(dir, p.files)
	if err != nil {
		return nil, err
	}
	r.Running = append(r.Running, b.tasks.Running()...)
	now, err := b.all()
	if err != nil {
		return nil, err
	}
	for _, id := range differing(now, p.tasks) {
		then, isThere := p.tasks[id]
		switch is, isNow := now[id]; {
		case !isThere:
			r.Gone = append(r.Gone, is)
		case !isNow:
			r.Back = append(r.Back, then)
		default:
			r.Changed = append(r.Changed, then)
		}
	}
	return r, nil
}

// Restore makes an earlier copy of tasks.md the ledger. It locks the state directory, takes over what a person has edited, and
// asks confirm, which may refuse; the ledger of then is kept in archive. An error of another kind than confirm's leaves the
// ledger as it was, or says that the next start goes on with the restore. The error has CodeBusy if a master runs, CodeConflict
// if a task is running whose agent nobody has proved dead.
func Restore(cfg queue.Config, plan *RestorePlan, confirm func(*Restoration) error) (r *Restoration, err error) {
	cfg = cfg.WithDefaults()
	now := cfg.Now()
	unlock, err := queue.Lock(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	var bad *durable.BadFileError // a tasks.md that is none has no edits, and is what a restore is for
	if err := reopen(cfg, plan.files); err != nil && (!errors.As(err, &bad) || filepath.Base(bad.Path) != plan.files.Ledger()) {
		return nil, err
	}
	if r, err = plan.Compare(cfg.StateDir); err != nil {
		return nil, err
	}
	if len(r.Running) > 0 {
		return nil, r.RunningError()
	}
	if err := confirm(r); err != nil {
		return nil, err
	}
	r.Backup = filepath.Join(cfg.StateDir, "archive", "before-restore-"+now.UTC().Format("20060102T150405.000Z"))
	note := ledger.Record{Kind: ledger.KindControl, ID: mark.Restore}
	note.Add("from", r.From).Add(state.KeyUpdatedAt, state.FormatTime(now))
	if err := journal.Restore(durable.OS, cfg.StateDir, plan.files, plan.data, note, r.Backup); err != nil {
		return nil, err
	}
	if err := reopen(cfg, plan.files); err != nil {
		return nil, fmt.Errorf("the ledger was restored and cannot be opened: %w", err)
	}
	return r, nil
}

// RunningError refuses to take a running task from its agent.
func (r *Restoration) RunningError() error {
	return task.Conflict("stint cancel "+r.Running[0]+", or start a master and stop it: stint serve",
		"task %s is running, as far as the ledger knows; nobody has looked whether its agent is dead", r.Running[0])
}

// reopen opens the ledger once: that takes over what nobody had taken over in the copy, and the sessions.
func reopen(cfg queue.Config, files ledger.Files) error {
	if files == ledger.JobFiles {
		r, err := due.Open(due.Options{Dir: cfg.StateDir, Now: cfg.Now})
		if err != nil {
			return err
		}
		return r.Close()
	}
	s, err := queue.OpenLocked(cfg)
	if err != nil {
		return err
	}
	return s.Close()
}
