package api

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/request"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
	"stint/state/jobs"
)

// A ListBody is a list of tasks.
type ListBody struct {
	Tasks []wire.TaskView `json:"tasks" doc:"The tasks: of a list newest first, of a submit in the order in which they were sent"`
	Next  string          `json:"next,omitempty" doc:"Cursor for the next page; left out on the last one" example:"2s"`
}

// aboutAPI is what the description says about all requests.
const aboutAPI = "The HTTP interface of a stint master. It answers the same requests on its unix socket, which only its user can open " +
	"and where no token is needed, and, as stint serve, on a port of this machine. There, each request needs the token (stint token header), " +
	"or the cookie of a browser that stint ui has signed in and, if the request changes something, the header Stint-Page. " +
	"Errors are application/problem+json; code is for programs. Unknown query parameters and properties are refused. " +
	"Each answer has the headers Stint-Seq (number of the newest record), Stint-Findings and Stint-Paused, and, while tasks wait for something that the machine lacks, Stint-Shortage."

// tags group the operations: each belongs to the tag with the longest prefix of its path.
var tags = []struct{ name, about, prefixes string }{
	{"tasks", "Submit, list, change and end tasks.", "/v1/tasks"},
	{"runs", "What the runs of a task read, wrote and left behind.", "/v1/tasks/{id}/runs /v1/tasks/{id}/logs /v1/tasks/{id}/files /v1/tasks/{id}/prompt /v1/tasks/{id}/raw"},
	{"sessions", "Conversations with an agent that several tasks share.", "/v1/sessions"},
	{"events", "Each change, as it happens.", "/v1/events"},
	{"reports", "Accounts, workers, usage and notes.", "/v1/accounts /v1/usage /v1/memory /v1/workers"},
	{"schedules", "What happens at set times: schedules, and due jobs.", "/v1/schedules /v1/scheduler"},
	{"ledger", "The files that hold all tasks, which people edit too.", "/v1/ledger /v1/state"},
	{"master", "The master itself: dispatch, health, metrics.", "/"},
	{"browser", "How stint ui signs a browser in.", "/ui /v1/ui"},
}

// errorAnswers say when an answer has the status of an error, with an example.
var errorAnswers = map[int]struct{ when, example, hint string }{
	http.StatusBadRequest:                   {"The body is missing, cut off or not JSON, or there is one where none belongs.", task.NotJSON + "unexpected end of JSON input", ""},
	http.StatusUnauthorized:                 {"The token or the cookie is missing or no longer valid. Only over TCP.", "the token is missing or is not the present one", "stint token header"},
	http.StatusForbidden:                    {"A run of an agent, or the page of another site, may not do this.", task.ErrFromRun.Message, task.ErrFromRun.Hint},
	http.StatusNotFound:                     {"There is no such task, session, run, file, schedule or job.", `there is no task "x"`, "stint ls"},
	http.StatusConflict:                     {"The reference fits more than one task, or the request contradicts what is already so.", `"019a" fits several tasks`, "give more of the id"},
	http.StatusPreconditionFailed:           {"The task has changed since it was read.", "the task has changed", "read it again"},
	http.StatusRequestEntityTooLarge:        {"The body is larger than is accepted.", "the body is too large: it has more than 4194304 bytes", "send it in several parts, or over the unix socket, which takes more"},
	http.StatusUnsupportedMediaType:         {"The body is of another kind.", "the body's Content-Type must be application/json", ""},
	http.StatusRequestedRangeNotSatisfiable: {"The header Range names nothing that exists.", "the header Range names nothing that is there", "for the last 1000 of them: Range: bytes=-1000"},
	http.StatusMisdirectedRequest:           {"The request is for another host. Only over TCP.", "this is not the host that was asked for", "use the address that stint ui shows"},
	http.StatusUnprocessableEntity:          {"The request is well-formed, and something in it is wrong; field names it.", "the prompt is empty", "stint task PROMPT"},
	http.StatusLocked:                       {"A run or a lock of someone else is in the way.", "the task runs", "try again once that has ended"},
	http.StatusTooManyRequests:              {"A limit is reached: of the queue, or of requests at the same time.", "the queue is full: 1000 tasks wait, 1 more would come, and max_queued is 1000", "wait until some have ended"},
	http.StatusInternalServerError:          {"stint failed. There is no code.", "read task x: input/output error", ""},
	http.StatusServiceUnavailable:           {"The master is stopping, or cannot write.", wire.ErrStopping.Message, wire.ErrStopping.Hint},
	http.StatusInsufficientStorage:          {"The disk is full. Nothing was kept.", "the disk of /home/ana/.local/state/stint is full; nothing was kept", "make room and try again"},
}

// describe returns the description of a server, as JSON: huma makes the schemas.
func describe(s *Server) []byte {
	huma.DefaultArrayNullable = false // no list that we send is null
	doc := huma.DefaultConfig("stint", s.opts.Version).OpenAPI
	doc.Components.Schemas = newRegistry()
	d := describer{doc, doc.Components.Schemas}
	for _, o := range s.operations {
		doc.AddOperation(d.describe(o))
	}
	doc.Info.Description = aboutAPI
	doc.Info.License = &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"}
	doc.Info.Contact = &huma.Contact{Name: "stint"}
	doc.Servers = []*huma.Server{{
		URL: "http://127.0.0.1:{port}", Description: "The listener of stint serve",
		Variables: map[string]*huma.ServerVariable{"port": {Default: "7433", Description: "Port of the setting http"}},
	}}
	for _, t := range tags {
		doc.Tags = append(doc.Tags, &huma.Tag{Name: t.name, Description: t.about})
	}
	doc.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":  {Type: "http", Scheme: "bearer", Description: "The token in the file token of the state directory. Only over TCP"},
		"cookie": {Type: "apiKey", In: "cookie", Name: guard.CookieName, Description: "The cookie of a browser, under the host name that stint ui has given it"},
	}
	doc.Security = []map[string][]string{{"token": {}}, {"cookie": {}}, {}}
	d.describeRefusals()
	for path, item := range doc.Paths {
		for _, o := range []*huma.Operation{item.Get, item.Post, item.Patch} {
			if o != nil {
				d.operation(path, o)
			}
		}
	}
	spec, err := json.Marshal(doc)
	if err != nil {
		panic("api: the description does not marshal: " + err.Error())
	}
	return spec
}

// describe returns one operation, but for what is the same of all of them.
func (d *describer) describe(o operation) *huma.Operation {
	out := &huma.Operation{
		Method: o.method, Path: o.path, OperationID: o.id, Summary: o.summary, Description: o.about, Errors: o.errors,
		Parameters: parametersOf[o.id], Responses: d.answers(o),
	}
	for _, f := range reflect.VisibleFields(o.in) {
		if f.Name == "Body" {
			out.RequestBody = &huma.RequestBody{Required: f.Type.Kind() != reflect.Pointer, Content: map[string]*huma.MediaType{
				"application/json": {Schema: huma.SchemaFromField(d.reg, f, cmp.Or(named(o.in, f), o.id+"Request"))},
			}}
			if o.method == http.MethodPatch {
				merge := *out.RequestBody.Content["application/json"]
				out.RequestBody.Content[mergePatch] = &merge
			}
			continue
		}
		for _, in := range []string{"path", "query", "header"} {
			if name := f.Tag.Get(in); name != "" && f.Tag.Get("hidden") == "" {
				s := huma.SchemaFromField(d.reg, f, "")
				p := &huma.Param{Name: name, In: in, Description: s.Description, Required: in == "path", Schema: s}
				if in == "query" {
					p.Explode = new(bool)
				}
				out.Parameters = append(out.Parameters, p)
			}
		}
	}
	return out
}

// named returns what the schema of a field is called that has no name of its own.
func named(t reflect.Type, f reflect.StructField) string {
	if t.Name() == "" {
		return ""
	}
	return t.Name() + f.Name
}

// answers returns the good answers of an operation.
func (d *describer) answers(o operation) map[string]*huma.Response {
	of := func(t reflect.Type) map[string]*huma.MediaType {
		return map[string]*huma.MediaType{"application/json": {Schema: d.reg.Schema(t, true, "")}}
	}
	all := map[string]*huma.Response{}
	good, status := &huma.Response{Headers: map[string]*huma.Param{}}, "200"
	body, has := o.out.FieldByName("Body")
	switch location := map[string]*huma.Param{"Location": {Description: "Path of the task, if it is a single one", Schema: &huma.Schema{Type: huma.TypeString}}}; o.id {
	case "submit-task", "submit-tasks":
		t := reflect.TypeFor[wire.TaskView]()
		if o.id == "submit-tasks" {
			t = reflect.TypeFor[ListBody]()
		}
		all["200"] = &huma.Response{Description: "It exists already", Content: of(t), Headers: location}
		good, status = &huma.Response{Description: "It is new", Content: of(t), Headers: maps.Clone(location)}, "201"
	case "enqueue-job":
		all["200"] = &huma.Response{Description: "It exists already", Content: of(reflect.TypeFor[jobs.Job]())}
		status = "201"
	case "list-tasks":
		good = &huma.Response{Description: "The tasks", Content: of(reflect.TypeFor[ListBody]()), Headers: map[string]*huma.Param{
			"Link":         {Description: `The next page, as rel="next"; left out on the last one`, Schema: &huma.Schema{Type: huma.TypeString}},
			wire.SeqHeader: {Description: "Number of the newest record: events go on from there. Every answer has it", Schema: &huma.Schema{Type: huma.TypeInteger}},
		}}
	case "list-tasks-as-text":
		all = content("The table", "text/plain", "ID        STATUS  TIME  AGE    SESSION  AGENT  PROMPT\n8f6b2c11  done    2m24s  4m51s  web      codex  Fix the flaky login test.\n", false)
		all["200"].Headers = map[string]*huma.Param{wire.ListHeader: {Description: "The number of its tasks, and the accounts of those that are queued, with blanks between them", Schema: &huma.Schema{Type: huma.TypeString}}}
	case "events":
		good.Description, good.Content = "A stream without an end", of(reflect.TypeFor[task.Change]())
		good.Content[wire.JSONLines] = good.Content["application/json"]
		delete(good.Content, "application/json")
		good.Content[eventStreamType] = text("id: 1042\nevent: task\ndata: {\"seq\":1042,\"task\":{\"id\":\"019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11\",\"status\":\"queued\"}}\n\n")
	case "raw-task":
		all = content("The sections", "text/markdown", "## Task 019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11\n- seq: 1042\n- status: queued\n<!-- end 1042 -->\n", false)
	case "metrics":
		all = content("The metrics", "text/plain", "stint_runs 1\n", false)
	case "state":
		all = content("The state", "text/plain", "task 019ab3f0-6f1e-7c3a-9a51-3f0e8f6b2c11 done\n", false)
	case "task-file":
		all = content("The content, to be saved and not shown", "application/octet-stream", "# Report\n", true)
	case "task-logs":
		all = content("What was written so far, or a stream that goes on", "text/plain", "ok  \tshop/login\t0.4s\n", true)
	}
	if !has {
		status = "204"
	}
	if all[status] == nil {
		all[status] = good
	}
	good = all[status]
	code, _ := strconv.Atoi(status)
	good.Description = cmp.Or(good.Description, http.StatusText(code))
	if good.Content == nil && has && body.Type.Kind() != reflect.Func {
		good.Content = map[string]*huma.MediaType{"application/json": {Schema: huma.SchemaFromField(d.reg, body, cmp.Or(named(o.out, body), o.id+"Response"))}}
	}
	for f := range o.out.Fields() {
		if name := f.Tag.Get("header"); name != "" {
			if good.Headers == nil {
				good.Headers = map[string]*huma.Param{}
			}
			good.Headers[name] = &huma.Param{Schema: huma.SchemaFromField(d.reg, f, "")}
		}
	}
	return all
}

// parametersOf are parameters that no field has, because their requests take them by themselves.
var parametersOf = map[string][]*huma.Param{"submit-task": idempotencyKey, "submit-tasks": idempotencyKey}

var idempotencyKey = []*huma.Param{{
	Name: request.KeyHeader, In: "header", Schema: &huma.Schema{Type: huma.TypeString, Examples: []any{`"8e03978e-40d5-43dd-bc93-6894a57f9324"`}},
	Description: "1 to 256 printable characters, in quotes or without. The same request under the same key answers with the same tasks, another request is a conflict. A single task has it as its idempotencyKey, a list has it as a whole.",
}}

// A describer adds to a description what huma leaves out.
type describer struct {
	doc *huma.OpenAPI
	reg huma.Registry
}

// describeRefusals describes the answer for each status of an error once.
func (d *describer) describeRefusals() {
	d.doc.Components.Responses = map[string]*huma.Response{}
	for status, r := range errorAnswers {
		p := wire.NewProblem(status, r.example, r.hint)
		about, headers := r.when, map[string]*huma.Param{}
		var codes []string
		for code, is := range wire.Statuses {
			if is == status || code == p.Code {
				codes = append(codes, string(code))
			}
		}
		if slices.Sort(codes); len(codes) > 0 {
			p.Code = task.Code(codes[0])
			about += " Codes: `" + strings.Join(codes, "`, `") + "`."
		}
		w := httptest.NewRecorder()
		if p.Write(w); w.Header().Get("Retry-After") != "" {
			headers["Retry-After"] = &huma.Param{Description: "Seconds after which to try again", Schema: &huma.Schema{Type: huma.TypeInteger}}
		}
		d.doc.Components.Responses[responseName(status)] = &huma.Response{Description: about, Headers: headers, Content: map[string]*huma.MediaType{
			"application/problem+json": {Schema: d.reg.Schema(reflect.TypeFor[wire.Problem](), true, ""), Example: p},
		}}
	}
}

func responseName(status int) string { return strings.ReplaceAll(http.StatusText(status), " ", "") }

// operation adds a tag, the answers that are errors, and examples.
func (d *describer) operation(path string, o *huma.Operation) {
	best := ""
	for _, t := range tags {
		for prefix := range strings.FieldsSeq(t.prefixes) {
			if strings.HasPrefix(path, prefix) && len(prefix) > len(best) {
				best, o.Tags = prefix, []string{t.name}
			}
		}
	}
	if publicRoutes[o.Method+" "+path] {
		o.Security = []map[string][]string{{}}
	}
	delete(o.Responses, "default")
	if slices.ContainsFunc(o.Parameters, func(p *huma.Param) bool { return p.Name == "If-None-Match" }) {
		o.Responses["304"] = &huma.Response{Description: "You have it as it is"}
	}
	errors := append(o.Errors,
		http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest,
		http.StatusUnprocessableEntity, http.StatusInternalServerError)
	if strings.Contains(path, "{") {
		errors = append(errors, http.StatusNotFound, http.StatusConflict)
	}
	if o.RequestBody != nil {
		errors = append(errors, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if o.Method != http.MethodGet {
		errors = append(errors, http.StatusServiceUnavailable, http.StatusInsufficientStorage)
	}
	if longRoutes[o.Method+" "+path] {
		errors = append(errors, http.StatusServiceUnavailable, http.StatusTooManyRequests)
	}
	for _, status := range errors {
		o.Responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + responseName(status)}
	}
	if o.RequestBody != nil {
		d.examples(o.RequestBody.Content)
	}
	for _, r := range o.Responses {
		d.examples(r.Content)
	}
}

// examples adds an example to each kind of body that is JSON.
func (d *describer) examples(content map[string]*huma.MediaType) {
	for _, m := range content {
		if m.Example == nil {
			m.Example = d.example(m.Schema)
		}
	}
}

// typical are the properties in the example of a schema that has more of them than one value would have.
var typical = map[string]string{
	"Task": "id status sessionKey sessionId workspace agent account resume agentSession verifyCommand runId attempt iteration exitCode " +
		"by createdAt startedAt updatedAt usage title prompt result runDir",
	"TaskSpec":  "prompt workspace agent sessionKey verifyCommand",
	"Change":    "seq task",
	"Place":     "first",
	"TaskPatch": "label priority",
}

// example puts together the examples of a schema's parts; nil: there are none. Those of a
// property count before those of the schema that it refers to.
func (d *describer) example(s *huma.Schema) any {
	name, isRef := strings.CutPrefix(s.Ref, "#/components/schemas/")
	if isRef && len(s.Examples) == 0 {
		s = d.reg.SchemaFromRef(s.Ref)
	}
	switch {
	case len(s.Examples) > 0:
		return s.Examples[0]
	case s.Type == huma.TypeArray:
		return []any{d.example(s.Items)}
	case s.Type != huma.TypeObject:
		return nil
	}
	names := slices.Collect(maps.Keys(s.Properties))
	if typical[name] != "" {
		names = strings.Fields(typical[name])
	}
	object := map[string]any{}
	for _, property := range names {
		if value := d.example(s.Properties[property]); value != nil {
			object[property] = value
		}
	}
	return object
}

// Types whose values come from a closed set: their schemas have names of their own.
type (
	statusSchema string
	classSchema  string
	codeSchema   string
	patchSchema  struct{}
)

// Schema implements [huma.SchemaProvider]: a patch has some of the fields of a task, or null in their place.
func (patchSchema) Schema(r huma.Registry) *huma.Schema {
	const name = "TaskPatch"
	if r.Map()[name] == nil {
		spec := r.SchemaFromRef(r.Schema(reflect.TypeFor[task.TaskSpec](), true, "").Ref)
		patch := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: false, Properties: map[string]*huma.Schema{}}
		for _, name := range task.EditableFields {
			field := *spec.Properties[name]
			field.Nullable, field.Enum = true, nil // an enum would have to have null as well
			patch.Properties[name] = &field
		}
		r.Map()[name] = patch
	}
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

// Schema implements [huma.SchemaProvider].
func (statusSchema) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "Status", "Status of a task", state.Statuses[:])
}

// Schema implements [huma.SchemaProvider].
func (classSchema) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "Class", "How a run failed", state.Classes[:])
}

// Schema implements [huma.SchemaProvider].
func (codeSchema) Schema(r huma.Registry) *huma.Schema {
	return enum(r, "Code", "Kind of an error", slices.Sorted(maps.Keys(wire.Statuses)))
}

// enum registers the schema of a closed set, and returns a reference to it.
func enum[T ~string](r huma.Registry, name, about string, values []T) *huma.Schema {
	if r.Map()[name] == nil {
		s := &huma.Schema{Type: huma.TypeString, Description: about}
		for _, v := range values {
			s.Enum = append(s.Enum, string(v))
		}
		s.Examples = s.Enum[:1]
		s.PrecomputeMessages()
		r.Map()[name] = s
	}
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

// newRegistry returns a registry in which a task has one schema, wherever it appears, and no list is null.
func newRegistry() huma.Registry {
	names := map[string]string{
		"TaskView": "Task", "ListBody": "TaskList", "NoBody": "Empty", "UsageBody": "UsageReport", "CookieOutputBody": "PageKey",
		"SignInInputBody": "SignIn", "Result": "MemoryResult", "Term": "MemoryTerm",
		"Spec": "JobSpec", "Pull": "JobPull", "Ack": "JobAck", "Fail": "JobFailure",
	}
	r := huma.NewMapRegistry("#/components/schemas/", func(t reflect.Type, hint string) string {
		name := huma.DefaultSchemaNamer(t, hint)
		return cmp.Or(names[name], strings.TrimSuffix(strings.TrimSuffix(name, "Body"), "Output"))
	})
	for t, as := range map[reflect.Type]reflect.Type{
		reflect.TypeFor[state.Task](): reflect.TypeFor[wire.TaskView](), reflect.TypeFor[state.Status](): reflect.TypeFor[statusSchema](),
		reflect.TypeFor[request.Task](): reflect.TypeFor[task.TaskSpec](), reflect.TypeFor[request.Tasks](): reflect.TypeFor[[]task.TaskSpec](), reflect.TypeFor[request.Batch](): reflect.TypeFor[[]task.TaskSpec](),
		reflect.TypeFor[request.Patch](): reflect.TypeFor[patchSchema](), reflect.TypeFor[state.Class](): reflect.TypeFor[classSchema](), reflect.TypeFor[task.Code](): reflect.TypeFor[codeSchema](),
	} {
		r.RegisterTypeAlias(t, as)
	}
	return r
}

// text describes a body that is text.
func text(example string) *huma.MediaType {
	return &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}, Example: example}
}

// content describes good answers with a content that is no JSON; parts of it can be asked for
// if ranges is true.
func content(what, contentType, example string, ranges bool) map[string]*huma.Response {
	content := map[string]*huma.MediaType{contentType: text(example)}
	responses := map[string]*huma.Response{"200": {Description: what, Content: content}}
	if ranges {
		responses["206"] = &huma.Response{Description: "The part that the header Range names", Content: content}
	}
	return responses
}
