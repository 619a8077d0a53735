package request

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"stint/coordinator/task"
	"stint/state"
)

// A schema is what a type and the tags of its fields say of a value, as far as anything here says it.
type schema struct {
	kind       string // as JSON schema calls it
	nullable   bool
	isTime     bool
	enum       []string
	least      *float64
	most       *float64
	maxLength  int // 0: any
	pattern    *regexp.Regexp
	items      *schema
	properties map[string]*schema
	required   []string
}

// kinds are what JSON schema calls the kinds of Go.
var kinds = map[reflect.Kind]string{
	reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Slice: "array", reflect.Struct: "object",
}

// schemaOf returns the schema of a type that clients send.
func schemaOf(t reflect.Type) *schema {
	s := &schema{kind: kinds[t.Kind()]}
	switch {
	case t.Kind() == reflect.Pointer:
		return schemaOf(t.Elem())
	case t == reflect.TypeFor[time.Time]():
		s.kind, s.isTime = "string", true
	case t == reflect.TypeFor[state.Status]():
		for _, status := range state.Statuses {
			s.enum = append(s.enum, string(status))
		}
	case s.kind == "array":
		s.items = schemaOf(t.Elem())
	case s.kind == "object":
		s.properties = map[string]*schema{}
		for f := range t.Fields() {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" || name == "" {
				continue
			}
			s.properties[name] = schemaOfField(f)
			if !strings.HasPrefix(options, "omit") && f.Tag.Get("required") != "false" {
				s.required = append(s.required, name)
			}
		}
	case s.kind == "":
		panic("api: clients cannot send " + t.String())
	}
	return s
}

// schemaOfField returns the schema of a field's type, with what its tags add.
func schemaOfField(f reflect.StructField) *schema {
	s := schemaOf(f.Type)
	for name, bound := range map[string]**float64{"minimum": &s.least, "maximum": &s.most} {
		if n, err := strconv.ParseFloat(f.Tag.Get(name), 64); err == nil {
			*bound = &n
		}
	}
	if text := f.Tag.Get("enum"); text != "" {
		s.enum = strings.Split(text, ",")
	}
	if text := f.Tag.Get("pattern"); text != "" {
		s.pattern = regexp.MustCompile(text)
	}
	s.maxLength, _ = strconv.Atoi(f.Tag.Get("maxLength")) // 0 if there is none
	s.isTime = s.isTime || f.Tag.Get("format") == "date-time"
	return s
}

// patchSchema returns the schema of a merge patch: it has some of the fields of a task, or null in their place.
func patchSchema() *schema {
	fields, patch := schemaOf(reflect.TypeFor[task.TaskSpec]()).properties, &schema{kind: "object", properties: map[string]*schema{}}
	for _, name := range task.EditableFields() {
		fields[name].nullable, fields[name].enum = true, nil // an enum would have to have null as well
		patch.properties[name] = fields[name]
	}
	return patch
}

// A Fault is something that is wrong in a request.
type Fault struct {
	At   string // such as query.limit or body.after[1]; "" or "body": the whole
	Text string
}

// Error implements error.
func (f Fault) Error() string { return f.At + ": " + f.Text }

// faults are what is wrong with a request.
type faults []Fault

func (f *faults) add(at, format string, args ...any) {
	*f = append(*f, Fault{at, fmt.Sprintf(format, args...)})
}

// check looks for what in a value is not as its schema says. Numbers are float64, as in JSON.
func (f *faults) check(s *schema, at string, v any) {
	if v == nil && s.nullable {
		return
	}
	fits := false
	switch v := v.(type) {
	case bool:
		fits = s.kind == "boolean"
	case float64:
		fits = s.kind == "integer" && v == math.Trunc(v)
		if s.least != nil && v < *s.least {
			f.add(at, "expected number >= %v", *s.least)
		}
		if s.most != nil && v > *s.most {
			f.add(at, "expected number <= %v", *s.most)
		}
	case string:
		fits = s.kind == "string"
		if fits {
			f.checkText(s, at, v)
		}
	case []any:
		for i := 0; i < len(v) && s.kind == "array"; i++ {
			f.check(s.items, at+"["+strconv.Itoa(i)+"]", v[i])
		}
		fits = s.kind == "array"
	case map[string]any:
		if fits = s.kind == "object"; fits {
			f.checkObject(s, at, v)
		}
	}
	if !fits {
		f.add(at, "expected %s", s.kind)
	}
}

func (f *faults) checkText(s *schema, at, text string) {
	if s.maxLength > 0 && utf8.RuneCountInString(text) > s.maxLength {
		f.add(at, "expected length <= %d", s.maxLength)
	}
	if s.pattern != nil && !s.pattern.MatchString(text) {
		f.add(at, "expected string to match pattern %s", s.pattern)
	}
	if s.isTime {
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			f.add(at, "expected string to be RFC 3339 date-time")
		}
	}
	if s.enum != nil && !slices.Contains(s.enum, text) {
		f.add(at, `expected value to be one of "%s"`, strings.Join(s.enum, ", "))
	}
}

// checkObject takes names without regard to capitals, as encoding/json reads them.
func (f *faults) checkObject(s *schema, at string, object map[string]any) {
	for name, property := range s.properties {
		value, is := object[name]
		for other, v := range object {
			if !is && strings.EqualFold(other, name) {
				value, is = v, true
			}
		}
		required := slices.Contains(s.required, name)
		switch {
		case !is && required:
			f.add(at+"."+name, "expected required property %s to be present", name)
		case is && (value != nil || required):
			f.check(property, at+"."+name, value)
		}
	}
	for name := range object {
		is := s.properties[name] != nil
		for other := range s.properties {
			is = is || strings.EqualFold(other, name)
		}
		if !is {
			f.add(at+"."+name, "unexpected property")
		}
	}
}
