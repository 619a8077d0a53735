package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/postgres/shared"
	"stint/coordinator/postgres/tables"
	"stint/coordinator/task"
	"stint/state"
)

// BenchmarkShared is the shared queue by turns with River on the same server, if STINT_BENCH_RIVER is set: what is queued in a
// second, singly by 8 clients and in batches; how long a task takes from before it is queued until it begins, with a worker
// that waits; and how many tasks that do nothing 8 and 100 slots work in a second, until their ends are in the database.
// The x- metrics are ratios of medians. The targets: as much as River, and a quarter of its tasks, as ours are durable in two places.
func BenchmarkShared(b *testing.B) {
	server := realServer(b)
	b.Run("insert/clients=8", func(b *testing.B) {
		const each = 100
		w := newSharedWorld(b, server)
		w.compare(8*each, func() time.Duration {
			return stopwatch(func() {
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() {
						for range each {
							w.enqueue(1)
						}
					})
				}
				all.Wait()
			})
		}, fmt.Sprint("insert 8 ", each))
	})
	for _, size := range []int{100, 1000} {
		b.Run(fmt.Sprint("insert/batch=", size), func(b *testing.B) {
			const tasks = 10_000
			w := newSharedWorld(b, server)
			w.compare(tasks, func() time.Duration {
				return stopwatch(func() {
					for range tasks / size {
						w.enqueue(size)
					}
				})
			}, fmt.Sprint("many ", size, " ", tasks/size))
		})
	}
	b.Run("wake", func(b *testing.B) {
		const pause, times = 10, 30
		w := newSharedWorld(b, server)
		took := map[string][]time.Duration{}
		for b.Loop() {
			took["stint"] = append(took["stint"], w.wake(pause*time.Millisecond, times)...)
			if w.river != nil {
				took["river"] = append(took["river"], w.river.askAll(fmt.Sprint("wake ", pause, " ", times))...)
			}
		}
		b.ReportMetric(0, "ns/op") // both together say nothing
		for _, p := range []int{50, 99} {
			of := func(side string) float64 { return millis(took[side][len(took[side])*p/100]) }
			slices.Sort(took["stint"])
			b.ReportMetric(of("stint"), fmt.Sprintf("stint-p%d-ms", p))
			if w.river != nil {
				slices.Sort(took["river"])
				b.ReportMetric(of("river"), fmt.Sprintf("river-p%d-ms", p))
				b.ReportMetric(of("river")/of("stint"), fmt.Sprintf("x-river-p%d", p))
			}
		}
	})
	for _, slots := range []int{8, 100} {
		b.Run(fmt.Sprint("work/slots=", slots), func(b *testing.B) {
			tasks := 250 * slots
			if slots > 8 {
				tasks = 50 * slots
			}
			w := newSharedWorld(b, server)
			w.compare(tasks, func() time.Duration { return w.work(slots, tasks) }, fmt.Sprint("work ", slots, " ", tasks))
		})
	}
}

// A sharedWorld is an empty shared queue, and an empty database of River's on the same server.
type sharedWorld struct {
	*testing.B
	opener *shared.Opener
	river  *river // nil: it is not compared with
}

const sharedAccount = "codex-main"

func newSharedWorld(b *testing.B, server *postgrestest.Server) *sharedWorld {
	url := server.Database(b)
	w := &sharedWorld{B: b, opener: shared.NewOpener(func() (string, error) { return url, nil }, 20)}
	b.Cleanup(w.opener.Close)
	w.do(func(q *shared.Queue) error {
		return q.AddAccount(context.Background(), shared.Account{ID: sharedAccount, Tool: "codex", Max: 1000})
	})
	if os.Getenv("STINT_BENCH_RIVER") != "" {
		w.river = startRiverAt(b, server.Database(b))
	}
	return w
}

func (w *sharedWorld) do(do func(q *shared.Queue) error) { check(w.B, w.opener.Do(context.Background(), do)) }

func (w *sharedWorld) enqueue(n int) {
	specs := slices.Repeat([]task.TaskSpec{{Prompt: "Fix the flaky login test.\n\nKeep the diff small.", Label: "bench"}}, n)
	w.do(func(q *shared.Queue) error { _, err := q.Enqueue(context.Background(), specs); return err })
}

// compare reports how fast n things are done, and by River by an order.
func (w *sharedWorld) compare(n int, do func() time.Duration, order string) {
	r := rounds{}
	for w.Loop() {
		r.add("stint", n, do())
		if w.river != nil {
			r.add("river", n, w.river.ask(order))
		}
	}
	r.report(w.B, "stint")
}

// wake gives how long tasks take from before they are queued, so far apart, until a waiting worker begins them.
func (w *sharedWorld) wake(pause time.Duration, times int) (took []time.Duration) {
	m := w.startWorker(8)
	defer m.stop()
	for range times + 5 {
		<-time.After(pause)
		queued := time.Now()
		w.enqueue(1)
		took = append(took, (<-m.begun).Sub(queued))
		<-m.finished // else it is given back, and is there for the next worker
	}
	return took[5:] // the first ones find what has just begun
}

// work gives how long so many tasks take from the beginning of the first until the end of the last is in the database.
func (w *sharedWorld) work(slots, tasks int) time.Duration {
	for left := tasks; left > 0; left -= 1000 {
		w.enqueue(min(left, 1000))
	}
	m := w.startWorker(slots)
	defer m.stop()
	begun := <-m.begun
	for n := 0; n < tasks; {
		n += <-m.finished
	}
	return time.Since(begun)
}

// An instantMaster is a master whose agents end as soon as they begin, and the store of its worker.
type instantMaster struct {
	*shared.Queue
	slots    int
	begun    chan time.Time // the first one that nobody has asked for yet
	finished chan int
	changes  chan *task.Change
	stop     func()

	mu    sync.Mutex
	twins map[string]*task.TaskRecord
}

func (w *sharedWorld) startWorker(slots int) *instantMaster {
	m := &instantMaster{slots: slots, begun: make(chan time.Time, 1), finished: make(chan int, 1<<16), changes: make(chan *task.Change, 1<<16), twins: map[string]*task.TaskRecord{}}
	w.do(func(q *shared.Queue) error { m.Queue = q; return nil })
	maker := tables.Maker{Host: "bench", InlineThreshold: 1 << 20, OutputLimit: 10_000, MaxAttempts: 3, RunDir: func(string) string { return os.DevNull }}
	wake, drain := make(chan struct{}, 1), make(chan struct{})
	worker := shared.NewWorker(shared.Options{
		Holder: shared.Holder{Worker: uuid.New(), Host: "bench", TTL: 90 * time.Second}, Renew: 30 * time.Second, Poll: time.Second, Processes: slots, Margin: 10 * time.Second,
		Rows: maker.Of, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}, m, m, wake, drain)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	listens := make(chan struct{})
	var once sync.Once
	all.Go(func() {
		w.opener.Listen(ctx, time.Second, func() {
			select {
			case wake <- struct{}{}:
			default:
			}
			once.Do(func() { close(listens) })
		})
	})
	<-listens
	all.Go(func() { worker.Run(ctx) })
	m.stop = sync.OnceFunc(func() {
		close(drain)
		cancel()
		all.Wait()
	})
	return m
}

// Finish counts what is written.
func (m *instantMaster) Finish(ctx context.Context, ended []shared.Ended) error {
	err := m.Queue.Finish(ctx, ended)
	if err == nil {
		m.finished <- len(ended)
	}
	return err
}

// Submit runs a task that ends at once.
func (m *instantMaster) Submit(_ context.Context, s task.TaskSpec) (state.Task, error) {
	now, exit := time.Now(), 0
	select {
	case m.begun <- now:
	default:
	}
	run := uuid.Must(uuid.NewV7()).String()
	t := state.Task{
		ID: s.ID, Status: state.Running, Agent: s.Agent, Account: s.Account, Prompt: s.Prompt, Label: s.Label, RunID: run,
		IdempotencyKey: state.GivenKey(s.IdempotencyKey), CreatedAt: now, UpdatedAt: now, StartedAt: now,
	}
	m.changes <- &task.Change{Task: t}
	t.Status, t.Result, t.ExitCode = state.Done, "done", &exit
	m.mu.Lock()
	defer m.mu.Unlock()
	m.twins[s.ID] = &task.TaskRecord{Task: t, Runs: []task.TaskRun{{RunID: run, Attempt: 1, Agent: s.Agent, StartedAt: now, EndedAt: now, ExitCode: &exit}}}
	m.changes <- &task.Change{Task: t}
	return t, nil
}

// Cancel has nothing to end.
func (m *instantMaster) Cancel(_ context.Context, id, _ string) (state.Task, error) {
	r, err := m.TaskRecord(id)
	return r.Task, err
}

// TaskRecord returns a twin.
func (m *instantMaster) TaskRecord(id string) (task.TaskRecord, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *m.twins[id], nil
}

// TwinOf finds none: each worker begins with an empty ledger.
func (m *instantMaster) TwinOf(string) (t state.Task, ok bool) { return t, false }

// Subscribe returns the changes of all.
func (m *instantMaster) Subscribe(int) (<-chan *task.Change, func()) { return m.changes, func() {} }

// Room is as many as there are slots.
func (m *instantMaster) Room() map[string]int { return map[string]int{sharedAccount: m.slots} }
