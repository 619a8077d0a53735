package request

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
)

// BodyTimeout is how long a client may take to send a body.
const BodyTimeout = 30 * time.Second

// A Resolver is an input that takes more of a request by itself, and returns what is wrong there: faults, or
// errors that are answered as they are.
type Resolver interface{ Resolve(r *http.Request) []error }

// An Input reads requests into values of one type. Their fields have tags that say what of a request they
// take: path, query or header. A field Body takes the body; one that is a pointer may be left out.
type Input struct {
	params   []param
	known    map[string]bool // names of query parameters
	body     []int           // index of the field Body; nil: there is none
	schema   *schema         // of the body; nil: it reads itself
	optional bool            // the body is
	most     int64           // bytes of a body
}

// A param is one parameter.
type param struct {
	index                  []int
	in, name, at, fallback string
	rule                   *schema
}

// NewInput returns what reads requests into values of a type, with bodies of at most that many bytes.
func NewInput(t reflect.Type, most int64) *Input {
	in := &Input{known: map[string]bool{}, most: most}
	for _, f := range reflect.VisibleFields(t) {
		if f.Name == "Body" {
			in.body, in.optional = f.Index, f.Type.Kind() == reflect.Pointer
			if !reflect.PointerTo(f.Type).Implements(reflect.TypeFor[reader]()) {
				in.schema = schemaOf(f.Type)
			}
			continue
		}
		for _, place := range []string{"path", "query", "header"} {
			if name := f.Tag.Get(place); name != "" {
				in.params = append(in.params, param{f.Index, place, name, place + "." + name, f.Tag.Get("default"), schemaOfField(f)})
				in.known[name] = in.known[name] || place == "query"
			}
		}
	}
	return in
}

// buffers are for bodies.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Read puts a request into v, a pointer to a value of the type. It returns why the request is refused, nil if it is not.
func (in *Input) Read(w http.ResponseWriter, r *http.Request, v any) *wire.Problem {
	var f faults
	if r.URL.RawQuery != "" {
		for name := range r.URL.Query() {
			if !in.known[name] {
				f.add("query."+name, "unknown query parameter")
			}
		}
		if f != nil {
			return refusal(f)
		}
	}
	to := reflect.ValueOf(v).Elem()
	for i := range in.params {
		in.params[i].read(r, to, &f)
	}
	var refused error
	if in.body != nil {
		buf := buffers.Get().(*bytes.Buffer)
		defer func() {
			if buf.Cap() <= 1<<20 {
				buf.Reset()
				buffers.Put(buf)
			}
		}()
		if p := in.receive(w, r, buf); p != nil {
			return p
		}
		if buf.Len() > 0 {
			refused = in.readBody(buf.Bytes(), to.FieldByIndex(in.body))
		}
	}
	var own []error
	if resolver, ok := v.(Resolver); ok {
		own = resolver.Resolve(r)
	}
	if f == nil && refused == nil && own == nil {
		return nil
	}
	return refusal(append(own, f, refused)...)
}

// receive takes a body to its end.
func (in *Input) receive(w http.ResponseWriter, r *http.Request, buf *bytes.Buffer) *wire.Problem {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(BodyTimeout)) // not supported by a test's recorder, which has none
	n, err := io.Copy(buf, io.LimitReader(r.Body, in.most+1))
	_ = r.Body.Close() // what is left is net/http's
	var slow net.Error
	var text, hint string
	status := http.StatusBadRequest
	switch {
	case n > in.most:
		status, text = http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is too large: it has more than %d bytes", in.most)
	case errors.Is(err, guard.ErrTooLarge):
		return guard.TooLarge()
	case errors.As(err, &slow) && slow.Timeout():
		status, text = http.StatusRequestTimeout, "request body read timeout"
	case err != nil: // which is the client's doing and not ours
		text, hint = "the body could not be read to its end", "send it as its Content-Length or its chunks say"
	case n == 0 && !in.optional:
		text = "request body is required"
	default:
		return nil
	}
	return wire.NewProblem(status, wire.CodeOf(status), text, hint)
}

// read puts a parameter into its field.
func (p *param) read(r *http.Request, to reflect.Value, f *faults) {
	var text string
	switch p.in {
	case "path":
		text = r.PathValue(p.name)
	case "query":
		text = queryValue(r.URL.RawQuery, p.name)
	case "header":
		text = r.Header.Get(p.name)
	}
	if text = cmp.Or(text, p.fallback); text == "" {
		if p.in == "path" {
			f.add(p.at, "required path parameter is missing")
		}
		return
	}
	switch field := to.FieldByIndex(p.index); p.rule.kind {
	case "string":
		field.SetString(text)
		f.checkText(p.rule, p.at, text)
	case "integer":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			f.add(p.at, "invalid integer")
			return
		}
		field.SetInt(n)
		if n < p.rule.least {
			f.add(p.at, "expected number >= %d", p.rule.least)
		}
		if p.rule.most > 0 && n > p.rule.most {
			f.add(p.at, "expected number <= %d", p.rule.most)
		}
	case "boolean":
		is, err := strconv.ParseBool(text)
		if err != nil {
			f.add(p.at, "invalid boolean")
		}
		field.SetBool(is)
	case "array":
		for i, one := range strings.Split(text, ",") {
			field.Grow(1)
			field.SetLen(i + 1)
			field.Index(i).SetString(one)
			f.checkText(p.rule.items, fmt.Sprintf("%s[%d]", p.at, i), one)
		}
	}
}

// queryValue returns the first value of a query parameter; one without = is true.
func queryValue(query, name string) string {
	for pair := range strings.SplitSeq(query, "&") {
		key, value, has := strings.Cut(pair, "=")
		if key, _ = url.QueryUnescape(key); key != name { // "" where that is not possible
			continue
		}
		if !has {
			return "true"
		}
		value, _ = url.QueryUnescape(value)
		return value
	}
	return ""
}
