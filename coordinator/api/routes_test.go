package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

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
	Examples   []json.RawMessage `json:"examples"`
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
	must(t, json.Unmarshal(ask(newServer(newFake(t), Options{}), "GET", "/v1/openapi.json", "", "").Body.Bytes(), &d))
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
