package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/web"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// routes registers every path. What huma would add by itself is turned off: a
// page with scripts from elsewhere, $schema in answers, and its way to serve the
// description, which is not safe for concurrent use.
func (s *Server) routes() {
	cfg := huma.DefaultConfig("stint", s.opts.Version)
	cfg.DocsPath, cfg.SchemasPath, cfg.OpenAPIPath = "", "", ""
	cfg.CreateHooks = nil
	cfg.RejectUnknownQueryParameters = true
	cfg.Transformers = nil
	cfg.Components.Schemas = newRegistry()
	format := huma.Format{Marshal: wire.WriteJSON, Unmarshal: readJSON(cfg.Components.Schemas)}
	cfg.Formats = map[string]huma.Format{"application/json": format, "json": format}
	api := humago.New(s.mux, cfg)

	s.taskRoutes(api)
	s.queueRoutes(api)
	s.promptRoutes(api)
	s.streamRoutes(api)
	s.fileRoutes(api)
	s.reportRoutes(api)
	s.masterRoutes(api)
	s.monitorRoutes(api)
	s.ledgerRoutes(api)
	s.compactRoutes(api)
	s.browserRoutes(api)
	s.mux.Handle("GET /{$}", &web.Site{Agents: s.opts.Agents, Health: s.master.Health, List: s.master.List, Rows: s.page, Task: s.shown})
	s.mux.HandleFunc("GET /ui/{file}", web.ServeAsset)
	s.describe(api)
	s.mux.HandleFunc("/", s.noRoute)
}

// What is special about some routes, by their patterns.
var (
	// publicRoutes need no token: what they give is the same for everyone, but for the page
	// itself, which tells who has no cookie nothing, and the sign-in.
	publicRoutes = map[string]bool{"GET /{$}": true, "GET /ui/{file}": true, "POST " + pathSignIn: true}

	// longRoutes may last for long; a log only if it is followed.
	longRoutes = map[string]bool{
		"GET /v1/events": true, "GET /v1/tasks/{id}/wait": true, routeLogs: true, "GET /v1/usage": true,
		"POST /v1/tasks/{id}/verify": true, "POST /v1/ledger/compact": true,
	}

	// waitRoutes read, and may wait for a task: it matters which run does.
	waitRoutes = map[string]bool{"GET /v1/tasks/{id}/wait": true, routeLogs: true}
)

const routeLogs = "GET /v1/tasks/{id}/logs"

// pattern returns the pattern of the route that a request takes.
func (s *Server) pattern(r *http.Request) string {
	_, pattern := s.mux.Handler(r)
	return pattern
}

func (s *Server) isPublic(r *http.Request) bool { return publicRoutes[s.pattern(r)] }

// isLong reports whether a request may last for long.
func (s *Server) isLong(r *http.Request) bool {
	pattern := s.pattern(r)
	return longRoutes[pattern] && (pattern != routeLogs || r.URL.Query().Has("follow"))
}

// op describes one operation. errors are the statuses of errors that it has beside those
// of errorsOf.
func op(method, path, id, summary, about string, errors ...int) huma.Operation {
	return huma.Operation{
		Method: method, Path: path, OperationID: id, Summary: summary, Description: about, Errors: errors,
		MaxBodyBytes: wire.MaxBody + 1, BodyReadTimeout: bodyTimeout,
		SkipValidateBody: true, // see readJSON
	}
}

// alias returns an operation under another path, which the description leaves out.
func alias(o huma.Operation, path string) huma.Operation {
	o.Path, o.OperationID, o.Hidden = path, o.OperationID+"-alias", true
	return o
}

// notJSON is what each error of a body begins with that is no JSON text at all: of an
// error, huma keeps the text alone, and the answer is 400 and not 422.
const notJSON = "the body is not JSON: "

// Errors of a body that is not JSON.
var (
	errNotUTF8  = errors.New(notJSON + "it is not valid UTF-8")
	errTrailing = errors.New(notJSON + "something follows its end")
)

// readJSON returns the decoder of bodies. It is strict: unknown properties are
// refused, and so is text that is not UTF-8, for which encoding/json would put
// U+FFFD; a prompt has to arrive as it was sent. So is a property that is there twice.
// One pass decodes; only what it refuses goes through huma's validation, for a message
// that names every fault.
func readJSON(reg huma.Registry) func(data []byte, v any) error {
	patch := sync.OnceValue(func() *huma.Schema { return patchBody{}.Schema(reg) })
	return func(data []byte, v any) error {
		if !utf8.Valid(data) {
			return errNotUTF8
		}
		taken, err := decodeBody(reg, patch, data, v)
		if err != nil || !taken {
			return err
		}
		return checkNames(data)
	}
}

// decodeBody decodes a body into v. taken is false where v has noted why it is not taken.
func decodeBody(reg huma.Registry, patch func() *huma.Schema, data []byte, v any) (taken bool, err error) {
	switch b := v.(type) {
	case *taskBody:
		err = b.read(reg, data)
		return b.refused == nil, err
	case *tasksBody:
		err = b.read(reg, data)
		return b.refused == nil, err
	case *batchBody:
		err = b.read(reg, data)
		return b.refused == nil, err
	case *patchBody:
		err = b.read(reg, patch(), data)
		return b.refused == nil, err
	}
	if err := decodeStrictly(data, v); err != nil {
		return true, explain(reg, data, v, err)
	}
	return true, nil
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

// isOver says that something follows what was decoded of data; nil if nothing does.
func isOver(data []byte, dec *json.Decoder) error {
	if len(bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n")) > 0 {
		return errTrailing
	}
	return nil
}

// checkJSON says where a body is no JSON; nil if it is.
func checkJSON(data []byte) error {
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return fmt.Errorf(notJSON+"%w", err)
	}
	return nil
}

// explain returns the faults of a body that should have become v, else err.
func explain(reg huma.Registry, data []byte, v any, err error) error {
	if err := checkJSON(data); err != nil {
		return err
	}
	f := newFaults(reg)
	if t := reflect.TypeOf(v).Elem(); t.Kind() == reflect.Slice && isList(data) {
		f.findInList(t.Elem(), data)
	} else {
		f.find(reg.Schema(t, true, ""), data, err)
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
	if len(f.found.Errors) == before && refused != nil {
		f.misfit(refused)
	}
}

// misfit says in the words of the API what encoding/json says of a value, such as that a
// number is too large.
func (f *faults) misfit(refused error) {
	var wrong *json.UnmarshalTypeError
	if !errors.As(refused, &wrong) {
		f.found.Add(f.path, "", refused.Error())
		return
	}
	f.path.Push(wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:])
	f.found.Add(f.path, "", wrong.Value+" does not fit")
	f.path.Pop()
}

// findInList looks for the faults of a list, as many as are told.
func (f *faults) findInList(t reflect.Type, data []byte) {
	schema := f.reg.Schema(t, true, "")
	dec := json.NewDecoder(bytes.NewReader(data))
	_, _ = dec.Token() // the syntax is right: it was looked at
	for i := 0; dec.More() && len(f.found.Errors) <= maxComplaints; i++ {
		var value json.RawMessage
		_ = dec.Decode(&value)
		if err := decodeStrictly(value, reflect.New(t).Interface()); err != nil {
			f.path.PushIndex(i)
			f.find(schema, value, err)
			f.path.Pop()
		}
	}
}

// err tells of the faults; a property that is missing has a place too. nil: there are none.
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

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r, ok := s.enter(w, r); ok {
		s.mux.ServeHTTP(w, r)
	}
}

// enter looks at a request before its route does, and gives it with what is known of who
// asks. ok is false if it was answered already.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) (in *http.Request, ok bool) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !guard.OverTCP(r.Context()) || !s.isPublic(r) {
		s.notice().Write(w.Header())
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
	if p := checkBody(r, reads); p != nil {
		if r.Method == http.MethodPatch {
			w.Header().Set("Accept-Patch", acceptPatch)
		}
		p.Write(w)
		return r, false
	}
	r = r.WithContext(r.Context()) // a copy: from the body of its own request net/http learns how much of it is unread
	r.Body = &timedBody{r.Body, w}
	if !reads {
		r, p := s.admit(w, r)
		if p != nil {
			p.Write(w)
		}
		return r, p == nil
	}
	if waitRoutes[s.pattern(r)] {
		r = s.withRun(r)
	}
	return r, true
}

// checkBody says that a request has a body which cannot be JSON, or should have none; nil
// if that is not so. Unread, a body would hide from net/http that the client of a long
// request has gone.
func checkBody(r *http.Request, reads bool) *wire.Problem {
	switch {
	case r.ContentLength == 0:
		return nil
	case reads:
		return wire.NewProblem(http.StatusBadRequest, task.CodeInvalid, "a "+r.Method+" request has no body", "write what is asked for into the URL")
	case !isJSON(r):
		return wire.NewProblem(http.StatusUnsupportedMediaType, task.CodeInvalid, "the body's Content-Type must be application/json", "")
	}
	return nil
}

// A timedBody takes the deadline of a request's body off the connection once all of it
// was read: net/http goes on reading there to notice that a client has gone, and would
// take the deadline for that. It belongs to one request.
type timedBody struct {
	io.ReadCloser
	w http.ResponseWriter
}

// Read implements io.Reader.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = huma.SetReadDeadline(b.w, time.Time{}) // not supported by a test's recorder, which has none
	}
	return n, err
}

// isJSON reports whether the body of a request is said to be JSON.
func isJSON(r *http.Request) bool {
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && (t == "application/json" || t == mergePatch && r.Method == http.MethodPatch)
}

// acceptPatch are the kinds of body that a PATCH can have.
const acceptPatch = mergePatch + ", application/json"

// noRoute answers what no operation takes, and OPTIONS.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch} {
		probe := &http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := s.mux.Handler(probe); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	status, detail := http.StatusNotFound, "there is nothing at "+wire.Clip(r.URL.Path)
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(append(allowed, http.MethodOptions), ", "))
		if slices.Contains(allowed, http.MethodPatch) {
			w.Header().Set("Accept-Patch", acceptPatch)
		}
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		status, detail = http.StatusMethodNotAllowed, r.Method+" is not possible at "+wire.Clip(r.URL.Path)
	}
	wire.NewProblem(status, wire.CodeOf(status), detail, "what there is: GET /v1/openapi.json").Write(w)
}

// notice returns what each answer says about the master.
func (s *Server) notice() wire.Notice {
	n := wire.Notice{Findings: len(s.master.Findings()), Seq: s.master.Seq(), Config: s.opts.Config}
	n.Paused, n.PauseWhy = s.master.Paused()
	if short := s.master.Shortage(); short != nil {
		n.Shortage = short.What
	}
	return n
}
