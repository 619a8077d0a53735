package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"stint/coordinator/redact"
	"stint/coordinator/rundir"
	"stint/coordinator/task"
	"stint/state"
)

type logsInput struct {
	Ref
	Stream string `query:"stream" default:"stdout" enum:"events,stdout,stderr,prompt" doc:"Which output: what happened, one event a line in JSON, the same for all agents; what the run wrote to stdout or stderr, as it is; or the prompt that its agent read" example:"stdout"`
	Follow bool   `query:"follow" doc:"Go on until the task has ended, over all its runs from those of the present attempt on" example:"false"`
	Run    string `query:"run" doc:"Only that run of the task: its id, a unique piece of it, or the number from 1 of one of its agent" example:"1"`
	Tail   int    `query:"tail" minimum:"0" doc:"Only the last so many lines; 0: all" example:"100"`
	IfNone string `header:"If-None-Match" doc:"ETag of an answer before: if nothing was written since, the answer is 304 without a body" example:"\"5e1f-4c\""` // net/http looks at it
	Range  string `header:"Range" doc:"Of bytes of what there is now, such as bytes=0-999, or bytes=-1000 for the last ones. With If-Range and the ETag of an answer before, it is only heeded if what was read is still the beginning. Not with follow" example:"bytes=-1000"`
}

// streamFile names the file of a run that holds a stream.
var streamFile = map[string]string{"events": rundir.EventsName, "stdout": "stdout", "stderr": "stderr", "prompt": rundir.PromptName}

// newStream returns what to write a stream to; its header is sent with the first write.
func newStream(hctx huma.Context, contentType string) *streamWriter {
	_, w := humago.Unwrap(hctx)
	hctx.SetHeader("Content-Type", contentType)
	hctx.SetStatus(http.StatusOK)
	return &streamWriter{w: w, rc: http.NewResponseController(w)}
}

// A streamWriter sends what it is given without delay.
type streamWriter struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration // that a reader may take for one piece; 0: as long as the listener lets it
}

func (s *streamWriter) Write(p []byte) (int, error) {
	if s.limit > 0 {
		_ = s.rc.SetWriteDeadline(time.Now().Add(s.limit)) // not every writer has deadlines
	}
	n, err := s.w.Write(p)
	if err == nil {
		err = s.rc.Flush()
	}
	return n, err
}

// breakOff ends a stream so that the client sees that it is not whole.
func breakOff() { panic(http.ErrAbortHandler) }

func (s *Server) logs(ctx context.Context, in *logsInput) (*huma.StreamResponse, error) {
	t, err := s.rooms.Tasks.Task(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	name := streamFile[in.Stream]
	if in.Follow && in.Tail > 0 {
		return nil, &task.Error{Code: task.CodeInvalid, Message: "tail and follow exclude each other", Hint: "leave one of them out", Field: "tail"}
	}
	filter := s.opts.Redact
	if in.Stream != "stdout" && in.Stream != "stderr" { // stint wrote it, without secrets but those that its user has typed
		filter = nil
	}
	content, begin, err := s.openLogs(&t, in, name, filter)
	if in.Follow && !errors.Is(err, &task.Error{Code: task.CodeConflict}) {
		if err == nil {
			_ = content.Close() // it was only looked at
		}
		done, err := s.beginWait(ctx, t.ID)
		if err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(hctx huma.Context) {
			defer done()
			ctx, release := long(hctx.Context())
			defer release()
			out := newStream(hctx, textPlain)
			_ = out.rc.Flush() // the header goes at once; an error shows again with the first write
			f := &follower{rooms: &s.rooms, id: t.ID, name: name, poll: s.opts.Poll, out: filter.Writer(out)}
			defer f.close()
			if f.run(ctx) != nil {
				breakOff()
			}
		}}, nil
	}
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		defer func() { _ = content.Close() }() // it was only read
		hctx.SetHeader("Content-Type", textPlain)
		if in.Tail == 0 { // a tail begins with something else after each line
			begin := `"` + content.Begin() + "-"
			tag := begin + strconv.FormatInt(content.Size(), 36) + `"`
			hctx.SetHeader("ETag", tag)
			if r, _ := humago.Unwrap(hctx); strings.HasPrefix(r.Header.Get("If-Range"), begin) {
				r.Header.Set("If-Range", tag) // what the client has is still the beginning
			}
		}
		serveContent(hctx, io.NewSectionReader(content, begin, content.Size()-begin), time.Time{})
	}}, nil
}

// openLogs opens the files of that name of a task's runs, and returns where what is asked for begins: of one
// run, or of those of its last attempt, in their order. Of prompts, which repeat themselves, it is the last.
func (s *Server) openLogs(t *state.Task, in *logsInput, name string, filter *redact.Filter) (content *rundir.Outputs, begin int64, err error) {
	ids, err := chooseRuns(t, in.Run)
	if err != nil {
		return nil, 0, err
	}
	var paths []string
	for _, id := range ids {
		path := filepath.Join(s.rooms.Runs.RunDir(id), name)
		if _, err := os.Lstat(path); err == nil {
			paths = append(paths, path)
		}
	}
	if len(paths) == 0 && t.Status != state.Running { // one that runs may still write it
		if err := rundir.Removed(t, s.rooms.Runs.RunDir(ids[len(ids)-1])); err != nil {
			return nil, 0, err
		}
		hint := "it was removed, or never written"
		if in.Stream == "events" { // the run may be older than such files
			hint = "stint logs --raw " + t.ID
		}
		return nil, 0, &task.Error{Code: task.CodeNotFound, Message: fmt.Sprintf("run %s of task %s has no file %s", ids[len(ids)-1], t.ID, name), Hint: hint}
	}
	if in.Stream == "prompt" {
		paths = paths[max(0, len(paths)-1):]
	}
	content, err = rundir.OpenOutputs(paths, filter, t.Status == state.Running)
	if err != nil || in.Tail == 0 {
		return content, 0, err
	}
	if begin, err = content.Tail(in.Tail); err != nil {
		return nil, 0, errors.Join(err, content.Close())
	}
	return content, begin, nil
}

const textPlain = "text/plain; charset=utf-8"

// chooseRuns returns the runs of a task's last attempt; or one of all its runs, see rundir.FindRun.
func chooseRuns(t *state.Task, run string) (ids []string, err error) {
	if !rundir.IsRunID(t.RunID) {
		return nil, &task.Error{Code: task.CodeNotFound, Message: "task " + t.ID + " has not run yet", Hint: "stint why " + t.ID}
	}
	if run != "" {
		s, err := rundir.FindRun(t, run)
		return []string{s.RunID}, err
	}
	for _, s := range append(slices.Clip(state.LastAttempt(t.Steps)), state.Step{RunID: t.RunID}) {
		if rundir.IsRunID(s.RunID) && !slices.Contains(ids, s.RunID) {
			ids = append(ids, s.RunID)
		}
	}
	return ids, nil
}

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

// run copies until the task has ended and everything is out (nil), ctx ends, or a file or the output fails.
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
