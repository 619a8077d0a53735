package api

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"io"
	"mime"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/request"
	"stint/coordinator/api/web"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state/jobs"
)

// openAPI is the OpenAPI document of this interface, which TestDescription makes of the routes.
//
//go:embed openapi.json
var openAPI []byte

// routes registers every path.
func (s *Server) routes() {
	s.submitRoutes()
	s.taskRoutes()
	s.runRoutes()
	s.reportRoutes()
	s.controlRoutes()
	s.scheduleRoutes()
	s.jobRoutes()
	s.fleetRoutes()
	s.monitorRoutes()
	s.browserRoutes()
	site := &web.Site{
		Master: s.rooms, Agents: s.opts.Agents, Topics: s.opts.Topics, Rows: s.page, Shown: s.shown,
		Shared: s.sharedNow,
		Due: func(ctx context.Context) (due web.Due) {
			list, err := s.rooms.Schedules.Schedules(ctx)
			if due.Schedules = list; err != nil {
				due.Mistake = err.Error()
			}
			s.rooms.Jobs.View(func(st *jobs.State) { due.Jobs = DueJobs(st, s.opts.Now(), 20) })
			return due
		},
		Fleet: s.rooms.Fleet,
	}
	s.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		defer s.rooms.Call()()
		site.ServeHTTP(w, r)
	})
	s.mux.HandleFunc("GET /ui/{file}", web.ServeAsset)
	s.mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(bytes.Replace(openAPI, []byte(`"version": "1"`), strconv.AppendQuote([]byte(`"version": `), s.opts.Version), 1)) // the client may be gone
	})
	s.mux.HandleFunc("/", s.noRoute)
}

// What is special about some routes, by their patterns.
var (
	// publicRoutes need no token: what they return is the same for everyone, but for the page
	// itself, which tells who has no cookie nothing, and the sign-in.
	publicRoutes = map[string]bool{"GET /{$}": true, "GET /ui/{file}": true, "POST " + pathSignIn: true, "GET /health": true}

	// longRoutes may last for long; a log only if it is followed.
	longRoutes = map[string]bool{
		"GET /v1/events": true, "GET /v1/tasks/{id}/wait": true, routeLogs: true, "GET /v1/usage": true,
		"POST /v1/instances/{id}/check": true, "POST /v1/instances/{id}/sync": true, "POST /v1/instances/{id}/recover": true,
		"POST /v1/ledger/compact": true, "POST /v1/ledger/prune": true,
	}

	// waitRoutes read, and may wait for a task: it matters which run does.
	waitRoutes = map[string]bool{"GET /v1/tasks/{id}/wait": true, routeLogs: true}
)

const routeLogs = "GET /v1/tasks/{id}/logs"

func (s *Server) pattern(r *http.Request) string {
	_, pattern := s.mux.Handler(r)
	return pattern
}

func (s *Server) isPublic(r *http.Request) bool { return publicRoutes[s.pattern(r)] }

func (s *Server) isLong(r *http.Request) bool {
	pattern := s.pattern(r)
	return longRoutes[pattern] && (pattern != routeLogs || r.URL.Query().Has("follow"))
}

// An operation is what can be asked for at one path: what programs see of it, what its description says, and
// its types, of which TestDescription makes the rest.
type operation struct {
	method, path, id, summary, about string

	errors  []int  // statuses of errors that it has beside those that nearly all have
	most    int64  // bytes of its body
	also    string // another path, which the description leaves out; "": none
	watches bool   // it is for who watches the master, and keeps no idle one from ending
	in, out reflect.Type
}

// op returns an operation.
func op(method, path, id, summary, about string, errors ...int) operation {
	return operation{method: method, path: path, id: id, summary: summary, about: about, errors: errors, most: wire.MaxBody}
}

// upTo sets how many bytes a body may have.
func (o operation) upTo(most int64) operation { o.most = most; return o }

// alias adds a path that the description leaves out.
func (o operation) alias(path string) operation { o.also = path; return o }

// watching marks an operation that keeps no idle master from ending: who watches it asks all the time.
func (o operation) watching() operation { o.watches = true; return o }

// register adds an operation. Its handler returns errors of the master as they are.
func register[I, O any](s *Server, o operation, handler func(context.Context, *I) (*O, error)) {
	o.in, o.out = reflect.TypeFor[I](), reflect.TypeFor[O]()
	s.operations = append(s.operations, o)
	input := request.NewInput(o.in, o.most)
	answer := func(w http.ResponseWriter, r *http.Request) {
		if !o.watches {
			defer s.rooms.Call()()
		}
		in := new(I)
		if p := input.Read(w, r, in); p != nil {
			p.Write(w)
			return
		}
		out, err := handler(r.Context(), in)
		if err != nil {
			wire.ProblemOf(err).Write(w)
			return
		}
		write(w, r, reflect.ValueOf(out).Elem())
	}
	if s.mux.HandleFunc(o.method+" "+o.path, answer); o.also != "" {
		s.mux.HandleFunc(o.method+" "+o.also, answer)
	}
}

// answers adds an operation whose answer is what its handler returns, as JSON.
func answers[I, T any](s *Server, o operation, handler func(context.Context, *I) (T, error)) {
	register(s, o, func(ctx context.Context, in *I) (*struct{ Body T }, error) {
		v, err := handler(ctx, in)
		return &struct{ Body T }{v}, err
	})
}

// A streamOutput writes itself.
type streamOutput struct {
	Body func(http.ResponseWriter, *http.Request)
}

// write answers with a struct. Of its fields, Status is the status, Body is sent as JSON unless it is
// bytes or writes itself, and the others are headers, which are left out where they are "".
func write(w http.ResponseWriter, r *http.Request, v reflect.Value) {
	status, body := http.StatusOK, any(nil)
	for field, f := range v.Fields() {
		switch {
		case field.Name == "Status":
			status = cmp.Or(int(f.Int()), status)
		case field.Name == "Body":
			body = f.Interface()
		case f.String() != "":
			w.Header().Set(field.Tag.Get("header"), f.String())
		}
	}
	switch body := body.(type) {
	case nil:
		w.WriteHeader(http.StatusNoContent)
	case func(http.ResponseWriter, *http.Request):
		body(w, r)
	case []byte:
		w.WriteHeader(status)
		_, _ = w.Write(body) // the client may be gone
	default:
		wire.Answer(w, status, "application/json", body)
	}
}

// notNull returns a list, which JSON has as [] if it is empty.
func notNull[T any](list []T) []T { return append([]T{}, list...) }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r, ok := s.enter(w, r); ok {
		s.mux.ServeHTTP(w, r)
	}
}

// enter looks at a request before its route does, and returns it with what is known of who
// asks. ok is false if it was answered already.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) (in *http.Request, ok bool) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !guard.OverTCP(r.Context()) || !s.isPublic(r) {
		n := wire.Notice{Findings: len(s.rooms.Findings()), Seq: s.rooms.Seq(), Config: s.opts.Config}
		n.Paused, n.PauseWhy = s.rooms.Paused()
		if short := s.rooms.Shortage(); short != nil {
			n.Shortage = short.What
		}
		n.Write(w.Header())
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions
	if p := checkBody(r, reads); p != nil {
		p.Write(w)
		return r, false
	}
	if !reads || strings.HasPrefix(r.URL.Path, adminPath) {
		r, p := s.admit(w, r)
		if p != nil {
			p.Write(w)
		}
		return r, p == nil
	}
	if waitRoutes[s.pattern(r)] {
		run, _ := guard.RunOf(r) // as far as it can be told
		r = r.WithContext(guard.WithRun(r.Context(), run))
	}
	return r, true
}

// checkBody returns an error if a request has a body which cannot be JSON, or should have none; nil if that
// is not so. Unread, a body would hide from net/http that the client of a long request has gone.
func checkBody(r *http.Request, reads bool) *wire.Problem {
	if r.ContentLength == 0 {
		return nil
	}
	if reads {
		return wire.NewProblem(http.StatusBadRequest, "a "+r.Method+" request has no body", "write what is asked for into the URL")
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" && (t != mergePatch || r.Method != http.MethodPatch) {
		return wire.NewProblem(http.StatusUnsupportedMediaType, "the body's Content-Type must be application/json", "curl --json BODY")
	}
	return nil
}

// mergePatch is the other content type of a patch (RFC 7396).
const mergePatch = "application/merge-patch+json"

// noRoute answers what no operation takes.
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
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		status, detail = http.StatusMethodNotAllowed, r.Method+" is not possible at "+wire.Clip(r.URL.Path)
	}
	wire.NewProblem(status, detail, "what there is: GET /v1/openapi.json").Write(w)
}

// forRuns are the paths at which a run may POST; beside that it may read.
var forRuns = []string{"/v1/tasks", "/tasks", "/v1/tasks/batch", "/v1/tasks/preview", "/v1/tasks/*/cancel", "/v1/memory/search", "/v1/agents"}

// admit lets a request pass that changes something, with the run that it comes from, unless that run may not
// make it. Where nobody can tell, the connection ends: who has it is looked up anew only for another one.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) (*http.Request, *wire.Problem) {
	run, err := guard.RunOf(r)
	if err != nil {
		w.Header().Set("Connection", "close")
		code := task.CodeForbidden
		if task.ShortageOf(err) != 0 {
			code = task.CodeShortage
			_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, wire.MaxBody)) // else net/http holds the connection for a while
			s.noteShortage(err)
		}
		return r, wire.ProblemOf(&task.Error{Code: code, Message: "nobody can tell whether an agent asks: " + err.Error(), Hint: "try again"})
	}
	if run == "" {
		return r, nil
	}
	if r.Method != http.MethodPost || !slices.ContainsFunc(forRuns, func(pattern string) bool { ok, _ := path.Match(pattern, r.URL.Path); return ok }) {
		return r, wire.ProblemOf(task.ErrFromRun)
	}
	return r.WithContext(guard.WithRun(r.Context(), run)), nil
}

// environment returns the environment of the user's call that a request has. One that comes
// over TCP, or from a run, has none: programs are looked for in it.
func environment(ctx context.Context, env []string) []string {
	if guard.OverTCP(ctx) || guard.Run(ctx) != "" {
		return nil
	}
	return env
}

// beginWait notes that the run which asks, if one does, waits for a task until done is called, or returns why it may not.
func (s *Server) beginWait(ctx context.Context, ref string) (done func(), err error) {
	run := guard.Run(ctx)
	if run == "" {
		return func() {}, nil
	}
	return s.rooms.BeginWait(run, ref)
}
