package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"stint/coordinator/postgres/postgrestest"
	"stint/coordinator/postgres/tables"
	"stint/coordinator/statedir"
	"stint/ledger"
	"stint/ledger/journal"
	"stint/state"
)

// benchTasks is how many tasks the ledgers of the benchmarks have.
const benchTasks = 20_000

// benchLedger makes a ledger of tasks that wait, or of which each has been run once.
func benchLedger(b *testing.B, ran bool) *statedir.Snapshot {
	b.Helper()
	dir := b.TempDir()
	l, err := journal.Open(journal.Options{Dir: dir, Locker: new(sync.Mutex), Apply: func(*ledger.Section) error { return nil }})
	must(b, err)
	now := state.FormatTime(time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC))
	for done := 0; done < benchTasks; done += 1000 {
		err := l.Update(b.Context(), func(tx *ledger.Tx) error {
			for i := range 1000 {
				addTask(tx, fmt.Sprintf("019ab3f0-6f1e-7c3a-9a51-%012x", done+i), now, ran)
			}
			return nil
		})
		must(b, err)
	}
	must(b, l.Close())
	src, err := statedir.ReadSnapshot(b.Context(), dir, 0)
	must(b, err)
	return src
}

func addTask(tx *ledger.Tx, id, now string, ran bool) {
	add := func(pairs ...string) {
		r := &ledger.Record{Kind: ledger.KindTask, ID: id}
		for i := 0; i < len(pairs); i += 2 {
			r.Add(pairs[i], pairs[i+1])
		}
		tx.Append(r)
	}
	add("status", "queued", "sessionKey", "web", "workspace", "/home/ana/shop", "agent", "codex", "createdAt", now, "updatedAt", now,
		"label", "bench", "prompt", "Fix the flaky login test.\n\nKeep the diff small.")
	if ran {
		add("status", "running", "runId", "019ab3f0-7a02-7d41-b0c9-"+id[24:], "attempt", "1", "startedAt", now, "updatedAt", now)
		add("status", "done", "exitCode", "0", "updatedAt", now, "inputTokens", "1200", "outputTokens", "340", "costUsd", "0.02",
			"result", "The test waited for a fixed time; it waits for the event now.")
	}
}

// BenchmarkMirror writes the mirror of a ledger by turns with the limit: the same rows,
// made before, go by COPY to a temporary table and are upserted from there, 1,000 in a
// transaction. The ratio is rows a second of a whole rebuild to those of the limit.
func BenchmarkMirror(b *testing.B) {
	for _, ran := range []bool{false, true} {
		b.Run(map[bool]string{false: "queued", true: "done"}[ran], func(b *testing.B) { benchMirror(b, ran) })
	}
}

func benchMirror(b *testing.B, ran bool) {
	src := benchLedger(b, ran)
	o := optionsFor(postgrestest.Start(b).Database(b), "bench", "/bench")
	m := New(o)
	o.Anew = true
	limit := newLimit(b, m, src)
	var rebuild, bare time.Duration
	for b.Loop() {
		bare += limit.write(b)
		rebuild += timed(b, func() error {
			_, err := Once(b.Context(), o, func() (Source, error) { return src, nil })
			return err
		})
	}
	rows := float64(limit.rows * b.N)
	b.ReportMetric(rows/rebuild.Seconds(), "rows/s")
	b.ReportMetric(rows/bare.Seconds(), "limit-rows/s")
	b.ReportMetric(bare.Seconds()/rebuild.Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}

func timed(b *testing.B, do func() error) time.Duration {
	b.Helper()
	begun := time.Now()
	must(b, do())
	return time.Since(begun)
}

// A benchLimit is what pgx and the server can do with the same rows.
type benchLimit struct {
	conn    *pgx.Conn
	batches []*batch
	rows    int
}

// newLimit makes the rows, and tables for them with the indexes that the mirror has.
func newLimit(b *testing.B, m *Mirror, src Source) *benchLimit {
	b.Helper()
	s, err := m.open(b.Context())
	must(b, err)
	defer s.db.Close()
	s.src = src
	l := &benchLimit{}
	for done := 0; ; done += maxTasks {
		ids := src.TaskIDs(done, maxTasks)
		if len(ids) == 0 {
			break
		}
		batch := &batch{}
		for _, id := range ids {
			im, err := src.TaskRecord(id)
			must(b, err)
			rows, err := s.rows(&im)
			must(b, err)
			rows.Task[1] = "limit"
			batch.tasks = append(batch.tasks, rows)
			l.rows += 1 + len(rows.Runs) + len(rows.Files)
		}
		l.batches = append(l.batches, batch)
	}
	url, _ := m.o.URL()
	l.conn, err = pgx.Connect(b.Context(), url)
	must(b, err)
	b.Cleanup(func() { _ = l.conn.Close(context.Background()) })
	for _, sql := range []string{
		"CREATE SCHEMA bare", "SET search_path TO bare, public",
		"CREATE TABLE bare.tasks (LIKE public.tasks INCLUDING ALL)", "CREATE TABLE bare.task_runs (LIKE public.task_runs INCLUDING ALL)",
	} {
		_, err := l.conn.Exec(b.Context(), sql)
		must(b, err)
	}
	return l
}

// write upserts all rows.
func (l *benchLimit) write(b *testing.B) time.Duration {
	return timed(b, func() error {
		for i, batch := range l.batches {
			err := pgx.BeginFunc(b.Context(), l.conn, func(tx pgx.Tx) error { return l.batch(b.Context(), tx, batch, int64(b.N*1000+i)) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *benchLimit) batch(ctx context.Context, tx pgx.Tx, b *batch, generation int64) error {
	w := &writer{at: place{generation: time.Now().UnixNano() + generation}} // each row differs from the one that is there
	for _, t := range tables.All[:2] {
		if _, err := tx.Exec(ctx, create(t)); err != nil {
			return err
		}
	}
	if err := w.fill(ctx, tx, b); err != nil {
		return err
	}
	for _, t := range []*tables.Table{&tables.Tasks, &tables.Runs} {
		if _, err := tx.Exec(ctx, upsert(t)); err != nil {
			return err
		}
	}
	return nil
}
