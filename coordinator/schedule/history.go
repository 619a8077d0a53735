package schedule

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"stint/coordinator/task"
	"stint/ledger/durable"
)

// A history is job_runs.jsonl: one line per firing, the newest last.
type history struct {
	path string
	mu   sync.Mutex // lets one change of the file be at work at a time
}

// add appends a line and makes it durable. A line that a crash has cut off stays alone.
func (h *history) add(run task.JobRun) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	line, err := json.Marshal(run)
	if err != nil {
		return err
	}
	f, err := durable.Open(h.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	end := make([]byte, 1)
	if size, err := f.Seek(0, io.SeekEnd); err == nil && size > 0 {
		if _, err := f.ReadAt(end, size-1); err == nil && end[0] != '\n' {
			line = append([]byte("\n"), line...)
		}
	}
	if _, err = f.Write(append(line, '\n')); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// last passes on the runs of a schedule, the newest first, until is returns true, and returns that
// one; nil if there is none. What is no run is left out.
func (h *history) last(schedule string, is func(*task.JobRun) bool) (*task.JobRun, error) {
	f, err := durable.Open(h.path, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read from
	off, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	var rest []byte // of a line whose beginning is still to be read
	for off > 0 {
		block := make([]byte, min(off, 64<<10))
		off -= int64(len(block))
		if _, err := f.ReadAt(block, off); err != nil && !errors.Is(err, io.EOF) { // it was made shorter meanwhile
			return nil, err
		}
		lines := bytes.Split(append(block, rest...), []byte("\n"))
		first := 1
		if rest = lines[0]; off == 0 {
			first = 0
		}
		for _, line := range slices.Backward(lines[first:]) {
			var run task.JobRun
			if json.Unmarshal(line, &run) == nil && run.Schedule == schedule && is(&run) {
				return &run, nil
			}
		}
	}
	return nil, nil
}

// prune removes the lines of what has ended more than keep ago, and what is no run; 0 removes none.
func (h *history) prune(keep time.Duration, now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	text, err := durable.ReadFile(durable.OS, h.path)
	if errors.Is(err, fs.ErrNotExist) || keep == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	var kept []byte
	for line := range bytes.Lines(text) {
		var run task.JobRun
		if json.Unmarshal(line, &run) == nil && now.Sub(run.Ended) <= keep {
			kept = append(kept, line...)
		}
	}
	if len(kept) == len(text) {
		return nil
	}
	return durable.ReplaceFile(durable.OS, h.path, kept)
}
