// Package request reads what clients send: bodies, the idempotency key and If-Match. It is strict. What is
// not understood is refused, with its place: an unknown property, a property that is there
// twice, half of a surrogate pair, a body that is not JSON in UTF-8.
package request

import (
	"encoding/json"
	"slices"

	"stint/coordinator/task"
)

// A reader is a body that reads itself.
type reader interface{ read(data []byte) error }

// A Task is a body with one task, or a list of them, which older clients send to the same path.
type Task struct{ task.Specs }

// Tasks is a [Task] that is described as a list.
type Tasks struct{ Task }

// A Batch is Tasks that are no single task.
type Batch struct{ Tasks }

// read decodes a body.
func (b *Batch) read(data []byte) error {
	err := task.Decode(data, &b.Specs)
	if !b.IsList && json.Valid(data) {
		return task.Invalid("send [{…}, …]; a single task goes to /v1/tasks", "the body is not a list of tasks")
	}
	return err
}

// A Patch is a body with a merge patch that has the names of TaskSpec, in JSON. Its kinds are right;
// what its values say is the coordinator's to check.
type Patch []byte

// read decodes a patch, whose names may be spelled as those of a task.
func (b *Patch) read(data []byte) error {
	*b = slices.Clone(data) // whose memory is used again
	_, err := task.ReadPatch(data, new(task.TaskSpec))
	return err
}
