package ledger_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stint/ledger"
	"stint/ledger/durable"
)

// A hookFS calls a function before an operation, once: "open NAME", "exchange".
type hookFS struct {
	durable.FS
	before map[string]func()
}

func (h *hookFS) hook(op string) {
	if f := h.before[op]; f != nil {
		delete(h.before, op)
		f()
	}
}

func (h *hookFS) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	base, _, _ := strings.Cut(filepath.Base(name), ".stint-") // a temporary file has a random name
	h.hook("open " + base)
	return h.FS.OpenFile(name, flag, perm)
}

func (h *hookFS) Exchange(a, b string) error {
	if h.before["exchange"] == nil {
		h.hook("exchange again")
	}
	h.hook("exchange")
	return h.FS.Exchange(a, b)
}

// TestReplace saves a text for tasks.md while others save theirs, too.
func TestReplace(t *testing.T) {
	t.Parallel()
	rename := func(path, text string) func() {
		return func() {
			if err := errors.Join(os.WriteFile(path+"~", []byte(text), 0o600), os.Rename(path+"~", path)); err != nil {
				t.Error(err)
			}
		}
	}
	appendTo := func(path, text string) func() {
		return func() {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(text); errors.Join(err, f.Close()) != nil {
				t.Error(err)
			}
		}
	}
	type hooks = map[string]func()
	for name, test := range map[string]struct {
		before func(path string) hooks
		want   string
		err    error
	}{
		"nobody else": {want: "new\n"},
		"a save before": {
			before: func(p string) hooks { return hooks{"exchange": rename(p, "other\n")} },
			want:   "other\n", err: ledger.ErrChanged,
		},
		"an append before": {
			before: func(p string) hooks { return hooks{"exchange": appendTo(p, "more\n")} },
			want:   "old\nmore\n", err: ledger.ErrChanged,
		},
		"two saves": {
			before: func(p string) hooks {
				return hooks{"exchange": rename(p, "other\n"), "exchange again": rename(p, "newest\n")}
			},
			want: "newest\n", err: ledger.ErrChanged,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "tasks.md")
			if err := errors.Join(os.WriteFile(path, []byte("old\n"), 0o600), os.Chmod(path, 0o662)); err != nil {
				t.Fatal(err)
			}
			hooked := &hookFS{FS: durable.OS}
			c, err := ledger.ReadCopy(t.Context(), hooked, dir)
			if err != nil || string(c.Data) != "old\n" {
				t.Fatalf("%q %v", c.Data, err)
			}
			if test.before != nil {
				hooked.before = test.before(path)
			}
			if err := c.Replace([]byte("new\n")); !errors.Is(err, test.err) {
				t.Error(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != test.want {
				t.Errorf("tasks.md is %q (%v), want %q", got, err, test.want)
			}
			if fi, err := os.Stat(path); err != nil || test.err == nil && fi.Mode() != 0o662 {
				t.Errorf("its mode is %v (%v)", fi.Mode(), err)
			}
			left, err := filepath.Glob(filepath.Join(dir, "*tmp"))
			for _, name := range left { // but a save that another one has replaced is kept
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

// TestReplaceCrash cuts the power after every operation: tasks.md is the old text
// or the new one.
func TestReplaceCrash(t *testing.T) {
	m := newMemFS()
	m.put("tasks.md", "old\n")
	d := diskOf(m)
	c, err := ledger.ReadCopy(t.Context(), m, memDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Replace([]byte("new\n")); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
