package journal_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/ledger/tasksfile"
)

// TestReplace saves a text for tasks.md while others save theirs, each just before the files change places.
func TestReplace(t *testing.T) {
	t.Parallel()
	rename := func(path, text string) error {
		return errors.Join(os.WriteFile(path+"~", []byte(text), 0o600), os.Rename(path+"~", path))
	}
	type saves []func(path string) error
	for name, test := range map[string]struct {
		saves saves
		want  string
	}{
		"nobody else": {want: "new\n"},
		"a save":      {saves{func(p string) error { return rename(p, "other\n") }}, "other\n"},
		"an append":   {saves{func(p string) error { return appendFile(p, "more\n") }}, "old\nmore\n"},
		"two saves":   {saves{func(p string) error { return rename(p, "other\n") }, func(p string) error { return rename(p, "newest\n") }}, "newest\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "tasks.md")
			must(t, errors.Join(os.WriteFile(path, []byte("old\n"), 0o600), os.Chmod(path, 0o662)))
			fsys, wantErr, left := durable.OS, error(nil), test.saves
			if left != nil {
				wantErr = tasksfile.ErrChanged
				fsys = &opsFS{durable.OS, func(op, _ string) error {
					if op != "exchange" || len(left) == 0 {
						return nil
					}
					save := left[0]
					left = left[1:]
					return save(path)
				}}
			}
			c, err := tasksfile.ReadCopy(t.Context(), fsys, dir, ledger.TaskFiles)
			if err != nil || string(c.Data) != "old\n" {
				t.Fatalf("%q %v", c.Data, err)
			}
			if err := c.Replace([]byte("new\n")); !errors.Is(err, wantErr) {
				t.Error(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != test.want {
				t.Errorf("tasks.md is %q (%v), want %q", got, err, test.want)
			}
			if fi, err := os.Stat(path); err != nil || wantErr == nil && fi.Mode() != 0o662 {
				t.Errorf("its mode is %v (%v)", fi.Mode(), err)
			}
			temps, err := filepath.Glob(filepath.Join(dir, "*tmp"))
			for _, name := range temps { // but a save that another one has replaced is kept
				if text, _ := os.ReadFile(name); string(text) != "other\n" {
					t.Errorf("left behind: %s with %q", name, text)
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReplaceCrash cuts the power after every operation: tasks.md is the old text or the new one.
func TestReplaceCrash(t *testing.T) {
	m := newMemFS()
	m.put("tasks.md", "old\n")
	d := diskOf(m)
	c, err := tasksfile.ReadCopy(t.Context(), m, memDir, ledger.TaskFiles)
	must(t, err)
	must(t, c.Replace([]byte("new\n")))
	end := len(m.trace)
	for op := 0; op <= end; op++ {
		for _, mode := range modes {
			for seed := range uint64(50) {
				image := d.image(mode, rand.New(rand.NewPCG(seed, uint64(op))))
				got, _ := image.content("tasks.md")
				if got != "new\n" && (got != "old\n" || op == end) {
					t.Fatalf("operation %d, mode %s, seed %d: tasks.md is %q", op, mode.name, seed, got)
				}
			}
		}
		if op < end {
			d.apply(&m.trace[op])
		}
	}
}

// TestAppendSection reads back what was written as a person writes it.
func TestAppendSection(t *testing.T) {
	for _, value := range []string{"one line", "two\nlines\n\n  and more", "", "|", "## Task y\n- seq: 3", "trailing \n", "\x00\u2028", "<!-- end 1 -->"} {
		r := record("x", "status", "queued", "prompt", value)
		text, err := ledger.AppendSection([]byte("text\n\n"), r)
		must(t, err)
		doc := ledger.Parse(append(text, "\n## Task z\n"...))
		if len(doc.Findings) > 0 || len(doc.Sections) != 2 {
			t.Fatalf("%q: %v in\n%s", value, doc.Findings, text)
		}
		if got := doc.Sections[0].Record(); !cmp.Equal(got, *r) {
			t.Errorf("%v, want %v, from\n%s", got, *r, text)
		}
	}
	if _, err := ledger.AppendSection(nil, record("not an id")); err == nil {
		t.Error("a heading that cannot be written is taken")
	}
}
