package memory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

// DefaultLessons is the note of a workspace that lessons are added to.
const DefaultLessons = "memory/lessons.md"

// Bounds of lessons.
const (
	maxLesson  = 500       // characters of one
	maxLessons = 256 << 10 // bytes of their file; then some must be removed before one is added
)

// ErrFull says that there is no room for another lesson.
var ErrFull = errors.New("the file of the lessons is full")

// A Lesson is something worth knowing for later tasks: one line of a note.
type Lesson struct {
	ID     string `json:"id"`               // first 8 digits of the hash of what it says
	Line   int    `json:"line"`             // in the note
	Date   string `json:"date,omitempty"`   // 2026-11-22
	Text   string `json:"text"`             // on one line
	Source string `json:"source,omitempty"` // who says so, such as "task 0198…"
}

// NewLesson makes one line of a text: blanks for line breaks, no mark of a heading
// or list before it, at most 500 characters.
func NewLesson(text, source string, now time.Time) Lesson {
	text = strings.TrimLeft(oneLine(text), "#-*>| ")
	if utf8.RuneCountInString(text) > maxLesson {
		text = strings.TrimSpace(string([]rune(text)[:maxLesson-1])) + "…"
	}
	source = oneLine(source)
	l := Lesson{Date: now.Format(time.DateOnly), Text: text, Source: source}
	read, _ := parseLesson(l.String()) // so that it is known again, whatever it looks like
	l.ID = read.ID
	return l
}

// oneLine makes one line of a text.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
	return strings.Join(strings.Fields(text), " ")
}

// lessonID is the same for lessons that say the same.
func lessonID(text string) string { return hashOf(sameText(text))[:8] }

// String gives the line of the note.
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

// Lessons gives the lessons in a note, in its order; none if there is no such file.
func Lessons(workspace, name string) ([]Lesson, error) {
	text, err := readLessons(workspace, name)
	if err != nil {
		return nil, err
	}
	return parseLessons(text), nil
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
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // the file stays open
	if flag&os.O_CREATE != 0 {
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return nil, err
		}
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

// AddLessons adds those that the note does not have yet, as long as they have at
// most room characters in all (0: any number), and gives them.
func AddLessons(workspace, name string, list []Lesson, room int) (added []Lesson, err error) {
	text, err := readLessons(workspace, name)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, l := range parseLessons(text) {
		known[l.ID] = true
	}
	var b bytes.Buffer
	switch {
	case len(text) == 0:
		b.WriteString("# Lessons\n\n")
	case text[len(text)-1] != '\n':
		b.WriteByte('\n')
	}
	used := 0
	for _, l := range list {
		size := utf8.RuneCountInString(l.Text)
		if l.Text == "" || known[l.ID] || room > 0 && used+size > room {
			continue
		}
		known[l.ID] = true
		used += size
		added = append(added, l)
		b.WriteString(l.String() + "\n")
	}
	switch {
	case len(added) == 0:
		return nil, nil
	case len(text)+b.Len() > maxLessons:
		return nil, fmt.Errorf("%w: %s has %d bytes; remove some with stint lessons rm", ErrFull, name, len(text))
	}
	f, err := openLessons(workspace, name, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("add a lesson: %w", err)
	}
	_, err = f.Write(b.Bytes())
	return added, errors.Join(err, f.Close())
}

// RemoveLesson takes the lesson with that id, or with an id that begins so, out of a
// note. fs.ErrNotExist says that there is none.
func RemoveLesson(workspace, name, id string) (gone Lesson, err error) {
	text, err := readLessons(workspace, name)
	if err != nil {
		return gone, err
	}
	if id == "" {
		return gone, fmt.Errorf("an id is missing: %w", fs.ErrNotExist)
	}
	var kept bytes.Buffer
	for line := range bytes.Lines(text) {
		l, ok := parseLesson(string(line))
		switch {
		case !ok || !strings.HasPrefix(l.ID, id):
			kept.Write(line)
		case gone.ID != "" && gone.ID != l.ID:
			return Lesson{}, fmt.Errorf("%q is the beginning of several ids: %s, %s", id, gone.ID, l.ID)
		default:
			gone = l
		}
	}
	if gone.ID == "" {
		return gone, fmt.Errorf("there is no lesson %q in %s: %w", id, name, fs.ErrNotExist)
	}
	if err := replaceLessons(workspace, name, text, kept.Bytes()); err != nil {
		return Lesson{}, fmt.Errorf("remove a lesson: %w", err)
	}
	return gone, nil
}

// replaceLessons puts a new file in the place of a note that had the text before.
func replaceLessons(workspace, name string, before, text []byte) error {
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is written to it
	fi, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%s is a link: take the line out by hand", name)
	}
	fresh := name + ".stint-tmp"
	_ = root.Remove(fresh) // what a crash has left
	f, err := root.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fi.Mode().Perm())
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
	return nil
}
