package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stint/coordinator/task"
	"stint/ledger"
)

// TestMergeLedgers: what was appended meanwhile comes after the text; else each section,
// and each text between two, is that of the side that changed it.
func TestMergeLedgers(t *testing.T) {
	const (
		first  = "## Task a\n- seq: 1\n- prompt: one\n<!-- end 1 -->\n"
		second = "## Task b\n- seq: 2\n- prompt: two\n<!-- end 2 -->\n"
		draft  = "## Task c\n- prompt: three\n"
		base   = "# Tasks\n\n" + first + "\n" + second + "\na note\n\n" + draft
		mine   = "\n## Task mine\n- prompt: mine\n"
		added  = "\n## Task d\n- seq: 3\n- prompt: four\n<!-- end 3 -->\n"
	)
	from := func(text string, pairs ...string) string {
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(text, pairs[i]) {
				t.Fatalf("no %q in %q", pairs[i], text)
			}
			text = strings.Replace(text, pairs[i], pairs[i+1], 1)
		}
		return text
	}
	windows := func(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }
	to := func(pairs ...string) string { return from(base, pairs...) }
	for name, c := range map[string]struct{ base, edited, now, want, wrong string }{
		"nobody else":                     {base: base, edited: to("one", "1"), now: base, want: to("one", "1")},
		"only somebody else":              {base: base, edited: base, now: to("two", "2", "# Tasks\n", "", draft, ""), want: to("two", "2", "# Tasks\n", "", draft, "")},
		"the same by both":                {base: base, edited: to("one", "1") + added, now: to("one", "1") + added, want: to("one", "1") + added},
		"the same appended by both":       {base: base, edited: base + added, now: base + added, want: base + added},
		"appended":                        {base: base, edited: to("three", "3"), now: base + added, want: to("three", "3") + added},
		"appended by both":                {base: base, edited: base + mine + "no newline", now: base + added, want: base + mine + "no newline\n" + added},
		"all is deleted":                  {base: base, edited: "", now: base + added, want: added},
		"no newline at the end":           {base: "1\n2", edited: "one\n2", now: "1\n2\n3\n", want: "one\n2\n\n3\n"},
		"two sections":                    {base: base, edited: to("one", "1"), now: to("two", "2"), want: to("one", "1", "two", "2")},
		"and the same in a third":         {base: base, edited: to("one", "1", "three", "3"), now: to("two", "2", "three", "3"), want: to("one", "1", "two", "2", "three", "3")},
		"elsewhere and appended":          {base: base, edited: to("one", "1"), now: to("two", "2") + added, want: to("one", "1", "two", "2") + added},
		"a section and the text below it": {base: base, edited: to("two", "2"), now: to("a note", "a word"), want: to("two", "2", "a note", "a word")},
		"no newline, twice":               {base: base, edited: to("one", "1") + "## Task mine", now: to("two", "2"), want: to("one", "1", "two", "2") + "## Task mine\n"},
		"last line grew":                  {base: base + "note", edited: to("one", "1") + "note", now: base + "note, more\n", want: to("one", "1") + "note, more\n"},
		"deleted by them":                 {base: base, edited: to("one", "1"), now: to(second, ""), want: to("one", "1", second, "")},
		"deleted by me":                   {base: base, edited: to(first+"\n", ""), now: to("two", "2"), want: to(first+"\n", "", "two", "2")},
		"added by both":                   {base: base, edited: to(second, mine+second), now: to("two", "2", draft, added+draft), want: to(second, mine+second, "two", "2", draft, added+draft)},
		"moved by me":                     {base: base, edited: to(first, "", second, second+first), now: to("two", "2"), want: to(first, "", "two", "2", "<!-- end 2 -->\n", "<!-- end 2 -->\n"+first)},
		"with a BOM and CRLF":             {base: "\ufeff" + windows(base), edited: "\ufeff" + windows(to("one", "1")), now: "\ufeff" + windows(to("two", "2")), want: "\ufeff" + windows(to("one", "1", "two", "2"))},
		"a copied section":                {base: base, edited: base + from(second, "two", "copy"), now: to("one", "1"), want: to("one", "1") + from(second, "two", "copy")},

		"the same section":          {base: base, edited: to("one", "1"), now: to("one", "uno"), wrong: "changed Task a (record 1)"},
		"the same draft":            {base: base, edited: to("three", "3"), now: to("three", "tre"), wrong: "changed Task c meanwhile"},
		"the same note":             {base: base, edited: to("a note", "my note"), now: to("a note", "no note"), wrong: "changed the text below Task b (record 2)"},
		"the top":                   {base: base, edited: to("# Tasks", "# Mine"), now: to("# Tasks", "# Theirs"), wrong: "changed the text at the top"},
		"deleted, and mine changed": {base: base, edited: to("two", "2"), now: to(second, ""), wrong: "changed Task b (record 2)"},
		"changed, and mine deleted": {base: base, edited: to(second, ""), now: to("two", "2"), wrong: "changed Task b (record 2)"},
		"added in two ways":         {base: base, edited: to(draft, added+draft), now: to(draft, from(added, "four", "4")+draft), wrong: "changed Task d (record 3)"},
		"moved by them":             {base: base, edited: to("three", "3"), now: to(first, "", second, second+first), wrong: "moved"},
		"the last line of both":     {base: "1\n2", edited: "one\n2", now: "1\n22\n", wrong: "changed the text at the top"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := mergeLedgers([]byte(c.base), []byte(c.edited), []byte(c.now))
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("%q, %v; want %q", got, err, c.wrong)
				}
			} else if err != nil || string(got) != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// TestRebaseTwice has tasks.md change twice before a text is saved: the second merge must
// not undo what came with the first.
func TestRebaseTwice(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "tasks.md"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("## Task a\n## Task b\n")
	base, err := ledger.ReadCopy(t.Context(), nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	e := &editing{dir: dir, file: filepath.Join(dir, "copy.md"), base: base, text: []byte("## Task a\n- label: mine\n## Task b\n")}
	for _, now := range []string{"## Task a\n## Task b\n- label: theirs\n", "## Task a\n## Task b\n- label: theirs\n\nadded\n"} {
		write(now)
		if err := e.rebase(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	copied, err := os.ReadFile(e.file)
	if want := "## Task a\n- label: mine\n## Task b\n- label: theirs\n\nadded\n"; err != nil || string(e.text) != want || string(copied) != want {
		t.Errorf("the text is %q, the copy %q (%v), want %q", e.text, copied, err, want)
	}
	if err := e.base.Replace(e.text); err != nil {
		t.Error(err)
	}
}

func TestSplitFindings(t *testing.T) {
	f := func(line int, message string) task.Finding {
		return task.Finding{File: "tasks.md", Line: line, Message: message}
	}
	before := []task.Finding{f(3, "a"), f(9, "this comment is still open at the record in line 20; close it")}
	fresh, old := splitFindings([]task.Finding{f(4, "a"), f(5, "a"), f(10, "this comment is still open at the record in line 21; close it")}, before)
	if len(old) != 2 || len(fresh) != 1 || fresh[0].Line != 5 {
		t.Errorf("fresh %v, old %v", fresh, old)
	}
}
