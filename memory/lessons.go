package memory

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"stint/ledger/durable"
	"stint/ledger/lazy"
	"stint/memory/care"
)

// DefaultLessons is the note of a workspace that lessons are added to.
const DefaultLessons = "memory/lessons.md"

// MaxLesson is how many characters a lesson has at most.
const MaxLesson = 500

// maxLessons is how many bytes their file has at most; then some must be removed before one is added.
const maxLessons = care.MaxFile

// ErrFull means that there is no room for another lesson.
var ErrFull = errors.New("the file of the lessons is full")

// ErrNoLesson means that no lesson has that id, or that several begin with it.
var ErrNoLesson = errors.New("no such lesson")

// A Lesson is something worth knowing for later tasks: one line of a note.
type Lesson struct {
	ID     string `json:"id"`               // first 8 digits of the hash of what it says
	Line   int    `json:"line,omitempty"`   // in the note
	Date   string `json:"date,omitempty"`   // 2026-11-22
	Text   string `json:"text"`             // on one line
	Source string `json:"source,omitempty"` // who says so, such as "task 0198…"
}

// leadingMarks are those of headings, lists, quotes and tables, each with a blank behind it: "-1", "--force" and "*.go" are words.
var leadingMarks = lazy.Regexp(`^((#{1,6}|[-*>|])( |$))+`)

// NewLesson makes one line of a text: blanks for line breaks, no mark of a heading
// or list before it, at most 500 characters. What looks like the state of an entry of governed
// notes is text: else a lesson could set its own state, or take the id of another entry.
func NewLesson(text, source string, now time.Time) Lesson {
	text = OneLine(leadingMarks().ReplaceAllString(OneLine(text, 0), ""), MaxLesson)
	text = strings.ReplaceAll(text, "<!-- stint ", "‹!-- stint ")
	source = OneLine(source, 0)
	l := Lesson{Date: now.Format(time.DateOnly), Text: text, Source: source}
	read, _ := parseLesson(l.String()) // so that it is known again, whatever it looks like
	l.ID = read.ID
	return l
}

// OneLine makes one line of at most so many characters of a text, without what drives
// a terminal or reorders what is shown; 0: of any length. A cut one ends with an ellipsis.
func OneLine(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if IsUnseen(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
	text = strings.Join(strings.Fields(text), " ")
	if most > 0 && utf8.RuneCountInString(text) > most {
		text = strings.TrimSpace(string([]rune(text)[:most-1])) + "…"
	}
	return text
}

// lessonID is the same for lessons that say the same.
func lessonID(text string) string { return hashOf(sameText(text))[:8] }

// String returns the line of the note.
func (l Lesson) String() string {
	s := "- "
	if l.Date != "" {
		s += l.Date + " "
	}
	s += l.Text
	if l.Source != "" {
		s += " (" + l.Source + ")"
	}
	return s
}

// parseLesson reads a line of a note; ok is false if it is no lesson.
func parseLesson(line string) (l Lesson, ok bool) {
	line, _, _ = care.Cut(line)
	text, ok := strings.CutPrefix(strings.TrimSpace(line), "- ")
	if !ok {
		return l, false
	}
	if day, rest, found := strings.Cut(text, " "); found {
		if _, err := time.Parse(time.DateOnly, day); err == nil {
			l.Date, text = day, rest
		}
	}
	if i := strings.LastIndex(text, " ("); i > 0 && strings.HasSuffix(text, ")") && strings.HasPrefix(text[i+2:], "task ") {
		l.Source, text = text[i+2:len(text)-1], text[:i]
	}
	l.Text, l.ID = text, lessonID(text)
	return l, l.Text != ""
}

// Lessons returns the lessons in a note, in its order; none if there is no such file.
func Lessons(workspace, name string) ([]Lesson, error) {
	text, err := readLessons(workspace, name)
	return parseLessons(text), err
}

func parseLessons(text []byte) (list []Lesson) {
	no := 0
	for line := range bytes.Lines(text) {
		no++
		if l, ok := parseLesson(string(line)); ok {
			l.Line = no
			list = append(list, l)
		}
	}
	return list
}

// openLessons opens a note of a workspace. No path and no link leads outside.
func openLessons(workspace, name string, flag int) (*os.File, error) {
	root, err := openRoot(workspace)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // the file stays open
	if err := notOfGit(workspace, name); err != nil {
		return nil, err
	}
	f, err := root.OpenFile(name, flag|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s is no regular file", name), err, f.Close())
	}
	return f, nil
}

// notOfGit refuses a note that a link has put among git's own files, where a line of text is configuration, or a command.
func notOfGit(workspace, name string) error {
	workspace, err := filepath.EvalSymlinks(workspace)
	if err != nil {
		return err
	}
	for ; name != "." && name != "/"; name = path.Dir(name) { // each of its directories too: they are made
		real, err := filepath.EvalSymlinks(filepath.Join(workspace, name))
		if _, missing := os.Lstat(filepath.Join(workspace, name)); errors.Is(missing, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s is a link that leads nowhere: %w", name, err)
		}
		inside, err := filepath.Rel(workspace, real)
		if err != nil || slices.ContainsFunc(strings.Split(inside, string(filepath.Separator)), func(s string) bool { return strings.EqualFold(s, ".git") }) {
			return fmt.Errorf("%s is among the files of git; take the link out, or name another note", name)
		}
	}
	return nil
}

// lockPatience is how long a change of a note waits for that of another.
const lockPatience = 10 * time.Second

// lockLessons keeps others from changing a note, also in another process, until
// unlock: by its directory, which is made, since the note itself may be replaced.
func lockLessons(workspace, name string) (unlock func(), err error) {
	root, err := openRoot(workspace)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // the directory stays open
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return nil, err
	}
	dir, err := root.Open(path.Dir(name))
	if err != nil {
		return nil, err
	}
	held, err := durable.TryLock(dir)
	for begun := time.Now(); !held && err == nil && time.Since(begun) < lockPatience; held, err = durable.TryLock(dir) {
		time.Sleep(10 * time.Millisecond)
	}
	if !held {
		return nil, errors.Join(fmt.Errorf("lock the directory of %s: %w", name, cmp.Or(err, error(syscall.EWOULDBLOCK))), dir.Close())
	}
	return func() { _ = dir.Close() }, nil // which unlocks it
}

func readLessons(workspace, name string) ([]byte, error) {
	f, err := openLessons(workspace, name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the lessons: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	text, err := io.ReadAll(io.LimitReader(f, maxLessons+1))
	if len(text) > maxLessons {
		return nil, fmt.Errorf("%w: %s has more than %d bytes; take out by hand what is of no use any more", ErrFull, name, maxLessons)
	}
	return text, err
}

// AddLessons adds those that the note does not have yet, as long as they have at most room characters in all
// (0: any number), and returns them; left are those for which there was no room.
func AddLessons(workspace, name string, list []Lesson, room int) (added, left []Lesson, err error) {
	unlock, err := lockLessons(workspace, name)
	if err != nil {
		return nil, nil, fmt.Errorf("add a line: %w", err)
	}
	defer unlock()
	text, err := readLessons(workspace, name)
	if err != nil {
		return nil, nil, err
	}
	known := map[string]bool{}
	for _, l := range parseLessons(text) {
		known[l.ID] = true
	}
	var b strings.Builder
	if len(text) == 0 {
		b.WriteString("# Lessons\n\n")
	}
	used := 0
	for _, l := range list {
		if l.Text == "" || known[l.ID] {
			continue
		}
		known[l.ID] = true
		size := utf8.RuneCountInString(l.Text)
		if room > 0 && used+size > room {
			left = append(left, l)
			continue
		}
		used += size
		added = append(added, l)
		b.WriteString(l.String() + "\n")
	}
	switch {
	case len(added) == 0:
		return nil, left, nil
	case len(text)+b.Len() > maxLessons:
		return nil, nil, fmt.Errorf("%w: %s has %d bytes; remove some with stint lessons rm", ErrFull, name, len(text))
	}
	return added, left, addLines(workspace, name, b.String())
}

// AddNote adds a line to a note of a workspace, which is made if it is missing.
func AddNote(workspace, name string, l Lesson) error {
	unlock, err := lockLessons(workspace, name)
	if err != nil {
		return fmt.Errorf("add a line: %w", err)
	}
	defer unlock()
	return addLines(workspace, name, l.String()+"\n")
}

// addLines adds lines to a note whose lock is held, which is made if it is missing.
func addLines(workspace, name, lines string) error {
	f, err := openLessons(workspace, name, os.O_RDWR|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return fmt.Errorf("add a line: %w", err)
	}
	last := []byte{'\n'}
	fi, err := f.Stat()
	if err == nil && fi.Size() > 0 {
		_, err = f.ReadAt(last, fi.Size()-1)
	}
	if last[0] != '\n' {
		lines = "\n" + lines
	}
	if err == nil {
		_, err = f.WriteString(lines)
	}
	return errors.Join(err, f.Close())
}

// Find returns the lesson of a list with that id, or with an id that begins so.
func Find(list []Lesson, id string) (l Lesson, err error) {
	for _, other := range list {
		switch {
		case id == "" || !strings.HasPrefix(other.ID, id) || other.ID == l.ID:
		case l.ID != "":
			return Lesson{}, fmt.Errorf("%w: %q is the beginning of several ids, such as %s and %s", ErrNoLesson, id, l.ID, other.ID)
		default:
			l = other
		}
	}
	if l.ID == "" {
		return l, fmt.Errorf("%w: %q", ErrNoLesson, id)
	}
	return l, nil
}

// RemoveLesson takes the lesson with that id, or with an id that begins so, out of a note, as often as it
// stands there, with what a person has written below it, indented deeper: further lines, and bullets that say
// nothing without it. Those stand below its text: one that is indented by a blank less is a lesson beside it.
func RemoveLesson(workspace, name, id string) (Lesson, error) {
	unlock, err := lockLessons(workspace, name)
	if err != nil {
		return Lesson{}, fmt.Errorf("remove a lesson: %w", err)
	}
	defer unlock()
	text, err := readLessons(workspace, name)
	if err != nil {
		return Lesson{}, err
	}
	gone, err := Find(parseLessons(text), id)
	if err != nil {
		return Lesson{}, err
	}
	var kept []byte
	depth := -1 // of a lesson that goes, as long as lines below it are indented deeper
	for line := range bytes.Lines(text) {
		l, ok := parseLesson(string(line))
		switch in := indent(line); {
		case len(bytes.TrimSpace(line)) == 0:
		case depth >= 0 && in > depth && (!ok || in >= depth+len("- ")):
			continue
		case ok && l.ID == gone.ID:
			depth = in
			continue
		default:
			depth = -1
		}
		kept = append(kept, line...)
	}
	if err := replaceLessons(workspace, name, text, kept); err != nil {
		return Lesson{}, fmt.Errorf("remove a lesson: %w", err)
	}
	return gone, nil
}

// indent returns the column in which a line begins.
func indent(line []byte) (column int) {
	for _, c := range line {
		if c != ' ' && c != '\t' {
			break
		}
		if column++; c == '\t' {
			column += 3 - (column-1)%4
		}
	}
	return column
}

// replaceLessons puts a new file, durable, in the place of a note that had the text before, or that was not there.
func replaceLessons(workspace, name string, before, text []byte) error {
	root, err := openRoot(workspace)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is written to it
	mode := fs.FileMode(0o644)
	fi, err := root.Lstat(name)
	switch {
	case err == nil && !fi.Mode().IsRegular():
		return fmt.Errorf("%s is a link: take the line out by hand", name)
	case err == nil:
		mode = fi.Mode().Perm()
	case before == nil && errors.Is(err, fs.ErrNotExist):
		err = root.MkdirAll(path.Dir(name), 0o755)
	}
	if err != nil {
		return err
	}
	fresh := name + ".stint-tmp"
	_ = root.Remove(fresh) // what a crash has left
	f, err := root.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if now, readErr := readLessons(workspace, name); err == nil && (readErr != nil || !bytes.Equal(now, before)) {
		err = fmt.Errorf("%s has just been changed by someone else; try again", name)
	}
	if err == nil {
		err = root.Rename(fresh, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(fresh))
	}
	dir, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
