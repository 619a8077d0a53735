package schedule

import (
	"bytes"
	"encoding/json"
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

// add appends a line and makes it durable.
func (h *history) add(run task.JobRun) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return durable.AppendLine(durable.OS, h.path, run, true)
}

// last passes on the runs of a schedule, or of all (""), the newest first, and returns the one for which is returns true, or nil.
func (h *history) last(schedule string, is func(*task.JobRun) bool) (found *task.JobRun, err error) {
	name := []byte(`"` + schedule + `"`) // to decode every line of all others would take seconds
	if schedule == "" {
		name = nil
	}
	err = durable.Newest(durable.OS, h.path, func(line []byte) bool {
		if !bytes.Contains(line, name) {
			return true
		}
		var run task.JobRun
		if json.Unmarshal(line, &run) == nil && (schedule == "" || run.Schedule == schedule) && is(&run) {
			found = &run
		}
		return found == nil
	})
	return found, err
}

// prune removes the lines of what has ended more than keep ago, and what is no run; 0 removes none.
func (h *history) prune(keep time.Duration, now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if keep == 0 {
		return nil
	}
	return durable.KeepLines(durable.OS, h.path, func(line []byte) bool {
		var run task.JobRun
		return json.Unmarshal(line, &run) == nil && now.Sub(run.Ended) <= keep
	})
}
