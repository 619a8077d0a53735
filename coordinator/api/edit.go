package api

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger"
)

// mergePatch is the other content type of a patch (RFC 7396).
const mergePatch = "application/merge-patch+json"

type editInput struct {
	ID      string `path:"id" doc:"A task: its id, any unique piece of it, or @last" example:"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11"` // huma cannot set an embedded refInput
	IfMatch string `header:"If-Match" doc:"ETag of the task as it was last seen: a task that has changed since is not edited (412)" example:"\"1043\""`
	Body    patchBody
	tags    []string // values of the header If-Match, which its field above only describes
}

// ifMatchHeader is the header with the state that a task is expected to be in.
const ifMatchHeader = "If-Match"

// Resolve takes the header here, where it can be told from one that is empty or there
// twice.
func (in *editInput) Resolve(ctx huma.Context) []error {
	r, _ := humago.Unwrap(ctx)
	in.tags = r.Header[ifMatchHeader]
	return nil
}

// A patchBody is a patch with the names of TaskSpec. Its kinds are right; what its values
// say is the coordinator's to check.
type patchBody struct {
	fields  []byte
	refused *wire.Problem // why it is not taken; nil: it is
}

// Schema says that a patch has some of the fields of a task, or null in their place.
func (patchBody) Schema(r huma.Registry) *huma.Schema {
	spec := r.Schema(reflect.TypeFor[task.TaskSpec](), false, "")
	patch := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: false, Properties: map[string]*huma.Schema{}}
	for _, name := range task.EditableFields() {
		field := *spec.Properties[name]
		field.Nullable, field.Enum = true, nil // an enum would have to have null as well
		field.PrecomputeMessages()
		patch.Properties[name] = &field
	}
	patch.PrecomputeMessages()
	return patch
}

// read takes a patch as the schema has it.
func (b *patchBody) read(reg huma.Registry, schema *huma.Schema, data []byte) error {
	if err := checkJSON(data); err != nil {
		return err
	}
	renamed, err := task.RenameSpecs(data)
	if err != nil {
		b.refused = wire.ProblemOf(err) // huma would turn it into a text
		return nil
	}
	b.fields = slices.Clone(renamed) // the memory of data is used again
	f := newFaults(reg)
	f.find(schema, renamed, decodeStrictly(renamed, new(task.TaskSpec)))
	return f.err()
}

// editRoute registers the change of a task's fields.
func (s *Server) editRoute(api huma.API) {
	edit := op(http.MethodPatch, "/v1/tasks/{id}", "edit-task", "Change fields of a task that waits", "A JSON merge patch (RFC 7396): what it names is changed, null unsets, all of it or nothing. "+
		"With another session or agent the task leaves its session. What does not wait any more is a conflict.", http.StatusPreconditionFailed)
	reg := api.OpenAPI().Components.Schemas
	reg.Map()["TaskPatch"] = patchBody{}.Schema(reg)
	schema := &huma.Schema{Ref: "#/components/schemas/TaskPatch"}
	edit.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}, mergePatch: {Schema: schema}}}
	huma.Register(api, edit, s.edit)
}

func (s *Server) edit(ctx context.Context, in *editInput) (*taskOutput, error) {
	seqs, err := parseIfMatch(in.tags)
	switch {
	case err != nil:
		return nil, wire.ProblemOf(err)
	case in.Body.refused != nil:
		return nil, in.Body.refused
	}
	patch := task.Patch{Fields: in.Body.fields, Seqs: seqs}
	return s.answer(s.master.Edit(ctx, in.ID, patch, ledger.ByClient))
}

// etag returns the ETag of a task by the number of its last record, "" if that is not known.
func etag(seq uint64) string {
	if seq == 0 {
		return ""
	}
	return `"` + strconv.FormatUint(seq, 10) + `"`
}

// parseIfMatch returns the numbers that the lines of an If-Match permit, none if they permit
// any. An ETag that is none of ours permits nothing; an empty header, of a client that has
// lost its ETag, is not taken for none.
func parseIfMatch(lines []string) (seqs []uint64, err error) {
	tags := listed(lines)
	switch {
	case len(lines) == 0 || len(tags) == 1 && tags[0] == "*":
		return nil, nil
	case len(tags) == 0:
		return nil, &task.Error{
			Code: task.CodeInvalid, Message: "the header " + ifMatchHeader + " is empty",
			Hint: "send the ETag of the task as you last saw it, or leave the header out", Field: ifMatchHeader,
		}
	}
	for _, tag := range tags {
		seq, err := strconv.ParseUint(strings.Trim(tag, `"`), 10, 64)
		if err != nil || etag(seq) != tag {
			seq = 0 // no record has that number
		}
		seqs = append(seqs, seq)
	}
	return seqs, nil
}

// listed returns the members of a list that the lines of a header have; empty ones do not
// count (RFC 9110, 5.6.1).
func listed(lines []string) (members []string) {
	for member := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		if member = strings.TrimSpace(member); member != "" {
			members = append(members, member)
		}
	}
	return members
}
