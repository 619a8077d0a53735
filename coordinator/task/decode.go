package task

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json" // encoding/json/v2, before that is part of Go
	"github.com/go-json-experiment/json/jsontext"

	"stint/state"
)

// NotJSON is what the fault of a body begins with that is no JSON text at all: the answer is 400 and not 422.
const NotJSON = "the body is not JSON: "

// wants are what values of the kinds of Go must be.
var wants = map[reflect.Kind]string{
	reflect.String: "a text in quotes", reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.Slice: `a list such as ["a", "b"]`, reflect.Struct: "an object such as {…}",
}

// Decode reads a JSON text into v, a pointer, strictly (RFC 7493): a property that is unknown or there twice is refused, as are
// half of a surrogate pair and what is not UTF-8. Capitals, underscores and hyphens of a name do not count. What is wrong is an *[Error]
// about the first fault, with its place and without the value, which may be a whole prompt.
func Decode(data []byte, v any) error {
	if f := decode(data, v); f != nil {
		return f.in("", nil)
	}
	return nil
}

// A fault is what is wrong with a JSON text.
type fault struct {
	at     jsontext.Pointer
	offset int64
	text   string // what is wrong; and what to do
}

// Error implements error, as what reads a value returns it.
func (f *fault) Error() string { return f.text }

// decode is Decode, and returns nil if nothing is wrong.
func decode(data []byte, v any) *fault {
	err := json.Unmarshal(data, v, json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(true))
	if err == nil {
		return nil
	}
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		text := NotJSON + syntax.Err.Error()
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			text = "given twice; leave one of them out"
		case !utf8.Valid(data):
			text = NotJSON + "it is not valid UTF-8; convert it, for example with: iconv -t UTF-8"
		}
		return &fault{syntax.JSONPointer, syntax.ByteOffset, text}
	}
	wrong, ok := errors.AsType[*json.SemanticError](err)
	if !ok || wrong.GoType == nil {
		return &fault{text: err.Error()}
	}
	text := "expected " + cmp.Or(wants[wrong.GoType.Kind()], "another value")
	switch {
	case wrong.GoType == reflect.TypeFor[time.Time]():
		text = `expected a time such as "2026-11-21T03:12:45Z"`
	case errors.Is(err, json.ErrUnknownName):
		var known []string
		for f := range wrong.GoType.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
				known = append(known, name)
			}
		}
		text = unknown(wrong.JSONPointer.LastToken(), known)
	}
	return &fault{wrong.JSONPointer, wrong.ByteOffset, text}
}

// in returns the error about a text in a file; name "": it is in none.
func (f *fault) in(name string, data []byte) error {
	field := strings.ToValidUTF8(state.Cut(strings.ReplaceAll(strings.TrimPrefix(string(f.at), "/"), "/", "."), 100), "\uFFFD")
	message, hint, _ := strings.Cut(f.text, "; ")
	if !strings.HasPrefix(message, NotJSON) && field != "" {
		message = field + ": " + message
	}
	if name != "" {
		message = fmt.Sprintf("%s:%d: %s", name, 1+bytes.Count(data[:f.offset], []byte("\n")), strings.TrimPrefix(message, NotJSON))
	}
	return Wrong(field, cmp.Or(hint, "correct the JSON there"), "%s", message)
}

// unknown returns the sentence about a name that is none of those known.
func unknown(name string, known []string) string {
	if known == nil {
		return "unknown field; send {}"
	}
	slices.Sort(known)
	if near := state.Nearest(name, known); near != "" {
		return "unknown field (did you mean " + near + "?)"
	}
	return "unknown field (known are " + strings.Join(known, ", ") + ")"
}

// Specs are what a client submits at once: one task, or a list.
type Specs struct {
	List   []TaskSpec
	IsList bool
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (s *Specs) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if s.IsList = dec.PeekKind() == '['; !s.IsList {
		s.List = make([]TaskSpec, 1)
		return json.UnmarshalDecode(dec, &specReader{spec: &s.List[0]})
	}
	s.List = []TaskSpec{}
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() != ']' {
		if len(s.List) == MaxBatch {
			return &fault{"", dec.InputOffset(), ErrLongList.Error()}
		}
		s.List = append(s.List, TaskSpec{})
		err = json.UnmarshalDecode(dec, &specReader{spec: &s.List[len(s.List)-1]})
		if len(s.List) == 1 { // most lists are of much the same
			s.List = slices.Grow(s.List, min(len(dec.UnreadBuffer())/int(dec.InputOffset()), 10_000))
		}
	}
	if err == nil {
		_, err = dec.ReadToken()
	}
	return err
}

// A specReader reads a spec, whose fields have several names, or a merge patch of one.
type specReader struct {
	spec    *TaskSpec
	isPatch bool
	given   map[string]string // the fields that were there, with the names that they were sent by
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (r *specReader) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if tok, err := dec.ReadToken(); err != nil {
		return err
	} else if tok.Kind() != '{' {
		return &json.SemanticError{GoType: reflect.TypeFor[TaskSpec]()}
	}
	r.given = map[string]string{}
	to := reflect.ValueOf(r.spec).Elem()
	for dec.PeekKind() != '}' {
		tok, err := dec.ReadToken()
		if err != nil {
			return err
		}
		name := tok.String()
		f := specFields()[plainName(name)]
		wrong := func(text string) error { return &fault{dec.StackPointer(), dec.InputOffset(), text} }
		if f.name == "" || r.isPatch && !slices.Contains(EditableFields[:], f.name) {
			return wrong(r.unknown(name))
		}
		if other := r.given[f.name]; other != "" {
			return wrong("the same as " + state.Cut(other, 100) + "; leave one of them out")
		}
		r.given[f.name] = name
		isText := dec.PeekKind() == '"'
		to.Field(f.index).SetZero() // a list is another one, and not the old one filled anew
		if err := json.UnmarshalDecode(dec, to.Field(f.index).Addr().Interface()); err != nil {
			return err
		}
		if f.name == "idempotencyKey" && isText && r.spec.IdempotencyKey == "" {
			return wrong("the key is empty; give it a value, or leave it out")
		}
	}
	if r.spec.AgentSession != "" && strings.HasPrefix(r.given["agentSession"], "codex") && !r.isPatch { // one of codex's names makes that the agent if there is none
		r.spec.Agent = cmp.Or(r.spec.Agent, "codex")
	}
	_, err := dec.ReadToken()
	return err
}

// unknown returns the sentence about a name that no field has.
func (r *specReader) unknown(name string) string {
	known := slices.Collect(maps.Keys(Fields(&TaskSpec{})))
	if r.isPatch {
		known = slices.Clone(EditableFields[:])
	}
	if strings.Contains(name, "_") {
		for i := range known {
			known[i] = WithUnderscores(known[i])
		}
	}
	return unknown(name, known)
}
