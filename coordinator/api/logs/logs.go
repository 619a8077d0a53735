// Package logs reads the streams that the runs of a task write: what there is now ([Stream.Open]), or all that comes
// until the task has ended ([Stream.Follow]), over runs that begin meanwhile and files that are begun anew.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"stint/coordinator/redact"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state"
)

// Master is what is asked of a master.
type Master interface {
	// Task returns a whole task, with prompt and result. Of one that does not run, the last run has written all of its streams.
	Task(ctx context.Context, ref string) (state.Task, error)
	// Subscribe returns every change from now on, in order. The channel is closed when more than buffer of them wait, and by cancel.
	Subscribe(buffer int) (changes <-chan *task.Change, cancel func())
	// RunDir returns the directory of a run, which need not exist.
	RunDir(runID string) string
}

// A Stream is one of those that each run of a task writes.
type Stream struct {
	Master Master
	Name   string         // events, stdout or stderr
	Redact *redact.Filter // masks secrets; nil: there are none
}

// files names the file of a run that holds a stream.
var files = map[string]string{"events": rundir.EventsName, "stdout": "stdout", "stderr": rundir.StderrName}

// Open opens the stream of a task's runs as it is now. It is that of one run, or, where run is "", of those of
// the last attempt, in their order.
func (s *Stream) Open(t *state.Task, run string) (*rundir.Outputs, error) {
	if !rundir.IsRunID(t.RunID) {
		return nil, &task.Error{Code: task.CodeNotFound, Message: "task " + t.ID + " has not run yet", Hint: "stint why " + t.ID}
	}
	ids := addRuns(nil, t, state.LastAttempt(t.Steps))
	if run != "" {
		s, err := rundir.FindRun(t, run)
		if err != nil {
			return nil, err
		}
		ids = []string{s.RunID}
	}
	var paths []string
	for _, id := range ids {
		dir, name := s.Master.RunDir(id), files[s.Name]
		needed := filepath.Join(dir, name)
		if name == rundir.StderrName { // an empty one is not kept
			needed = dir
		}
		if _, err := os.Lstat(needed); err == nil {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	if len(paths) == 0 && t.Status != state.Running { // one that runs may still write it
		if err := rundir.Removed(t, s.Master.RunDir(ids[len(ids)-1])); err != nil {
			return nil, err
		}
		return nil, &task.Error{Code: task.CodeNotFound, Message: fmt.Sprintf("run %s of task %s has no file %s", ids[len(ids)-1], t.ID, files[s.Name]), Hint: "it was removed, or never written"}
	}
	return rundir.OpenOutputs(paths, s.Redact, t.Status == state.Running)
}

// Follow copies the stream of the task of that id to w while it is written, and looks at the files at least every
// poll. It returns nil once the task has ended and everything is out, or an error when ctx ends, or a file or w fails.
func (s *Stream) Follow(ctx context.Context, id string, poll time.Duration, w io.Writer) error {
	f := &follower{runDir: s.Master.RunDir, name: files[s.Name], out: s.Redact.Writer(w)}
	defer f.close()
	changes, cancel := s.Master.Subscribe(64)
	defer func() { cancel() }()
	t, err := s.Master.Task(ctx, id) // after subscribing, so that no change falls between
	for err == nil {
		f.note(&t)
		if err := f.copyRuns(t.Status == state.Running); err != nil || t.Status.Terminal() {
			return err
		}
		var look <-chan time.Time
		if t.Status == state.Running {
			look = time.After(poll)
		}
		select {
		case c, ok := <-changes:
			switch {
			case !ok: // we were too slow for it
				cancel()
				changes, cancel = s.Master.Subscribe(64)
				t, err = s.Master.Task(ctx, id)
			case c.Task.ID == id:
				if t, err = s.Master.Task(ctx, id); err != nil {
					t, err = c.Task, nil // it was removed
				}
			}
		case <-look:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return err
}

// addRuns adds to a list of runs those of some steps of a task, and its last one.
func addRuns(ids []string, t *state.Task, steps []state.Step) []string {
	for _, s := range append(slices.Clip(steps), state.Step{RunID: t.RunID}) {
		if rundir.IsRunID(s.RunID) && !slices.Contains(ids, s.RunID) {
			ids = append(ids, s.RunID)
		}
	}
	return ids
}

// A follower copies a file of each run of a task, from those of the present attempt
// on, while it is written. It belongs to one goroutine.
//
// No byte is lost at the end of a run, because [Master.Task] waits for the last event of its
// log, and the file is read once more after that.
type follower struct {
	runDir func(runID string) string
	name   string // of the file in a run's directory
	out    *redact.Writer

	runs []string // ids of the last run and of those that are not copied to their end; the first is open
	file *os.File // of runs[0]; nil until it exists
	off  int64    // of the next byte
}

// note takes note of the runs of the present attempt and, later, of those that have begun since.
func (f *follower) note(t *state.Task) {
	var later []state.Step
	if len(f.runs) == 0 {
		later = state.LastAttempt(t.Steps)
	} else if seen := slices.IndexFunc(t.Steps, func(s state.Step) bool { return s.RunID == f.runs[len(f.runs)-1] }); seen >= 0 {
		later = t.Steps[seen+1:]
	}
	f.runs = addRuns(f.runs, t, later)
}

// copyRuns copies what there is. A run that has a successor is over, and the last one unless the task is active.
func (f *follower) copyRuns(active bool) error {
	for len(f.runs) > 0 {
		if err := f.copyFile(); err != nil {
			return err
		}
		if len(f.runs) > 1 || !active { // what is held back stays as it is
			if err := f.out.Flush(); err != nil {
				return err
			}
		}
		if len(f.runs) == 1 {
			return nil
		}
		f.close()
		f.runs = f.runs[1:]
	}
	return nil
}

// copyFile copies what has been added to the file of the first run.
func (f *follower) copyFile() error {
	if f.file == nil {
		file, err := rundir.OpenOutput(f.runDir(f.runs[0]), f.name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not yet, or no more
		}
		if err != nil {
			return err
		}
		f.file, f.off = file, 0
	}
	if fi, err := f.file.Stat(); err == nil && fi.Size() < f.off {
		f.off = 0 // the run has emptied it
	}
	n, err := io.Copy(f.out, io.NewSectionReader(f.file, f.off, math.MaxInt64-f.off))
	f.off += n
	return err
}

func (f *follower) close() {
	if f.file != nil {
		_ = f.file.Close() // it was only read
		f.file = nil
	}
}
