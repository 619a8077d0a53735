package request

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// A decoder puts one JSON text into a value in one pass, as encoding/json does, and notes what is wrong with
// it: if it is refused, also what a handler would refuse.
type decoder struct {
	data      []byte
	at        int
	path      []step // to the present value
	unescaped []byte

	faults  faults
	refused bool  // there is one that the value cannot be decoded with
	odd     Fault // a name that is there twice, or half a character: encoding/json would take one of both, or U+FFFD
	bad     bool  // it is no JSON
	long    bool  // there are more tasks than are taken
}

// A step is one of the way from a body to a value: a name, or a place in a list.
type step struct {
	name  string
	index int // -1: it is a name
}

// maxFaults bounds the faults that are noted.
const maxFaults = 1000

// decode reads data into v, which is of the type that s is of.
func decode(data []byte, s *schema, v reflect.Value) decoder {
	d := decoder{data: data}
	d.value(s, v)
	if d.next() != 0 || d.at < len(data) {
		d.bad = true
	}
	d.refused = d.refused || d.bad || d.long
	return d
}

// err returns why the text is refused; nil if it is not.
func (d decoder) err() error {
	switch {
	case d.long:
		return task.ErrLongList
	case d.refused:
		if err := json.Unmarshal(d.data, new(json.RawMessage)); err != nil { // what was skipped was not looked at
			return Fault{Text: NotJSON + err.Error()}
		}
		return d.faults
	case d.odd != Fault{}:
		return d.odd
	}
	return nil
}

// where returns the path of the present value.
func (d *decoder) where() string {
	at := "body"
	for _, s := range d.path {
		if s.index < 0 {
			at += "." + s.name
		} else {
			at += "[" + strconv.Itoa(s.index) + "]"
		}
	}
	return at
}

// note notes a fault that a handler may as well find.
func (d *decoder) note(text string) {
	if len(d.faults) < maxFaults {
		d.faults.add(d.where(), "%s", text)
	}
}

// refuse notes a fault of the next value, and skips it.
func (d *decoder) refuse(text string) {
	d.note(text)
	d.refused = true
	d.skip()
}

// next skips blanks, and returns the byte behind them; 0: there is none.
func (d *decoder) next() byte {
	for ; d.at < len(d.data); d.at++ {
		switch c := d.data[d.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// take skips blanks and a text that must be next.
func (d *decoder) take(text string) {
	d.next()
	if !bytes.HasPrefix(d.data[d.at:], []byte(text)) {
		d.bad = true
		return
	}
	d.at += len(text)
}

// skip skips a value without looking at it.
func (d *decoder) skip() {
	for depth := 0; d.next() != 0; {
		switch d.data[d.at] {
		case '"':
			d.at += stringEnd(d.data[d.at:])
		case '{', '[':
			depth++
			d.at++
		case '}', ']':
			depth--
			d.at++
		default:
			for d.at++; d.at < len(d.data) && strings.IndexByte(" \t\r\n,:\"{}[]", d.data[d.at]) < 0; {
				d.at++
			}
		}
		if depth <= 0 {
			return
		}
	}
}

// value reads the next value.
func (d *decoder) value(s *schema, v reflect.Value) {
	c := d.next()
	if c == 'n' {
		if d.take("null"); !s.nullable {
			d.note("expected " + s.kind)
		}
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch {
	case c == '"' && s.kind == "string":
		d.string(s, v)
	case (c == 't' || c == 'f') && s.kind == "boolean":
		d.take(strconv.FormatBool(c == 't'))
		v.SetBool(c == 't')
	case (c == '-' || c >= '0' && c <= '9') && s.kind == "integer":
		d.number(v)
	case c == '[' && s.kind == "array":
		d.list(s, v)
	case c == '{' && s.kind == "object":
		d.object(s, v)
	default:
		d.refuse("expected " + s.kind)
	}
}

func (d *decoder) string(s *schema, v reflect.Value) {
	text := d.text()
	if s.isTime {
		if v.Addr().Interface().(*time.Time).UnmarshalText(text) != nil {
			d.note(noTime)
			d.refused = true
		}
		return
	}
	if v.SetString(string(text)); s.enum != nil && !slices.Contains(s.enum, v.String()) {
		d.note(s.oneOf())
	}
}

// text reads a string. The text may be overwritten by the next one.
func (d *decoder) text() []byte {
	begin := d.at + 1
	for i, c := range d.data[begin:] {
		if c == '"' {
			d.at = begin + i + 1
			return d.data[begin : begin+i]
		} else if c == '\\' || c < ' ' {
			break
		}
	}
	quoted := d.data[d.at:][:stringEnd(d.data[d.at:])]
	d.at += len(quoted)
	d.unescaped = d.unescaped[:0]
	for i := 1; i < len(quoted)-1; i++ {
		c := quoted[i]
		if c == '\\' {
			i++
			plain := strings.IndexByte(`"\/bfnrt`, quoted[i])
			if plain < 0 {
				return d.decoded(quoted)
			}
			c = "\"\\/\b\f\n\r\t"[plain]
		} else if c < ' ' {
			d.bad = true
		}
		d.unescaped = append(d.unescaped, c)
	}
	return d.unescaped
}

// decoded reads a string with letters that are escaped by their numbers.
func (d *decoder) decoded(quoted []byte) []byte {
	var text string
	d.bad = d.bad || json.Unmarshal(quoted, &text) != nil
	if task.LoneSurrogate(quoted) >= 0 && d.odd == (Fault{}) {
		d.odd = Fault{d.where(), `half of a surrogate pair is no character; escape both halves, as in \ud83d\ude00`}
	}
	return []byte(text)
}

// stringEnd returns the length of the JSON string that data begins with; that of data if its end is missing.
func stringEnd(data []byte) int {
	for end := 1; ; {
		quote := bytes.IndexByte(data[end:], '"')
		if quote < 0 {
			return len(data)
		}
		before := bytes.TrimRight(data[:end+quote], `\`)
		if end += quote + 1; (end-1-len(before))%2 == 0 {
			return end
		}
	}
}

func (d *decoder) number(v reflect.Value) {
	begin := d.at
	for d.at < len(d.data) && strings.IndexByte("+-.0123456789Ee", d.data[d.at]) >= 0 {
		d.at++
	}
	literal := string(d.data[begin:d.at])
	d.bad = d.bad || !json.Valid([]byte(literal))
	n, err := strconv.Atoi(literal)
	if v.SetInt(int64(n)); err == nil {
		return
	}
	d.refused = true
	if f, _ := strconv.ParseFloat(literal, 64); f == math.Trunc(f) {
		d.note("number " + wire.Clip(literal) + " does not fit")
	} else {
		d.note("expected integer")
	}
}

// more reports whether another value comes in a list or an object that has n of them so far, and skips what is before it.
func (d *decoder) more(n int, end byte) bool {
	c := d.next()
	if c == end || n > 0 && c == ',' {
		d.at++
	} else if n > 0 || c == 0 {
		d.bad = true
	}
	return c != end && !d.bad && !d.long
}

func (d *decoder) list(s *schema, v reflect.Value) {
	ofTasks := len(d.path) == 0
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	d.at++
	d.path = append(d.path, step{})
	for n := 0; d.more(n, ']'); n++ {
		if d.long = ofTasks && n == task.MaxBatch; d.long || ofTasks && len(d.faults) > maxComplaints {
			return // before it takes a thousand times the memory of its body
		}
		refused, found := d.refused, len(d.faults)
		d.refused = refused && !ofTasks
		v.Grow(1)
		v.SetLen(n + 1)
		d.path[len(d.path)-1].index = n
		if d.value(s.items, v.Index(n)); ofTasks && !d.refused {
			d.faults = d.faults[:found] // a handler may find them
		}
		d.refused = d.refused || refused
	}
	d.path = d.path[:len(d.path)-1]
}

func (d *decoder) object(s *schema, v reflect.Value) {
	var given [maxFields]string // the names as they were sent
	d.at++
	d.path = append(d.path, step{index: -1})
	here := len(d.path) - 1
	for n := 0; d.more(n, '}'); n++ {
		if d.next() != '"' {
			d.bad = true
			break
		}
		i := s.find(d.text(), &d.path[here].name)
		if d.take(":"); i < 0 {
			d.refuse("unexpected property")
			continue
		}
		name, f := d.path[here].name, &s.fields[i]
		if before := given[i]; before != "" && d.odd == (Fault{}) {
			d.odd = Fault{d.where(), "it is there twice"}
			if before != name {
				d.odd.Text += ", also as " + before
			}
		}
		given[i] = name
		d.path[here].name = f.name
		if d.next() == 'n' && !f.required {
			d.take("null")
		} else {
			d.value(f.schema, v.Field(f.index))
		}
	}
	for i, f := range s.fields {
		if f.required && given[i] == "" {
			d.path[here].name = f.name
			d.note("expected required property " + f.name + " to be present")
		}
	}
	d.path = d.path[:here]
}
