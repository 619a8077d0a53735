package journal_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/ledger/plain"
)

const indexName = "index"

// cached returns a shelf with a cache, whose ledger has most of what there is: tasks, an edit, an archive, a deletion.
func cached(t testing.TB) *shelf {
	t.Helper()
	w := filled(t)
	w.compact("b")
	w.caughtUp()
	w.edit(appended("\n## Task mine\n- status: queued\n- seen: by nobody\n"))
	w.reconcile()
	w.add("d", "status", "queued", "prompt", nasty[1])
	w.caughtUp()
	w.close()
	w.isCached = true
	w.open(false)
	w.close()
	return w
}

// code is for anything that a test folds.
func code(c *plain.Coder, v any) {
	data, err := json.Marshal(v)
	text := string(data)
	if c.Texts(&text); c.Reads {
		err = json.Unmarshal([]byte(text), v)
	}
	if err != nil {
		panic(err)
	}
}

// stampsOf returns the stamps of a cache, or the cache with others.
func stampsOf(index []byte, change func(string) string) string {
	var stamps string
	c := plain.Coder{Bytes: index[:len(index)-4], Reads: true}
	if c.Texts(&stamps); change == nil {
		return stamps
	}
	stamps = change(stamps)
	var other plain.Coder
	other.Texts(&stamps)
	data := append(other.Bytes, c.Bytes...)
	return string(binary.LittleEndian.AppendUint32(data, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))))
}

// openLike opens the log and expects the fold of the text, and that the cache was used or not.
func (w *shelf) openLike(what, lines string, isUsed bool) {
	w.t.Helper()
	w.open(false)
	if got := w.lines(); got != lines || w.log.Resumed() != isUsed {
		w.t.Errorf("%s: from the cache: %v, want %v:\n%s\nwant\n%s", what, w.log.Resumed(), isUsed, got, lines)
	}
}

// ofText returns the fold without the cache, and leaves all files as they are.
func (w *shelf) ofText() string {
	w.t.Helper()
	dir := w.t.TempDir()
	must(w.t, exec.CommandContext(w.t.Context(), "cp", "-a", w.dir+"/.", dir).Run())
	must(w.t, os.RemoveAll(filepath.Join(dir, indexName)))
	text := newShelf(w.t)
	text.dir = dir
	text.open(false)
	defer text.close()
	return text.lines()
}

// TestPromise1IndexIsACache: a log goes on from the cache where nothing has changed, and then it is as if it had
// never ended. Where the cache is torn, damaged, old, of another ledger or another thing, and where either file or
// the archive is not what it was, the text says all.
func TestPromise1IndexIsACache(t *testing.T) {
	t.Parallel()
	w := cached(t)
	other := cached(t)
	foreign := []byte(other.read(indexName))
	index, text := []byte(w.read(indexName)), w.ofText()
	put := func(data []byte) func() {
		return func() { must(t, os.WriteFile(w.path(indexName), data, 0o600)) }
	}
	w.openLike("untouched", text, true)
	w.close()
	if now := w.read(indexName); now != string(index) {
		t.Error("a log that has changed nothing has written it anew")
	}
	flipped := func(at int) func() {
		data := slices.Clone(index)
		data[at] ^= 1 << (at % 8)
		return put(data)
	}
	for at := 0; at < len(index); at += 1 + rand.IntN(len(index)/40) {
		flipped(at)()
		w.openLike("a flipped bit", text, false)
		w.close()
		put(index[:at])()
		w.openLike("torn", text, false)
		w.close()
	}
	write := func(data []byte) func(*shelf) {
		return func(w *shelf) { must(t, os.WriteFile(w.path(indexName), data, 0o600)) }
	}
	number := regexp.MustCompile(`\d+`)
	if n := len(number.FindAllString(stampsOf(index, nil), -1)); n != 25 {
		t.Errorf("%d numbers are of the program (4), the journal's end (1) the archive, and three files (5 each)", n)
	}
	for at := range number.FindAllString(stampsOf(index, nil), -1) { // of the program, the journal's end, and each file
		put([]byte(stampsOf(index, func(stamps string) string {
			i := -1
			return number.ReplaceAllStringFunc(stamps, func(n string) string {
				if i++; i == at {
					return n + "1"
				}
				return n
			})
		})))()
		w.openLike(fmt.Sprintf("number %d of the stamps is another one", at), text, false)
		w.close()
	}
	for what, damage := range map[string]func(*shelf){
		"of another program, in other words": func(w *shelf) {
			other := bytes.Repeat([]byte{0x7f}, 20) // a text of 127 bytes
			write(binary.LittleEndian.AppendUint32(other, crc32.Checksum(other, crc32.MakeTable(crc32.Castagnoli))))(w)
		},
		"empty": write(nil), "foreign": write(foreign), "zeros": write(make([]byte, len(index))), "longer": write(append(slices.Clone(foreign), 0)),
		"a directory": func(w *shelf) {
			must(t, os.Remove(w.path(indexName)))
			must(t, os.Mkdir(w.path(indexName), 0o700))
		},
		"a copy of both files": func(w *shelf) {
			for _, name := range []string{"journal.md", "tasks.md"} {
				must(t, exec.CommandContext(t.Context(), "cp", "-p", w.path(name), w.path("copy")).Run())
				must(t, os.Rename(w.path("copy"), w.path(name)))
			}
		},
		"a copy of the journal": func(w *shelf) {
			must(t, exec.CommandContext(t.Context(), "cp", "-p", w.path("journal.md"), w.path("copy")).Run())
			must(t, os.Rename(w.path("copy"), w.path("journal.md")))
		},
		"an edit that the log before has not taken over": func(w *shelf) {
			w.open(false)
			w.write("tasks.md", w.read("tasks.md")+"\n## Task late\n- status: queued\n")
			w.close()
		},
		"another text of the same size and time": func(w *shelf) {
			for _, name := range []string{"journal.md", "tasks.md"} {
				fi, err := os.Stat(w.path(name))
				must(t, err)
				must(t, os.WriteFile(w.path(name), bytes.ReplaceAll([]byte(w.read(name)), []byte("by nobody"), []byte("by ANYONE")), 0o600))
				must(t, os.Chtimes(w.path(name), time.Time{}, fi.ModTime()))
			}
		},
		"touched": func(w *shelf) { must(t, os.Chtimes(w.path("tasks.md"), time.Time{}, time.Now())) },
		"an older cache": func(w *shelf) {
			index := w.read(indexName)
			w.open(false)
			w.add("later", "status", "queued")
			w.caughtUp()
			w.close()
			write([]byte(index))(w)
		},
		"an edit":       func(w *shelf) { w.write("tasks.md", w.read("tasks.md")+"\n## Task late\n- status: queued\n") },
		"a torn change": func(w *shelf) { must(t, appendFile(w.path("journal.md"), "## Task torn\n- seq: 99\n- st")) },
		"no archive":    func(w *shelf) { must(t, os.Remove(w.path("archive/index"))) },
	} {
		w := cached(t)
		damage(w)
		w.openLike(what, w.ofText(), false)
		if _, err := os.ReadFile(w.path(indexName)); !errors.Is(err, os.ErrNotExist) && what != "a directory" {
			t.Errorf("%s: it stays: %v", what, err)
		}
		w.close()
	}
}

// TestIndexGoesOn: a log that goes on from the cache takes over edits and deletions as the one before it would have. What
// is to be told of tasks.md is found there.
func TestIndexGoesOn(t *testing.T) {
	t.Parallel()
	w := cached(t)
	w.write("tasks.md", w.read("tasks.md")+"\n## Task bad\n- status: qeued\n")
	w.open(false)
	w.close()
	w.openLike("with a finding", w.ofText(), false)
	if found := w.log.Findings(); len(found) != 1 || !strings.Contains(strings.Join(w.said, "\n"), "qeued") {
		t.Errorf("findings: %v, said: %q", found, w.said)
	}
	w.edit(func(text string) string { return strings.Replace(text, "qeued", "queued", 1) })
	w.reconcile()
	w.add("d", "status", "done")
	w.edit(func(text string) string {
		i := strings.Index(text, "\n## Task mine")
		return text[:i] + text[i+strings.Index(text[i+1:], "\n## ")+1:]
	})
	w.reconcile()
	live := w.lines()
	w.close()
	w.openLike("after edits", live, true)
	w.close()
	if text := w.ofText(); text != live {
		t.Errorf("the text says\n%s\nand the log did\n%s", text, live)
	}
}

// TestIndexIsAsIfNothingHadEnded: what comes after a start from the cache is what had come without an end: numbers go on, an
// edit that is taken back is noticed, and a journal that another hand has spoilt is put back without a word of records that
// a compaction has merged.
func TestIndexIsAsIfNothingHadEnded(t *testing.T) {
	t.Parallel()
	var want string
	for _, ends := range []bool{false, true} {
		w := filled(t)
		w.isCached = true
		w.close()
		w.open(false)
		w.compact("b")
		w.add("d", "status", "queued", "color", "green")
		w.add("e", "status", "queued")
		w.caughtUp()
		w.edit(func(text string) string { return strings.Replace(text, "color: green", "color: blue", 1) })
		w.reconcile()
		w.caughtUp()
		if !strings.Contains(w.lines(), "color=blue") {
			t.Fatalf("nothing was edited:\n%s\n%s", w.lines(), w.read("tasks.md"))
		}
		if ends {
			w.close()
			if index := w.read(indexName); !strings.Contains(index, `"Edited":[`) { // who looks at a large file asks for it
				t.Error("the cache does not know which records were edited")
			}
			w.openLike("after an edit", w.lines(), true)
		}
		w.add("e", "status", "running")
		w.caughtUp()
		w.edit(func(text string) string { return strings.Replace(text, "color: blue", "color: green", 1) })
		w.reconcile()
		w.caughtUp()
		must(t, os.Truncate(w.path("journal.md"), 150))
		w.add("f", "status", "queued")
		w.caughtUp()
		got := w.lines() + fmt.Sprint(strings.Contains(strings.Join(w.said, "\n"), "nothing was found"))
		w.close()
		if !ends {
			want = got
		} else if got != want {
			t.Errorf("after a start from the cache\n%s\nwithout an end\n%s", got, want)
		}
	}
}
