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

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"

	"github.com/danielgtaylor/huma/v2"
)

// maxComplaints bounds the number of faults that one answer names.
const maxComplaints = 10

func init() { // for all servers of the process: huma has no other way
	huma.NewError = problemOf
	huma.DefaultArrayNullable = false // no list that we send is null
}

// problemOf makes a problem of what huma refuses: one sentence that names each fault
// and where it is, without the value, which may be a whole prompt.
func problemOf(status int, message string, errs ...error) huma.StatusError {
	for _, e := range errs {
		if p := (*wire.Problem)(nil); errors.As(e, &p) {
			return p
		}
		if errors.Is(e, guard.ErrTooLarge) {
			return guard.TooLarge()
		}
	}
	if message == "cannot read request body" { // which is the client's doing and not ours
		return wire.NewProblem(http.StatusBadRequest, task.CodeInvalid, "the body could not be read to its end", "send it as its Content-Length or its chunks say")
	}
	most := 0
	if _, err := fmt.Sscanf(message, "request body is too large limit=%d bytes", &most); err == nil {
		message = fmt.Sprintf("the body is too large: it has more than %d bytes", most-1) // op adds one, which huma refuses too
	}
	details := detailsOf(errs)
	var fields []string // what each fault is about
	for _, d := range details {
		where := d.Location
		if where == "body" {
			where, _, _ = strings.Cut(d.Message, ": ") // of the errors of a decoder huma keeps the text alone
		}
		if at := strings.IndexAny(where, ".["); at >= 0 {
			fields = append(fields, wire.Clip(strings.NewReplacer("[", ".", "]", "").Replace(where[at:])[1:]))
		}
		if strings.HasPrefix(d.Message, NotJSON) {
			status = http.StatusBadRequest
		}
	}
	if faults := complaints(details); faults != "" {
		message = "the request is not valid: " + faults
	}
	p := wire.NewProblem(status, wire.CodeOf(status), message, "")
	if len(fields) > 0 {
		p.Field = slices.Min(fields) // the first in the order in which they are told
	}
	return p
}

// detailsOf returns errors of huma as it means them.
func detailsOf(errs []error) []*huma.ErrorDetail {
	details := make([]*huma.ErrorDetail, 0, len(errs))
	for _, e := range errs {
		if d, ok := e.(huma.ErrorDetailer); ok {
			details = append(details, d.ErrorDetail())
		} else if e != nil {
			details = append(details, &huma.ErrorDetail{Message: e.Error()})
		}
	}
	return details
}

// complaints returns the faults as one text, in the same order each time: huma walks maps.
func complaints(errs []*huma.ErrorDetail) string {
	var out []string
	for _, e := range errs {
		text := e.Message
		if e.Location != "" && e.Location != "body" {
			text = wire.Clip(e.Location) + ": " + text
		}
		out = append(out, text)
	}
	slices.Sort(out)
	if n := len(out) - maxComplaints; n > 0 {
		out = append(out[:maxComplaints], "and more")
	}
	return strings.Join(out, "; ")
}

// explain returns the faults of a body that should have become v, else err.
func explain(reg huma.Registry, data []byte, v any, err error) error {
	if err := checkJSON(data); err != nil {
		return err
	}
	f := newFaults(reg)
	t := reflect.TypeOf(v).Elem()
	if t.Kind() != reflect.Slice || !isList(data) {
		f.find(reg.Schema(t, true, ""), data, err)
		return f.err()
	}
	schema := reg.Schema(t.Elem(), true, "")
	dec := json.NewDecoder(bytes.NewReader(data))
	_, _ = dec.Token() // the syntax is right: it was looked at
	for i := 0; dec.More() && len(f.found.Errors) <= maxComplaints; i++ {
		var value json.RawMessage
		_ = dec.Decode(&value)
		if err := decodeStrictly(value, reflect.New(t.Elem()).Interface()); err != nil {
			f.path.PushIndex(i)
			f.find(schema, value, err)
			f.path.Pop()
		}
	}
	return f.err()
}

// faults are what is wrong with a body.
type faults struct {
	reg   huma.Registry
	path  *huma.PathBuffer
	found huma.ValidateResult
}

func newFaults(reg huma.Registry) *faults {
	f := &faults{reg: reg, path: huma.NewPathBuffer(nil, 0)}
	f.path.Push("body")
	return f
}

// maxValues bounds the values of an object in which all faults are looked for, each of
// which costs much more to tell than to send.
const maxValues = 10_000

// find looks for what in a value is not as its schema says. refused is what the decoder
// says of it, nil if that takes it.
func (f *faults) find(schema *huma.Schema, data []byte, refused error) {
	var parsed any
	before := len(f.found.Errors)
	if bytes.Count(data, []byte(",")) <= maxValues && json.Unmarshal(data, &parsed) == nil {
		huma.Validate(f.reg, schema, f.path, huma.ModeWriteToServer, parsed, &f.found)
	}
	if len(f.found.Errors) > before || refused == nil {
		return
	}
	var wrong *json.UnmarshalTypeError // such as a number that is too large
	if !errors.As(refused, &wrong) {
		f.found.Add(f.path, "", refused.Error())
		return
	}
	f.path.Push(wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:])
	f.found.Add(f.path, "", wrong.Value+" does not fit")
	f.path.Pop()
}

// err returns the faults as one error; a property that is missing has a place too. nil: there are none.
func (f *faults) err() error {
	if len(f.found.Errors) == 0 {
		return nil
	}
	details := detailsOf(f.found.Errors)
	for _, d := range details {
		if name, ok := strings.CutPrefix(d.Message, "expected required property "); ok {
			name, _, _ = strings.Cut(name, " ")
			d.Location += "." + name
		}
	}
	return errors.New(complaints(details))
}
