package journal_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stint/ledger"
	"stint/ledger/journal"
)

// kilobyte is a record of about 1 KB when it is written.
func kilobyte(id string) *ledger.Record {
	return record(id, "status", "queued", "sessionKey", "web", "workspace", "/home/ana/shop", "agent", "codex",
		"createdAt", "2026-11-21T03:12:45.123Z", "updatedAt", "2026-11-21T03:12:45.123Z",
		"prompt", strings.Repeat("Fix the flaky login test and keep the diff small.\n\n", 15)+"end")
}

// BenchmarkAppend is durable appends by 1 to 256 waiters.
func BenchmarkAppend(b *testing.B) {
	for _, waiters := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			counting := newFailingFS()
			var mu sync.Mutex
			l, err := journal.Open(journal.Options{Dir: b.TempDir(), FS: counting, Locker: &mu, Apply: func(*ledger.Section) error { return nil }})
			must(b, err)
			counting.syncs.Store(0)
			b.ResetTimer()
			inParallel(b, waiters, func(i int) error {
				return l.Update(context.Background(), func(tx *ledger.Tx) error {
					tx.Append(kilobyte(fmt.Sprint("t", i)))
					return nil
				})
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(b.N)/float64(max(1, counting.syncs.Load())), "records/sync")
			b.StopTimer()
			must(b, l.Close())
		})
	}
}

// inParallel makes b.N calls from that many goroutines.
func inParallel(b *testing.B, workers int, call func(i int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := call(int(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// writeJournal makes a state directory with n records of n/3 tasks and gives the journal's size.
func writeJournal(b *testing.B, dir string, n int) int64 {
	data := []byte(ledger.VersionLine + "\n\n")
	for i := range n {
		r := kilobyte(fmt.Sprintf("019ab3f0-6f1e-7c3a-9a51-%012d", i/3))
		if i%3 > 0 {
			r = record(r.ID, "status", []string{"", "running", "done"}[i%3], "runId", "019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee", "attempt", "1", "updatedAt", "2026-11-21T03:12:45.131Z", "result", strings.Repeat("The test waits for the login to end instead of sleeping.\n", 10*(i%3-1))+"ok")
		}
		r.Seq = uint64(i + 1)
		var err error
		data, err = ledger.AppendRecord(data, r)
		must(b, err)
	}
	for _, name := range []string{"journal.md", "tasks.md"} {
		must(b, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return int64(len(data))
}

// BenchmarkHandEdit100k is a hand edit of one task in 100,000 records, while one
// client submits all the time: how long after the save it is taken over, and the
// longest that a submit took meanwhile.
func BenchmarkHandEdit100k(b *testing.B) {
	edits := make(chan struct{}, 1)
	var mu sync.Mutex
	dir := b.TempDir()
	writeJournal(b, dir, 100_000)
	l, err := journal.Open(journal.Options{
		Dir: dir, Locker: &mu, Watch: true,
		Apply: func(s *ledger.Section) error {
			if s.Get(ledger.KeyEdits) != nil {
				edits <- struct{}{}
			}
			return nil
		},
		OnDelete: func(map[string]bool) []ledger.Record { return nil },
	})
	must(b, err)
	path := filepath.Join(dir, ledger.TasksName)
	var takeover, worst time.Duration
	b.ResetTimer()
	for i := range b.N {
		b.StopTimer()
		text, err := os.ReadFile(path)
		must(b, err)
		at := len(text)/2 + bytes.Index(text[len(text)/2:], []byte("- sessionKey: "))
		text = append(text[:at:at], append(fmt.Appendf(nil, "- priority: %d\n", 1+i%9), text[at:]...)...)
		ctx, stop := context.WithCancel(b.Context())
		slowest := make(chan time.Duration)
		go func() { slowest <- submitUntil(b, ctx, l) }()
		must(b, os.WriteFile(path+"~", text, 0o600))
		b.StartTimer()
		saved := time.Now()
		must(b, os.Rename(path+"~", path))
		<-edits
		takeover += time.Since(saved)
		b.StopTimer()
		stop()
		worst = max(worst, <-slowest)
		b.StartTimer()
	}
	b.ReportMetric(float64(takeover.Milliseconds())/float64(b.N), "takeover-ms")
	b.ReportMetric(float64(worst.Microseconds())/1000, "worst-submit-ms")
	b.StopTimer()
	must(b, l.Close())
}

// submitUntil appends a record every millisecond and gives the longest wait for one.
func submitUntil(b *testing.B, ctx context.Context, l *journal.Log) (worst time.Duration) {
	for i := 0; ctx.Err() == nil; i++ {
		begun := time.Now()
		err := l.Update(context.Background(), func(tx *ledger.Tx) error {
			tx.Append(kilobyte(fmt.Sprint("new", i)))
			return nil
		})
		if err != nil {
			b.Error(err)
			return worst
		}
		worst = max(worst, time.Since(begun))
		time.Sleep(time.Millisecond)
	}
	return worst
}
