package request

import (
	"cmp"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"stint/coordinator/task"
	"stint/state"
)

// A schema is what a type and the tags of its fields say of a value, as far as anything here says it.
type schema struct {
	kind      string // as JSON schema calls it
	nullable  bool
	isTime    bool
	enum      []string
	least     int64
	most      int64 // 0: any
	maxLength int   // 0: any
	pattern   *regexp.Regexp
	items     *schema
	fields    []field
	byName    map[string]int // places in fields

	done func(v reflect.Value, given []string) // called with each object, and the names that its fields were sent by; nil: nobody
}

// A field is one of a struct.
type field struct {
	*schema
	name     string // in JSON
	index    int
	required bool
}

// maxFields bounds the fields of a struct.
const maxFields = 64

// alsoNamed lets fields have further names.
func (s *schema) alsoNamed(names map[string]string) {
	for name, field := range names {
		if i, is := s.byName[field]; is {
			s.byName[name] = i
		}
	}
}

// find returns the place of the field with a name that was sent, without regard to capitals as encoding/json
// reads names, else -1, and puts the name into text.
func (s *schema) find(name []byte, text *string) int {
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
		s.byName = map[string]int{}
		for f := range t.Fields() {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "-" {
				s.byName[name] = len(s.fields)
				s.fields = append(s.fields, field{schemaOfField(f), name, f.Index[0], !strings.HasPrefix(options, "omit") && f.Tag.Get("required") != "false"})
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
	s.least, _ = strconv.ParseInt(cmp.Or(f.Tag.Get("minimum"), strconv.Itoa(math.MinInt)), 10, 64)
	s.most, _ = strconv.ParseInt(f.Tag.Get("maximum"), 10, 64) // 0 if there is none, as the next one
	s.maxLength, _ = strconv.Atoi(f.Tag.Get("maxLength"))
	if text := f.Tag.Get("enum"); text != "" {
		s.enum = strings.Split(text, ",")
	}
	if text := f.Tag.Get("pattern"); text != "" {
		s.pattern = regexp.MustCompile(text)
	}
	s.isTime = s.isTime || f.Tag.Get("format") == "date-time"
	return s
}

// patchSchema returns the schema of a merge patch: it has some of the fields of a task, or null in their place.
var patchSchema = sync.OnceValue(func() *schema {
	patch := &schema{kind: "object", byName: map[string]int{}}
	for _, f := range schemaOf(reflect.TypeFor[task.TaskSpec]()).fields {
		if slices.Contains(task.EditableFields(), f.name) {
			f.nullable, f.enum, f.required = true, nil, false // an enum would have to have null as well
			patch.byName[f.name] = len(patch.fields)
			patch.fields = append(patch.fields, f)
		}
	}
	patch.alsoNamed(task.SpecNames())
	return patch
})

func (f *faults) checkText(s *schema, at, text string) {
	if s.maxLength > 0 && utf8.RuneCountInString(text) > s.maxLength {
		f.add(at, "expected length <= %d", s.maxLength)
	}
	if s.pattern != nil && !s.pattern.MatchString(text) {
		f.add(at, "expected string to match pattern %s", s.pattern)
	}
	if s.isTime && new(time.Time).UnmarshalText([]byte(text)) != nil {
		f.add(at, noTime)
	}
	if s.enum != nil && !slices.Contains(s.enum, text) {
		f.add(at, "%s", s.oneOf())
	}
}

const noTime = "expected string to be RFC 3339 date-time"

func (s *schema) oneOf() string {
	return `expected value to be one of "` + strings.Join(s.enum, ", ") + `"`
}
