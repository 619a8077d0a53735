package statedir

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"stint/coordinator/admission"
	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/archive"
	"stint/ledger/durable"
	"stint/state"
)

// SubmitOffline accepts a task where no master runs: it locks the state
// directory, appends durably and closes. The error has CodeBusy if a master does run.
func SubmitOffline(ctx context.Context, cfg queue.Config, spec task.TaskSpec) (t state.Task, err error) {
	err = offline(cfg, func(a *admission.Admission) error {
		t, err = a.Submit(ctx, spec)
		return err
	})
	return t, err
}

// SubmitAllOffline is SubmitAll where no master runs; see [SubmitOffline].
func SubmitAllOffline(ctx context.Context, cfg queue.Config, specs []task.TaskSpec) (tasks []state.Task, err error) {
	err = offline(cfg, func(a *admission.Admission) error {
		tasks, err = a.SubmitAll(ctx, specs)
		return err
	})
	return tasks, err
}

// offline calls f where no master runs.
func offline(cfg queue.Config, f func(*admission.Admission) error) error {
	s, err := queue.Open(cfg)
	if err != nil {
		return err
	}
	return errors.Join(f(admission.New(s, nobody{})), s.Close())
}

// nobody runs where there is no master.
type nobody struct{}

func (nobody) TaskOf(string) *state.Task { return nil }
func (nobody) Cancel(string, error)      {}

// Refold reads the journal of a state directory from its beginning and writes the
// state that it gives, as Dump does. It changes nothing and needs no lock: a
// master may be at work.
func Refold(dir string, w io.Writer) error {
	st, err := queue.FoldDir(context.Background(), dir)
	if err != nil {
		return err
	}
	return st.Dump(w)
}

// Check looks whether a state directory is sound: tasks.md has no findings and
// holds all records of the journal, and tasks.md alone gives the same tasks. It may
// have more that are in the archive: a compaction was killed before it came to
// tasks.md. No master may be at work. It changes nothing.
func Check(dir string) error {
	tasks, err := durable.ReadFile(durable.OS, filepath.Join(dir, ledger.TasksName))
	if err != nil {
		return err
	}
	doc := ledger.Parse(tasks)
	for _, f := range doc.Findings {
		f.File = ledger.TasksName
		err = errors.Join(err, f)
	}
	if err != nil {
		return err
	}
	journal, err := durable.ReadFile(durable.OS, filepath.Join(dir, ledger.JournalName))
	if err != nil {
		return err
	}
	want, got, err := bothTasks(dir, journal, tasks)
	if err != nil {
		return err
	}
	if !bytes.Equal(want, got) {
		return fmt.Errorf("tasks.md alone gives other tasks:\n%s\nthan the journal:\n%s", got, want)
	}
	return nil
}

// bothTasks returns the tasks of the journal, and those that tasks.md gives alone but
// for what is in the archive and no more in the journal.
func bothTasks(dir string, records, tasks []byte) (want, got []byte, err error) {
	entries, err := archive.Read(nil, dir)
	if err != nil {
		return nil, nil, err
	}
	st, err := queue.FoldJournal(context.Background(), records, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	archived := map[string]bool{}
	for _, e := range entries {
		if _, ok := st.Peek(e.ID); !ok {
			archived[e.ID] = true
		}
	}
	if want, err = tasksText(records, nil); err != nil {
		return nil, nil, err
	}
	elsewhere, err := os.MkdirTemp("", "stint-check-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(elsewhere)) }()
	if err := durable.WriteFile(durable.OS, filepath.Join(elsewhere, ledger.TasksName), tasks); err != nil {
		return nil, nil, err
	}
	if err := reopen(queue.Config{StateDir: elsewhere, Unwatched: true}); err != nil {
		return nil, nil, err
	}
	rebuilt, err := durable.ReadFile(durable.OS, filepath.Join(elsewhere, ledger.JournalName))
	if err != nil {
		return nil, nil, err
	}
	got, err = tasksText(rebuilt, archived)
	return want, got, err
}

// tasksText returns the tasks of a journal with their texts, a line each, without
// those to leave out.
func tasksText(journal []byte, leaveOut map[string]bool) ([]byte, error) {
	st, err := queue.FoldJournal(context.Background(), journal, nil, nil)
	if err != nil {
		return nil, err
	}
	rows, err := st.List(state.Filter{})
	if err != nil {
		return nil, err
	}
	var out []byte
	for _, row := range rows {
		if leaveOut[row.ID] {
			continue
		}
		t, _, err := st.Task(row.ID)
		if err != nil {
			return nil, err
		}
		line, err := json.Marshal(t)
		if err != nil {
			return nil, err
		}
		out = append(append(out, line...), '\n')
	}
	return out, nil
}
