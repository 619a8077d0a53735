package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/journal"
)

// kilobyte is a record of about 1 KB when it is written.
func kilobyte(id string) *ledger.Record {
	return record(id, "status", "queued", "sessionKey", "web", "workspace", "/home/ana/shop", "agent", "codex",
		"createdAt", "2026-11-21T03:12:45.123Z", "updatedAt", "2026-11-21T03:12:45.123Z",
		"prompt", strings.Repeat("Fix the flaky login test and keep the diff small.\n\n", 15)+"end")
}

// BenchmarkAppend is durable appends by 1 to 256 waiters; its limits, the bare
// loop of write and fdatasync and the bare group commit, run beside it, on a disk. With
// 1ms each fdatasync takes as much longer, so that the ratio depends less on that.
func BenchmarkAppend(b *testing.B) {
	for _, slow := range []time.Duration{0, time.Millisecond} {
		for _, waiters := range []int{1, 8, 64, 256} {
			b.Run(fmt.Sprintf("log/sync=%v/waiters=%d", slow, waiters), func(b *testing.B) {
				counting := newFailingFS()
				counting.slow = slow
				var mu sync.Mutex
				l, err := journal.Open(journal.Options{Dir: onDisk(b), FS: counting, Locker: &mu, Apply: func(*ledger.Section) error { return nil }})
				must(b, err)
				counting.syncs.Store(0)
				fields := kilobyte("").Fields
				b.ResetTimer()
				inParallel(b, waiters, func(i int) error {
					r := &ledger.Record{Kind: ledger.KindTask, ID: fmt.Sprint("t", i), Fields: fields}
					return l.Update(context.Background(), func(tx *ledger.Tx) error {
						tx.Append(r)
						return nil
					})
				})
				report(b, counting.syncs.Load())
				b.StopTimer()
				must(b, l.Close())
			})
			b.Run(fmt.Sprintf("bare/sync=%v/waiters=%d", slow, waiters), func(b *testing.B) {
				g := newBareGroup(b, slow)
				b.ResetTimer()
				inParallel(b, waiters, func(int) error { return g.append() })
				report(b, g.syncs.Load())
				b.StopTimer()
				g.close()
			})
		}
	}
}

// onDisk returns a new directory that is not in memory, as that of TestMain is.
func onDisk(b *testing.B) string {
	dir, err := os.MkdirTemp("/var/tmp", "stint-append-")
	must(b, err)
	b.Cleanup(func() { must(b, os.RemoveAll(dir)) })
	return dir
}

func report(b *testing.B, syncs int64) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(b.N)/float64(max(1, syncs)), "records/sync")
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

// bareGroup is the least that group commit can be: one goroutine that writes the
// same kilobyte for each waiter and syncs.
type bareGroup struct {
	ask   chan chan error
	done  chan struct{}
	syncs atomic.Int64
}

func newBareGroup(b *testing.B, slow time.Duration) *bareGroup {
	f, err := durable.OS.OpenFile(filepath.Join(onDisk(b), "bare"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(b, err)
	line, err := ledger.AppendRecord(nil, kilobyte("t1"))
	must(b, err)
	g := &bareGroup{ask: make(chan chan error, 1024), done: make(chan struct{})}
	go func() {
		defer close(g.done)
		var buf []byte
		for first := range g.ask {
			waiters := []chan error{first}
			for n := len(g.ask); n > 0; n-- {
				waiters = append(waiters, <-g.ask)
			}
			buf = buf[:0]
			for range waiters {
				buf = append(buf, line...)
			}
			_, err := f.Write(buf)
			if err == nil {
				time.Sleep(slow)
				err = f.Datasync()
			}
			g.syncs.Add(1)
			for _, w := range waiters {
				w <- err
			}
		}
		if err := f.Close(); err != nil {
			b.Error(err)
		}
	}()
	return g
}

func (g *bareGroup) append() error {
	w := make(chan error, 1)
	g.ask <- w
	return <-w
}

func (g *bareGroup) close() {
	close(g.ask)
	<-g.done
}

// BenchmarkReplay opens a log of n records; its limit, a count of the newlines
// in the same file, runs beside it.
func BenchmarkReplay(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		dir := b.TempDir()
		size := writeJournal(b, dir, n)
		b.Run(fmt.Sprintf("open/records=%d", n), func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				records := 0
				var mu sync.Mutex
				l, err := journal.Open(journal.Options{Dir: dir, Locker: &mu, Apply: func(*ledger.Section) error { records++; return nil }})
				must(b, err)
				if records != n {
					b.Fatalf("%d records", records)
				}
				b.StopTimer()
				must(b, l.Close())
				b.StartTimer()
			}
		})
		b.Run(fmt.Sprintf("newlines/records=%d", n), func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				if countLines(b, filepath.Join(dir, "journal.md")) < n {
					b.Fatal("too few lines")
				}
			}
		})
	}
}

// writeJournal makes a state directory with n records of n/3 tasks and returns the journal's size.
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

func countLines(b *testing.B, name string) int {
	f, err := os.Open(name)
	must(b, err)
	defer func() { _ = f.Close() }()
	buf, n := make([]byte, 1<<20), 0
	for {
		k, err := f.Read(buf)
		n += bytes.Count(buf[:k], []byte("\n"))
		if err != nil {
			return n
		}
	}
}

// BenchmarkHandEdit is a hand edit of one task among that many, with four records each, while one client
// submits all the time: how long after the save it is taken over, of that the making of the save durable, the
// longest that a submit took meanwhile, how much memory it took at most and kept, and the next start.
func BenchmarkHandEdit10k(b *testing.B)  { benchmarkHandEdit(b, 40_000) }
func BenchmarkHandEdit100k(b *testing.B) { benchmarkHandEdit(b, 400_000) }
func BenchmarkHandEdit1M(b *testing.B)   { benchmarkHandEdit(b, 4_000_000) }

func benchmarkHandEdit(b *testing.B, records int) {
	edits := make(chan struct{}, 1)
	var mu sync.Mutex
	dir := b.TempDir()
	size := writeEdited(b, dir, records)
	open := func() *journal.Log {
		l, err := journal.Open(journal.Options{
			Dir: dir, Locker: &mu, Watch: true,
			Apply: func(s *ledger.Section) error {
				if s.Get(ledger.KeyEdits) != nil {
					select {
					case edits <- struct{}{}:
					default: // of the edits before
					}
				}
				return nil
			},
			OnDelete: func(map[string]bool) []ledger.Record { return nil },
		})
		must(b, err)
		return l
	}
	begun := time.Now()
	l := open()
	fresh := time.Since(begun)
	path := filepath.Join(dir, ledger.TasksName)
	var takeover, secure, worst time.Duration
	var peak, kept int64
	for i := range b.N {
		select {
		case <-edits:
		default:
		}
		at := size/2 + int64(i)*1000
		editFile(b, path, at, fmt.Sprintf("- priority: %d\n", 1+i%9))
		debug.FreeOSMemory()
		before := inUse()
		ctx, stop := context.WithCancel(b.Context())
		slowest, most := make(chan time.Duration), make(chan int64)
		go func() { slowest <- submitUntil(b, ctx, l) }()
		go func() { most <- mostUntil(ctx) }()
		begun := time.Now()
		f, err := os.Open(path + "~")
		must(b, err)
		must(b, f.Sync())
		must(b, f.Close())
		secure += time.Since(begun)
		saved := time.Now()
		must(b, os.Rename(path+"~", path))
		<-edits
		takeover += time.Since(saved)
		stop()
		worst = max(worst, <-slowest)
		peak = max(peak, <-most-before)
		kept = max(kept, inUse()-before)
	}
	must(b, l.Close())
	begun = time.Now()
	l = open()
	edited := time.Since(begun)
	must(b, l.Close())
	b.ReportMetric(float64(takeover.Milliseconds())/float64(b.N), "takeover-ms")
	b.ReportMetric(float64(secure.Milliseconds())/float64(b.N), "fsync-of-the-save-ms")
	b.ReportMetric(float64(worst.Microseconds())/1000, "worst-submit-ms")
	b.ReportMetric(float64(peak)/1e6, "peak-MB")
	b.ReportMetric(float64(kept)/1e6, "kept-MB")
	b.ReportMetric(float64(fresh.Milliseconds()), "start-ms")
	b.ReportMetric(float64(edited.Milliseconds()), "start-after-ms")
	b.ReportMetric(0, "ns/op")
}

// writeEdited makes a state directory with that many records of tasks that are done, four each, and returns
// the size of the journal.
func writeEdited(b *testing.B, dir string, records int) int64 {
	name := filepath.Join(dir, ledger.JournalName)
	f, err := os.Create(name)
	must(b, err)
	data, size := []byte(ledger.EmptyJournal), int64(0)
	for i := range records {
		r := record(fmt.Sprintf("019ab3f0-6f1e-7c3a-9a51-%012d", i/4), "status", []string{"queued", "running", "running", "done"}[i%4], "updatedAt", "2026-11-21T03:12:45.131Z")
		if r.Seq = uint64(i + 1); i%4 == 0 {
			r.Add("sessionKey", "web").Add("workspace", "/home/ana/shop").Add("agent", "codex").Add("prompt", strings.Repeat("Fix the flaky login test and keep the diff small.\n\n", 8)+"end")
		} else {
			r.Add("runId", "019ab3f0-7a02-7d41-b0c9-11d2a4c0ffee").Add("attempt", "1")
		}
		data, err = ledger.AppendRecord(data, r)
		must(b, err)
		if len(data) > 1<<20 || i == records-1 {
			_, err = f.Write(data)
			must(b, err)
			size, data = size+int64(len(data)), data[:0]
		}
	}
	must(b, f.Close())
	text, err := os.ReadFile(name)
	must(b, err)
	text = append([]byte(ledger.Preamble+"\n"), bytes.TrimSuffix(text[len(ledger.EmptyJournal):], []byte("\n"))...)
	must(b, os.WriteFile(filepath.Join(dir, ledger.TasksName), text, 0o600))
	return size
}

// editFile writes path~ with a line more in the first task behind offset at.
func editFile(b *testing.B, path string, at int64, line string) {
	in, err := os.Open(path)
	must(b, err)
	out, err := os.Create(path + "~")
	must(b, err)
	_, err = io.CopyN(out, in, at)
	must(b, err)
	near := make([]byte, 8<<10)
	_, err = io.ReadFull(in, near)
	must(b, err)
	i := bytes.Index(near, []byte("- sessionKey: "))
	_, err = fmt.Fprintf(out, "%s%s%s", near[:i], line, near[i:])
	must(b, err)
	_, err = io.Copy(out, in)
	must(b, errors.Join(err, in.Close(), out.Close()))
}

// inUse returns the bytes that the program has of the machine's memory.
func inUse() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}

// mostUntil returns the most that was in use.
func mostUntil(ctx context.Context) (most int64) {
	for ctx.Err() == nil {
		most = max(most, inUse())
		time.Sleep(5 * time.Millisecond)
	}
	return most
}

// submitUntil appends a record every millisecond and returns the longest wait for one.
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
