package queue

import (
	"bufio"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// writeHistory makes a state directory with so many records of tasks that were queued, run and done.
func writeHistory(b *testing.B, dir string, records int) {
	b.Helper()
	rng, at := rand.New(rand.NewPCG(1, 2)), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	uuid := func(i int) string {
		return fmt.Sprintf("%08x-%04x-7%03x-%04x-%012x", 0x019ab3f0+i>>16, i&0xffff, rng.IntN(1<<12), 0x8000|rng.IntN(1<<14), rng.Uint64N(1<<48))
	}
	var files [2]*bufio.Writer
	for i, head := range []string{ledger.JournalLine + "\n\n", ledger.TaskFiles.Preamble()} {
		f, err := os.Create(filepath.Join(dir, []string{ledger.JournalName, ledger.TasksName}[i]))
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = f.Close() }() // what is missing would be seen
		files[i] = bufio.NewWriterSize(f, 1<<20)
		defer func() { _ = files[i].Flush() }()
		_, _ = files[i].WriteString(head)
	}
	var buf []byte
	id := ""
	for i := range records {
		now := state.FormatTime(at.Add(time.Duration(i) * time.Second))
		if i%3 == 0 {
			id = uuid(i / 3)
		}
		r := ledger.Record{Kind: ledger.KindTask, ID: id, Seq: uint64(i + 1)}
		switch i % 3 {
		case 0:
			r.Add("status", "queued").Add("sessionKey", fmt.Sprintf("dir:/home/ana/shop%d", i%10)).Add("sessionId", uuid(i)).Add("workspace", "/home/ana/shop").Add("agent", "codex").
				Add("createdAt", now).Add("updatedAt", now).Add("resume", "auto").Add("prompt", strings.Repeat("Fix the flaky login test and keep the diff small.\n", 8))
		case 1:
			r.Add("status", "running").Add("runId", uuid(i)).Add("attempt", "1").Add("codexSessionId", uuid(i)).Add("updatedAt", now)
		default:
			r.Add("status", "done").Add("exitCode", "0").Add("inputTokens", "12345").Add("outputTokens", "1234").Add("updatedAt", now).Add("result", strings.Repeat("The test waited for a timer.\n", 8))
		}
		var err error
		if buf, err = ledger.AppendRecord(buf[:0], &r); err != nil {
			b.Fatal(err)
		}
		for _, f := range files {
			_, _ = f.Write(buf)
		}
	}
}

// BenchmarkOpen is the start of a master up to the fold, from the text alone and after a clean end. The exponent is
// that by which its time grows from one size to the next: 1 is a line. STINT_BENCH_RECORDS=3000000 is another size.
func BenchmarkOpen(b *testing.B) {
	sizes := []int{10_000, 100_000, 1_000_000}
	if n, err := strconv.Atoi(os.Getenv("STINT_BENCH_RECORDS")); err == nil {
		sizes = []int{n}
	}
	last := map[string]float64{}
	for i, n := range sizes {
		dir := b.TempDir()
		writeHistory(b, dir, n)
		for _, from := range []string{"text", "index"} {
			b.Run(fmt.Sprintf("%s/records=%d", from, n), func(b *testing.B) {
				cpu := time.Duration(0)
				if s, err := Open(Config{StateDir: dir, Unwatched: true}); err != nil || s.Close() != nil { // it writes the cache, if there is none
					b.Fatal(err)
				}
				for b.Loop() {
					b.StopTimer()
					if from == "text" {
						_ = os.Remove(filepath.Join(dir, "index")) // if it is there
					}
					runtime.GC()
					before := cpuTime(b)
					b.StartTimer()
					s, err := Open(Config{StateDir: dir, Unwatched: true})
					if err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					cpu += cpuTime(b) - before
					if done := Read(s, (*fold.State).Counts)[state.Done]; done != n/3 {
						b.Fatalf("%d tasks", done)
					}
					if err := s.Close(); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				b.ReportMetric(cpu.Seconds()*1000/float64(b.N), "cpu-ms/op")
				took := b.Elapsed().Seconds() / float64(b.N)
				if last[from] > 0 {
					b.ReportMetric(math.Log(took/last[from])/math.Log(float64(n)/float64(sizes[i-1])), "exponent")
				}
				last[from] = took
			})
		}
	}
}

// cpuTime returns the time of the processor that this process has used, and the system for it.
func cpuTime(b *testing.B) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
