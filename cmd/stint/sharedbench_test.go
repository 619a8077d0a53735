package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"stint/coordinator"
	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/postgres/shared"
	"stint/coordinator/postgres/tables"
	"stint/coordinator/queue"
	"stint/coordinator/task"
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
			tasks := 100 * slots
			if slots > 8 {
				tasks = 10 * slots
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

func newSharedWorld(b *testing.B, server *postgrestest.Server) *sharedWorld {
	url := server.Database(b)
	w := &sharedWorld{B: b, opener: shared.NewOpener(func() (string, error) { return url, nil }, 20)}
	b.Cleanup(w.opener.Close)
	w.do(func(q *shared.Queue) error {
		return q.AddAccount(context.Background(), shared.Account{ID: "codex", Tool: "codex", Max: 1000})
	})
	if os.Getenv("STINT_BENCH_RIVER") != "" {
		w.river = startRiverAt(b, server.Database(b))
	}
	return w
}

func (w *sharedWorld) do(do func(q *shared.Queue) error) {
	check(w.B, w.opener.Do(context.Background(), do))
}

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

// A benchWorker is a worker whose agents end as soon as they begin, with a master and a ledger of its own.
type benchWorker struct {
	*shared.Queue
	begun    chan time.Time // of the last agent that nobody has asked for yet
	finished chan int       // tasks whose ends were written
	stop     func()
}

func (w *sharedWorld) startWorker(slots int) *benchWorker {
	m := &benchWorker{begun: make(chan time.Time, 1), finished: make(chan int, 1<<16)}
	w.do(func(q *shared.Queue) error { m.Queue = q; return nil })
	dir, wake := w.TempDir(), make(chan struct{}, 1)
	var worker *shared.Worker
	c, err := coordinator.Open(queue.Config{
		StateDir: filepath.Join(dir, "state"), WorkDir: filepath.Join(dir, "work"), WorkspaceRoot: dir, LeaseOf: func(id string) *task.Lease { return worker.LeaseOf(id) },
		Agents: map[string]task.Agent{"codex": m}, DefaultAgent: func([]string) string { return "codex" },
		WorkspaceSettings: queue.WorkspaceSettings{MaxAttempts: 3, Timeout: time.Minute, ResumePolicy: "auto"},
		MaxWorkers:        slots, MaxRetries: 5, BackoffBase: time.Minute, BackoffMax: time.Minute, MaxLimitWait: time.Hour,
		Grace: time.Second, SessionLockTimeout: time.Second, HeartbeatInterval: time.Hour, ResumeMissing: "new",
	})
	must(w.B, err)
	maker := tables.Maker{Host: "bench", InlineThreshold: 1 << 20, OutputLimit: 10_000, MaxAttempts: 3, RunDir: c.RunDir}
	worker = shared.NewWorker(shared.Options{
		Holder: shared.Holder{Worker: uuid.New(), Host: "bench", TTL: 90 * time.Second}, Renew: 30 * time.Second, Poll: time.Second, Processes: slots, Margin: 10 * time.Second,
		Rows: maker.Of, Now: hold.Uptime, Accounts: func(context.Context) ([]string, error) { return []string{"codex"}, nil }, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}, m, c, wake)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { w.opener.Listen(ctx, time.Second, wake) })
	<-wake // it listens
	all.Go(func() { check(w.B, c.Run(ctx)) })
	worked := make(chan struct{})
	all.Go(func() {
		defer close(worked)
		worker.Run(context.Background())
	})
	m.stop = sync.OnceFunc(func() {
		check(w.B, c.Handover(ctx))
		<-worked
		cancel()
		all.Wait()
		check(w.B, c.Close())
	})
	return m
}

// Run is the agent.
func (m *benchWorker) Run(context.Context, task.Turn, func(task.Event)) task.Outcome {
	select {
	case m.begun <- time.Now():
	default:
	}
	return task.Outcome{Result: "done"}
}

// Finish counts what is written.
func (m *benchWorker) Finish(ctx context.Context, h shared.Holder, ended []shared.Ended) ([]shared.Claim, error) {
	done, err := m.Queue.Finish(ctx, h, ended)
	if err == nil {
		m.finished <- len(ended)
	}
	return done, err
}
