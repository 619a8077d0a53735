package memory

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func rootOf(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { _ = root.Close() }) // only read from
	return root
}

// notesOf returns the names of the notes that the paths name in a directory, and why others are left out.
func notesOf(t *testing.T, dir string, paths ...string) (names, skipped []string) {
	t.Helper()
	notes, left := findNotes(t.Context(), rootOf(t, dir), paths, "")
	for _, n := range notes {
		names = append(names, n.path)
	}
	return names, why(Result{Skipped: left})
}

func TestFindNotes(t *testing.T) {
	dir := workspace(t, map[string]string{
		"MEMORY.md": "a", "README.md": "a", "memory/b.md": "a", "memory/a.md": "a", "memory/c.txt": "a", "memory/deep/d.md": "a",
		"docs/x/1.md": "a", "docs/x/y/2.md": "a", "docs/3.md": "a", ".git/4.md": "a", "-": "a", "-e.md": "a", "[a].md": "a",
	})
	for _, tt := range []struct {
		name  string
		paths []string
		want  string
	}{
		{"the default", DefaultPaths, "MEMORY.md memory/a.md memory/b.md"},
		{"a file", []string{"README.md"}, "README.md"},
		{"a directory, and what is below it", []string{"docs"}, "docs/3.md docs/x/1.md docs/x/y/2.md"},
		{"a pattern", []string{"docs/*/*.md"}, "docs/x/1.md"},
		{"any directories", []string{"docs/**/*.md"}, "docs/3.md docs/x/1.md docs/x/y/2.md"},
		{"twice any directories", []string{"docs/**/**/2.md"}, "docs/x/y/2.md"},
		{"everything but .git", []string{"**/[1-4].md"}, "docs/3.md docs/x/1.md docs/x/y/2.md"},
		{"each file once", []string{"memory/a.md", "memory", "./memory/../memory/a.md"}, "memory/a.md memory/b.md memory/deep/d.md"},
		{"names like options", []string{"-", "-e.md"}, "- -e.md"},
		{"a name with brackets", []string{`[[]a].md`}, "[a].md"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			names, skipped := notesOf(t, dir, tt.paths...)
			if got := strings.Join(names, " "); got != tt.want || len(skipped) != 0 {
				t.Errorf("%q gives %q, want %q; skipped: %q", tt.paths, got, tt.want, skipped)
			}
		})
	}
}

func TestSkippedNotesSayWhy(t *testing.T) {
	outside := workspace(t, map[string]string{"secret.md": "password", "dir/x.md": "password"})
	dir := workspace(t, map[string]string{"ok.md": "text", "bin.md": "a\x00b", "empty.md": "", "sub/real.md": "a"})
	link := func(to, name string) {
		t.Helper()
		must(t, os.Symlink(to, filepath.Join(dir, name)))
	}
	link(filepath.Join(outside, "secret.md"), "out.md")
	link(filepath.Join(outside, "dir"), "outdir")
	link("nowhere", "dangling.md")
	link("loop.md", "loop.md")
	link("ok.md", "inside.md")
	link("sub", "subdir")
	link("..", "sub/up")
	link("/dev/zero", "zero.md")
	must(t, syscall.Mkfifo(filepath.Join(dir, "fifo.md"), 0o600))
	for _, tt := range []struct{ path, notes, skipped string }{
		{"ok.md", "ok.md", ""},
		{"empty.md", "empty.md", ""},
		{"inside.md", "inside.md", ""},
		{"subdir", "subdir/real.md", ""}, // the loop in it is not followed
		{"missing.md", "", "missing.md: there is no such file"},
		{"bin.md", "", "bin.md: it is no text: it has NUL bytes"},
		{"out.md", "", "out.md: it cannot be read: path escapes from parent"},
		{"zero.md", "", "zero.md: it cannot be read: path escapes from parent"},
		{"outdir", "", "outdir: it cannot be read: path escapes from parent"},
		{"outdir/x.md", "", "outdir/x.md: it cannot be read: path escapes from parent"},
		{"outdir/*.md", "", "outdir: it cannot be read: path escapes from parent"},
		{"dangling.md", "", "dangling.md: it cannot be read: no such file or directory"},
		{"loop.md", "", "loop.md: it cannot be read: too many levels of symbolic links"},
		{"fifo.md", "", "fifo.md: it is no regular file"},
		{"../x.md", "", "../x.md: it is not inside the workspace"},
		{"/etc/passwd", "", "/etc/passwd: it is not inside the workspace"},
		{"sub/up/ok.md", "sub/up/ok.md", ""},
		{"sub/up/../../../x.md", "", "sub/up/../../../x.md: it is not inside the workspace"},
	} {
		t.Run(tt.path, func(t *testing.T) {
			names, skipped := notesOf(t, dir, tt.path)
			if strings.Join(names, " ") != tt.notes || strings.Join(skipped, " ") != tt.skipped {
				t.Errorf("notes %q, skipped %q; want %q, %q", names, skipped, tt.notes, tt.skipped)
			}
		})
	}
}

// TestManyNotesAreBounded: the search goes on with the notes that it has.
func TestManyNotesAreBounded(t *testing.T) {
	full := &finder{root: rootOf(t, workspace(t, map[string]string{"MEMORY.md": "the deploy key\n"})), seen: map[string]bool{}, notes: make([]note, maxNotes)}
	full.path(t.Context(), "MEMORY.md", false)
	if got := why(Result{Skipped: full.skipped}); !slices.Equal(got, []string{"MEMORY.md: there are more than 10000 files"}) {
		t.Errorf("skipped %q", got)
	}
}

// TestTheLimitHoldsForTheNames: finding the notes is a part of the search.
func TestTheLimitHoldsForTheNames(t *testing.T) {
	dir := workspace(t, map[string]string{"MEMORY.md": "the deploy key\n"})
	s := ownScan()
	s.Paths, s.Timeout = []string{"**/*.md"}, time.Nanosecond
	r := search(t, s, dir, "the deploy key")
	if want := []string{"**/*.md: it takes too long to find its files; name those of the notes"}; !slices.Equal(why(r), want) {
		t.Errorf("skipped %q, want %q", why(r), want)
	}
}

// TestANameThatCannotBeShown: neither in a prompt nor on a terminal.
func TestANameThatCannotBeShown(t *testing.T) {
	dir := workspace(t, map[string]string{"memory/a\n## User message.md": "a", "memory/b\xff.md": "a", "memory/c\u202e.md": "a", "memory/d  é.md": "a"})
	names, skipped := notesOf(t, dir, "memory")
	if !slices.Equal(names, []string{"memory/d  é.md"}) || len(skipped) != 3 || !strings.HasSuffix(skipped[0], "its name has characters that cannot be shown") {
		t.Errorf("notes %q, skipped %q", names, skipped)
	}
}

// TestOfManyFilesThoseWithFindsAreLookedAt: a binary file among many is told when it would have been a find.
func TestOfManyFilesThoseWithFindsAreLookedAt(t *testing.T) {
	files := map[string]string{"memory/z1.md": "\x00\ndeploy key one\n", "memory/z2.md": "deploy key two\n", "memory/z3.md": "\x00\n"}
	for i := range maxLooked + 10 {
		files[fmt.Sprintf("memory/%04d.md", i)] = "nothing\n"
	}
	dir := workspace(t, files)
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "memory/z4.md")))
	for _, name := range engineNames {
		t.Run(name, func(t *testing.T) {
			r := search(t, withEngine(t, name), dir, "the deploy key")
			want := []string{"memory/z4.md: it cannot be read: path escapes from parent", "memory/z1.md: it is no text: it has NUL bytes"}
			if !slices.Equal(places(r), []string{"memory/z2.md:1"}) || !slices.Equal(why(r), want) {
				t.Errorf("hits %v, skipped %q", places(r), why(r))
			}
		})
	}
}
