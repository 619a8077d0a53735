package coordinator_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stint/coordinator"
	"stint/coordinator/statedir"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
)

// An onlooker follows a master as a client of its events does. It belongs to one
// goroutine.
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
	limit := time.After(20 * time.Second)
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
	_, last := w.changes(0)
	return last
}

func (w *world) changes(after uint64) (n int, last uint64) {
	for {
		missed, live, stop := w.c.SubscribeAfter(after, 1)
		stop()
		for _, c := range missed {
			n, after = n+1, c.Seq
		}
		if live != nil {
			return n, after
		}
	}
}

// TestSubscribeAfterMissesNothing: who comes and goes, and is cut off because it is
// slow, hears of each record at most once, and knows everything in the end.
func TestSubscribeAfterMissesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open()
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

// TestSubscribeAfterARestart: who followed the master before is told by the next one
// what was still said by the old one, what a person wrote meanwhile, and all since.
func TestSubscribeAfterARestart(t *testing.T) {
	w := newWorld(t)
	w.open()
	o := &onlooker{t: t, known: map[string]state.Status{}}
	w.wait(w.submit(task.TaskSpec{Prompt: "p"}).ID)
	held := w.submit(task.TaskSpec{Prompt: "held", Hold: true}).ID
	o.follow(w.c, 10)
	o.drain(w.newest())
	unseen := w.wait(w.submit(task.TaskSpec{Prompt: "unseen"}).ID).ID // and not read
	at := o.seq
	w.close()
	for range o.live { // closed with its master, with what it had
	}
	w.edit("\n## Task %s\n- status: canceled\n\n## Task mine\n- prompt: a draft\n", held)
	w.open()
	later := w.submit(task.TaskSpec{Prompt: "later", Hold: true}).ID
	o.follow(w.c, 10)
	defer o.stop()
	if want := w.statuses(); !maps.Equal(o.known, want) || o.resyncs > 0 || o.seq != w.c.Seq() || at == 0 {
		t.Errorf("it knows %v, want %v", o.known, want)
	}
	for id, want := range map[string]state.Status{held: state.Canceled, unseen: state.Done, "mine": state.Draft, later: state.Queued} {
		if o.known[id] != want {
			t.Errorf("%s is known as %q, want %s", id, o.known[id], want)
		}
	}
}

// TestResync: where tasks come or go without a record of their own, those who follow
// are told to list anew, once, and so are those who come back, also after a restart.
func TestResync(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		offline bool // it happens while no master runs
		do      func(w *world)
	}{
		{"a compaction that moves tasks out", false, func(w *world) { w.moveOut() }},
		{"a compaction that only merges", false, func(w *world) {
			if _, err := w.c.Compact(w.t.Context(), time.Hour, false); err != nil {
				w.t.Fatal(err)
			}
		}},
		{"sections deleted by hand", false, (*world).deleteEnded},
		{"a restore", true, (*world).restoreItself},
		{"another ledger", true, func(w *world) {
			for _, name := range []string{ledger.JournalName, ledger.TasksName} {
				check(w.t, os.Remove(filepath.Join(w.dir, name)))
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.open()
			w.wait(w.submit(task.TaskSpec{ID: taskID(1), Prompt: "p"}).ID)
			w.submit(task.TaskSpec{ID: taskID(2), Prompt: "p", Hold: true})
			o := &onlooker{t: t, known: map[string]state.Status{}}
			o.follow(w.c, 10)
			o.drain(w.newest())
			before := o.seq
			if !tc.offline {
				tc.do(w)
				o.drain(before + 1)
				if o.resyncs != 1 || o.seq != w.c.Seq() {
					t.Errorf("live: %d resyncs, at %d, and the newest record is %d", o.resyncs, o.seq, w.c.Seq())
				}
			}
			o.stop()
			w.close()
			if tc.offline {
				tc.do(w)
			}
			after := o.seq
			w.open()
			for _, from := range []uint64{before, after} {
				o := &onlooker{t: t, seq: from, known: map[string]state.Status{}}
				o.follow(w.c, 10)
				o.stop()
				if want := from == before; (o.resyncs == 1) != want || o.seq != w.c.Seq() {
					t.Errorf("who comes back with %d is told %d times to list anew, and is at %d of %d", from, o.resyncs, o.seq, w.c.Seq())
				}
				if tc.offline {
					break
				}
			}
		})
	}
}

// deleteEnded deletes all sections of the task that has ended from tasks.md.
func (w *world) deleteEnded() {
	w.t.Helper()
	path := filepath.Join(w.dir, ledger.TasksName)
	_, err := w.c.Reconcile(w.t.Context(), false) // what was acknowledged stands there after that
	text, rerr := os.ReadFile(path)
	check(w.t, errors.Join(err, rerr))
	parts := strings.SplitAfter(string(text), "\n\n")
	parts = slices.DeleteFunc(parts, func(s string) bool { return strings.HasPrefix(s, "## Task "+taskID(1)) })
	check(w.t, os.WriteFile(path, []byte(strings.Join(parts, "")), 0o600))
	if _, err := w.c.Reconcile(w.t.Context(), true); err != nil {
		w.t.Fatal(err)
	}
	if _, there := w.statuses()[taskID(1)]; there {
		w.t.Fatalf("the task is still listed; tasks.md is\n%s", strings.Join(parts, ""))
	}
}

// restoreItself makes a copy of tasks.md the ledger, whose records go on one by one.
func (w *world) restoreItself() {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, ledger.TasksName))
	if err != nil {
		w.t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), "- prompt: p\n", "- prompt: q\n", 1))
	copied := filepath.Join(w.t.TempDir(), "copy.md")
	check(w.t, os.WriteFile(copied, text, 0o600))
	plan, err := statedir.ReadRestore(w.dir, copied)
	if err == nil {
		_, err = statedir.Restore(w.cfg, plan, func(*statedir.Restoration) error { return nil })
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestChangeLine: one line of JSON, the same for all who are told of a change; one that
// asks for a new list has no task.
func TestChangeLine(t *testing.T) {
	w := newWorld(t)
	w.open()
	one, stop := w.c.Subscribe(10)
	defer stop()
	two, stop := w.c.Subscribe(10)
	defer stop()
	id := w.submit(task.TaskSpec{Prompt: "<b>\n\u2028", Hold: true, Label: "<&>"}).ID
	w.moveOut()
	for range 2 {
		a, b := <-one, <-two
		x, err := a.Line()
		if err != nil {
			t.Fatal(err)
		}
		y, err := b.Line()
		if err != nil || a != b || &x[0] != &y[0] {
			t.Errorf("%p and %p: it was made twice, %v", a, b, err)
		}
		want := fmt.Sprintf(`{"seq":%d,"resync":true}`+"\n", a.Seq)
		if !a.Resync {
			want = fmt.Sprintf(`{"seq":%d,"task":{"id":"%s",`, a.Seq, id)
		}
		if !strings.HasPrefix(string(x), want) || strings.Count(string(x), "\n") != 1 || x[len(x)-1] != '\n' || !a.Resync && !strings.Contains(string(x), `"label":"<&>"`) {
			t.Errorf("the line is %q, want %q", x, want)
		}
	}
}
