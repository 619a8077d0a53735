// River inserts jobs into the empty database of a URL, its one argument, and says how long that took. It is
// what the benchmarks of submits and batches compare stint with, by turns in one run:
//
//	STINT_BENCH_RIVER=1 go test -run '^$' -bench '^(BenchmarkSubmit|BenchmarkBatch)$' -benchtime 10x ./cmd/stint
//
// Each line of the standard input is an order, and is answered with a line that has the
// nanoseconds it took: "insert CLIENTS EACH" lets so many clients insert one job after
// the other; "many SIZE TIMES" and "fast SIZE TIMES" insert batches of a size, by
// InsertMany and InsertManyFast.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
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
		begun := time.Now()
		if err := obey(ctx, client, orders.Text()); err != nil {
			return err
		}
		fmt.Println(time.Since(begun).Nanoseconds())
	}
	return nil
}

// obey carries out one order.
func obey(ctx context.Context, client *river.Client[pgx.Tx], order string) error {
	var what string
	var n, times int
	if _, err := fmt.Sscan(order, &what, &n, &times); err != nil {
		return fmt.Errorf("order %q: %w", order, err)
	}
	switch what {
	case "insert":
		return insert(ctx, client, n, times)
	case "many":
		return repeat(times, func() error { _, err := client.InsertMany(ctx, jobs(n)); return err })
	case "fast":
		return repeat(times, func() error { _, err := client.InsertManyFast(ctx, jobs(n)); return err })
	}
	return fmt.Errorf("order %q is unknown", order)
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
