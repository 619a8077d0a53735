package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/ledger/durable"
	"stint/state"
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

// A folded is a store with the sessions that it asks for, each by what it is the current one of.
type folded struct {
	*Store
	mu      sync.Mutex // guards entries
	entries map[[3]string]state.Session
}

func openFolded(o Options, entries ...state.Session) *folded {
	s := &folded{entries: map[[3]string]state.Session{}}
	for _, e := range entries {
		s.entries[[3]string{e.Key, e.Agent, e.Account}] = e
	}
	o.List = func() []state.Session {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Collect(maps.Values(s.entries))
	}
	s.Store = Open(o)
	return s
}

func openStore(t *testing.T, o Options, entries ...state.Session) *folded {
	t.Helper()
	if o.Interval == 0 {
		o.Interval = time.Hour
	}
	s := openFolded(o, entries...)
	t.Cleanup(func() { _ = s.Close() }) // tests that mind close it themselves
	return s
}

func put(s *folded, entries ...state.Session) {
	for _, e := range entries {
		s.mu.Lock()
		s.entries[[3]string{e.Key, e.Agent, e.Account}] = e
		s.mu.Unlock()
		s.Changed()
	}
}

func closeStore(t *testing.T, s *folded) {
	t.Helper()
	must(t, s.Close())
}

func at(sec int) time.Time { return testTime.Add(time.Duration(sec) * time.Second) }

// sample is in the order of Store.list.
var sample = []state.Session{
	{Key: "dir:/home/ana/shop", Agent: "demo", ID: "s-4", Native: "d-4", UpdatedAt: at(1)},
	{Key: "web", Agent: "claude", Account: "work", ID: "s-3", Native: "c-3", UpdatedAt: at(9)},
	{Key: "web", Agent: "codex", ID: "s-1", Native: "x-1", UpdatedAt: at(5)},
	{Key: "web", Agent: "codex", Account: "second", ID: "s-2", UpdatedAt: at(5)},
	{Key: "web", Agent: "gemini", ID: "s-5", Native: "g-5", UpdatedAt: at(2)},
	{Key: "ünï \"q\"\n", Agent: "codex", ID: "s-6", Native: "x-6", UpdatedAt: at(2)},
}

// sampleFile writes the sample into dir and returns the bytes of the file.
func sampleFile(t *testing.T, dir string) (data string) {
	t.Helper()
	s := openStore(t, Options{Dir: dir})
	for _, i := range rand.Perm(len(sample)) {
		put(s, sample[i])
	}
	checkEntries(t, s, sample)
	closeStore(t, s)
	closeStore(t, s)
	checkModes(t, dir)
	return readFile(t, filepath.Join(dir, "sessions.json"))
}

func checkEntries(t *testing.T, s *folded, want []state.Session) {
	t.Helper()
	if diff := cmp.Diff(want, s.list()); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

// Whoever reads the file as document 002 has it finds the newest session of a key under the key.
func TestStoreFile(t *testing.T) {
	dir := t.TempDir()
	data := sampleFile(t, dir)
	var file map[string]map[string]any
	must(t, json.Unmarshal([]byte(data), &file))
	if len(file) != 3 {
		t.Errorf("%d sessions in %s", len(file), data)
	}
	want := map[string]any{
		"sessionId": "s-6", "updatedAt": "2026-11-21T03:12:47.131Z", "agent": "codex", "codexSessionId": "x-6",
		"transcriptPath": filepath.Join(dir, "sessions", "s-6.jsonl"),
	}
	if diff := cmp.Diff(want, file["ünï \"q\"\n"]); diff != "" {
		t.Errorf("one agent (-want +got):\n%s", diff)
	}
	web := file["web"]
	if others, _ := web["others"].([]any); web["sessionId"] != "s-3" || web["claudeSessionId"] != "c-3" || len(others) != 3 {
		t.Errorf("several agents: %v", web)
	}
	if lines := strings.Count(data, "\n"); lines != 5 {
		t.Errorf("%d lines, want one for each key and two around:\n%s", lines, data)
	}
}

func TestStoreDebounces(t *testing.T) {
	dir, fsys := t.TempDir(), newCountFS()
	synctest.Test(t, func(t *testing.T) {
		s := openFolded(Options{Dir: dir, FS: fsys, Interval: time.Second})
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
			put(s, e)
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if n := fsys.renames.Load(); n < 9 || n > 10 {
			t.Errorf("%d writes in 10 s of changes, want one in a second", n)
		}
		time.Sleep(time.Second)
		n := fsys.renames.Load()
		put(s, e) // nothing new
		time.Sleep(time.Hour)
		writes(n)
		e.UpdatedAt = at(5000)
		put(s, e)
		time.Sleep(time.Second - 1)
		writes(n)
		time.Sleep(time.Nanosecond)
		writes(n + 1)
		e.UpdatedAt = at(6000)
		put(s, e)
		closeStore(t, s) // does not wait for the interval
		writes(n + 2)
		if data := readFile(t, filepath.Join(dir, "sessions.json")); !strings.Contains(data, e.ID) {
			t.Errorf("the file has %s", data)
		}
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
		s := openFolded(Options{Dir: dir, FS: fsys, Interval: time.Second, OnError: onError})
		fsys.broken.Store(true)
		put(s, sample[0])
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
		put(s, sample[1])
		time.Sleep(time.Second) // the pause is short again
		synctest.Wait()
		if n := fsys.renames.Load(); n != 2 {
			t.Errorf("%d writes, want 2", n)
		}
		fsys.broken.Store(true)
		put(s, sample[2])
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

// TestStoreCompares: the file is compared with the entries, and written where it says
// something else, or cannot be read at all. An entry that is not valid is left out.
func TestStoreCompares(t *testing.T) {
	dir := t.TempDir()
	whole, path := sampleFile(t, dir), filepath.Join(dir, "sessions.json")
	for name, tt := range map[string]struct {
		file    string // "": there is none
		entries []state.Session
		writes  int64
		kept    []state.Session
	}{
		"the same":         {whole, sample, 0, sample},
		"no file":          {"", sample, 1, sample},
		"half a file":      {whole[:len(whole)/2], sample, 1, sample},
		"another form":     {"[]", sample, 1, sample},
		"fewer, one bad":   {whole, []state.Session{sample[1], {Key: "web", ID: "../x"}, {Key: "api"}, sample[3]}, 1, []state.Session{sample[1], sample[3]}},
		"none":             {whole, nil, 1, nil},
		"no file, none":    {"", nil, 0, nil},
		"an older stint's": {"{\"version\":1,\"sessions\":{\n}}\n", sample, 1, sample},
		"none, as it was":  {"{\n}\n", nil, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := newCountFS()
			if writeFile(t, path, tt.file); tt.file == "" {
				_ = os.Remove(path) // it is there
			}
			s := openStore(t, Options{Dir: dir, FS: fsys}, tt.entries...)
			checkEntries(t, s, tt.kept)
			closeStore(t, s)
			if n := fsys.renames.Load(); n != tt.writes {
				t.Errorf("%d writes, want %d", n, tt.writes)
			}
			if tt.writes == 0 && tt.file == "" {
				if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("there is a file: %v", err)
				}
			} else if got := readFile(t, path); len(tt.kept) == len(sample) && got != whole {
				t.Errorf("the file has %s", got)
			}
		})
	}
}

// TestStoreAside: what is no regular file is renamed, never written to, and replaced.
func TestStoreAside(t *testing.T) {
	for name, place := range map[string]func(path string) error{
		"directory": func(path string) error { return os.MkdirAll(filepath.Join(path, "kept"), 0o700) },
		"link":      func(path string) error { return os.Symlink("elsewhere", path) },
		"FIFO":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "sessions.json")
			var renamed []string
			for range 2 { // with other sessions and with none
				must(t, place(path))
				s := openStore(t, Options{Dir: dir, OnAside: func(aside string) { renamed = append(renamed, aside) }}, sample[:1-len(renamed)]...)
				closeStore(t, s)
				if got := readFile(t, path); strings.Contains(got, sample[0].ID) != (len(renamed) == 1) {
					t.Errorf("the file has %s", got)
				}
				must(t, os.Remove(path))
			}
			if len(renamed) != 2 || renamed[0] == renamed[1] {
				t.Fatalf("renamed to %q", renamed)
			}
			for _, aside := range renamed {
				if fi, err := os.Lstat(filepath.Join(dir, aside)); err != nil || fi.Mode().IsRegular() {
					t.Errorf("%s: %v", aside, err)
				}
			}
		})
	}
}

func TestStoreConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openFolded(Options{Dir: t.TempDir(), Interval: time.Millisecond})
		var all sync.WaitGroup
		for g := range 8 {
			all.Go(func() {
				for i := range 50 {
					put(s, state.Session{Key: fmt.Sprint(g), ID: fmt.Sprintf("s-%d", i)})
					s.list()
					time.Sleep(time.Microsecond)
				}
			})
		}
		all.Wait()
		closeStore(t, s)
		if got := s.list(); len(got) != 8 || got[0].ID != "s-49" {
			t.Errorf("entries %v", got)
		}
	})
}

func BenchmarkFlush10k(b *testing.B) {
	s := openFolded(Options{Dir: b.TempDir(), Interval: time.Hour})
	for i := range 10_000 {
		put(s, state.Session{Key: fmt.Sprintf("key-%d", i), Agent: "codex", ID: testID, Native: testID, UpdatedAt: testTime})
	}
	for b.Loop() {
		s.last = [32]byte{}
		must(b, s.flush())
	}
	must(b, s.Close())
}
