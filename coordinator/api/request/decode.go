package request

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// A decoder puts one JSON text into a value in one pass, as encoding/json does, and notes what is wrong with
// it: if it is refused, also what a handler would refuse.
type decoder struct {
	data []byte
	at   int
	path []step // to the present value

	faults  faults
	noted   int   // so many faults, also those that were dropped again
	refused bool  // there is one that the value cannot be decoded with
	odd     Fault // a name that is there twice, or half a character: encoding/json would take one of both, or U+FFFD
	bad     bool  // the rest is not looked at: it is no JSON, or has too many faults
	long    bool  // there are more tasks than are taken
}

// A step is one of the way from a body to a value: a name, or a place in a list.
type step struct {
	name  string
	index int // -1: it is a name
}

// maxFaults is how many faults are looked for.
const maxFaults = 1000

// decode reads data into v, which is of the type that s is of.
func decode(data []byte, s *schema, v reflect.Value) decoder {
	d := decoder{data: data}
	d.value(s, v)
	d.next()
	d.refused = d.refused || d.bad || d.long || d.at < len(data)
	return d
}

// err returns why the text is refused; nil if it is not.
func (d decoder) err() error {
	switch {
	case d.long:
		return task.ErrLongList
	case d.refused:
		if err := json.Unmarshal(d.data, new(json.RawMessage)); err != nil {
			return Fault{Text: NotJSON + err.Error()}
		}
		if d.odd != (Fault{}) {
			d.faults = append(d.faults, d.odd)
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
	if d.noted++; len(d.faults) < maxFaults && d.noted < 10*maxFaults {
		d.faults = append(d.faults, Fault{d.where(), text})
	}
}

// refuse notes a fault of the next value, and skips that.
func (d *decoder) refuse(text string) {
	d.note(text)
	d.refused = true
	dec := json.NewDecoder(bytes.NewReader(d.data[d.at:]))
	d.bad = d.bad || len(d.faults) == maxFaults || dec.Decode(new(json.RawMessage)) != nil
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

// take skips blanks and a text that must be next.
func (d *decoder) take(text string) {
	d.next()
	rest, found := bytes.CutPrefix(d.data[d.at:], []byte(text))
	d.bad = d.bad || !found
	d.at = len(d.data) - len(rest)
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
	if !s.isTime {
		v.SetString(string(text))
	} else if v.Addr().Interface().(*time.Time).UnmarshalText(text) != nil {
		d.note(noTime)
		d.refused = true
	}
	if s.enum != nil && !slices.Contains(s.enum, v.String()) {
		d.note(s.oneOf())
	}
}

// text reads a string.
func (d *decoder) text() []byte {
	escaped := false
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
			if task.LoneSurrogate(quoted) >= 0 && d.odd == (Fault{}) {
				d.odd = Fault{d.where(), `half of a surrogate pair is no character; escape both halves, as in \ud83d\ude00`}
			}
			return []byte(text)
		}
	}
	d.bad = true
	return nil
}

func (d *decoder) number(v reflect.Value) {
	rest := bytes.TrimLeft(d.data[d.at:], "+-.0123456789Ee")
	literal := d.data[d.at : len(d.data)-len(rest)]
	d.at += len(literal)
	d.bad = d.bad || !json.Valid(literal)
	n, err := strconv.Atoi(string(literal))
	v.SetInt(int64(n))
	if f, _ := strconv.ParseFloat(string(literal), 64); err != nil && f != math.Trunc(f) {
		d.note("expected integer")
	} else if err != nil {
		d.note("number " + wire.Clip(string(literal)) + " does not fit")
	}
	d.refused = d.refused || err != nil
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
		if n == 0 && ofTasks {
			v.Grow(min(len(d.data)/d.at, 1000)) // most lists are of much the same
		}
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
		d.path[here].name = f.name
		if before := given[i]; before != "" && d.odd == (Fault{}) {
			d.odd = Fault{d.where(), before + " and " + name + " mean the same; leave one of them out"}
			if before == name {
				d.odd.Text = name + " is given twice; leave one of them out"
			}
		}
		given[i] = name
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
	if d.path = d.path[:here]; s.done != nil {
		s.done(v, given[:])
	}
}
