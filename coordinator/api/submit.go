package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

type (
	submitInput struct {
		Body taskBody
		keys []string // values of the header Idempotency-Key
	}

	// batchInput is a submitInput of a list.
	batchInput struct {
		Body batchBody
		keys []string
	}

	previewInput struct{ Body tasksBody }

	// submitOutput has a field Status, which huma takes for the HTTP status. No
	// other output may have one.
	submitOutput struct {
		Status   int
		Location string `header:"Location"`
		Body     any    // a TaskView or a listBody
	}
)

// A taskBody is a body with one task, or a list of them, which older clients send to the
// same path.
type taskBody struct {
	one     task.TaskSpec
	list    []task.TaskSpec
	isList  bool
	refused *wire.Problem // why it is not taken; nil: it is
}

// Schema implements [huma.SchemaProvider].
func (taskBody) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[task.TaskSpec](), true, "")
}

// A tasksBody is a taskBody that is described as a list.
type tasksBody struct{ taskBody }

// Schema implements [huma.SchemaProvider].
func (tasksBody) Schema(r huma.Registry) *huma.Schema {
	return r.Schema(reflect.TypeFor[[]task.TaskSpec](), true, "")
}

// A batchBody is a tasksBody that is no single task.
type batchBody struct{ tasksBody }

// read refuses what is no list before its properties are looked at, which would be those
// of a task.
func (b *batchBody) read(reg huma.Registry, data []byte) error {
	if !isList(data) && json.Valid(data) {
		return b.refuse(task.Invalid("send [{…}, …]; a single task goes to /v1/tasks", "the body is not a list of tasks"))
	}
	return b.tasksBody.read(reg, data)
}

// read decodes a body: in one pass if its names are those of TaskSpec, else once more
// with the names changed into these.
func (b *taskBody) read(reg huma.Registry, data []byte) error {
	if b.isList = isList(data); !b.isList && len(data) > wire.MaxBody {
		b.refused = wire.NewProblem(http.StatusRequestEntityTooLarge, task.CodeInvalid,
			fmt.Sprintf("the task has more than the %d bytes that are taken", wire.MaxBody), "put long texts into files of the workspace and name them in the prompt")
		return nil
	}
	if task.EmptyKey(data) >= 0 {
		return b.refuse(wrongKey("idempotencyKey", "it is empty"))
	}
	refused := b.decode(data)
	if refused == nil || errors.Is(refused, task.ErrLongList) {
		return b.refuse(refused)
	}
	renamed, err := task.RenameSpecs(data)
	if err != nil {
		return b.refuse(err)
	}
	b.one, b.list = task.TaskSpec{}, nil
	if refused = b.decode(renamed); refused != nil && b.isList {
		return explain(reg, renamed, &b.list, refused)
	} else if refused != nil {
		return explain(reg, renamed, &b.one, refused)
	}
	return nil
}

// refuse notes why the body is not taken. Huma would turn the error into a text.
func (b *taskBody) refuse(err error) error {
	if err != nil {
		b.refused = wire.ProblemOf(err)
	}
	return nil
}

func isList(data []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("["))
}

// decode decodes one task, or a list of them one by one.
func (b *taskBody) decode(data []byte) error {
	if !b.isList {
		return decodeStrictly(data, &b.one)
	}
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

// submitRoutes registers what takes tasks.
func (s *Server) submitRoutes(api huma.API) {
	const spellings = "A property may also be spelled with underscores (session_key), agent as tool, sessionKey as session, tenantId as tenant, " +
		"outputSpec as output_files, notBefore as scheduled_at, verifyCommand as verify."
	submit := s.submission(api, op(http.MethodPost, "/v1/tasks", "submit-task", "Submit a task", "201: the task is new, and durable. 200: it exists already, under that id or idempotency key. "+spellings+" A list of tasks is accepted here too, as at /v1/tasks/batch.",
		http.StatusConflict, http.StatusTooManyRequests), reflect.TypeFor[wire.TaskView]())
	huma.Register(api, submit, s.submit)
	huma.Register(api, alias(submit, "/tasks"), s.submit)
	batch := s.submission(api, op(http.MethodPost, "/v1/tasks/batch", "submit-tasks", "Submit a list of tasks", "All of them are accepted, or none. 201: some are new, and durable. 200: all exist already. "+spellings,
		http.StatusConflict, http.StatusTooManyRequests), reflect.TypeFor[wire.ListBody]())
	huma.Register(api, batch, s.submitBatch)

	preview := op(http.MethodPost, "/v1/tasks/preview", "preview-tasks", "Show what would be run for tasks", "They are checked as at a submit, and their prompts are built. Nothing is kept, and no agent starts.", http.StatusConflict, http.StatusTooManyRequests)
	preview.MaxBodyBytes = wire.MaxList + 1
	huma.Register(api, preview, s.preview)
}

// submission completes the description of an operation that takes tasks and answers with
// them.
func (s *Server) submission(api huma.API, o huma.Operation, answer reflect.Type) huma.Operation {
	o.DefaultStatus, o.MaxBodyBytes = http.StatusCreated, wire.MaxList+1
	o.Parameters = []*huma.Param{{
		Name: keyHeader, In: "header", Schema: &huma.Schema{Type: huma.TypeString, Examples: []any{`"8e03978e-40d5-43dd-bc93-6894a57f9324"`}},
		Description: "1 to 256 printable characters, in quotes or without. The same request under the same key answers with the same tasks, another request is a conflict. A single task has it as its idempotencyKey, a list has it as a whole.",
	}}
	o.Responses = map[string]*huma.Response{}
	for status, what := range map[string]string{"200": "It exists already", "201": "It is new"} {
		o.Responses[status] = &huma.Response{
			Description: what, Content: map[string]*huma.MediaType{"application/json": {Schema: api.OpenAPI().Components.Schemas.Schema(answer, true, "")}},
			Headers: map[string]*huma.Param{"Location": {Description: "Path of the task, if it is a single one", Schema: &huma.Schema{Type: huma.TypeString}}},
		}
	}
	return o
}

// keyHeader is the header with the idempotency key of a request.
const keyHeader = "Idempotency-Key"

// Resolve takes the header here, where it can be told from one that is empty or there
// twice.
func (in *submitInput) Resolve(ctx huma.Context) []error {
	r, _ := humago.Unwrap(ctx)
	in.keys = r.Header[keyHeader]
	return nil
}

// Resolve is that of a [submitInput].
func (in *batchInput) Resolve(ctx huma.Context) []error {
	r, _ := humago.Unwrap(ctx)
	in.keys = r.Header[keyHeader]
	return nil
}

// key returns the idempotency key of the request; "" if it has none.
func (in *submitInput) key() (string, error) {
	switch len(in.keys) {
	case 0:
		return "", nil
	case 1:
		return parseKey(in.keys[0])
	}
	return "", wrongKey(keyHeader, "the header is there twice")
}

// parseKey reads an idempotency key: a string of structured fields (RFC 8941, in quotes),
// or the key as it is.
func parseKey(value string) (string, error) {
	key := strings.Trim(value, " \t")
	if inner, quoted := strings.CutPrefix(key, `"`); quoted {
		var err error
		if key, err = unquote(inner); err != nil {
			return "", err
		}
	}
	switch {
	case key == "":
		return "", wrongKey(keyHeader, "it is empty")
	case task.CheckKey(key) != nil:
		return "", wrongKey(keyHeader, "the key is not 1 to 256 printable characters")
	}
	return key, nil
}

// unquote reads a string up to its closing quote, with which it has to end.
func unquote(s string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' && i == len(s)-1:
			return out.String(), nil
		case c == '"':
			return "", wrongKey(keyHeader, "something follows the closing quote")
		case c != '\\':
			out.WriteByte(c)
		case i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
			out.WriteByte(s[i])
		default:
			return "", wrongKey(keyHeader, `a backslash stands before neither " nor \`)
		}
	}
	return "", wrongKey(keyHeader, "the closing quote is missing")
}

func wrongKey(field, why string) error {
	return &task.Error{Code: task.CodeInvalid, Message: field + " cannot be used: " + why, Hint: "send for example " + keyHeader + `: "8e03978e-40d5-43dd-bc93-6894a57f9324", or leave the key out`, Field: field}
}

func (s *Server) submit(ctx context.Context, in *submitInput) (*submitOutput, error) {
	key, err := in.key()
	switch {
	case err != nil:
		return nil, wire.ProblemOf(err)
	case in.Body.refused != nil:
		return nil, in.Body.refused
	case in.Body.isList:
		return s.submitList(ctx, key, in.Body.list)
	}
	return s.submitOne(ctx, key, in.Body.one)
}

// submitBatch is submit for a list.
func (s *Server) submitBatch(ctx context.Context, in *batchInput) (*submitOutput, error) {
	return s.submit(ctx, &submitInput{Body: in.Body.taskBody, keys: in.keys})
}

func (s *Server) submitOne(ctx context.Context, key string, spec task.TaskSpec) (*submitOutput, error) {
	switch {
	case key == "" || key == spec.IdempotencyKey:
	case spec.IdempotencyKey != "":
		return nil, wire.ProblemOf(&task.Error{
			Code: task.CodeInvalid, Message: "the header " + keyHeader + " and idempotencyKey mean the same, and differ", Hint: "leave one of them out", Field: "idempotencyKey",
		})
	default:
		spec.IdempotencyKey = key
	}
	n := s.number(ctx, &spec)
	t, err := s.master.Submit(ctx, spec)
	if err != nil {
		return nil, wire.ProblemOf(err)
	}
	return &submitOutput{Status: n.status(&t), Location: taskPath(t.ID), Body: s.submitted(t)}, nil
}

func (s *Server) submitList(ctx context.Context, key string, specs []task.TaskSpec) (*submitOutput, error) {
	numbers := make([]number, len(specs))
	for i := range specs {
		numbers[i] = s.number(ctx, &specs[i])
	}
	var tasks []state.Task
	var err error
	if key == "" {
		tasks, err = s.master.SubmitAll(ctx, specs)
	} else {
		tasks, err = s.master.SubmitOnce(ctx, key, specs)
	}
	if err != nil {
		return nil, wire.ProblemOf(err)
	}
	out, body := &submitOutput{Status: http.StatusOK}, wire.ListBody{Tasks: make([]wire.TaskView, len(tasks))}
	for i, t := range tasks {
		out.Status = max(out.Status, numbers[i].status(&t)) // one of them is new
		body.Tasks[i] = s.submitted(t)
	}
	out.Body = body
	return out, nil
}

// submitted shows a task to who has sent it.
func (s *Server) submitted(t state.Task) wire.TaskView {
	t.Prompt, t.InputFiles = "", nil // the client has them
	v := s.view(t)
	v.TaskID = t.ID
	return v
}

// A number is the id that a task would have if it were new.
type number struct {
	id     string
	chosen bool // by the client
	begun  time.Time
}

// number completes a spec: with an id if the client has chosen none, and with the run
// that asks.
func (s *Server) number(ctx context.Context, spec *task.TaskSpec) number {
	n := number{chosen: spec.ID != "", begun: s.opts.Now().Truncate(time.Millisecond)} // as exact as createdAt in the ledger
	if !n.chosen {
		spec.ID = s.opts.NewID()
	}
	n.id, spec.FromRun = spec.ID, fromRun(ctx)
	return n
}

// status returns the HTTP status for the task that was made, or found.
func (n *number) status(t *state.Task) int {
	if t.ID != n.id || n.chosen && t.CreatedAt.Before(n.begun) {
		return http.StatusOK
	}
	return http.StatusCreated
}

func (s *Server) preview(ctx context.Context, in *previewInput) (*previewOutput, error) {
	if in.Body.refused != nil {
		return nil, in.Body.refused
	}
	specs := in.Body.list
	if !in.Body.isList {
		specs = []task.TaskSpec{in.Body.one}
	}
	for i := range specs {
		s.number(ctx, &specs[i])
	}
	ctx, release := long(ctx)
	defer release()
	leave, err := s.searches.enter(ctx) // each of them has a search
	if err != nil {
		return nil, wire.ProblemOf(ended(ctx, err))
	}
	defer leave()
	previews, err := s.master.Preview(ctx, specs, in.Body.isList)
	if err != nil {
		return nil, wire.ProblemOf(ended(ctx, err))
	}
	out := &previewOutput{}
	out.Body.Previews = previews
	return out, nil
}
