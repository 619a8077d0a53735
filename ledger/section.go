package ledger

import (
	"bytes"
)

// form says how a field's value stands in the file.
type form uint8

const (
	formLine    form = iota // on the line of its key
	formBlock               // indented lines after "|"
	formEscaped             // indented lines after "|escaped", with backslash escapes
)

// A Field is one field of a section, as a view into the bytes it was read from. It is valid as long as those bytes are.
type Field struct {
	Key  []byte
	raw  []byte // formLine: the trimmed value; else the indented lines
	form form
	line int // lines below the section's heading
}

// Empty reports whether the field has no value, which unsets its key.
func (f *Field) Empty() bool { return f.form == formLine && len(f.raw) == 0 }

// Bytes returns the value. A one-line value is a view and costs nothing; a block is decoded into new memory.
func (f *Field) Bytes() []byte {
	switch f.form {
	case formBlock:
		return decodeBlock(f.raw)
	case formEscaped:
		return unescape(decodeBlock(f.raw))
	default:
		return f.raw
	}
}

// String returns a copy of the value.
func (f *Field) String() string { return string(f.Bytes()) }

// A Section is one record as it stands in a file: a view into the bytes it was
// read from, valid until the scanner that gave it moves on.
type Section struct {
	Kind   Kind
	ID     []byte
	Seq    uint64 // 0: written by a person
	Fields []Field
	Raw    []byte // heading to end line (or last line), with the final newline
	Off    int64  // offset of Raw in its file
	Line   int    // line of the heading, counted from 1

	lines int    // lines from the heading to the end line or last field
	keys  uint64 // of Fields, by keyBit; 0: they are not known
}

// keyBit returns the bit that a key shares with few others.
func keyBit[T string | []byte](key T) uint64 {
	return 1 << ((uint(len(key))*7 + uint(key[0]) + uint(key[len(key)-1])*5) & 63)
}

// Get returns the last field of that key, or nil.
func (s *Section) Get(key string) *Field {
	if key == "" || s.keys != 0 && s.keys&keyBit(key) == 0 { // as for most that are asked for
		return nil
	}
	for i := len(s.Fields) - 1; i >= 0; i-- {
		if string(s.Fields[i].Key) == key {
			return &s.Fields[i]
		}
	}
	return nil
}

// Value returns a copy of the last value of key, "" if there is none.
func (s *Section) Value(key string) string {
	if f := s.Get(key); f != nil {
		return f.String()
	}
	return ""
}

// LineOf returns the line of a field in its file.
func (s *Section) LineOf(f *Field) int { return s.Line + f.line }

// Record copies the section into a record of its own.
func (s *Section) Record() Record {
	r := Record{Kind: s.Kind, ID: string(s.ID), Seq: s.Seq, Fields: make([]Pair, len(s.Fields))}
	for i := range s.Fields {
		r.Fields[i] = Pair{string(s.Fields[i].Key), s.Fields[i].String()}
	}
	return r
}

// IsNote reports whether a record says no more than that a person's text has no effect.
func (s *Section) IsNote() bool { return s.Get(KeyAdopts) != nil && s.Get(KeyBy) == nil }

// Clone returns a section with bytes of its own.
func (s *Section) Clone() *Section {
	c, err := parseOne(bytes.Clone(s.Raw))
	if err != nil {
		panic("ledger: a section that was parsed does not parse again: " + err.Error())
	}
	c.Off, c.Line = s.Off, s.Line
	return c
}

// Encode returns the section that r becomes when it is written, read back from
// its bytes: the way from a record to the fold, the same live and on replay.
func Encode(r *Record) (*Section, error) {
	numbered := *r
	numbered.Seq = max(1, r.Seq) // a record that has none yet
	raw, err := AppendRecord(nil, &numbered)
	if err != nil {
		return nil, err
	}
	return parseOne(raw)
}

// Name returns kind and id, as the heading has them.
func (s *Section) Name() string { return string(s.Kind) + " " + string(s.ID) }

// Text returns the lines of a person's section that are no fields: they are kept.
func (s *Section) Text() []byte {
	if s.Seq > 0 {
		return nil
	}
	field := map[int]bool{0: true} // the heading
	for i := range s.Fields {
		f, lines := &s.Fields[i], 1
		if f.form != formLine && len(f.raw) > 0 {
			lines += 1 + bytes.Count(bytes.TrimSuffix(f.raw, newline), newline)
		}
		for n := range lines {
			field[f.line+n] = true
		}
	}
	var out []byte
	n := 0
	for line := range bytes.Lines(s.Raw) {
		if !field[n] && HasText(line) {
			out = append(out, line...)
		}
		n++
	}
	return out
}
