package task

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"stint/state"
)

// A Schema is what clients may send for a type: an unknown property is refused, as is one that is there twice,
// half of a surrogate pair, and what is not JSON in UTF-8.
type Schema struct {
	want   string // what a value must be, in words
	isTime bool
	isKey  bool // an idempotency key, which must not be empty
	items  *Schema
	fields []field
	byName map[string]int // places in fields

	done func(v reflect.Value, given [maxFields]string) // called with each object, and the names that its fields were sent by; nil: nobody
}

// A field is one of a struct.
type field struct {
	*Schema
	name  string // in JSON
	index int
}

// maxFields bounds the fields of a struct.
const maxFields = 64

// wants are what values of the kinds of Go must be.
var wants = map[reflect.Kind]string{
	reflect.String: "a text in quotes", reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.Slice: `a list such as ["a", "b"]`, reflect.Struct: "an object such as {…}",
}

// SchemaOf returns the schema of a type that clients send.
func SchemaOf(t reflect.Type) *Schema {
	if t.Kind() == reflect.Pointer {
		return SchemaOf(t.Elem())
	}
	s := &Schema{want: wants[t.Kind()]}
	switch {
	case t == reflect.TypeFor[time.Time]():
		s.want, s.isTime = `a time such as "2026-11-21T03:12:45Z"`, true
	case t.Kind() == reflect.Slice:
		s.items = SchemaOf(t.Elem())
	case t.Kind() == reflect.Struct:
		s.byName = map[string]int{}
		for f := range t.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
				s.byName[name] = len(s.fields)
				s.fields = append(s.fields, field{SchemaOf(f.Type), name, f.Index[0]})
			}
		}
	case s.want == "":
		panic("task: clients cannot send " + t.String())
	}
	return s
}

// find returns the place of the field with a name that was sent, without regard to capitals as encoding/json
// reads names, else -1, and puts the name into text.
func (s *Schema) find(name []byte, text *string) int {
	i, exact := s.byName[string(name)]
	if exact && s.fields[i].name == string(name) {
		*text = s.fields[i].name
		return i
	}
	if *text = string(name); exact {
		return i
	}
	for other, i := range s.byName {
		if strings.EqualFold(other, *text) {
			return i
		}
	}
	return -1
}

// unknown returns the sentence about a name that no field has.
func (s *Schema) unknown(name string) string {
	known, own := []string{}, []string{}
	for name, i := range s.byName {
		known, own = append(known, name), append(own, s.fields[i].name)
	}
	slices.Sort(known)
	if near := state.Nearest(name, known); near != "" {
		return fmt.Sprintf("unknown field %q; did you mean %s?", name, near)
	}
	slices.Sort(own)
	return fmt.Sprintf("unknown field %q; known are %s", name, strings.Join(slices.Compact(own), ", "))
}

// A Fault is something that is wrong in what a client has sent.
type Fault struct {
	At   string // such as query.limit or body.after[1]; "" or "body": the whole
	Text string

	offset  int     // in the text
	field   string  // of the outermost object
	label   string  // how the text itself calls what is wrong
	value   string  // its beginning, if it must be something else
	unknown *Schema // that has no such field; nil: it is something else
}

// Faults are what is wrong with a request.
type Faults []Fault

// Error implements error: one sentence that names each fault and where it is, without the value, which may be a whole prompt.
func (f Faults) Error() string {
	var out []string
	for _, one := range f {
		switch {
		case len(out) == maxComplaints:
			return "the request is not valid: " + strings.Join(append(out, "and more"), "; ")
		case one.At == "" || one.At == "body":
			out = append(out, one.Text)
		default:
			out = append(out, state.Cut(strings.ToValidUTF8(one.At, "\uFFFD"), 100)+": "+one.Text)
		}
	}
	return "the request is not valid: " + strings.Join(out, "; ")
}

// maxComplaints bounds the faults of one answer. Once there are more, the rest is not looked at.
const maxComplaints = 10

// NotJSON is what the fault of a body begins with that is no JSON text at all: the answer is 400 and not 422.
const NotJSON = "the body is not JSON: "

// A decoder puts one JSON text into a value in one pass, as encoding/json does, and notes what is wrong with it.
type decoder struct {
	data []byte
	at   int
	path []step // to the present value

	faults Faults
	bad    bool // the rest is not looked at: it is no JSON, or has too many faults
	long   bool // there are more tasks than are taken
}

// A step is one of the way from a body to a value: a name, as it was sent and the field's own, or a place in a list.
type step struct {
	sent, name string
	index      int // -1: it is a name
}

// Decode reads data into v, which is of the schema's type. What is wrong is Faults, or [ErrLongList].
func (s *Schema) Decode(data []byte, v reflect.Value) error {
	d := decode(data, s, v)
	return d.err()
}

func decode(data []byte, s *Schema, v reflect.Value) decoder {
	d := decoder{data: data}
	d.value(s, v, false)
	d.next()
	return d
}

// err returns why the text is refused; nil if it is not.
func (d *decoder) err() error {
	if !utf8.Valid(d.data) { // encoding/json would put U+FFFD there; a prompt has to arrive as it was sent
		return Faults{{Text: NotJSON + "it is not valid UTF-8; convert it, for example with: iconv -t UTF-8", offset: firstInvalid(string(d.data))}}
	}
	if d.long {
		return ErrLongList
	}
	if isWhole := !d.bad && d.at == len(d.data); !isWhole {
		var syntax *json.SyntaxError
		if err := json.Unmarshal(d.data, new(json.RawMessage)); errors.As(err, &syntax) {
			return Faults{{Text: NotJSON + err.Error(), offset: min(int(syntax.Offset), len(d.data))}}
		}
	} else if d.faults == nil {
		return nil
	}
	return d.faults
}

// inFile returns the error of a text that stands in a file, about the first thing that is wrong; name "": it is in none.
func (d *decoder) inFile(name string) error {
	err := d.err()
	if err == nil {
		return nil
	}
	faults, _ := err.(Faults)
	first := slices.MinFunc(append(faults, Fault{offset: len(d.data)}), func(a, b Fault) int { return a.offset - b.offset })
	message, hint, _ := strings.Cut(strings.TrimPrefix(first.Text, NotJSON), "; ")
	hint = cmp.Or(hint, "fix the JSON there")
	switch {
	case d.long:
		message, hint, first.offset = ErrLongList.Message, ErrLongList.Hint, d.at
	case len(bytes.TrimSpace(d.data)) == 0:
		message, hint, first.offset = "it is empty", `write for example {"prompt": "what to do"}`, 0
	case first.unknown != nil:
		message, hint = first.unknown.unknown(first.label), ""
	case first.value != "":
		message, hint = cmp.Or(first.label, "here")+" must be "+strings.TrimPrefix(first.Text, expected)+", not "+first.value, "write it so"
	case strings.HasSuffix(message, "after top-level value"):
		hint = "write several tasks as a list: [{…}, {…}]"
	}
	if name != "" {
		message = fmt.Sprintf("%s:%d: %s", name, 1+bytes.Count(d.data[:first.offset], []byte("\n")), message)
	}
	return Wrong(first.field, hint, "%s", message)
}

// note notes a fault of the present value.
func (d *decoder) note(f Fault) {
	if d.bad = d.bad || len(d.faults) > maxComplaints; d.bad {
		return
	}
	f.At, f.offset = "body", d.at
	for _, s := range d.path {
		switch {
		case s.index >= 0:
			place := "[" + strconv.Itoa(s.index) + "]"
			if f.At += place; f.label != "" {
				f.label += place
			}
		default:
			f.At += "." + s.name
			f.label, f.field = s.sent, cmp.Or(f.field, s.name)
		}
	}
	d.faults = append(d.faults, f)
}

// expected begins the text about a value that must be something else.
const expected = "expected "

// refuse notes a fault of the next value, and skips that.
func (d *decoder) refuse(f Fault) {
	dec, raw := json.NewDecoder(bytes.NewReader(d.data[d.at:])), json.RawMessage(nil)
	d.bad = d.bad || dec.Decode(&raw) != nil
	f.value = state.Cut(strings.Join(strings.Fields(string(raw[:min(len(raw), 200)])), " "), 40)
	d.note(f)
	d.at += int(dec.InputOffset())
}

// next skips blanks, and returns the byte behind them; 0: there is none.
func (d *decoder) next() byte {
	for ; d.at < len(d.data); d.at++ {
		if c := d.data[d.at]; c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c
		}
	}
	return 0
}

// take skips blanks and a byte that must be next.
func (d *decoder) take(c byte) {
	d.bad = d.bad || d.next() != c
	d.at = min(d.at+1, len(d.data))
}

// value reads the next value, which may be null if it is a property's.
func (d *decoder) value(s *Schema, v reflect.Value, isProperty bool) {
	c, start, isRead := d.next(), d.at, true
	if v.Kind() == reflect.Pointer && c != 'n' {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch kind := v.Kind(); {
	case c == 'n':
		if isRead = (isProperty || kind == reflect.Pointer) && string(d.word()) == "null"; isRead {
			v.SetZero()
		}
	case c == '"' && s.isTime:
		isRead = v.Addr().Interface().(*time.Time).UnmarshalText(d.text()) == nil || d.bad
	case c == '"' && kind == reflect.String:
		text := d.text()
		if v.SetString(string(text)); s.isKey && len(text) == 0 {
			d.note(Fault{Text: "the idempotency key is empty; give the key a value, or leave it out"})
		}
	case c == '[' && kind == reflect.Slice:
		d.list(s, v)
	case c == '{' && kind == reflect.Struct && !s.isTime:
		d.object(s, v)
	default: // what is cut off where a word ends is no value either
		isRead = json.Unmarshal(d.word(), v.Addr().Interface()) == nil
	}
	if !isRead {
		d.at = start
		d.refuse(Fault{Text: expected + s.want})
	}
}

// word reads a number, true, false or null.
func (d *decoder) word() []byte {
	start := d.at
	for d.at < len(d.data) && strings.IndexByte(" \t\r\n,]}", d.data[d.at]) < 0 {
		d.at++
	}
	return d.data[start:d.at]
}

// text reads a string.
func (d *decoder) text() []byte {
	escaped := false
	if d.next() != '"' {
		d.bad = true
		return nil
	}
	for i := d.at + 1; i < len(d.data) && d.data[i] >= ' '; i++ {
		switch d.data[i] {
		case '\\':
			escaped = true
			i++
		case '"':
			quoted := d.data[d.at : i+1]
			if d.at = i + 1; !escaped {
				return quoted[1 : len(quoted)-1]
			}
			var text string
			d.bad = d.bad || json.Unmarshal(quoted, &text) != nil
			if n := strings.Count(text, "\uFFFD"); n > 0 && n > replacements(quoted) { // encoding/json has put one there
				d.note(Fault{Text: `half of a surrogate pair is no character; escape both halves, as in \ud83d\ude00`})
			}
			return []byte(text)
		}
	}
	d.bad = true
	return nil
}

// replacements returns how many U+FFFD the text of a string has, as they are and escaped.
func replacements(quoted []byte) int {
	plain := bytes.ToLower(bytes.ReplaceAll(quoted, []byte(`\\`), nil))
	return bytes.Count(plain, []byte("\uFFFD")) + bytes.Count(plain, []byte(`\ufffd`))
}

// more reports whether another value comes in a list or an object that has n of them so far, and skips what is before it.
func (d *decoder) more(n int, end byte) bool {
	if d.next() == end {
		d.at++
		return false
	}
	if n > 0 {
		d.take(',')
	}
	return !d.bad && !d.long
}

func (d *decoder) list(s *Schema, v reflect.Value) {
	ofTasks := len(d.path) == 0
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	d.at++
	d.path = append(d.path, step{})
	for n := 0; d.more(n, ']'); n++ {
		if d.long = ofTasks && n == MaxBatch; d.long {
			return
		}
		v.Grow(1)
		v.SetLen(n + 1)
		d.path[len(d.path)-1].index = n
		d.value(s.items, v.Index(n), false)
		if n == 0 && ofTasks {
			v.Grow(min(len(d.data)/d.at, 10_000)) // most lists are of much the same
		}
	}
	d.path = d.path[:len(d.path)-1]
}

func (d *decoder) object(s *Schema, v reflect.Value) {
	var given [maxFields]string // the names as they were sent
	d.at++
	d.path = append(d.path, step{index: -1})
	here := len(d.path) - 1
	for n := 0; d.more(n, '}'); n++ {
		at := &d.path[here]
		i := s.find(d.text(), &at.sent)
		at.name = at.sent
		if d.take(':'); i < 0 {
			d.next()
			d.refuse(Fault{Text: "unexpected property", unknown: s})
			continue
		}
		f := &s.fields[i]
		if at.name = f.name; given[i] == at.sent {
			d.note(Fault{Text: at.sent + " is given twice; leave one of them out"})
		} else if given[i] != "" {
			d.note(Fault{Text: given[i] + " and " + at.sent + " mean the same; leave one of them out"})
		}
		given[i] = at.sent
		d.value(f.Schema, v.Field(f.index), true)
	}
	if d.path = d.path[:here]; s.done != nil {
		s.done(v, given)
	}
}
