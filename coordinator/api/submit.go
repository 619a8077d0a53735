package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"stint/coordinator"
	"stint/state"
)

// maxList is the largest body with a list of tasks.
const maxList = 64 << 20

type (
	submitInput struct {
		Body taskBody
		keys []string // values of the header Idempotency-Key
	}

	previewInput struct{ Body taskBody }

	// submitOutput has a field Status, which huma takes for the HTTP status. No
	// other output may have one.
	submitOutput struct {
		Status   int
		Location string `header:"Location"`
		Body     any    // *submittedTask or *submittedTasks
	}

	submittedTask struct {
		TaskView
		TaskID string `json:"task_id" doc:"The id once more, as the first of these interfaces called it"`
	}

	submittedTasks struct {
		Tasks []submittedTask `json:"tasks" doc:"In the order in which they were sent"`
	}
)

// A taskBody is a body with one task or a list of them.
type taskBody struct {
	one     coordinator.TaskSpec
	list    []coordinator.TaskSpec
	isList  bool
	refused *problem // why it is not taken; nil: it is
}

// Schema says that a body is one task or a list.
func (taskBody) Schema(r huma.Registry) *huma.Schema {
	return oneOrMany(r, reflect.TypeFor[coordinator.TaskSpec](), reflect.TypeFor[[]coordinator.TaskSpec]())
}

func oneOrMany(r huma.Registry, one, many reflect.Type) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{r.Schema(one, true, ""), r.Schema(many, true, "")}}
}

// read decodes a body: in one pass if its names are those of TaskSpec, else once more
// with the names changed into these.
func (b *taskBody) read(reg huma.Registry, data []byte) error {
	if b.isList = isList(data); !b.isList && len(data) > maxBody {
		b.refused = newProblem(http.StatusRequestEntityTooLarge, coordinator.CodeInvalid,
			fmt.Sprintf("the task has more than the %d bytes that are taken", maxBody), "put long texts into files of the workspace and name them in the prompt")
		return nil
	}
	refused := b.decode(data)
	if refused == nil || errors.Is(refused, coordinator.ErrLongList) {
		return b.refuse(refused)
	}
	renamed, err := coordinator.RenameSpecs(data)
	if err != nil {
		return b.refuse(err)
	}
	b.one, b.list = coordinator.TaskSpec{}, nil
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
		b.refused = asProblem(err)
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
		if len(b.list) == coordinator.MaxBatch {
			return coordinator.ErrLongList // before it takes a thousand times the memory of its body
		}
		b.list = append(b.list, coordinator.TaskSpec{})
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
	submit := op(http.MethodPost, "/v1/tasks", "submit-task", "Submit a task, or a list of which all are taken or none")
	submit.Description = "201: new tasks are there and durable. 200: what was asked for is there already, under that id or idempotency key. " +
		"A property may also be spelled with underscores (session_key), agent as tool, sessionKey as session, tenantId as tenant, " +
		"outputSpec as output_files, notBefore as scheduled_at, verifyCommand as verify."
	submit.DefaultStatus, submit.MaxBodyBytes = http.StatusCreated, maxList+1
	submit.Parameters = []*huma.Param{{
		Name: keyHeader, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
		Description: "1 to 256 printable characters, in quotes or without. The same request under the same key gives the same tasks, another one is a conflict. One task has it as its idempotencyKey; a list has it as a whole.",
	}}
	reg := api.OpenAPI().Components.Schemas
	schema := oneOrMany(reg, reflect.TypeFor[submittedTask](), reflect.TypeFor[submittedTasks]())
	submit.Responses = map[string]*huma.Response{}
	for status, what := range map[string]string{"200": "There already", "201": "Taken in"} {
		submit.Responses[status] = &huma.Response{
			Description: what, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}},
			Headers: map[string]*huma.Param{"Location": {Description: "Path of the task, if it is one", Schema: &huma.Schema{Type: huma.TypeString}}},
		}
	}
	huma.Register(api, submit, s.submit)
	huma.Register(api, alias(submit, "/tasks"), s.submit)

	preview := op(http.MethodPost, "/v1/tasks/preview", "preview-tasks", "Say what would be run for tasks, as they would be taken in; nothing is kept")
	preview.MaxBodyBytes = maxList + 1
	huma.Register(api, preview, s.preview)
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

// key gives the idempotency key of the request; "" if it has none.
func (in *submitInput) key() (string, error) {
	switch len(in.keys) {
	case 0:
		return "", nil
	case 1:
		return parseKey(in.keys[0])
	}
	return "", wrongKey("the header is there twice")
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
	if coordinator.CheckKey(key) != nil {
		return "", wrongKey("the key is not 1 to 256 printable characters")
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
			return "", wrongKey("something follows the closing quote")
		case c != '\\':
			out.WriteByte(c)
		case i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
			out.WriteByte(s[i])
		default:
			return "", wrongKey(`a backslash stands before neither " nor \`)
		}
	}
	return "", wrongKey("the closing quote is missing")
}

func wrongKey(why string) error {
	return &coordinator.Error{Code: coordinator.CodeInvalid, Message: "the header " + keyHeader + " cannot be used: " + why, Hint: "send for example " + keyHeader + `: "8e03978e-40d5-43dd-bc93-6894a57f9324"`, Field: keyHeader}
}

func (s *Server) submit(ctx context.Context, in *submitInput) (*submitOutput, error) {
	key, err := in.key()
	switch {
	case err != nil:
		return nil, asProblem(err)
	case in.Body.refused != nil:
		return nil, in.Body.refused
	case in.Body.isList:
		return s.submitList(ctx, key, in.Body.list)
	}
	return s.submitOne(ctx, key, in.Body.one)
}

func (s *Server) submitOne(ctx context.Context, key string, spec coordinator.TaskSpec) (*submitOutput, error) {
	switch {
	case key == "" || key == spec.IdempotencyKey:
	case spec.IdempotencyKey != "":
		return nil, asProblem(&coordinator.Error{
			Code: coordinator.CodeInvalid, Message: "the header " + keyHeader + " and idempotencyKey mean the same, and differ", Hint: "leave one of them out", Field: "idempotencyKey",
		})
	default:
		spec.IdempotencyKey = key
	}
	n := s.number(ctx, &spec)
	t, err := s.master.Submit(ctx, spec)
	if err != nil {
		return nil, asProblem(err)
	}
	return &submitOutput{Status: n.status(&t), Location: taskPath(t.ID), Body: s.submitted(t)}, nil
}

func (s *Server) submitList(ctx context.Context, key string, specs []coordinator.TaskSpec) (*submitOutput, error) {
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
		return nil, asProblem(err)
	}
	out, body := &submitOutput{Status: http.StatusOK}, &submittedTasks{Tasks: make([]submittedTask, len(tasks))}
	for i, t := range tasks {
		out.Status = max(out.Status, numbers[i].status(&t)) // one of them is new
		body.Tasks[i] = *s.submitted(t)
	}
	out.Body = body
	return out, nil
}

// submitted shows a task to who has sent it.
func (s *Server) submitted(t state.Task) *submittedTask {
	t.Prompt, t.InputFiles = "", nil // the client has them
	return &submittedTask{TaskView: s.view(t), TaskID: t.ID}
}

// A number is the id that a task would have if it were new.
type number struct {
	id     string
	chosen bool // by the client
	begun  time.Time
}

// number completes a spec: with an id if the client has chosen none, and with the run
// that asks.
func (s *Server) number(ctx context.Context, spec *coordinator.TaskSpec) number {
	n := number{chosen: spec.ID != "", begun: s.opts.Now().Truncate(time.Millisecond)} // as exact as createdAt in the ledger
	if !n.chosen {
		spec.ID = s.opts.NewID()
	}
	n.id, spec.FromRun = spec.ID, fromRun(ctx)
	return n
}

// status gives the HTTP status for the task that was made, or found.
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
		specs = []coordinator.TaskSpec{in.Body.one}
	}
	for i := range specs {
		s.number(ctx, &specs[i])
	}
	ctx, release := long(ctx)
	defer release()
	leave, err := s.searches.enter(ctx) // each of them has a search
	if err != nil {
		return nil, asProblem(ended(ctx, err))
	}
	defer leave()
	previews, err := s.master.Preview(ctx, specs, in.Body.isList)
	if err != nil {
		return nil, asProblem(ended(ctx, err))
	}
	out := &previewOutput{}
	out.Body.Previews = previews
	return out, nil
}
