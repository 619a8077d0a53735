package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/tasksfile"
)

// TestMergeLedgers: what was appended meanwhile comes after the text; nothing else that others change is merged.
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
	to := func(pairs ...string) string { return from(base, pairs...) }
	for name, c := range map[string]struct{ base, edited, now, want, wrong string }{
		"nobody else":             {base: base, edited: to("one", "1"), now: base, want: to("one", "1")},
		"the same by both":        {base: base, edited: to("one", "1") + added, now: to("one", "1") + added, want: to("one", "1") + added},
		"appended":                {base: base, edited: to("three", "3"), now: base + added, want: to("three", "3") + added},
		"appended by both":        {base: base, edited: base + mine + "no newline", now: base + added, want: base + mine + "no newline\n" + added},
		"a line appended by them": {base: base, edited: base + mine, now: base + "a line\n", want: base + mine + "\na line\n"},
		"all is deleted":          {base: base, edited: "", now: base + added, want: added},
		"no newline at the end":   {base: "1\n2", edited: "one\n2", now: "1\n2\n3\n", want: "one\n2\n\n3\n"},

		"another section":       {base: base, edited: to("one", "1"), now: to("two", "2"), wrong: "somebody else has edited the file"},
		"the same section":      {base: base, edited: to("one", "1"), now: to("one", "uno"), wrong: "somebody else has edited the file"},
		"the same note":         {base: base, edited: to("a note", "my note"), now: to("a note", "no note"), wrong: "somebody else has edited the file"},
		"the last line of both": {base: "1\n2", edited: "one\n2", now: "1\n22\n", wrong: "somebody else has edited the file"},
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
		put(t, filepath.Join(dir, "tasks.md"), text)
	}
	const text = "## Task a\n## Task b\n"
	write(text)
	base, err := tasksfile.ReadCopy(t.Context(), nil, dir, ledger.TaskFiles)
	must(t, err)
	e := &editing{dir: dir, file: filepath.Join(dir, "copy.md"), base: base, text: []byte("## Task a\n- label: mine\n## Task b\n")}
	for _, now := range []string{text + "- label: theirs\n", text + "- label: theirs\n\nadded\n"} {
		write(now)
		must(t, e.rebase(t.Context()))
	}
	copied, err := os.ReadFile(e.file)
	if want := "## Task a\n- label: mine\n## Task b\n- label: theirs\n\nadded\n"; err != nil || string(e.text) != want || string(copied) != want {
		t.Errorf("the text is %q, the copy %q (%v), want %q", e.text, copied, err, want)
	}
	check(t, e.base.Replace(e.text))
}

func TestFreshFindings(t *testing.T) {
	f := func(line int, message string) task.Finding {
		return task.Finding{File: "tasks.md", Line: line, Message: message}
	}
	before := []task.Finding{f(3, "a"), f(6, "priority 12"), f(9, "this comment is still open at the record in line 20; close it")}
	fresh := freshFindings([]task.Finding{f(4, "a"), f(5, "a"), f(7, "priority 77"), f(10, "this comment is still open at the record in line 21; close it")}, before)
	if len(fresh) != 2 || fresh[0].Line != 5 || fresh[1].Line != 7 {
		t.Errorf("fresh %v", fresh)
	}
}
