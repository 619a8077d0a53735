package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"stint/coordinator/postgres"
	"stint/coordinator/postgres/postgrestest"
)

// BenchmarkMirrorLag is the load of BenchmarkSubmit on a master whose ledger is copied
// into PostgreSQL: how far the copy is behind meanwhile, asked each 5 ms. The target: 1 s.
// The server is on the same machine, and takes its share of it.
func BenchmarkMirrorLag(b *testing.B) {
	const each = 200
	w := newSubmitWorld(b)
	url := postgrestest.Start(b).Database(b)
	client := w.master()
	m := postgres.New(postgres.Options{
		URL: func() (string, error) { return url, nil }, Host: "bench", StateDir: w.state(), PoolSize: 10, InlineThreshold: 1 << 20,
		OutputLimit: 10_000, MaxAttempts: 3, MaxConcurrency: 4, Worker: uuid.New(), Log: slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { m.Run(ctx, w.c) })
	w.submit64(client, 1)
	caughtUp := func() bool { st := m.Status(); return st.Seq > 0 && st.LagRecords == 0 }
	if !poll(time.Minute, caughtUp) {
		b.Fatal("the copy does not catch up within a minute")
	}
	var lags []float64
	all.Go(func() {
		for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			lags = append(lags, m.Status().LagSeconds)
		}
	})
	r := rounds{}
	for b.Loop() {
		r.add("stint", 64*each, stopwatch(func() { w.submit64(client, each) }))
	}
	begun := time.Now()
	if !poll(time.Minute, caughtUp) {
		b.Fatal("the copy does not catch up within a minute")
	}
	behind := time.Since(begun)
	stop()
	all.Wait()
	r.report(b, "stint")
	slices.Sort(lags)
	b.ReportMetric(lags[len(lags)/2], "lag-p50-s")
	b.ReportMetric(lags[len(lags)*99/100], "lag-p99-s")
	b.ReportMetric(lags[len(lags)-1], "lag-max-s")
	b.ReportMetric(behind.Seconds(), "behind-s")
}
