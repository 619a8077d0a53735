package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// maxComplaints bounds the number of faults that one answer names.
const maxComplaints = 10

// refusal makes a problem of what is wrong with a request: one of errs if that is one, else one sentence that
// names each fault and where it is, without the value, which may be a whole prompt.
func refusal(errs ...error) *wire.Problem {
	status, field, found := http.StatusUnprocessableEntity, "", faults(nil)
	for _, e := range errs {
		if errors.As(e, new(*wire.Problem)) || errors.As(e, new(*task.Error)) {
			return wire.ProblemOf(e)
		}
		if fs, many := e.(faults); many {
			found = append(found, fs...)
		} else if f, one := e.(Fault); one {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b Fault) int { return strings.Compare(a.complaint(), b.complaint()) }) // they come from maps
	for _, f := range slices.Backward(found) {
		if at := strings.IndexAny(f.At, ".["); at >= 0 { // the first one that is told counts
			field = strings.NewReplacer("[", ".", "]", "").Replace(wire.Clip(f.At)[at:])[1:]
		}
		if strings.HasPrefix(f.Text, NotJSON) {
			status = http.StatusBadRequest
		}
	}
	p := wire.NewProblem(status, wire.CodeOf(status), found.Error(), "")
	p.Field = field
	return p
}

// complaint returns a fault as it is told.
func (f Fault) complaint() string {
	if f.At == "" || f.At == "body" {
		return f.Text
	}
	return wire.Clip(f.At) + ": " + f.Text
}

// Error implements error.
func (f faults) Error() string {
	var out []string
	for _, one := range f {
		if len(out) == maxComplaints {
			out = append(out, "and more")
			break
		}
		out = append(out, one.complaint())
	}
	return "the request is not valid: " + strings.Join(out, "; ")
}

// explain returns the faults of a body that should have become v, else refused.
func explain(data []byte, t reflect.Type, refused error) error {
	if err := checkJSON(data); err != nil {
		return err
	}
	var f faults
	s := schemaOf(t)
	if t.Kind() != reflect.Slice || !isList(data) {
		f.find(s, "body", data, refused)
		return f
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	_, _ = dec.Token() // the syntax is right: it was looked at
	for i := 0; dec.More() && len(f) <= maxComplaints; i++ {
		var value json.RawMessage
		_ = dec.Decode(&value)
		if err := decodeStrictly(value, reflect.New(t.Elem()).Interface()); err != nil {
			f.find(s.items, fmt.Sprintf("body[%d]", i), value, err)
		}
	}
	return f
}

// maxValues bounds the values of an object in which all faults are looked for, each of
// which costs much more to tell than to send.
const maxValues = 10_000

// find looks for what in a value is not as its schema says. refused is what the decoder
// says of it, nil if that takes it.
func (f *faults) find(s *schema, at string, data []byte, refused error) {
	var parsed any
	before := len(*f)
	if bytes.Count(data, []byte(",")) <= maxValues && json.Unmarshal(data, &parsed) == nil {
		f.check(s, at, parsed)
	}
	if len(*f) > before || refused == nil {
		return
	}
	var wrong *json.UnmarshalTypeError // such as a number that is too large
	if !errors.As(refused, &wrong) {
		f.add(at, "%v", refused)
		return
	}
	f.add(at+"."+wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:], "%s does not fit", wrong.Value)
}
