package memory

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"stint/ledger/lazy"
	"stint/memory/care"
)

// Archive is the directory of a workspace with the entries that were archived, below it by the
// path of their file. No prompt has them.
const Archive = "memory/archive"

// DefaultGate is the file beside the configuration that says whether jobs may change entries of high risk.
const DefaultGate = "gate.md"

// ErrGate is the error for an entry of high risk while the gate is closed.
var ErrGate = errors.New("the gate is closed for entries of high risk")

// A Governed is a file of notes whose entries jobs take care of, as configured: the only files of
// a user's that they write, with its archive.
type Governed struct {
	Path      string `toml:"path"` // below the workspace
	Kind      string `toml:"kind"` // object type of its jobs: memory, experience or cognition
	Workspace string `toml:"workspace"`
	Gate      string `toml:"gate"` // absolute path, outside the workspace: agents write there
}

// Open returns nil, or while the gate is closed an error that wraps ErrGate and says why.
func (g Governed) Open() error {
	text, err := readLessons(path.Dir(g.Gate), path.Base(g.Gate))
	if err == nil && !care.Gate(text) {
		err = fmt.Errorf("%s needs the line state: open, and no other state", g.Gate)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrGate, err)
	}
	return nil
}

// ObjectID returns the object_id of the jobs of the entry with that id. It stays the same when the entry's text or status changes.
func (g Governed) ObjectID(id string) string { return g.Workspace + ":" + g.Path + "#" + id }

// Read returns the file and its archive. A file that is not there is empty. One that is reached through a
// link in the workspace is refused: it could be governed twice.
func (g Governed) Read() (f care.Files, err error) {
	dir, _ := filepath.EvalSymlinks(g.Workspace)
	if real, err := filepath.EvalSymlinks(filepath.Join(g.Workspace, g.Path)); err == nil && real != filepath.Join(dir, g.Path) {
		return f, fmt.Errorf("%s is a link, or below one; name %s itself", g.Path, real)
	}
	for i, name := range g.names() {
		if f[i], err = readLessons(g.Workspace, name); err != nil {
			return f, err
		}
	}
	return f, nil
}

// quiet is how long nobody must have written a file before it is changed: an editor that saves it in place
// may not have written all of it yet, and what it writes after a replacement is lost.
const quiet = 2 * time.Second

// IsBeingSaved reports whether somebody has just written the file or its archive.
func (g Governed) IsBeingSaved(now time.Time) bool {
	for _, name := range g.names() {
		fi, err := os.Stat(filepath.Join(g.Workspace, name))
		if err == nil && !now.Before(fi.ModTime()) && now.Sub(fi.ModTime()) < quiet { // of a time to come a clock was wrong
			return true
		}
	}
	return false
}

func (g Governed) names() [2]string { return [2]string{g.Path, path.Join(Archive, g.Path)} }

// Entries returns the entries of the file and of its archive. Those that have none first get an id and
// a time when they are due, as [care.Files.Adopt] has it.
func (g Governed) Entries(newID func() string, next time.Time) (list []care.Entry, err error) {
	err = g.change(func(f care.Files) (care.Files, error) {
		f = f.Adopt(newID, next)
		list = f.Entries()
		return f, nil
	})
	return list, err
}

// Apply is [care.Files.Apply] to the files as they are now. The error may also wrap ErrGate or ErrFull.
func (g Governed) Apply(asked care.Entry, c care.Change) (before, after care.Entry, err error) {
	if c.Text != "" {
		c.Text = entryText(c.Text, max(MaxLesson, 2*len(asked.Text))) // none loses its end
	}
	err = g.change(func(f care.Files) (out care.Files, err error) {
		if out, before, after, err = f.Apply(asked, c); err == nil && before.Risk == care.High {
			err = g.Open()
		}
		return out, err
	})
	return before, after, err
}

// heading is the mark that makes a heading of a line or of the one above it, also in a list or a quote.
var heading = lazy.Regexp(`^((?:(?:[-*+>]|\d+[.)]) +)*)(#{1,6}(?: |$)|=+$|-+$)`)

// entryText returns what an agent says as the text of an entry, of at most so many characters: its
// lines as they are indented, none of which is a heading or has the mark of a comment.
func entryText(text string, most int) string {
	text = leadingMarks().ReplaceAllString(strings.TrimSpace(text), "")
	if all := []rune(text); len(all) > most {
		text = string(all[:most-1]) + "…"
	}
	lines := strings.Split(strings.ReplaceAll(text, "\t", "    "), "\n")
	for i, line := range lines {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		lines[i] = strings.TrimRight(indent+heading().ReplaceAllString(OneLine(line, 0), `$1\$2`), " ")
	}
	return strings.NewReplacer("<!--", "‹!--", "-->", "--›").Replace(strings.TrimSpace(strings.Join(lines, "\n")))
}

// change replaces the file and its archive by what do returns; first the one that an entry moves
// to, so that a crash leaves it in both and never in none.
func (g Governed) change(do func(care.Files) (care.Files, error)) error {
	unlock, err := lockLessons(g.Workspace, g.Path)
	if err != nil {
		return err
	}
	defer unlock()
	f, err := g.Read()
	if err != nil {
		return err
	}
	out, err := do(f)
	order := []int{0, 1}
	if len(out[0]) <= len(f[0]) {
		order = []int{1, 0}
	}
	for _, i := range order {
		name := g.names()[i]
		switch {
		case err != nil || bytes.Equal(f[i], out[i]):
		case len(out[i]) > maxLessons:
			err = fmt.Errorf("%w: %s", ErrFull, name)
		default:
			err = replaceLessons(g.Workspace, name, f[i], out[i])
		}
	}
	return err
}
