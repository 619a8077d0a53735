package coordinator_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stint/coordinator"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// An onlooker follows a master as a client of its events does. It belongs to one goroutine.
type onlooker struct {
	t       *testing.T
	seq     uint64                  // up to which it knows all
	known   map[string]state.Status // by task
	resyncs int
	live    <-chan *task.Change
	stop    func()
}

// follow catches up with c and then follows it.
func (o *onlooker) follow(c *coordinator.Coordinator, buffer int) {
	o.t.Helper()
	for o.live = nil; o.live == nil; {
		var missed []*task.Change
		missed, o.live, o.stop = c.SubscribeAfter(o.seq, buffer)
		for _, change := range missed {
			o.see(change)
		}
	}
}

func (o *onlooker) see(c *task.Change) {
	o.t.Helper()
	switch {
	case c.Resync:
		o.resyncs++
		o.known = map[string]state.Status{}
	case c.Seq <= o.seq:
		o.t.Errorf("%d comes after %d", c.Seq, o.seq)
	default:
		o.known[c.Task.ID] = c.Task.Status
	}
	o.seq = c.Seq
}

// drain takes what comes, up to record seq or until it is cut off.
func (o *onlooker) drain(seq uint64) {
	o.t.Helper()
	limit := time.After(2 * time.Minute)
	for o.seq < seq {
		select {
		case c, ok := <-o.live:
			if !ok {
				return
			}
			o.see(c)
		case <-limit:
			o.t.Fatalf("record %d does not come; the last was %d", seq, o.seq)
		}
	}
}

// take takes up to n of what has come.
func (o *onlooker) take(n int) {
	for range n {
		select {
		case c, ok := <-o.live:
			if !ok {
				return
			}
			o.see(c)
		default:
			return
		}
	}
}

// statuses returns what a list shows.
func (w *world) statuses() map[string]state.Status {
	m := map[string]state.Status{}
	for _, t := range w.c.List(state.Filter{}) {
		m[t.ID] = t.Status
	}
	return m
}

// newest returns the number of the newest record of a task.
func (w *world) newest() uint64 { // controls have numbers too, and nobody is told of most
	for after := uint64(0); ; {
		missed, live, stop := w.c.SubscribeAfter(after, 1)
		stop()
		for _, c := range missed {
			after = c.Seq
		}
		if live != nil {
			return after
		}
	}
}

// TestSubscribeAfterMissesNothing: who comes and goes, and is cut off because it is
// slow, hears of each record at most once, and knows everything in the end.
func TestSubscribeAfterMissesNothing(t *testing.T) {
	t.Parallel()
	w := openWorld(t)
	const each = 40
	var submitters sync.WaitGroup
	var working atomic.Int32
	for i := range 4 {
		working.Add(1)
		submitters.Go(func() {
			defer working.Add(-1)
			for n := range each {
				if _, err := w.try(task.TaskSpec{Prompt: "p", SessionKey: fmt.Sprintf("s%d-%d", i, n%7), Hold: n%5 > 0}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	o := &onlooker{t: t, known: map[string]state.Status{}}
	for rounds := 1; working.Load() > 0 || w.statusesOpen(); rounds++ {
		o.follow(w.c, 1+rounds%16)
		runtime.Gosched()
		o.take(rounds % 20)
		o.stop()
	}
	submitters.Wait()
	o.follow(w.c, 1)
	o.drain(w.newest())
	o.stop()
	if want := w.statuses(); !maps.Equal(o.known, want) || len(want) != 4*each || o.resyncs > 0 {
		t.Errorf("it knows %d tasks after %d resyncs, and there are %d", len(o.known), o.resyncs, len(want))
	}
}

// statusesOpen reports whether more will happen.
func (w *world) statusesOpen() bool {
	return slices.ContainsFunc(w.c.List(state.Filter{}), func(t state.Task) bool { return !t.Status.Terminal() && !t.Hold })
}

// TestResync: where tasks come or go without a record of their own, those who follow
// are told to list anew, once, and so are those who come back, also after a restart.
func TestResync(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(w *world){
		"a compaction that moves tasks out": (*world).moveOut,
		"a compaction that only merges": func(w *world) {
			_, err := w.c.Compact(w.t.Context(), time.Hour, false, false)
			check(w.t, err)
		},
		"sections deleted by hand": func(w *world) {
			_, err := w.c.Reconcile(w.t.Context(), false) // what was acknowledged stands there after that
			check(w.t, err)
			parts := strings.SplitAfter(read(w.t, w.dir, ledger.TasksName), "\n\n")
			parts = slices.DeleteFunc(parts, func(s string) bool { return strings.HasPrefix(s, "## Task "+taskID(1)) })
			write(w.t, filepath.Join(w.dir, ledger.TasksName), strings.Join(parts, ""))
			_, err = w.c.Reconcile(w.t.Context(), true)
			check(w.t, err)
			if len(w.statuses()) != 1 {
				w.t.Fatalf("the task is still listed; tasks.md is\n%s", strings.Join(parts, ""))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := openWorld(t)
			w.done(task.TaskSpec{ID: taskID(1), Prompt: "p"})
			w.submit(task.TaskSpec{ID: taskID(2), Prompt: "p", Hold: true})
			o := &onlooker{t: t, known: map[string]state.Status{}}
			o.follow(w.c, 10)
			o.drain(w.newest())
			before := o.seq
			do(w)
			o.drain(before + 1)
			if o.resyncs != 1 || o.seq != w.c.Seq() {
				t.Errorf("live: %d resyncs, at %d, and the newest record is %d", o.resyncs, o.seq, w.c.Seq())
			}
			o.stop()
			w.restart()
			for from, want := range map[uint64]int{before: 1, o.seq: 0} {
				o := &onlooker{t: t, seq: from, known: map[string]state.Status{}}
				o.follow(w.c, 10)
				o.stop()
				if o.resyncs != want || o.seq != w.c.Seq() {
					t.Errorf("who comes back with %d is told %d times to list anew, and is at %d of %d", from, o.resyncs, o.seq, w.c.Seq())
				}
			}
		})
	}
}
