package care

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"stint/ledger/lazy"
)

// An Entry is an entry of a governed file.
type Entry struct {
	State
	Line      int    `json:"line"` // from 1, in the file or in its archive
	Text      string `json:"text"` // all its lines; those below the first without its indentation
	InArchive bool   `json:"in_archive,omitempty"`
	Wrong     string `json:"wrong,omitempty"` // why it is left alone; such an entry has no id

	begin, head, rest, end int // offsets: of its first line, that line's end without and with the line break, its end
}

var fence = lazy.Regexp("^(?:(`{3,})[^`]*|(~{3,}).*|<!--.*)$")

// Parse returns the entries of a text.
func Parse(text []byte) (list []Entry) {
	open, openIn := "", false // what ends a block of code or a comment, and whether an entry has the block
	inEntry, need := false, 0 // how far the further lines of an entry are indented at least
	end, no := 0, 0
	for line := range bytes.Lines(text) {
		raw := strings.TrimRight(string(line), "\r\n")
		body := strings.TrimPrefix(raw, "\ufeff") // the mark of a file stays at its head
		begin, head := end+len(raw)-len(body), end+len(raw)
		mark := strings.TrimLeft(body, " \t")
		in := len(strings.ReplaceAll(body[:len(body)-len(mark)], "\t", "    "))
		end, no = end+len(line), no+1
		if mark == "" {
			continue
		}
		if inEntry && in < need {
			if inEntry = false; openIn {
				open, openIn = "", false
			}
		}
		wasOpen := open != ""
		switch f := fence().FindStringSubmatch(mark); {
		case open == "-->" && strings.Contains(mark, open), wasOpen && strings.HasPrefix(mark, open) && strings.Trim(mark, open[:1]+" \t") == "":
			open = ""
		case !wasOpen && f != nil && (inEntry || in < 4):
			if open, openIn = f[1]+f[2], inEntry; open == "" && !strings.Contains(mark, "-->") {
				open = "-->"
			}
		}
		said, state, err := Cut(mark)
		switch {
		case inEntry:
			e := &list[len(list)-1]
			e.Text, e.end = strings.TrimSpace(e.Text+strings.Repeat("\n", 1+bytes.Count(text[e.end:begin], []byte("\n")))+strings.Repeat(" ", in-need)+said), end
		case !wasOpen && in == 0 && strings.HasPrefix(said, "- ") && strings.Trim(said, "- \t") != "":
			e := Entry{State: state, Line: no, Text: strings.TrimSpace(said[2:]), begin: begin, head: head, rest: end, end: end}
			if i := strings.LastIndex(said, "<!--"); i >= 0 && !strings.Contains(said[i:], "-->") {
				err = errors.New("its first line has a comment that ends on another line")
			}
			if err != nil {
				e.ID, e.Wrong = "", err.Error()
			}
			inEntry, need, list = true, len(said)-len(strings.TrimLeft(said[1:], " ")), append(list, e)
		}
	}
	return list
}

// line returns the first line of the entry with another state, and with another wording if that is not "".
func (e Entry) line(text []byte, s State, wording string) []byte {
	said, _, _ := Cut(string(text[e.begin:e.head]))
	if wording != "" {
		said = "- " + wording
	}
	return []byte(strings.TrimRight(said, " \t") + " " + s.comment())
}

// MaxFile is how many bytes a file of notes has at most.
const MaxFile = 256 << 10

// Errors of a change that is not made. The entry stays as it is.
var (
	ErrGone    = errors.New("the entry is no longer there")
	ErrChanged = errors.New("the entry was changed by someone else in the meantime")
	ErrText    = errors.New("the entry could not be read again: it has a stray line break or the mark of a comment, or stands behind code that does not end")
)

// Files are the texts of a governed file and of its archive.
type Files [2][]byte

// Entries returns the entries of both. Those of the archive are archived, whatever their comment says; one that stands in both,
// as a crash may leave it, is that of the file. One with the id of another above it is a copy, and has none.
func (f Files) Entries() []Entry {
	seen, list := map[string]bool{"": true}, Parse(f[0])
	for i := range list {
		if seen[list[i].ID] {
			list[i].ID = ""
		}
		seen[list[i].ID] = true
	}
	for _, e := range Parse(f[1]) {
		if !seen[e.ID] {
			e.Status, e.InArchive = Archived, true
			seen[e.ID], list = true, append(list, e)
		}
	}
	return list
}

func find(list []Entry, id string) (e Entry, ok bool) {
	if i := slices.IndexFunc(list, func(e Entry) bool { return e.ID == id && id != "" }); i >= 0 {
		return list[i], true
	}
	return e, false
}

// Adopt gives an id to each entry of the file that has none, and a time when it is due to those that have
// none, while there is room: also for what jobs add to each. newID returns another one each time.
func (f Files) Adopt(newID func() string, next time.Time) Files {
	const spare = 64
	taken, list, size := map[string]bool{}, f.Entries(), len(f[0])
	for _, e := range list {
		if taken[e.ID] = true; e.ID != "" && !e.InArchive {
			size += spare
		}
	}
	var out []byte
	at := 0
	for _, e := range list {
		isUndated := e.Next.IsZero() && e.Tries < MaxTries
		if e.Wrong != "" || e.InArchive || e.ID != "" && !isUndated {
			continue
		}
		for isNew := e.ID == ""; e.ID == "" || isNew && taken[e.ID]; {
			e.ID = newID()
		}
		if isUndated {
			e.Next = next
		}
		line := e.line(f[0], e.State, "")
		if size += len(line) - (e.head - e.begin) + spare; size > MaxFile {
			break
		}
		out = append(append(out, f[0][at:e.begin]...), line...)
		at, taken[e.ID] = e.head, true
	}
	f[0] = append(out, f[0][at:]...)
	return f
}

// Apply makes a change of the entry that asked was when its verdict was asked for, and moves it between the
// file and its archive with its status. before is the entry as it stands there now, with what a person
// changed in its comment meanwhile, and after what becomes of it: the same, if its job has changed it
// already. The error wraps ErrGone, ErrChanged, ErrStep or ErrText; then nothing is changed.
func (f Files) Apply(asked Entry, c Change) (out Files, before, after Entry, err error) {
	list := f.Entries()
	before, ok := find(list, asked.ID)
	state := before.State
	switch {
	case !ok:
		err = fmt.Errorf("%w: %s", ErrGone, asked.ID)
	case c.Job != "" && c.Job == before.Job:
		return f, before, before, nil
	case before.Text != asked.Text || before.Job != asked.Job:
		err = fmt.Errorf("%w: %s", ErrChanged, asked.ID)
	default:
		state, err = before.State.after(c)
	}
	if err != nil {
		return f, before, before, err
	}
	out, from, to := f, 0, 0
	if before.InArchive {
		from = 1
	}
	if state.Status == Archived {
		to = 1
	}
	text, end, lines := f[from], before.rest, strings.Split(c.Text, "\n")
	if c.Text != "" {
		end = before.end
	}
	block, lineEnd := before.line(text, state, lines[0]), text[before.head:before.rest]
	for _, line := range lines[1:] {
		block = append(block, cmp.Or(string(lineEnd), "\n")+strings.TrimRight("  "+line, " ")...)
	}
	out[from] = slices.Concat(text[:before.begin], block, lineEnd, text[end:])
	if from != to {
		e, _ := find(Parse(out[from]), state.ID)
		block = out[from][e.begin:e.end]
		left, _ := find(Parse(f[to]), state.ID) // by a crash; else it is empty
		out[to] = slices.Concat(f[to][:left.begin], f[to][left.end:])
		if n := len(out[to]); n > 0 && out[to][n-1] != '\n' {
			out[to] = append(out[to], '\n')
		}
		out[from], out[to] = slices.Concat(out[from][:e.begin], out[from][e.end:]), append(out[to], block...)
	}
	now := out.Entries()
	after, ok = find(now, state.ID)
	if want := cmp.Or(c.Text, before.Text); !ok || len(now) != len(list) || strings.Contains(c.Text, "<!--") || after.Text != want || after.comment() != state.comment() {
		return f, before, before, fmt.Errorf("%w: %q", ErrText, want)
	}
	return out, before, after, nil
}
