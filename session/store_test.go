package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/ledger/durable"
)

// countFS counts the replacements of a file and can refuse them.
type countFS struct {
	durable.FS
	renames atomic.Int64
	broken  atomic.Bool
}

func (c *countFS) Rename(oldname, newname string) error {
	if c.broken.Load() {
		return errFull
	}
	c.renames.Add(1)
	return c.FS.Rename(oldname, newname)
}

func newCountFS() *countFS { return &countFS{FS: durable.OS} }

func openStore(t *testing.T, o Options) (*Store, Found) {
	t.Helper()
	if o.Interval == 0 {
		o.Interval = time.Hour
	}
	s, found := Open(o)
	t.Cleanup(func() { _ = s.Close() }) // tests that mind close it themselves
	return s, found
}

func put(t *testing.T, s *Store, entries ...Entry) {
	t.Helper()
	for _, e := range entries {
		if err := s.Put(e); err != nil {
			t.Fatal(err)
		}
	}
}

func closeStore(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func at(sec int) time.Time { return testTime.Add(time.Duration(sec) * time.Second) }

// sample is in the order of Entries.
var sample = []Entry{
	{Key: "dir:/home/ana/shop", Agent: "demo", SessionID: "s-4", Native: "d-4", UpdatedAt: at(1)},
	{Key: "web", Agent: "claude", Account: "work", SessionID: "s-3", Native: "c-3", UpdatedAt: at(9)},
	{Key: "web", Agent: "codex", SessionID: "s-1", Native: "x-1", UpdatedAt: at(5)},
	{Key: "web", Agent: "codex", Account: "second", SessionID: "s-2", UpdatedAt: at(5)},
	{Key: "web", Agent: "gemini", SessionID: "s-5", Native: "g-5", UpdatedAt: at(2)},
	{Key: "ünï \"q\"\n", Agent: "codex", SessionID: "s-6", Native: "x-6", UpdatedAt: at(2)},
}

// sampleFile writes the sample into dir and gives the path and bytes of the file.
func sampleFile(t *testing.T, dir string) (path, data string) {
	t.Helper()
	s, _ := openStore(t, Options{Dir: dir})
	for _, i := range rand.Perm(len(sample)) {
		put(t, s, sample[i])
	}
	closeStore(t, s)
	path = filepath.Join(dir, "sessions.json")
	return path, readFile(t, path)
}

func checkEntries(t *testing.T, s *Store, want []Entry) {
	t.Helper()
	if diff := cmp.Diff(want, s.Entries()); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestStoreRoundTrip(t *testing.T) {
	dir := t.TempDir()
	s, found := openStore(t, Options{Dir: dir})
	if !found.Rebuild || found.Problem != nil {
		t.Errorf("no file: %+v", found)
	}
	checkEntries(t, s, []Entry{})
	_, first := sampleFile(t, dir)
	fsys := newCountFS()
	s, found = openStore(t, Options{Dir: dir, FS: fsys})
	if found != (Found{}) {
		t.Errorf("a good file: %+v", found)
	}
	checkEntries(t, s, sample)
	for _, e := range sample { // the same again, in another zone and with a monotonic clock's reading
		e.UpdatedAt = e.UpdatedAt.In(time.FixedZone("", 3600))
		put(t, s, e)
	}
	closeStore(t, s)
	closeStore(t, s)
	if n := fsys.renames.Load(); n != 0 {
		t.Errorf("%d writes although nothing changed", n)
	}
	if _, second := sampleFile(t, dir); second != first {
		t.Errorf("the same entries give other bytes:\n%s\n%s", first, second)
	}
	checkModes(t, dir)
}

// Whoever reads the file as document 002 has it finds the newest session of a
// key under the key.
func TestStoreFile(t *testing.T) {
	dir := t.TempDir()
	_, data := sampleFile(t, dir)
	var file struct {
		Version  int
		Sessions map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(data), &file); err != nil {
		t.Fatal(err)
	}
	if file.Version != 1 || len(file.Sessions) != 3 {
		t.Errorf("version %d, %d sessions in %s", file.Version, len(file.Sessions), data)
	}
	want := map[string]any{
		"sessionId": "s-6", "updatedAt": "2026-11-21T03:12:47.131Z", "agent": "codex", "codexSessionId": "x-6",
		"transcriptPath": filepath.Join(dir, "sessions", "s-6.jsonl"),
	}
	if diff := cmp.Diff(want, file.Sessions["ünï \"q\"\n"]); diff != "" {
		t.Errorf("one agent (-want +got):\n%s", diff)
	}
	web := file.Sessions["web"]
	if others, _ := web["others"].([]any); web["sessionId"] != "s-3" || web["claudeSessionId"] != "c-3" || len(others) != 3 {
		t.Errorf("several agents: %v", web)
	}
	if lines := strings.Count(data, "\n"); lines != 5 {
		t.Errorf("%d lines, want one for each key and two around:\n%s", lines, data)
	}
}

// A file cut at any byte is put aside; nothing of it is believed.
func TestStoreCutAnywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, data := sampleFile(t, dir)
	data = strings.TrimSuffix(data, "\n")
	for cut := range len(data) {
		writeFile(t, path, data[:cut])
		now := time.Unix(int64(cut), 0)
		s, found := openStore(t, Options{Dir: dir, Now: func() time.Time { return now }})
		aside := fmt.Sprintf("%s.bad-%d", path, cut)
		if !found.Rebuild || found.Problem == nil || !strings.Contains(found.Problem.Error(), filepath.Base(aside)) {
			t.Fatalf("cut at %d: %+v", cut, found)
		}
		if got := readFile(t, aside); got != data[:cut] {
			t.Fatalf("cut at %d: put aside %q", cut, got)
		}
		checkEntries(t, s, []Entry{})
		put(t, s, sample[0])
		closeStore(t, s)
		if s, found = openStore(t, Options{Dir: dir}); found.Rebuild {
			t.Fatalf("cut at %d: the rebuilt file: %+v", cut, found)
		}
		checkEntries(t, s, sample[:1])
		closeStore(t, s)
		if t.Failed() {
			t.FailNow()
		}
	}
}

func TestStoreBadFiles(t *testing.T) {
	for name, c := range map[string]struct{ data, problem string }{
		"empty":         {"", "unexpected end"},
		"NUL bytes":     {"\x00\x00\x00\x00", "invalid character"},
		"another form":  {`[]`, "cannot unmarshal"},
		"no version":    {`{"sessions":{}}`, "no version"},
		"null":          {`null`, "no version"},
		"newer":         {`{"version":2,"sessions":{}}`, "it has version 2, and this stint reads up to 1"},
		"two in one":    {`{"version":1,"sessions":{}}{}`, "invalid character"},
		"no id":         {`{"version":1,"sessions":{"web":null}}`, `session key "web"`},
		"path as id":    {`{"version":1,"sessions":{"web":{"sessionId":"../../x"}}}`, `"../../x"`},
		"path in other": {`{"version":1,"sessions":{"web":{"sessionId":"a","others":[{"sessionId":"/x"}]}}}`, `"/x"`},
		"bad time":      {`{"version":1,"sessions":{"web":{"sessionId":"a","updatedAt":"yesterday"}}}`, "yesterday"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "sessions.json")
			writeFile(t, path, c.data)
			writeFile(t, path+".bad-100", "an older bad file")
			s, found := openStore(t, Options{Dir: dir, Now: func() time.Time { return time.Unix(100, 0) }})
			if !found.Rebuild || found.Problem == nil || !strings.Contains(found.Problem.Error(), c.problem) {
				t.Errorf("found %+v, want a problem with %q", found, c.problem)
			}
			checkEntries(t, s, []Entry{})
			if got := readFile(t, path+".bad-100") + "|" + readFile(t, path+".bad-101"); got != "an older bad file|"+c.data {
				t.Errorf("put aside: %q", got)
			}
		})
	}
}

func TestStoreTolerates(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "sessions.json"), "{\"version\": 1, \"new\": 7,\r\n \"sessions\": {\"web\": {\"sessionId\": \"a\", \"transcriptPath\": \"/etc/passwd\", \"new\": []}}}")
	s, found := openStore(t, Options{Dir: dir})
	if found != (Found{}) {
		t.Errorf("found %+v", found)
	}
	checkEntries(t, s, []Entry{{Key: "web", SessionID: "a"}})
	put(t, s, Entry{Key: "db", SessionID: "b"})
	closeStore(t, s)
	if data := readFile(t, filepath.Join(dir, "sessions.json")); strings.Contains(data, "passwd") {
		t.Errorf("a path was taken from the file: %s", data)
	}
}

// Ten thousand random changes of a good file: Open never fails, never hangs,
// and never gives an id that is no file name.
func TestStoreMutations(t *testing.T) {
	_, data := sampleFile(t, t.TempDir())
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		b := []byte(data)
		for range 1 + rng.IntN(4) {
			i := rng.IntN(len(b))
			switch rng.IntN(3) {
			case 0:
				b[i] = byte(rng.Uint32())
			case 1:
				b = slices.Delete(b, i, min(len(b), i+1+rng.IntN(20)))
			case 2:
				b = slices.Insert(b, i, b[i:min(len(b), i+rng.IntN(20))]...)
			}
			if len(b) == 0 {
				break
			}
		}
		entries, err := decode(b)
		if err != nil && entries != nil {
			t.Fatalf("an error and entries from %q", b)
		}
		for _, e := range entries {
			if !ValidID(e.SessionID) {
				t.Fatalf("id %q from %q", e.SessionID, b)
			}
		}
	}
}

func TestStoreUnreadable(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sessions.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	fsys := newCountFS()
	fsys.broken.Store(true)
	if _, found := openStore(t, Options{Dir: dir, FS: fsys}); !found.Rebuild || !errors.Is(found.Problem, errFull) {
		t.Errorf("neither readable nor to be renamed: %+v", found)
	}
	if _, found := openStore(t, Options{Dir: dir}); !found.Rebuild || found.Problem == nil {
		t.Errorf("a directory: %+v", found)
	}
	if _, found := openStore(t, Options{Dir: dir}); found.Problem != nil {
		t.Errorf("after it was put aside: %+v", found)
	}
}

func TestStoreDebounces(t *testing.T) {
	dir, fsys := t.TempDir(), newCountFS()
	synctest.Test(t, func(t *testing.T) {
		s, _ := Open(Options{Dir: dir, FS: fsys, Interval: time.Second})
		writes := func(want int64) {
			t.Helper()
			synctest.Wait()
			if got := fsys.renames.Load(); got != want {
				t.Errorf("%d writes, want %d", got, want)
			}
		}
		time.Sleep(time.Hour) // of the bubble's clock, here and below
		writes(0)
		e := sample[0]
		for i := range 1000 { // a change every 10 ms for 10 s
			e.UpdatedAt = at(i)
			put(t, s, e)
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := fsys.renames.Load(); n < 9 || n > 10 {
			t.Errorf("%d writes in 10 s of changes, want one in a second", n)
		}
		time.Sleep(time.Second)
		n := fsys.renames.Load()
		put(t, s, e) // nothing new
		time.Sleep(time.Hour)
		writes(n)
		e.UpdatedAt = at(5000)
		put(t, s, e)
		time.Sleep(time.Second - 1)
		writes(n)
		time.Sleep(time.Nanosecond)
		writes(n + 1)
		e.UpdatedAt = at(6000)
		put(t, s, e)
		closeStore(t, s) // does not wait for the interval
		writes(n + 2)
		s, _ = Open(Options{Dir: dir, FS: fsys, Interval: time.Second})
		checkEntries(t, s, []Entry{e})
		closeStore(t, s)
		writes(n + 2)
	})
}

func TestStoreWriteFails(t *testing.T) {
	dir, fsys := t.TempDir(), newCountFS()
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		onError := func(err error) {
			if !errors.Is(err, errFull) {
				t.Errorf("told of %v", err)
			}
			told.Add(1)
		}
		s, _ := Open(Options{Dir: dir, FS: fsys, Interval: time.Second, OnError: onError})
		fsys.broken.Store(true)
		put(t, s, sample[0])
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := told.Load(); n < 30 || n > 70 {
			t.Errorf("%d tries in an hour of failures; pauses should grow to a minute", n)
		}
		checkEntries(t, s, sample[:1])
		fsys.broken.Store(false)
		time.Sleep(maxBackoff * time.Second)
		synctest.Wait()
		if n := fsys.renames.Load(); n != 1 {
			t.Errorf("%d writes after the disk came back, want 1", n)
		}
		put(t, s, sample[1])
		time.Sleep(time.Second) // the pause is short again
		synctest.Wait()
		if n := fsys.renames.Load(); n != 2 {
			t.Errorf("%d writes, want 2", n)
		}
		fsys.broken.Store(true)
		put(t, s, sample[2])
		for range 2 {
			if err := s.Close(); !errors.Is(err, errFull) {
				t.Errorf("Close: %v", err)
			}
		}
	})
	if left, err := filepath.Glob(filepath.Join(dir, "*.tmp")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestStoreReset(t *testing.T) {
	dir, fsys := t.TempDir(), newCountFS()
	sampleFile(t, dir)
	s, _ := openStore(t, Options{Dir: dir, FS: fsys})
	if err := s.Reset(sample); err != nil {
		t.Error(err)
	}
	closeStore(t, s)
	if n := fsys.renames.Load(); n != 0 {
		t.Errorf("%d writes although nothing changed", n)
	}
	s, _ = openStore(t, Options{Dir: dir, FS: fsys})
	err := s.Reset([]Entry{sample[1], {Key: "web", SessionID: "../x"}, sample[3]})
	if err == nil || !strings.Contains(err.Error(), "../x") {
		t.Errorf("a bad id: %v", err)
	}
	checkEntries(t, s, []Entry{sample[1], sample[3]})
	closeStore(t, s)
	s, _ = openStore(t, Options{Dir: dir, FS: fsys})
	checkEntries(t, s, []Entry{sample[1], sample[3]})
	if err := s.Reset(nil); err != nil {
		t.Error(err)
	}
	closeStore(t, s)
	s, found := openStore(t, Options{Dir: dir})
	checkEntries(t, s, []Entry{})
	if found.Rebuild || fsys.renames.Load() != 2 {
		t.Errorf("found %+v after %d writes, want 2", found, fsys.renames.Load())
	}
}

func TestPutRefuses(t *testing.T) {
	dir := t.TempDir()
	s, _ := openStore(t, Options{Dir: dir})
	for _, e := range []Entry{
		{Key: "web"},
		{Key: "web", SessionID: "../x"},
		{Key: "web", SessionID: "a", UpdatedAt: time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -3600*5))},
	} {
		if err := s.Put(e); err == nil {
			t.Errorf("%+v was taken", e)
		}
	}
	checkEntries(t, s, []Entry{})
}

func TestStoreConcurrent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, _ := Open(Options{Dir: dir, Interval: time.Millisecond})
		done := make(chan struct{})
		for g := range 8 {
			go func() {
				defer func() { done <- struct{}{} }()
				for i := range 50 {
					if err := s.Put(Entry{Key: fmt.Sprint(g), SessionID: fmt.Sprintf("s-%d", i)}); err != nil {
						t.Error(err)
					}
					s.Entries()
					time.Sleep(time.Microsecond)
				}
			}()
		}
		for range 8 {
			<-done
		}
		closeStore(t, s)
	})
	s, _ := openStore(t, Options{Dir: dir})
	if got := s.Entries(); len(got) != 8 || got[0].SessionID != "s-49" {
		t.Errorf("entries %v", got)
	}
}

func BenchmarkFlush10k(b *testing.B) {
	s, _ := Open(Options{Dir: b.TempDir(), Interval: time.Hour})
	for i := range 10_000 {
		if err := s.Put(Entry{Key: fmt.Sprintf("key-%d", i), Agent: "codex", SessionID: testID, Native: testID, UpdatedAt: testTime}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		s.dirty = true
		if err := s.flush(); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
