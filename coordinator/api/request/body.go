// Package request reads what clients send: bodies, the idempotency key and If-Match. It is strict. What is
// not understood is refused, with every fault and its place: an unknown property, a property that is there
// twice, half of a surrogate pair, a body that is not JSON in UTF-8.
package request

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"unicode/utf8"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// NotJSON is what each error of a body begins with that is no JSON text at all: the answer is 400 and not 422.
const NotJSON = "the body is not JSON: "

// readBody puts a body into v. encoding/json would put U+FFFD for text that is not UTF-8; a prompt has to arrive as it was sent.
func (in *Input) readBody(data []byte, v reflect.Value) error {
	if !utf8.Valid(data) {
		return Fault{Text: NotJSON + "it is not valid UTF-8"}
	}
	if b, ok := v.Addr().Interface().(reader); ok {
		return b.read(data)
	}
	return decode(data, in.schema, v).err()
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

// read decodes a body.
func (b *Task) read(data []byte) error {
	if b.isList = isList(data); !b.isList && len(data) > wire.MaxBody {
		return wire.NewProblem(http.StatusRequestEntityTooLarge, task.CodeInvalid,
			fmt.Sprintf("the task has more than the %d bytes that are taken", wire.MaxBody), "put long texts into files of the workspace and name them in the prompt")
	}
	if bytes.Contains(data, []byte(`""`)) && task.EmptyKey(data) >= 0 {
		return wrongKey("idempotencyKey", "it is empty")
	}
	if b.isList {
		return decode(data, taskSchemas(), reflect.ValueOf(&b.list).Elem()).err()
	}
	b.list = make([]task.TaskSpec, 1)
	return decode(data, taskSchemas().items, reflect.ValueOf(&b.list[0]).Elem()).err()
}

// taskSchemas returns the schema of a list of tasks.
var taskSchemas = sync.OnceValue(func() *schema {
	s := schemaOf(reflect.TypeFor[[]task.TaskSpec]())
	s.items.alsoNamed(task.SpecNames())
	session := s.items.byName["agentSession"]
	s.items.done = func(v reflect.Value, given []string) { v.Addr().Interface().(*task.TaskSpec).NamedBy(given[session]) }
	return s
})

func isList(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("["))
}

// A Patch is a body with a merge patch that has the names of TaskSpec. Its kinds are right;
// what its values say is the coordinator's to check.
type Patch struct{ fields []byte }

// Fields returns the patch, as JSON.
func (b *Patch) Fields() []byte { return b.fields }

// read decodes a patch, whose names may be spelled as those of a task.
func (b *Patch) read(data []byte) error {
	b.fields = slices.Clone(data) // whose memory is used again
	d := decode(data, patchSchema(), reflect.ValueOf(new(task.TaskSpec)).Elem())
	d.refused = d.refused || len(d.faults) > 0
	return d.err()
}
