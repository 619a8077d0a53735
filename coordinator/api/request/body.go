// Package request reads what clients send: bodies, the idempotency key and If-Match. It is strict. What is
// not understood is refused, with every fault and its place: an unknown property, a property that is there
// twice, half of a surrogate pair, a body that is not JSON in UTF-8.
package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"unicode/utf8"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// NotJSON is what each error of a body begins with that is no JSON text at all: the answer is 400 and not 422.
const NotJSON = "the body is not JSON: "

// readBody puts a body into v. encoding/json would put U+FFFD for text that is not UTF-8; a prompt has to
// arrive as it was sent. One pass decodes; what it refuses is looked at again, for a message that names every
// fault.
func readBody(data []byte, v any) error {
	if !utf8.Valid(data) {
		return Fault{Text: NotJSON + "it is not valid UTF-8"}
	}
	if b, ok := v.(reader); ok {
		if err := b.read(data); err != nil {
			return err
		}
	} else if err := decodeStrictly(data, v); err != nil {
		return explain(data, reflect.TypeOf(v).Elem(), err)
	}
	return checkNames(data)
}

// A reader is a body that reads itself.
type reader interface{ read(data []byte) error }

// A Task is a body with one task, or a list of them, which older clients send to the same path.
type Task struct {
	list   []task.TaskSpec
	isList bool
}

// Specs returns the tasks, and whether they came as a list.
func (b *Task) Specs() (specs []task.TaskSpec, isList bool) { return b.list, b.isList }

// Tasks is a [Task] that is described as a list.
type Tasks struct{ Task }

// A Batch is Tasks that are no single task.
type Batch struct{ Tasks }

// read refuses what is no list before its properties are looked at, which would be those of a task.
func (b *Batch) read(data []byte) error {
	if !isList(data) && json.Valid(data) {
		return task.Invalid("send [{…}, …]; a single task goes to /v1/tasks", "the body is not a list of tasks")
	}
	return b.Tasks.read(data)
}

// read decodes a body: in one pass if its names are those of TaskSpec, else once more
// with the names changed into these.
func (b *Task) read(data []byte) error {
	if b.isList = isList(data); !b.isList && len(data) > wire.MaxBody {
		return wire.NewProblem(http.StatusRequestEntityTooLarge, task.CodeInvalid,
			fmt.Sprintf("the task has more than the %d bytes that are taken", wire.MaxBody), "put long texts into files of the workspace and name them in the prompt")
	}
	if task.EmptyKey(data) >= 0 {
		return wrongKey("idempotencyKey", "it is empty")
	}
	refused := b.decode(data)
	if refused == nil || errors.Is(refused, task.ErrLongList) {
		return refused
	}
	renamed, err := task.RenameSpecs(data)
	if err != nil {
		return err
	}
	if refused = b.decode(renamed); refused != nil && b.isList {
		return explain(renamed, reflect.TypeFor[[]task.TaskSpec](), refused)
	} else if refused != nil {
		return explain(renamed, reflect.TypeFor[task.TaskSpec](), refused)
	}
	return nil
}

func isList(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("["))
}

// decode decodes one task, or a list of them one by one.
func (b *Task) decode(data []byte) error {
	if !b.isList {
		b.list = make([]task.TaskSpec, 1)
		return decodeStrictly(data, &b.list[0])
	}
	b.list = nil
	dec := strictDecoder(data)
	_, err := dec.Token()
	for err == nil && dec.More() {
		if len(b.list) == task.MaxBatch {
			return task.ErrLongList // before it takes a thousand times the memory of its body
		}
		b.list = append(b.list, task.TaskSpec{})
		err = dec.Decode(&b.list[len(b.list)-1])
	}
	if err == nil {
		_, err = dec.Token()
	}
	if err == nil {
		err = isOver(data, dec)
	}
	return err
}

// A Patch is a body with a merge patch that has the names of TaskSpec. Its kinds are right;
// what its values say is the coordinator's to check.
type Patch struct{ fields []byte }

// Fields returns the patch, as JSON.
func (b *Patch) Fields() []byte { return b.fields }

// read decodes a patch, whose names may be spelled as those of a task.
func (b *Patch) read(data []byte) error {
	if err := checkJSON(data); err != nil {
		return err
	}
	renamed, err := task.RenameSpecs(data)
	if err != nil {
		return err
	}
	b.fields = slices.Clone(renamed) // the memory of data is used again
	var f faults
	if f.find(patchSchema(), "body", renamed, decodeStrictly(renamed, new(task.TaskSpec))); f != nil {
		return f
	}
	return nil
}

// decodeStrictly reads one value, whose properties must be known.
func decodeStrictly(data []byte, v any) error {
	dec := strictDecoder(data)
	if err := dec.Decode(v); err != nil {
		return err
	}
	return isOver(data, dec)
}

func strictDecoder(data []byte) *json.Decoder {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec
}

// isOver returns an error if something follows what was decoded of data.
func isOver(data []byte, dec *json.Decoder) error {
	if len(bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n")) > 0 {
		return Fault{Text: NotJSON + "something follows its end"}
	}
	return nil
}

func checkJSON(data []byte) error {
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return Fault{Text: NotJSON + err.Error()}
	}
	return nil
}

// Bounds of what is looked at for names that are there twice. No body that is taken has
// an object with as many fields, or names as long, or values as deep.
const (
	maxNames = 100
	maxName  = 256 // bytes, with the quotes and all that escapes a letter
	maxDepth = 10
)

// checkNames reports which field an object of a body has twice, without regard to capitals, as encoding/json
// reads names; nil if none. encoding/json would take the last one, or a mixture of both. It also refuses a
// string with half of a surrogate pair. What is no JSON is not its to refuse.
func checkNames(data []byte) error {
	s := nameScan{}
	for i := 0; i < len(data) && len(s.open) < maxDepth; i++ {
		switch c := data[i]; c {
		case '{', '[':
			n := len(s.open)
			s.open = slices.Grow(s.open, 1)[:n+1]
			s.open[n] = level{isList: c == '[', names: s.open[n].names[:0]} // the memory of one that was as deep
		case '}', ']':
			s.open = s.open[:max(0, len(s.open)-1)]
		case ',':
			if n := len(s.open); n > 0 {
				s.open[n-1].index++
			}
		case '"':
			end := i + stringEnd(data[i:])
			if task.LoneSurrogate(data[i:end]) >= 0 {
				return Fault{s.path(), `half of a surrogate pair is no character; escape both halves, as in \ud83d\ude00`}
			}
			if bytes.HasPrefix(bytes.TrimLeft(data[end:], " \t\r\n"), []byte(":")) {
				if err := s.add(data[i:end]); err != nil {
					return err
				}
			}
			i = end - 1
		}
	}
	return nil
}

// A nameScan knows the names of the objects and lists that are open, from the outside in.
type nameScan struct{ open []level }

type level struct {
	isList bool
	index  int      // of the present value
	names  [][]byte // of an object, up to the present one
}

// add takes the next name of the innermost object.
func (s *nameScan) add(quoted []byte) error {
	if len(s.open) == 0 || len(quoted) > maxName {
		return nil
	}
	in := &s.open[len(s.open)-1]
	if len(in.names) == maxNames {
		return nil
	}
	if in.names == nil {
		in.names = make([][]byte, 0, 8) // more than most have
	}
	name := bytes.Trim(quoted, `"`)
	if bytes.IndexByte(quoted, '\\') >= 0 {
		var text string
		_ = json.Unmarshal(quoted, &text) // what is no string has no name
		name = []byte(text)
	}
	in.names = append(in.names, name)
	for _, before := range in.names[:len(in.names)-1] {
		if bytes.Equal(before, name) {
			return Fault{s.path(), "it is there twice"}
		} else if bytes.EqualFold(before, name) {
			return Fault{s.path(), "it is there twice, also as " + wire.Clip(string(before))}
		}
	}
	return nil
}

// path returns where the present value is, as the faults of a body have it.
func (s *nameScan) path() string {
	path := "body"
	for _, in := range s.open {
		if in.isList {
			path += fmt.Sprintf("[%d]", in.index)
		} else if n := len(in.names); n > 0 {
			path += "." + wire.Clip(string(in.names[n-1]))
		}
	}
	return path
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
