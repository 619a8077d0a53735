package api

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"stint/coordinator/redact"
	"stint/coordinator/rundir"
	"stint/state"
)

// A follower copies a file of each run of a task, from those of the present attempt
// on, while it is written. It belongs to one goroutine.
//
// No byte is lost at the end of a run, because [Tasks.Task] waits for the last event of its
// log, and the file is read once more after that.
type follower struct {
	rooms *Rooms
	id    string // of the task, whole
	name  string // of the file in a run's directory
	poll  time.Duration
	out   *redact.Writer

	runs   []string // ids of runs that are not copied to their end; the first is open
	last   string   // the newest run seen
	active bool     // the newest run is at work
	ended  bool     // the task has ended
	file   *os.File // of runs[0]; nil until it exists
	off    int64    // of the next byte
}

// errLagged means that a subscription was closed because it was too slow.
var errLagged = errors.New("subscription closed")

// run copies until the task has ended and everything is out (nil), ctx ends, or
// a file or the output fails.
func (f *follower) run(ctx context.Context) error {
	for {
		if err := f.subscription(ctx); !errors.Is(err, errLagged) {
			return err
		}
	}
}

// subscription follows as long as one subscription lasts. The task is looked at
// after subscribing, so that no change falls between.
func (f *follower) subscription(ctx context.Context) error {
	changes, cancel := f.rooms.Changed.Subscribe(64)
	defer cancel()
	t, err := f.rooms.Tasks.Task(ctx, f.id)
	if err != nil {
		return err
	}
	f.begin(&t)
	for {
		if err := f.copyRuns(); err != nil || f.ended {
			return err
		}
		var look <-chan time.Time // while a run is at work
		if f.active {
			look = time.After(f.poll)
		}
		select {
		case c, ok := <-changes:
			if !ok {
				return errLagged
			}
			if c.Task.ID == f.id {
				if c.Task.Status != state.Running {
					_, _ = f.rooms.Tasks.Task(ctx, f.id) // its log is complete then
				}
				f.see(c.Task)
			}
		case <-look:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// begin takes note of the runs of the present attempt or, after another subscription,
// of those that have begun since.
func (f *follower) begin(t *state.Task) {
	if ids, err := chooseRuns(t, ""); err == nil && f.last == "" {
		f.runs, f.last = ids, ids[len(ids)-1]
	}
	if seen := slices.IndexFunc(t.Steps, func(s state.Step) bool { return s.RunID == f.last }); seen >= 0 {
		for _, s := range t.Steps[seen+1:] {
			f.add(s.RunID)
		}
	}
	f.see(*t)
}

func (f *follower) add(run string) {
	if run != f.last && rundir.IsRunID(run) {
		f.runs = append(f.runs, run)
		f.last = run
	}
}

// see takes note of the task's state.
func (f *follower) see(t state.Task) {
	f.ended = t.Status.Terminal()
	f.active = t.Status == state.Running
	f.add(t.RunID)
}

// copyRuns copies what there is. A run that has a successor is over.
func (f *follower) copyRuns() error {
	for len(f.runs) > 0 {
		if err := f.copyFile(); err != nil {
			return err
		}
		if len(f.runs) > 1 || !f.active { // what is held back stays as it is
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
		file, err := rundir.OpenOutput(f.rooms.Runs.RunDir(f.runs[0]), f.name)
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
