package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"stint/coordinator/task"
	"stint/state"
)

// idleWorld is a master that starts nothing.
func idleWorld(t *testing.T) *world {
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.open()
	return w
}

// fullWorld is a master that starts nothing, and whose queue takes so many tasks.
func fullWorld(t *testing.T, most int) *world {
	w := newWorld(t)
	w.cfg.MaxWorkers, w.cfg.MaxQueued = 0, most
	w.open()
	return w
}

func (w *world) waiting() int { return w.c.Health().Counts[state.Queued] }

func TestFullQueue(t *testing.T) {
	t.Parallel()
	w := fullWorld(t, 3)
	tooMany := &task.Error{Code: task.CodeTooMany}
	first := w.submit(task.TaskSpec{Prompt: "a", IdempotencyKey: "k"})
	w.submit(task.TaskSpec{Prompt: "b", Hold: true})
	if _, err := w.submitAll([]task.TaskSpec{{Prompt: "c"}, {Prompt: "d"}}); !errors.Is(err, tooMany) || w.waiting() != 2 {
		t.Errorf("two tasks where there is room for one: %v, and %d wait", err, w.waiting())
	}
	w.submit(task.TaskSpec{Prompt: "c"})
	_, err := w.try(task.TaskSpec{Prompt: "d"})
	if !errors.Is(err, tooMany) || !strings.Contains(err.Error(), "3 tasks wait") || !strings.Contains(err.Error(), "max_queued is 3") || w.waiting() != 3 {
		t.Errorf("a fourth: %v, and %d wait", err, w.waiting())
	}
	if again, err := w.try(task.TaskSpec{Prompt: "a", IdempotencyKey: "k"}); err != nil || again.ID != first.ID {
		t.Errorf("one that is known already: %s %v", again.ID, err)
	}
	w.cancel(first.ID)
	w.submit(task.TaskSpec{Prompt: "d"})
}

func TestFollowUpOfAFullQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.MaxQueued, w.cfg.MaxWorkers, w.cfg.MaxAttempts, w.cfg.FollowUpDepth, w.cfg.MaxFollowUps = 1, 1, 1, 1, 1
	var fails sync.Once
	begun, end := make(chan bool, 1), make(chan bool)
	w.agent.do = func(context.Context, task.Turn, func(task.Event)) task.Outcome {
		out := task.Outcome{Result: "fine"}
		fails.Do(func() {
			begun <- true
			<-end
			out = task.Outcome{Class: state.ClassExit, Error: "no"}
		})
		return out
	}
	w.open()
	entry := w.submit(task.TaskSpec{Prompt: "a", OnFailure: "look why"})
	<-begun
	w.submit(task.TaskSpec{Prompt: "the queue is full with this"})
	close(end)
	got := w.wait(entry.ID)
	if len(got.FollowUps) != 1 {
		t.Errorf("%s, and no follow-up: %s", got.Status, got.Note)
	}
}

// TestQueueIsNeverMoreThanFull: submitters that share a write of the ledger do not see
// each other in the fold.
func TestQueueIsNeverMoreThanFull(t *testing.T) {
	t.Parallel()
	const most, submitters, each = 100, 64, 6
	w := fullWorld(t, most)
	var wg sync.WaitGroup
	var taken atomic.Int64
	for i := range submitters {
		wg.Go(func() {
			for n := range each {
				specs := make([]task.TaskSpec, 1+(i+n)%3)
				for j := range specs {
					specs[j] = task.TaskSpec{Prompt: fmt.Sprintf("%d, %d, %d", i, n, j)}
				}
				switch _, err := w.submitAll(specs); {
				case err == nil:
					taken.Add(int64(len(specs)))
				case !errors.Is(err, &task.Error{Code: task.CodeTooMany}):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := int(taken.Load()); got != w.waiting() || got > most || got < most-2 {
		t.Errorf("%d were taken in and %d wait, of %d that may", got, w.waiting(), most)
	}
}
