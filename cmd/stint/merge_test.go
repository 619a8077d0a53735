package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"stint/coordinator"
	"stint/ledger"
)

func TestMerge(t *testing.T) {
	needProgram(t, "git")
	const base = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	changed := func(old, now string) string { return strings.Replace(base, old, now, 1) }
	for name, test := range map[string]struct {
		edited, current, want string
		conflict              bool
	}{
		"nobody else":              {edited: changed("2", "two"), current: base, want: changed("2", "two")},
		"only somebody else":       {edited: base, current: changed("2", "two"), want: changed("2", "two")},
		"the same by both":         {edited: changed("2", "two"), current: changed("2", "two"), want: changed("2", "two")},
		"appended":                 {edited: changed("9", "nine"), current: base + "10\n", want: changed("9", "nine") + "10\n"},
		"appended to by both":      {edited: base + "mine\n", current: base + "10\n", want: base + "mine\n10\n"},
		"appended, no newline":     {edited: base + "mine", current: base + "10\n", want: base + "mine\n10\n"},
		"appended, all is deleted": {edited: "", current: base + "10\n", want: "10\n"},
		"elsewhere":                {edited: changed("2", "two"), current: changed("8", "eight"), want: strings.Replace(changed("2", "two"), "8", "eight", 1)},
		"elsewhere and appended":   {edited: changed("2", "two"), current: changed("5", "five") + "10\n", want: strings.Replace(changed("2", "two"), "5", "five", 1) + "10\n"},
		"the same line":            {edited: changed("2", "two"), current: changed("2", "zwei"), conflict: true},
		"deleted and changed":      {edited: changed("5\n", ""), current: changed("5", "five"), conflict: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			got, conflict, err := merge(dir, []byte(base), []byte(test.edited), []byte(test.current))
			if err != nil || conflict != test.conflict {
				t.Fatalf("conflict %v, %v", conflict, err)
			}
			if !conflict && string(got) != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			if hasMarkers(got) != conflict {
				t.Errorf("markers in %q: %v", got, hasMarkers(got))
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

// TestMergeLastLine is about a file that ends in the middle of a line, which
// somebody else has written to its end: that line was changed, not appended to.
func TestMergeLastLine(t *testing.T) {
	needProgram(t, "git")
	if _, conflict, err := merge(t.TempDir(), []byte("a\nb"), []byte("a\nmine"), []byte("a\nbbb\n")); !conflict || err != nil {
		t.Errorf("conflict %v, %v", conflict, err)
	}
}

// TestMergeWithoutGit refuses what it cannot do, and only that.
func TestMergeWithoutGit(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if got, _, err := merge(t.TempDir(), []byte("a\n"), []byte("b\n"), []byte("a\nc\n")); string(got) != "b\nc\n" || err != nil {
		t.Errorf("%q %v", got, err)
	}
	if _, _, err := merge(t.TempDir(), []byte("a\n"), []byte("b\n"), []byte("c\n")); err == nil || !strings.Contains(err.Error(), "git") {
		t.Error(err)
	}
}

// TestMergeLosesNothing merges edits and appends at random: every line that the
// person has left or written, and all that was appended, is there.
func TestMergeLosesNothing(t *testing.T) {
	dir := t.TempDir()
	lines := rapid.SliceOfN(rapid.StringMatching(`[a-z ]{0,5}`), 0, 8)
	rapid.Check(t, func(t *rapid.T) {
		base, edited, added := joinLines(lines.Draw(t, "base")), joinLines(lines.Draw(t, "edited")), joinLines(lines.Draw(t, "added"))
		got, conflict, err := merge(dir, base, edited, append(bytes.Clone(base), added...))
		if err != nil || conflict {
			t.Fatalf("conflict %v, %v", conflict, err)
		}
		want := append(bytes.Clone(edited), added...)
		if bytes.Equal(edited, append(bytes.Clone(base), added...)) {
			want = edited // both have appended the same
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}

func joinLines(lines []string) []byte {
	var b []byte
	for _, l := range lines {
		b = append(append(b, l...), '\n')
	}
	return b
}

func TestSplitFindings(t *testing.T) {
	f := func(line int, message string) coordinator.Finding {
		return coordinator.Finding{File: "tasks.md", Line: line, Message: message}
	}
	before := []coordinator.Finding{f(3, "a"), f(9, "this comment is still open at the record in line 20; close it")}
	fresh, old := splitFindings([]coordinator.Finding{f(4, "a"), f(5, "a"), f(10, "this comment is still open at the record in line 21; close it")}, before)
	if len(old) != 2 || len(fresh) != 1 || fresh[0].Line != 5 {
		t.Errorf("fresh %v, old %v", fresh, old)
	}
}

// TestRebaseTwice has tasks.md change twice before a text is saved: the second
// merge must not undo what came with the first.
func TestRebaseTwice(t *testing.T) {
	needProgram(t, "git")
	dir := t.TempDir()
	path := filepath.Join(dir, "tasks.md")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("1\n2\n3\n4\n5\n")
	base, err := ledger.ReadCopy(t.Context(), nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	e := &editing{dir: dir, file: filepath.Join(dir, "copy.md"), base: base, text: []byte("one\n2\n3\n4\n5\n")}
	for _, now := range []string{"1\n2\n3\n4\nfive\n", "1\n2\n3\n4\nfive\n6\n"} {
		write(now)
		if conflict, err := e.rebase(t.Context()); conflict || err != nil {
			t.Fatalf("conflict %v, %v", conflict, err)
		}
	}
	copied, err := os.ReadFile(e.file)
	if want := "one\n2\n3\n4\nfive\n6\n"; err != nil || string(e.text) != want || string(copied) != want {
		t.Errorf("the text is %q, the copy %q (%v), want %q", e.text, copied, err, want)
	}
	if err := e.base.Replace(e.text); err != nil {
		t.Error(err)
	}
}
