package main

import (
	"os"
	"path/filepath"
	"testing"

	"stint/coordinator"
	"stint/ledger"
)

// TestRebase: what was appended meanwhile, twice even, comes after the text; a change of
// another kind is refused, and nothing is lost of either side.
func TestRebase(t *testing.T) {
	const base = "1\n2\n3\n"
	for name, c := range map[string]struct {
		base, edited string
		now          []string // tasks.md, one after the other
		want         string   // "": it is refused
	}{
		"nobody else":           {base, "1\ntwo\n3\n", []string{base}, "1\ntwo\n3\n"},
		"the same by both":      {base, "1\ntwo\n3\n", []string{"1\ntwo\n3\n"}, "1\ntwo\n3\n"},
		"appended twice":        {base, "1\ntwo\n3\n", []string{base + "4\n", base + "4\n5\n"}, "1\ntwo\n3\n4\n5\n"},
		"appended by both":      {base, base + "mine", []string{base + "4\n"}, base + "mine\n4\n"},
		"all is deleted":        {base, "", []string{base + "4\n"}, "4\n"},
		"no newline at the end": {"1\n2", "one\n2", []string{"1\n2\n3\n"}, "one\n2\n\n3\n"},
		"changed elsewhere":     {base, "1\ntwo\n3\n", []string{"1\n2\nthree\n"}, ""},
		"its last line grew":    {"1\n2", "one\n2", []string{"1\n22\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(text string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(dir, "tasks.md"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(c.base)
			first, err := ledger.ReadCopy(t.Context(), nil, dir)
			if err != nil {
				t.Fatal(err)
			}
			e := &editing{dir: dir, file: filepath.Join(dir, "copy.md"), base: first, text: []byte(c.edited)}
			for _, now := range c.now {
				write(now)
				err = e.rebase(t.Context())
			}
			if (err != nil) != (c.want == "") {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			if string(e.text) != c.want {
				t.Errorf("%q, want %q", e.text, c.want)
			}
			if err := e.base.Replace(e.text); err != nil {
				t.Error(err)
			}
		})
	}
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
