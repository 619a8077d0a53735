package agent

import (
	"bytes"
	"encoding/json"
)

const (
	maxLine  = 2 * MaxAnswer // a longer line is passed over; half of it may be what JSON adds to a text
	longLine = 256 << 10     // from here on only lines that matter are kept whole
	maxText  = 4 << 10       // of a text of other lines
)

// lines cuts a stream into lines. Agents write one event a line, however long: a
// command that prints 50 MB is one line of 50 MB with codex. The texts
// of such a line are cut, unless keep says, by its first part, that it matters.
type lines struct {
	line func(b []byte) // gets each whole line without its end; b is reused
	keep func(b []byte) bool

	buf     []byte
	decided bool // keep was asked about this line
	skip    bool // the rest of this line is passed over
	cut     bool // the texts of this line are cut
	scan
	skipped int // lines passed over because they are too long to be read
}

// A scan is where in a line with cut texts the next byte is.
type scan struct {
	inText  bool
	text    int  // bytes since the last quote
	escaped int  // bytes that are still to come of an escape
	drop    bool // the last byte was left out
}

// feed takes the next bytes of the stream.
func (l *lines) feed(p []byte) {
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			l.add(p)
			return
		}
		if len(l.buf) == 0 && !l.skip {
			l.line(p[:i]) // whole: no need to copy it
		} else {
			l.add(p[:i])
			l.end()
		}
		p = p[i+1:]
	}
}

// end takes the last line of a stream, which may lack its line end.
func (l *lines) end() {
	if !l.skip && len(l.buf) > 0 {
		l.line(l.buf)
	}
	l.decided, l.skip, l.cut, l.scan = false, false, false, scan{}
	if l.buf = l.buf[:0]; cap(l.buf) > longLine {
		l.buf = nil
	}
}

func (l *lines) add(p []byte) {
	if l.skip {
		return
	}
	if !l.decided && len(l.buf)+len(p) > longLine {
		l.decided = true
		head := l.buf
		if len(head) == 0 {
			head = p
		}
		l.skip = !bytes.HasPrefix(head, []byte("{")) // no event begins otherwise
		if l.cut = !l.skip && !l.keep(head); l.cut {
			before := l.buf
			l.buf = nil
			l.shorten(before)
		}
	}
	if l.cut {
		l.shorten(p)
		p = nil
	}
	if len(l.buf)+len(p) > maxLine {
		l.skip = true
		l.skipped++
	}
	if l.skip {
		l.buf = nil
		return
	}
	l.buf = append(l.buf, p...)
}

// shorten adds to the line what comes next of it, without what its texts have beyond maxText.
func (l *lines) shorten(p []byte) {
	for _, c := range p {
		switch {
		case l.escaped > 0:
			if l.escaped--; c == 'u' {
				l.escaped = 4
			}
		case c == '"':
			l.inText, l.drop, l.text = !l.inText, false, 0
		default: // only here, since an escape stays whole
			l.drop = l.inText && l.text >= maxText
			if l.inText && c == '\\' {
				l.escaped = 1
			}
		}
		if l.text++; !l.drop {
			l.buf = append(l.buf, c)
		}
	}
}

// HeadValue reads the beginning of a long event, as far as its plain values, and
// returns the string at a path of keys. Not ok says that it did not come to it.
func HeadValue(head []byte, path ...string) (value string, ok bool) {
	const prefix = 4 << 10
	dec := json.NewDecoder(bytes.NewReader(head[:min(len(head), prefix)]))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return "", false
	}
	for {
		key, err := dec.Token()
		if err != nil || key == json.Delim('}') {
			return "", false
		}
		if key != path[0] {
			var other json.RawMessage
			if dec.Decode(&other) != nil {
				return "", false // cut within it
			}
			continue
		}
		v, err := dec.Token()
		if err != nil {
			return "", false
		}
		if path = path[1:]; len(path) == 0 {
			value, ok = v.(string)
			return value, ok
		}
		if v != json.Delim('{') {
			return "", false
		}
	}
}
