package fold

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"stint/ledger"
	ledgerlog "stint/ledger/journal"
	"stint/state"
	"stint/state/lanes"
)

// history returns the sections of n tasks that were queued, run and done, three
// records each, of about 1 KB on average, as a scanner returns them. further returns what
// else the first record of the i-th has; nil: nothing.
func history(t testing.TB, n int, further func(i int) []ledger.Pair) (secs []*ledger.Section, size int64) {
	prompt := strings.Repeat("Fix the flaky login test and keep the diff small.\n", 30)
	result := strings.Repeat("The test waited for a timer.\n", 30)
	add := func(id string, fields ...ledger.Pair) {
		sec, err := ledger.Encode(&ledger.Record{Kind: ledger.KindTask, ID: id, Seq: uint64(len(secs) + 1), Fields: fields})
		must(t, err)
		sec.Off = size
		size += int64(len(sec.Raw))
		secs = append(secs, sec)
	}
	for i := range n {
		id, now := uuid(i), noon.Add(time.Duration(i)*time.Millisecond)
		sid, run, thread := fmt.Sprintf("019ab3f0-5e55-7c3a-9a51-%012x", i), fmt.Sprintf("019ab3f0-4444-7c3a-9a51-%012x", i), fmt.Sprintf("019ab3f0-7777-7c3a-9a51-%012x", i)
		first := []ledger.Pair{}
		if further != nil {
			first = further(i)
		}
		first = append(first, ledger.Pair{Key: "status", Value: "queued"}, ledger.Pair{Key: "sessionKey", Value: fmt.Sprintf("dir:/home/ana/shop%d", i%10)},
			ledger.Pair{Key: "sessionId", Value: sid}, ledger.Pair{Key: "workspace", Value: "/home/ana/shop"}, ledger.Pair{Key: "agent", Value: "codex"},
			ledger.Pair{Key: "createdAt", Value: state.FormatTime(now)}, ledger.Pair{Key: "updatedAt", Value: state.FormatTime(now)}, ledger.Pair{Key: "resume", Value: "auto"},
			ledger.Pair{Key: "maxAttempts", Value: "3"}, ledger.Pair{Key: "prompt", Value: prompt})
		add(id, first...)
		add(id, ledger.Pair{Key: "status", Value: "running"}, ledger.Pair{Key: "runId", Value: run}, ledger.Pair{Key: "attempt", Value: "1"},
			ledger.Pair{Key: "codexSessionId", Value: thread}, ledger.Pair{Key: "updatedAt", Value: state.FormatTime(now)})
		add(id, ledger.Pair{Key: "status", Value: "done"}, ledger.Pair{Key: "exitCode", Value: "0"}, ledger.Pair{Key: "inputTokens", Value: "12345"},
			ledger.Pair{Key: "outputTokens", Value: "1234"}, ledger.Pair{Key: "updatedAt", Value: state.FormatTime(now)}, ledger.Pair{Key: "result", Value: result})
	}
	return secs, size
}

// BenchmarkApply is the fold alone, without the scanner. Allocations are per task of three records.
func BenchmarkApply(b *testing.B) {
	const tasks = 20_000
	secs, size := history(b, tasks, nil)
	b.SetBytes(size / tasks)
	b.ReportAllocs()
	b.ResetTimer()
	s := New(nil)
	for i := 0; i < b.N; i++ {
		if i%tasks == 0 {
			s = New(nil)
		}
		for _, sec := range secs[i%tasks*3 : i%tasks*3+3] {
			must(b, s.Apply(sec))
		}
	}
}

// BenchmarkReplay opens a journal of 300,000 records of 1.1 KB, up to its last record:
// with the scanner alone, and with the fold. Of the fold itself that is the difference.
func BenchmarkReplay(b *testing.B) {
	const tasks = 100_000
	secs, size := history(b, tasks, nil)
	data := make([]byte, 0, size+100)
	data = append(data, ledger.VersionLine+"\n\n"...)
	for _, sec := range secs {
		data = append(data, sec.Raw...)
	}
	dir := b.TempDir()
	must(b, os.WriteFile(filepath.Join(dir, "journal.md"), data, 0o600))
	data, secs = nil, nil
	for _, name := range []string{"scan", "fold"} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				replay(b, dir, name == "fold", 3*tasks)
			}
		})
	}
}

// replay opens the log in dir and stops the clock after its last record.
func replay(b *testing.B, dir string, fold bool, records int) {
	s, n := New(nil), 0
	log, err := ledgerlog.Open(ledgerlog.Options{Dir: dir, Locker: new(sync.Mutex), Apply: func(sec *ledger.Section) error {
		if fold {
			if err := s.Apply(sec); err != nil {
				b.Error(err)
			}
		}
		if n++; n == records {
			b.StopTimer()
		}
		return nil
	}})
	must(b, err)
	must(b, log.Close())
	b.StartTimer()
}

// heapInUse returns the bytes of what is reachable.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// finishedBytes returns the heap that a finished task costs.
func finishedBytes(tb testing.TB, tasks int, further func(i int) []ledger.Pair) float64 {
	secs, _ := history(tb, tasks, further)
	before := heapInUse()
	s := New(nil)
	for _, sec := range secs {
		must(tb, s.Apply(sec))
	}
	after := heapInUse()
	runtime.KeepAlive(s)
	runtime.KeepAlive(secs)
	return float64(after-before) / float64(tasks)
}

// ofLists says that tasks came in lists of a thousand, each with an idempotency key.
func ofLists(i int) []ledger.Pair {
	return []ledger.Pair{{Key: state.KeyIdempotencyKey, Value: state.PartKey(uuid(i/1000), i%1000+1)}}
}

func BenchmarkFinishedTaskMemory(b *testing.B) {
	for name, further := range map[string]func(int) []ledger.Pair{"alone": nil, "list": ofLists} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(finishedBytes(b, 20_000, further), "bytes/task")
			}
		})
	}
}

// TestFinishedTaskIsSmall keeps the bound of 200 bytes a finished task, and of what the key of a list adds.
func TestFinishedTaskIsSmall(t *testing.T) {
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	alone, ofList := finishedBytes(t, 10_000, nil), finishedBytes(t, 10_000, ofLists)
	if alone > 200 || ofList > 200 || ofList > alone+16 {
		t.Errorf("a finished task costs %.0f bytes, and %.0f in a list with an idempotency key", alone, ofList)
	}
}

// kinds are where waiting tasks may stand: the directory lanes of one machine, sessions of
// ten tasks each, sessions and lanes of their own, and behind another task.
var kinds = map[string]func(i int) []ledger.Pair{
	"directory": func(i int) []ledger.Pair {
		return []ledger.Pair{{Key: state.KeySessionKey, Value: fmt.Sprintf("dir:/home/ana/shop%d", i%10)}}
	},
	"session": func(i int) []ledger.Pair {
		return []ledger.Pair{{Key: state.KeySessionKey, Value: fmt.Sprintf("session-%d", i/10)}, {Key: state.KeySessionID, Value: fmt.Sprintf("019ab3f0-5e55-7c3a-9a51-%012x", i/10)}}
	},
	"parallel": func(i int) []ledger.Pair { return []ledger.Pair{{Key: state.KeySessionKey, Value: "task:" + uuid(i)}} },
	"own session": func(i int) []ledger.Pair {
		return []ledger.Pair{{Key: state.KeySessionKey, Value: fmt.Sprintf("session-%d", i)}}
	},
	"after": func(i int) []ledger.Pair {
		return []ledger.Pair{{Key: state.KeySessionKey, Value: fmt.Sprintf("dir:/home/ana/shop%d", i%10)}, {Key: state.KeyAfter, Value: uuid(max(0, i/10*10-1))}}
	},
}

// waiting returns the sections of n tasks that were queued and wait, and a Reader of them.
func waiting(t testing.TB, n int, further func(i int) []ledger.Pair) (secs []*ledger.Section, r Reader) {
	lines, at := strings.Repeat("Fix the flaky login test and keep the diff small.\n", 30), sections{}
	for i := range n {
		now := state.FormatTime(noon.Add(time.Duration(i) * time.Millisecond))
		rec := &ledger.Record{Kind: ledger.KindTask, ID: uuid(i), Seq: uint64(i + 1)}
		rec.Add(state.KeyStatus, "queued")
		for _, p := range further(i) {
			rec.Add(p.Key, p.Value)
		}
		if _, ok := rec.Get(state.KeySessionID); !ok {
			rec.Add(state.KeySessionID, fmt.Sprintf("019ab3f0-5e55-7c3a-9a51-%012x", i))
		}
		rec.Add(state.KeyWorkspace, fmt.Sprintf("/home/ana/shop%d", i%10)).Add(state.KeyAgent, "codex").Add(state.KeyAccount, "codex").
			Add(state.KeyCreatedAt, now).Add(state.KeyUpdatedAt, now).Add(state.KeyResume, "auto").Add(state.KeyMaxAttempts, "3").Add(state.KeyLabel, "nightly").
			Add(state.KeyVerifyCommand, "go test ./... && golangci-lint run").Add(state.KeyPrompt, fmt.Sprintf("Task %d: %s", i, lines))
		sec, err := ledger.Encode(rec)
		must(t, err)
		sec.Off = int64(i) * 2000
		secs, at[sec.Off] = append(secs, sec), sec
	}
	return secs, at
}

// sections is a Reader of sections in memory.
type sections map[int64]*ledger.Section

func (x sections) SectionAt(off int64) (*ledger.Section, error) { return x[off], nil }

// waitingBytes returns the heap that a waiting task costs, once dispatch has looked at all,
// and once all were listed with their titles.
func waitingBytes(tb testing.TB, tasks int, further func(i int) []ledger.Pair) (queued, listed float64) {
	secs, r := waiting(tb, tasks, further)
	before := heapInUse()
	s := New(r)
	for _, sec := range secs {
		must(tb, s.Apply(sec))
	}
	s.Ready(noon.Add(time.Hour), lanes.Limits{MaxWorkers: 4})
	queued = float64(heapInUse()-before) / float64(tasks)
	if list, err := s.List(state.Filter{}); len(list) != tasks || err != nil {
		tb.Fatal(len(list), err)
	}
	listed = float64(heapInUse()-before) / float64(tasks)
	runtime.KeepAlive(s)
	runtime.KeepAlive(secs)
	return queued, listed
}

// maxWaiting is what a waiting task may cost, in bytes.
const maxWaiting = 600

func BenchmarkWaitingTaskMemory(b *testing.B) {
	for name, further := range kinds {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				queued, listed := waitingBytes(b, 100_000, further)
				b.ReportMetric(queued, "bytes/task")
				b.ReportMetric(listed, "bytes/task-listed")
				b.ReportMetric(maxWaiting, "limit")
			}
		})
	}
}

func TestWaitingTaskIsSmall(t *testing.T) {
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	all := os.Getenv("STINT_TEST_WAITING") == "all"
	for name, further := range kinds {
		if !all && name != "own session" { // which costs most
			continue
		}
		if queued, listed := waitingBytes(t, 50_000, further); queued > maxWaiting || listed > maxWaiting {
			t.Errorf("%s: a waiting task costs %.0f bytes, and %.0f once it was listed; at most %d", name, queued, listed, maxWaiting)
		}
	}
}
