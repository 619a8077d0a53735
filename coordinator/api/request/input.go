package request

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// BodyTimeout is how long a client may take to send a body.
const BodyTimeout = 30 * time.Second

// A Resolver is an input that takes more of a request by itself, and returns what is wrong there, which is answered as it is.
type Resolver interface{ Resolve(r *http.Request) error }

// An Input reads requests into values of one type. Their fields have tags that say what of a request they
// take: path, query or header. A field Body takes the body; one that is a pointer may be left out, and is then a zero value.
type Input struct {
	params   []param
	body     []int // index of the field Body; nil: there is none
	optional bool  // the body is
	most     int64 // bytes of a body
}

// A param is one parameter, with what the tags of its field say of it.
type param struct {
	index              []int
	in, name, fallback string
	kind               reflect.Kind
	enum               []string // of a list, what its items may be
	least, most        int64    // 0: any
	pattern            *regexp.Regexp
}

func newParam(f reflect.StructField, in, name string) param {
	p := param{index: f.Index, in: in, name: name, fallback: f.Tag.Get("default"), kind: f.Type.Kind()}
	p.least, _ = strconv.ParseInt(cmp.Or(f.Tag.Get("minimum"), strconv.Itoa(math.MinInt)), 10, 64)
	p.most, _ = strconv.ParseInt(f.Tag.Get("maximum"), 10, 64) // 0 if there is none
	if text := f.Tag.Get("enum"); text != "" {
		p.enum = strings.Split(text, ",")
	}
	if text := f.Tag.Get("pattern"); text != "" {
		p.pattern = regexp.MustCompile(text)
	}
	if f.Type == reflect.TypeFor[[]state.Status]() {
		for _, status := range state.Statuses {
			p.enum = append(p.enum, string(status))
		}
	}
	return p
}

// NewInput returns what reads requests into values of a type, with bodies of at most that many bytes.
func NewInput(t reflect.Type, most int64) *Input {
	in := &Input{most: most}
	for _, f := range reflect.VisibleFields(t) {
		if f.Name == "Body" {
			in.body, in.optional = f.Index, f.Type.Kind() == reflect.Pointer
			continue
		}
		for _, place := range []string{"path", "query", "header"} {
			if name := f.Tag.Get(place); name != "" {
				in.params = append(in.params, newParam(f, place, name))
			}
		}
	}
	return in
}

// buffers are for bodies.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Read puts a request into v, a pointer to a value of the type. It returns why the request is refused, nil if it is not.
func (in *Input) Read(w http.ResponseWriter, r *http.Request, v any) *wire.Problem {
	query := r.URL.Query()
	for name := range query {
		if !slices.ContainsFunc(in.params, func(p param) bool { return p.in == "query" && p.name == name }) {
			return wire.ProblemOf(task.Wrong(name, "what there is: GET /v1/openapi.json", "%s: unknown query parameter", wire.Clip(name)))
		}
	}
	to := reflect.ValueOf(v).Elem()
	for i := range in.params {
		if err := in.params[i].read(r, query, to); err != nil {
			return wire.ProblemOf(err)
		}
	}
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
		body := to.FieldByIndex(in.body)
		if buf.Len() > 0 {
			var err error
			if own, ok := body.Addr().Interface().(reader); ok {
				err = own.read(buf.Bytes())
			} else {
				err = task.Decode(buf.Bytes(), body.Addr().Interface())
			}
			if err != nil {
				p := wire.ProblemOf(err)
				if strings.HasPrefix(p.Detail, task.NotJSON) {
					p.Status, p.Title = http.StatusBadRequest, http.StatusText(http.StatusBadRequest)
				}
				return p
			}
		}
		if in.optional && body.IsNil() {
			body.Set(reflect.New(body.Type().Elem()))
		}
	}
	if resolver, ok := v.(Resolver); ok {
		if err := resolver.Resolve(r); err != nil {
			return wire.ProblemOf(err)
		}
	}
	return nil
}

// receive takes a body to its end.
func (in *Input) receive(w http.ResponseWriter, r *http.Request, buf *bytes.Buffer) *wire.Problem {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(BodyTimeout)) // not supported by a test's recorder, which has none
	most := in.most
	if guard.OverTCP(r.Context()) {
		most = min(most, guard.MaxBody)
	}
	n, err := io.Copy(buf, io.LimitReader(r.Body, most+1))
	if n > most {
		_, _ = io.CopyN(io.Discard, r.Body, 4*guard.MaxBody) // a client that cannot send all of it does not look for the answer
	}
	_ = r.Body.Close() // what is left is net/http's
	var slow net.Error
	var text, hint string
	status := http.StatusBadRequest
	switch {
	case n > most:
		status, text = http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is too large: it has more than %d bytes", most)
		hint = "send it in several parts, or over the unix socket, which takes more"
	case errors.As(err, &slow) && slow.Timeout():
		status, text = http.StatusRequestTimeout, "request body read timeout"
	case err != nil: // which is the client's doing and not ours
		text, hint = "the body could not be read to its end", "send it as its Content-Length or its chunks say"
	case n == 0 && !in.optional:
		text = "request body is required"
	default:
		_ = rc.SetReadDeadline(time.Time{}) // net/http goes on reading there to notice that a client has gone
		return nil
	}
	return wire.NewProblem(status, text, hint)
}

// read puts a parameter into its field.
func (p *param) read(r *http.Request, query url.Values, to reflect.Value) (err error) {
	note := func(format string, args ...any) {
		err = task.Wrong(p.name, "what it takes: GET /v1/openapi.json", "%s: %s", p.name, fmt.Sprintf(format, args...))
	}
	var text string
	switch p.in {
	case "path":
		text = r.PathValue(p.name)
	case "query":
		switch text = query.Get(p.name); p.kind {
		case reflect.Bool:
			text = cmp.Or(text, strconv.FormatBool(query.Has(p.name)))
		case reflect.Slice:
			text = strings.Join(query[p.name], ",")
		}
	case "header":
		text = r.Header.Get(p.name)
	}
	if text = cmp.Or(text, p.fallback); text == "" {
		if p.in == "path" {
			note("required path parameter is missing")
		}
		return err
	}
	checkText := func(text string) {
		if p.pattern != nil && !p.pattern.MatchString(text) {
			note("expected string to match pattern %s", p.pattern)
		}
		if p.enum != nil && !slices.Contains(p.enum, text) {
			note(`expected value to be one of "%s"`, strings.Join(p.enum, ", "))
		}
	}
	switch field := to.FieldByIndex(p.index); p.kind {
	case reflect.String:
		field.SetString(text)
		checkText(text)
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 64)
		field.SetInt(n)
		switch {
		case err != nil:
			note("invalid integer")
		case n < p.least:
			note("expected number >= %d", p.least)
		case p.most > 0 && n > p.most:
			note("expected number <= %d", p.most)
		}
	case reflect.Bool:
		is, err := strconv.ParseBool(text)
		if err != nil {
			note("invalid boolean")
		}
		field.SetBool(is)
	case reflect.Struct:
		if field.Addr().Interface().(*time.Time).UnmarshalText([]byte(text)) != nil {
			note("expected string to be RFC 3339 date-time")
		}
	case reflect.Slice:
		for i, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
			field.Grow(1)
			field.SetLen(i + 1)
			field.Index(i).SetString(one)
			checkText(one)
		}
	}
	return err
}
