package journal_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

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
			var next atomic.Int64
			var wg sync.WaitGroup
			for range waiters {
				wg.Go(func() {
					for i := next.Add(1); i <= int64(b.N) && !b.Failed(); i = next.Add(1) {
						err := l.Update(context.Background(), func(tx *ledger.Tx) error {
							tx.Append(kilobyte(fmt.Sprint("t", i)))
							return nil
						})
						if err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.ReportMetric(float64(b.N)/float64(max(1, counting.syncs.Load())), "records/sync")
			b.StopTimer()
			must(b, l.Close())
		})
	}
}
