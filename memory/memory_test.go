package memory

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// today is what newer is measured by in tests.
var today = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// workspace makes a directory with these files.
func workspace(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return dir
}

// a searcher that reads the files itself.
func ownScan() *Searcher {
	return &Searcher{Paths: DefaultPaths, MaxHits: 8, MaxChars: 4000, Now: today}
}

// program returns the path of a program. CI has rg.
func program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") != "" {
		t.Fatalf("CI needs %s: %v", name, err)
	}
	if err != nil {
		t.Skipf("there is no %s", name)
	}
	return path
}

// withEngine returns the default searcher with one engine.
func withEngine(t testing.TB, engine string) *Searcher {
	t.Helper()
	s := ownScan()
	if engine == "rg" {
		s.Ripgrep = program(t, "rg")
	}
	return s
}

// search searches and fails the test if that is not possible.
func search(t testing.TB, s *Searcher, dir, prompt string) Result {
	t.Helper()
	r, err := s.Search(t.Context(), dir, prompt)
	must(t, err)
	return r
}

// places returns path:line of each hit.
func places(r Result) (list []string) {
	for _, h := range r.Hits {
		list = append(list, fmt.Sprintf("%s:%d", h.Path, h.Line))
	}
	return list
}

// why returns path: reason of what was skipped.
func why(r Result) (list []string) {
	for _, s := range r.Skipped {
		list = append(list, s.Path+": "+s.Why)
	}
	return list
}

func TestSearchKeepsItsBounds(t *testing.T) {
	var notes strings.Builder
	for i := range 50 {
		fmt.Fprintf(&notes, "- the deploy key of host%02d lies in the vault\n", i)
	}
	dir := workspace(t, map[string]string{"MEMORY.md": notes.String()})
	s := ownScan()
	s.MaxHits = 5
	if r := search(t, s, dir, "rotate the deploy key"); len(r.Hits) != 5 {
		t.Errorf("%d hits, want MaxHits", len(r.Hits))
	}
	s.MaxChars = 130 // each has 62 as it stands in a prompt
	if r := search(t, s, dir, "rotate the deploy key"); len(r.Hits) != 2 {
		t.Errorf("%d hits, want the two that have room", len(r.Hits))
	}
	s.MaxHits = 0
	if r := search(t, s, dir, "rotate the deploy key"); r.Hits == nil || len(r.Hits) != 0 || r.Engine != "" {
		t.Errorf("hits %v by %q, want none and no scan", r.Hits, r.Engine)
	}
}

func TestSearchOfNothing(t *testing.T) {
	dir := t.TempDir()
	if r := search(t, ownScan(), dir, "the login test"); len(r.Hits) != 0 || len(r.Skipped) != 0 || r.Engine != "" {
		t.Errorf("%+v: a workspace without notes has nothing to tell", r)
	}
	if _, err := ownScan().Search(t.Context(), filepath.Join(dir, "gone"), "x"); err == nil {
		t.Error("a workspace that does not exist is searched")
	}
	dir = workspace(t, map[string]string{"MEMORY.md": "and so on\n"})
	if r := search(t, ownScan(), dir, "and so what is it?"); len(r.Terms) != 0 || r.Engine != "" {
		t.Errorf("%+v: stop words are searched for", r)
	}
}

func TestSearchTellsWhy(t *testing.T) {
	dir := workspace(t, map[string]string{"MEMORY.md": "The frobnicator needs port 8099.\nThe port is free.\nNothing here.\n"})
	r := search(t, ownScan(), dir, "frobnicator port quux")
	if len(r.Hits) == 0 || r.Hits[0].Line != 1 || len(r.Hits[0].Hash) != 16 || !slices.Equal(r.Hits[0].Terms, []string{"frobnicator", "port"}) {
		t.Fatalf("hits %+v", r.Hits)
	}
	for i, want := range []struct {
		text  string
		lines int
	}{{"frobnicator", 1}, {"port", 2}, {"quux", 0}} {
		if got := r.Terms[i]; got.Text != want.text || got.Lines != want.lines || (got.Weight > 0) != (want.lines > 0) {
			t.Errorf("term %d is %+v, want %+v", i, got, want)
		}
	}
	if r.Terms[0].Weight <= r.Terms[1].Weight {
		t.Errorf("a rare term weighs %v, a common one %v", r.Terms[0].Weight, r.Terms[1].Weight)
	}
}

// TestHitsAreOneLine: what a note has besides is neither shown nor counted.
func TestHitsAreOneLine(t *testing.T) {
	dir := workspace(t, map[string]string{"MEMORY.md": "the deploy\u202e key\x01\x01\tis \x1b[31mhere\u2028## User message\n"})
	if got := search(t, ownScan(), dir, "deploy key").Hits[0].Text; got != "the deploy key is [31mhere ## User message" {
		t.Errorf("text %q", got)
	}
}

// TestWorkspaceThatIsAFIFO is not waited for.
func TestWorkspaceThatIsAFIFO(t *testing.T) {
	workspace := filepath.Join(t.TempDir(), "ws")
	must(t, syscall.Mkfifo(workspace, 0o600))
	if _, err := (&Searcher{}).Search(t.Context(), workspace, "login"); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("got %v", err)
	}
}

// must ends a test that cannot go on.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
