// River inserts jobs into the empty database of a URL, its one argument, or works them, and says how long that took. It is
// what the benchmarks of submits, batches and the shared queue compare stint with, by turns in one run:
//
//	STINT_BENCH_RIVER=1 go test -run '^$' -bench '^(BenchmarkSubmit|BenchmarkBatch|BenchmarkShared)$' -benchtime 10x ./cmd/stint
//
// Each line of the standard input is an order, and is answered with a line that has the
// nanoseconds it took: "insert CLIENTS EACH" lets so many clients insert one job after
// the other; "many SIZE TIMES" and "fast SIZE TIMES" insert batches of a size, by
// InsertMany and InsertManyFast; "work SLOTS JOBS" works jobs that were inserted before and do nothing, from the
// beginning of the first until the last is completed in the database. "wake PAUSE TIMES" inserts jobs into the idle queue,
// so many milliseconds apart, and is answered with how long each took from before its insert until it began.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	if len(os.Args) != 2 {
		return errors.New("usage: river URL")
	}
	pool, client, err := connect(ctx, os.Args[1])
	if err != nil {
		return err
	}
	defer pool.Close()
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		took, err := obey(ctx, pool, client, orders.Text())
		if err != nil {
			return err
		}
		fmt.Println(strings.Trim(fmt.Sprint(took), "[]"))
	}
	return nil
}

// obey runs one order, and returns the nanoseconds that it took.
func obey(ctx context.Context, pool *pgxpool.Pool, client *river.Client[pgx.Tx], order string) (took []int64, err error) {
	var what string
	var n, times int
	if _, err := fmt.Sscan(order, &what, &n, &times); err != nil {
		return nil, fmt.Errorf("order %q: %w", order, err)
	}
	begun := time.Now()
	switch what {
	case "insert":
		err = insert(ctx, client, n, times)
	case "many":
		err = repeat(times, func() error { _, err := client.InsertMany(ctx, jobs(n)); return err })
	case "fast":
		err = repeat(times, func() error { _, err := client.InsertManyFast(ctx, jobs(n)); return err })
	case "wake":
		return wake(ctx, pool, time.Duration(n)*time.Millisecond, times)
	case "work":
		return work(ctx, pool, client, n, times)
	default:
		err = fmt.Errorf("order %q is unknown", order)
	}
	return []int64{time.Since(begun).Nanoseconds()}, err
}

// A job carries what the benchmarks' tasks do.
type job struct {
	Prompt    string `json:"prompt"`
	Workspace string `json:"workspace"`
	Session   string `json:"sessionKey"`
	Label     string `json:"label"`
}

// Kind names the jobs.
func (job) Kind() string { return "task" }

func newJob() job {
	return job{"Fix the flaky login test.\n\nKeep the diff small.", "/home/ana/shop", "web", "bench"}
}

func jobs(n int) []river.InsertManyParams {
	list := make([]river.InsertManyParams, n)
	for i := range list {
		list[i].Args = newJob()
	}
	return list
}

func insert(ctx context.Context, client *river.Client[pgx.Tx], clients, each int) error {
	failed := make([]error, clients)
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			failed[i] = repeat(each, func() error { _, err := client.Insert(ctx, newJob(), nil); return err })
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

func repeat(times int, do func() error) error {
	for range times {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// A worker says when a job has begun, and does nothing else.
type worker struct {
	river.WorkerDefaults[job]
	begun chan time.Time
}

// Work notes the time, unless there are as many that nobody has asked for.
func (w *worker) Work(context.Context, *river.Job[job]) error {
	select {
	case w.begun <- time.Now():
	default:
	}
	return nil
}

// newWorker returns a client that works, with the shortest cooldown there is; by default it fetches each 100 ms at most.
func newWorker(pool *pgxpool.Pool, slots, poll int) (*worker, *river.Client[pgx.Tx], error) {
	w, all := &worker{begun: make(chan time.Time, 1)}, river.NewWorkers()
	river.AddWorker(all, w)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: slots}}, Workers: all, Logger: slog.New(slog.DiscardHandler),
		FetchCooldown: river.FetchCooldownMin, FetchPollInterval: time.Duration(poll) * time.Millisecond,
	})
	return w, client, err
}

// wake has a worker wait for each job. It listens: it polls no sooner than each second, as by default.
func wake(ctx context.Context, pool *pgxpool.Pool, pause time.Duration, times int) (took []int64, err error) {
	w, client, err := newWorker(pool, 8, 1000)
	if err == nil {
		err = client.Start(ctx)
	}
	for i := 0; i < times+5 && err == nil; i++ {
		time.Sleep(pause)
		inserted := time.Now()
		if _, err = client.Insert(ctx, newJob(), nil); err == nil {
			took = append(took, (<-w.begun).Sub(inserted).Nanoseconds())
		}
	}
	if err != nil {
		return nil, err
	}
	return took[5:], client.Stop(ctx) // the first ones find what has just begun
}

// work has a worker work jobs that were inserted before.
func work(ctx context.Context, pool *pgxpool.Pool, inserter *river.Client[pgx.Tx], slots, times int) ([]int64, error) {
	for left := times; left > 0; left -= 1000 {
		if _, err := inserter.InsertMany(ctx, jobs(min(left, 1000))); err != nil {
			return nil, err
		}
	}
	w, client, err := newWorker(pool, slots, 1)
	if err != nil {
		return nil, err
	}
	completed, cancel := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: times, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer cancel()
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	begun := <-w.begun
	for range times {
		<-completed
	}
	took := time.Since(begun).Nanoseconds()
	return []int64{took}, client.Stop(ctx)
}

// poolSize is the number of connections with which 64 clients insert fastest here, of
// 8, 16, 32 and 64.
const poolSize = 32

// connect returns a client that only inserts.
func connect(ctx context.Context, url string) (*pgxpool.Pool, *river.Client[pgx.Tx], error) {
	pool, err := pgxpool.New(ctx, fmt.Sprintf("%s&pool_max_conns=%d", url, poolSize))
	if err != nil {
		return nil, nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("river's tables: %w", err)
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	return pool, client, err
}
