package agent

import (
	"bytes"
	"encoding/json"
)

const (
	maxLine  = 64 << 20 // a longer line is passed over
	longLine = 1 << 20  // from here on only lines that matter are kept
)

// lines cuts a stream into lines. Codex writes one event a line, however long: a
// command that prints 50 MB is one line of 50 MB. Such a line is kept only if
// keep says, by its first part, that it matters.
type lines struct {
	line func(b []byte) // gets each whole line without its end; b is reused
	keep func(b []byte) bool

	buf     []byte
	decided bool // keep was asked about this line
	skip    bool // the rest of this line is passed over
	skipped int  // lines passed over because they are too long to be read
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
	l.decided, l.skip = false, false
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
		l.skip = !l.keep(l.buf)
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

// mayMatter reads the beginning of a long event and reports whether the rest may
// be worth keeping: false only for items that are known not to be an answer.
func mayMatter(head []byte) bool {
	const prefix = 4 << 10
	dec := json.NewDecoder(bytes.NewReader(head[:min(len(head), prefix)]))
	depth, inItem := 0, false
	for {
		key, err := dec.Token()
		if err != nil {
			return true
		}
		if d, ok := key.(json.Delim); ok {
			if d != '{' {
				return true
			}
			depth++
			continue
		}
		switch {
		case depth == 1 && key == "item":
			inItem = true
			continue // its value is the object whose keys come next
		case depth == 2 && inItem && key == "type":
			kind, err := dec.Token()
			return err != nil || kind == "agent_message"
		}
		if _, err := dec.Token(); err != nil { // a plain value
			return true
		}
	}
}
