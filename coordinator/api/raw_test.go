package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
)

const (
	ourAddr = "127.0.0.1:7433"

	// The guard's bounds.
	maxConns     = 256
	maxStreams   = 64
	maxTCPBody   = 4 << 20
	readTimeout  = 30 * time.Second
	writeTimeout = time.Minute
)

// newToken returns a token, and textOf what programs must show.
func newToken(t testing.TB) *guard.Token {
	t.Helper()
	token, err := guard.OpenToken(filepath.Join(t.TempDir(), "token"))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func textOf(t testing.TB, token *guard.Token) string {
	t.Helper()
	text, err := token.Text()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// untouchable is a master that panics at whatever it is asked: a request that must not
// get as far as the master shows by the log, whatever was answered.
type untouchable struct{ master }

// logged returns options with a log, and that log.
func logged() (Options, *safeBuffer) {
	log := &safeBuffer{}
	return Options{Log: slog.New(slog.NewTextHandler(log, nil))}, log
}

// A rawAnswer is an answer that came over a connection, with its body.
type rawAnswer struct {
	*http.Response
	body string
}

// ours reports whether the answer is the server's own. The others are of net/http, to
// what it does not take for a request.
func (a *rawAnswer) ours() bool { return a.Header.Get("Content-Security-Policy") != "" }

// rawTimeout is after which a server has not answered. No test waits for it.
const rawTimeout = 20 * time.Second

// raw sends bytes over a connection of their own, says that there will be no more of
// them, and gives the answers. It may be called from any goroutine.
func (s *tcpServer) raw(t testing.TB, request string) []rawAnswer {
	t.Helper()
	c, err := net.DialTimeout("tcp", s.addr, rawTimeout)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer func() { _ = c.Close() }()
	return talk(t, c.(*net.TCPConn), request)
}

// halfCloser is a connection one of whose directions can be closed.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

func talk(t testing.TB, c halfCloser, request string) []rawAnswer {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(rawTimeout)); err != nil {
		t.Error(err)
		return nil
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.WriteString(c, request) // who refuses does not read to the end
		_ = c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if isTimeout(err) {
		t.Errorf("%q: no end after %q", short(request), short(string(got)))
	}
	_ = c.Close() // ends the sender, if nobody read
	<-sent
	method, _, _ := strings.Cut(request, " ")
	return parseAnswers(t, method, got)
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// parseAnswers takes apart what was answered to a request, or to several with one method.
// What breaks off is no answer.
func parseAnswers(t testing.TB, method string, data []byte) (all []rawAnswer) {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(data))
	for {
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return all
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			body = append(body, " [broken off]"...)
		}
		_ = resp.Body.Close() // it is read from memory
		all = append(all, rawAnswer{resp, string(body)})
	}
}

// short quotes the beginning of what a client made up.
func short(s string) string { return wire.Clip(strings.ToValidUTF8(s, "?")) }

// An apiOperation is something that can be asked of the server.
type apiOperation struct {
	method, path string // with an example in the place of each {parameter}
	query        map[string]schema
	body         *schema
}

// A schema is as much of a JSON schema as the tests need.
type schema struct {
	Type       any               `json:"type"` // a name, or several
	Ref        string            `json:"$ref"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
	OneOf      []schema          `json:"oneOf"`
	Required   []string          `json:"required"`
	Enum       []any             `json:"enum"`
}

// is reports whether a value may be of a type.
func (s *schema) is(kind string) bool {
	many, _ := s.Type.([]any)
	return s.Type == kind || slices.Contains(many, any(kind))
}

// A description is what the server says of itself.
type description struct {
	Paths map[string]map[string]struct {
		Parameters []struct {
			In, Name string
			Schema   schema
		}
		RequestBody *struct {
			Content map[string]struct{ Schema schema }
		}
	}
	Components struct{ Schemas map[string]schema }
}

// resolve returns the schema that s stands for.
func (d *description) resolve(s schema) schema {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return d.resolve(d.Components.Schemas[name])
	}
	return s
}

// hiddenPaths are those that the description leaves out, and some where nothing is.
var hiddenPaths = []string{
	"/", "/ui/app.js", "/ui/style.css", "/ui/nothing", "/tasks", "/tasks/aa-1", "/health", "/metrics", "/ready", "/v1/openapi.json",
	"/v1/sessions/a/b", "/favicon.ico", "/v1", "/v1/nothing", "/debug/pprof/", "/.well-known/x", "/v1/tasks/aa-1/",
}

// routesOf returns every operation of a server: those that it describes, and the others.
func routesOf(t testing.TB) (routes []apiOperation, d description) {
	t.Helper()
	if err := json.Unmarshal(ask(newServer(newFake(t), Options{}), "GET", "/v1/openapi.json", "", "").Body.Bytes(), &d); err != nil {
		t.Fatal(err)
	}
	for path, methods := range d.Paths {
		for method, o := range methods {
			r := apiOperation{method: strings.ToUpper(method), path: path, query: map[string]schema{}}
			for _, p := range o.Parameters {
				switch p.In {
				case "path":
					r.path = strings.NewReplacer("{"+p.Name+"}", "aa-1", "{"+p.Name+"...}", "aa-1").Replace(r.path)
				case "query":
					r.query[p.Name] = d.resolve(p.Schema)
				}
			}
			if o.RequestBody != nil {
				body := d.resolve(o.RequestBody.Content["application/json"].Schema)
				r.body = &body
			}
			routes = append(routes, r)
		}
	}
	for _, path := range hiddenPaths {
		routes = append(routes, apiOperation{method: http.MethodGet, path: path})
	}
	routes = append(routes, apiOperation{method: http.MethodPost, path: "/tasks"}) // an alias
	slices.SortFunc(routes, func(a, b apiOperation) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return routes, d
}
