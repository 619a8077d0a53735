package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"stint/coordinator/api/wire"
	"stint/state"
)

// A malformed request is one that no good client sends. HOST stands for our host, TOKEN for the token.
type malformed struct {
	name, request string
	field         string // that the answer must name; "": none has to
	harmless      bool   // it may as well be taken
	silent        bool   // it may go without an answer: it ends before its header does
}

// goodHeaders are what a good request has, up to the line that ends the header.
const goodHeaders = "Host: HOST\r\nAuthorization: Bearer TOKEN\r\n"

// withBody returns a request with a body of JSON, or what claims to be that.
func withBody(method, path, body string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", method, path, goodHeaders, len(body), body)
}

// withHeader returns a GET request with one more header.
func withHeader(header string) string {
	return "GET /v1/health HTTP/1.1\r\n" + goodHeaders + header + "\r\nConnection: close\r\n\r\n"
}

// chunked returns a submit whose body is text on the wire.
func chunked(headers, text string) string {
	return "POST /v1/tasks HTTP/1.1\r\n" + goodHeaders + "Content-Type: application/json\r\n" + headers + "\r\n\r\n" + text
}

// malformedLines have a first line that is none.
func malformedLines() (all []malformed) {
	for _, line := range []string{
		"", " ", "\x00", "GET", "GET ", "GET /v1/health", "GET /v1/health ", " GET /v1/health HTTP/1.1", "GET  /v1/health HTTP/1.1", "GET\t/v1/health\tHTTP/1.1",
		"GET /v1/health HTTP/1.1 ", "GET /v1/health HTTP/1.1 x", "GET /v1/he alth HTTP/1.1", "GET /v1/health\x00 HTTP/1.1", "GET /v1/health\x7f HTTP/1.1", "GET /v1/\xff HTTP/1.1",
		"GET v1/health HTTP/1.1", "GET \\v1\\health HTTP/1.1", "GET ? HTTP/1.1", "GET # HTTP/1.1", "GET %2fv1%2fhealth HTTP/1.1", "GET : HTTP/1.1", "GET :// HTTP/1.1",
		"G@T /v1/health HTTP/1.1", "G\x00T /v1/health HTTP/1.1", "GÉT /v1/health HTTP/1.1", "(GET) /v1/health HTTP/1.1", strings.Repeat("G", 50_000) + " /v1/health HTTP/1.1", ": /v1/health HTTP/1.1",
		"GET /v1/health HTTP/0.9", "GET /v1/health HTTP/2.0", "GET /v1/health HTTP/3.0", "GET /v1/health HTTP/11.1", "GET /v1/health HTTP/1.10",
		"GET /v1/health HTTP/1", "GET /v1/health HTTP/", "GET /v1/health HTTP/x.y", "GET /v1/health http/1.1", "GET /v1/health HTTP/1.1\x00", "GET /v1/health HTTP/-1.1",
		"GET /v1/health HTTPS/1.1", "GET /v1/health ICY", "GET /v1/health HTTP/1,1", "GET /v1/health HTTP/99999999999999999999.1", "HTTP/1.1 200 OK", "GET " + strings.Repeat("/a", 30_000) + " HTTP/1.1",
		"GET /v1/health?" + strings.Repeat("a=b&", 10_000) + " HTTP/1.1", "POST", "POST /v1/tasks",
	} {
		all = append(all, malformed{name: fmt.Sprintf("line %.60q", line), request: line + "\r\n" + goodHeaders + "\r\n"})
	}
	for _, cut := range []string{"", "\r\n", "\n", "\r\n\r\n", "G", "GET /v1/hea", "GET /v1/health HTTP/1.1", "GET /v1/health HTTP/1.1\r\n", "GET /v1/health HTTP/1.1\r\nHost: HO", "GET /v1/health HTTP/1.1\r\n" + goodHeaders, "GET /v1/health HTTP/1.1\r\n" + goodHeaders + "\r"} {
		all = append(all, malformed{name: fmt.Sprintf("cut off after %.60q", cut), request: cut, silent: true})
	}
	return all
}

// malformedHeaders have a header that is none, or one too many.
func malformedHeaders() (all []malformed) {
	for _, h := range []string{
		"x", ":", ": x", " x: y", "\tx: y", "x y: z", "x : y", "x\x00: y", "x: \x00", "x: y\x7f", "x: a\rb", "x: a\r b", "x\r: y", "é: y", "x: \x01\x02", "x: y\r\n\x00", "=: y", "x(y): z", "\"x\": y",
		"Authorization: Bearer TOKEN", "Authorization: Bearer x", "Content-Length: -1", "Content-Length: +1", "Content-Length: 0x1", "Content-Length: 1 1", "Content-Length: 1, 2", "Content-Length: 1.0",
		"Content-Length: x", "Content-Length:", "Content-Length: 1\r\nContent-Length: 2", "Content-Length: 99999999999999999999999", "Content-Length: 9223372036854775808", "Content-Length: ١",
		"Transfer-Encoding: x", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: chunked, gzip", "Transfer-Encoding: identity", "Transfer-Encoding: \x0bchunked",
		"Transfer-Encoding: xchunked", "Transfer-Encoding: chunked;x=y", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Transfer-Encoding: \"chunked\"", "Transfer-Encoding:",
		"x: " + strings.Repeat("y", maxHeader+8<<10), strings.Repeat("x", maxHeader+8<<10) + ": y", strings.TrimSuffix(strings.Repeat("x: y\r\n", 10_000), "\r\n"), "Cookie: " + strings.Repeat("a=b; ", 9_000),
		"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nxyz", "Content-Type: multipart/form-data\r\nContent-Length: 3\r\n\r\nxyz", "Expect: x", "Expect: 200-ok",
	} {
		all = append(all, malformed{name: fmt.Sprintf("header %.60q", h), request: withHeader(h)})
	}
	for _, h := range []string{ // what HTTP, or net/http, takes
		"x:", "x: y\r\n folded", "x: y\r\n\tfolded", "x: \xff", "Range: bytes=-1", "Range: bytes=5-1,,x", "Accept: \xff", "If-None-Match: *", "Content-Length: 0\r\nContent-Length: 0", "Expect: 100-continue",
		"Expect:", "Expect: 100-continue, x", "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", "Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13", "TE: trailers", "Trailer: X",
		"Keep-Alive: x", "Content-Type: \x22", "Cookie: \x22;;=;", "X-HTTP-Method-Override: DELETE", "Cookie: " + strings.Repeat("a=b; ", 2_000), "Last-Event-ID: x\xff", "Idempotency-Key: " + strings.Repeat("k", 9_000),
	} {
		all = append(all, malformed{name: fmt.Sprintf("header %.60q", h), request: withHeader(h), harmless: true})
	}
	return append(all, malformed{name: "lines end with LF", request: strings.ReplaceAll(withHeader("x: y"), "\r\n", "\n"), harmless: true})
}

// another is a whole request that submits a task, without the token: who reads a request's
// end elsewhere than we do must not have it carried out with the token of the one before.
const another = "POST /v1/tasks HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n{\"prompt\":\"smuggled\"}"

// malformedFraming are bodies that end elsewhere than is said.
func malformedFraming() (all []malformed) {
	const bad = `{"prompt":1}`
	for _, f := range [][2]string{
		{"Content-Length: 100", bad},
		{"Content-Length: 3", bad},
		{"Content-Length: 0", bad},
		{"Content-Length: 5000000", bad},
		{"Content-Length: 99999999999", bad},
		{"x: y", bad},
		{"Content-Length: 4\r\nTransfer-Encoding: chunked", "0\r\n\r\n" + another},
		{"Transfer-Encoding: chunked\r\nContent-Length: 4", "1\r\nx\r\n0\r\n\r\n" + another},
		{"Content-Length: 12\r\nTransfer-Encoding: identity", bad + another},
		{"Content-Length: 12\r\nTransfer-Encoding: xchunked", bad + another},
		{"Transfer-Encoding: chunked\r\nTransfer-Encoding: x", "0\r\n\r\n" + another},
		{"Content-Length: 12\r\nContent-Length: 0", bad + another},
		{"Content-Length: 12", bad + another},
		{"Transfer-Encoding: chunked", ""},
		{"Transfer-Encoding: chunked", "\r\n"},
		{"Transfer-Encoding: chunked", "zz\r\nx\r\n0\r\n\r\n"},
		{"Transfer-Encoding: chunked", "-1\r\nx\r\n0\r\n\r\n"},
		{"Transfer-Encoding: chunked", "FFFFFFFFFFFFFFFFF\r\nx"},
		{"Transfer-Encoding: chunked", "7fffffffffffffff\r\nx"},
		{"Transfer-Encoding: chunked", "0x1\r\nx\r\n0\r\n\r\n"},
		{"Transfer-Encoding: chunked", "1\nx\n0\n\n"},
		{"Transfer-Encoding: chunked", "1\r\nxy\r\n0\r\n\r\n"},
		{"Transfer-Encoding: chunked", "c\r\n" + bad},
		{"Transfer-Encoding: chunked", "c\r\n" + bad + "\r\n"},
		{"Transfer-Encoding: chunked", "c\r\n" + bad + "\r\n0\r\n"},
		{"Transfer-Encoding: chunked", "c;" + strings.Repeat("x", 100_000) + "\r\n" + bad + "\r\n0\r\n\r\n"},
		{"Transfer-Encoding: chunked", "c\r\n" + bad + "\r\n0\r\nContent-Length: 1\r\nHost: evil\r\n\r\n" + another},
		{"Transfer-Encoding: chunked", "c\r\n" + bad + "\r\n0\r\nX: " + strings.Repeat("y", 100_000) + "\r\n\r\n"},
		{"Transfer-Encoding: chunked", "c\r\n" + bad + "\r\n0\r\nno colon\r\n\r\n"},
		{"Transfer-Encoding: chunked", strings.Repeat("1;\r\n{\r\n", 20_000) + "0\r\n\r\n"},
		{"Transfer-Encoding: chunked\r\nTrailer: Authorization", "c\r\n" + bad + "\r\n0\r\nAuthorization: Bearer TOKEN\r\n\r\n"},
		{"Expect: 100-continue\r\nContent-Length: 12", bad},
		{"Expect: 100-continue\r\nContent-Length: 12", ""},
		{"Expect: 100-continue\r\nTransfer-Encoding: chunked", "zz"},
		{"Expect: 99-continue\r\nContent-Length: 12", bad},
	} {
		all = append(all, malformed{name: fmt.Sprintf("body %.60q with %.60q", f[1], f[0]), request: chunked(f[0], f[1])})
	}
	for name, head := range map[string]string{"wrong": "Authorization: Bearer x\r\n", "none": "", "cookie": "Cookie: stint=x\r\n"} {
		request := "POST /v1/tasks HTTP/1.1\r\nHost: HOST\r\n" + head + "Content-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"x\"}"
		all = append(all, malformed{name: "pipelined, token " + name, request: strings.Repeat(request, 50)})
	}
	return append(all, malformed{name: "pipelined, the second bad", request: strings.Replace(withHeader("x: y"), "Connection: close\r\n", "", 1) + withHeader("bad"), harmless: true})
}

// badJSON are bodies that are no object with what a task needs.
func badJSON() map[string]string {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(`{"prompt":"x"}`)) // to memory
	_ = z.Close()
	return map[string]string{
		"nothing": " ", "null byte": "\x00", "not JSON": "prompt=x", "cut off": `{"prompt":"x"`, "cut off in a string": `{"prompt":"x`, "cut off in an escape": `{"prompt":"\u12`, "two": `{"prompt":"x"}{"prompt":"y"}`,
		"more behind it": `{"prompt":"x"} ]`, "comment": `{"prompt":"x"} // y`, "trailing comma": `{"prompt":"x",}`, "single quotes": `{'prompt':'x'}`, "no quotes": `{prompt:"x"}`,
		"deep arrays": strings.Repeat("[", 100_000), "deep arrays, closed": strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000), "deep objects": strings.Repeat(`{"a":`, 100_000), "deep below a field": `{"prompt":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`,
		"number": "1", "string": `"x"`, "true": "true", "list of numbers": "[1,2]", "NaN": "NaN", "huge number": `{"prompt":1e999999999}`, "long number": `{"prompt":` + strings.Repeat("9", 100_000) + `}`, "minus": `{"prompt":-}`,
		"not UTF-8": "{\"prompt\":\"\xff\"}", "half a character": "{\"prompt\":\"\xe2\x82\"}", "encoded surrogate": "{\"prompt\":\"\xed\xa0\x80\"}", "overlong": "{\"prompt\":\"\xc0\xaf\"}", "BOM": "\xef\xbb\xbf{\"prompt\":\"x\"}",
		"lone surrogate": `{"prompt":"\ud800"}`, "UTF-16": "\xff\xfe{\x00}\x00", "raw newline": "{\"prompt\":\"a\nb\"}", "raw NUL": "{\"prompt\":\"a\x00b\"}", "bad escape": `{"prompt":"\x41"}`, "gzip": zipped.String(), "XML": "<prompt>x</prompt>", "form": "prompt=x&agent=demo",
		"multipart": "--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nx\r\n--b--\r\n", "YAML": "prompt: x", "a key that is none": `{1:2}`, "unknown property": `{"prompt":"x","colour":"red"}`,
		"duplicate keys": `{"prompt":"x","prompt":"y"}`, "keys in two cases": `{"prompt":"x","PROMPT":"y"}`,
		"a property that is not theirs": `{"prompt":"x","fromRun":"r","FromRun":"r","status":"done","runId":"r"}`, "many properties": `{"prompt":"x"` + manyProperties(20_000) + `}`, "__proto__": `{"__proto__":{"prompt":"x"}}`,
	}
}

func manyProperties(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"p%d":1`, i)
	}
	return b.String()
}

// oddJSON are bodies that JSON allows and hardly anybody means.
var oddJSON = map[string]string{
	"NUL": `{"prompt":"a\u0000b"}`, "null for everything": `{"prompt":"x","agent":null,"after":null,"priority":null}`,
	"white space": "\t\r\n {\"prompt\" : \"x\" } \n\n", "null": "null", "empty object": "{}", "empty list": "[]",
}

// malformedBodies are bodies that are wrong as a whole, at every route that takes one.
func malformedBodies(routes []apiOperation) (all []malformed) {
	bad := badJSON()
	for _, r := range routes {
		if r.body == nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(bad)) {
			all = append(all, malformed{name: r.method + " " + r.path + ": " + name, request: withBody(r.method, r.path, bad[name])})
		}
		for _, name := range slices.Sorted(maps.Keys(oddJSON)) {
			all = append(all, malformed{name: r.method + " " + r.path + ": " + name, request: withBody(r.method, r.path, oddJSON[name]), harmless: true})
		}
		for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", "application/xml", "application/json, text/plain", "application/jsonx", "application/json;", "json", "application/cbor", "application/problem+json"} {
			request := strings.Replace(withBody(r.method, r.path, `{"prompt":"x"}`), "Content-Type: application/json", "Content-Type: "+kind, 1)
			all = append(all, malformed{name: r.method + " " + r.path + " as " + kind, request: request, harmless: kind == "application/json;"})
		}
	}
	return all
}

// wrongValues are, by the type that a schema asks for, of another one.
var wrongValues = map[string][]string{
	"integer": {`"x"`, `"1"`, `1.5`, `1e99`, `-1e99`, `9223372036854775808`, `true`, `[]`, `{}`},
	"number":  {`"x"`, `true`, `[]`, `{}`},
	"boolean": {`"true"`, `1`, `0`, `[]`, `{}`},
	"array":   {`"x"`, `1`, `true`, `{}`},
	"object":  {`"x"`, `1`, `true`, `[1]`},
	"string":  {`1`, `1e5`, `true`, `[]`, `["x"]`, `{}`},
}

// A wrongBody has one value of the wrong type.
type wrongBody struct{ text, field string }

// wrongBodies returns what fits a schema but for one value, for every value in it.
func (d *description) wrongBodies(s schema) (all []wrongBody) {
	s = d.resolve(s)
	for _, one := range s.OneOf {
		all = append(all, d.wrongBodies(one)...)
	}
	for kind, values := range wrongValues {
		for _, value := range values {
			if s.is(kind) {
				all = append(all, wrongBody{text: value})
			}
		}
	}
	if s.is("array") && s.Items != nil {
		for _, w := range d.wrongBodies(*s.Items) {
			all = append(all, wrongBody{"[" + w.text + "]", strings.TrimSuffix("0."+w.field, ".")})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		for _, w := range d.wrongBodies(s.Properties[name]) {
			all = append(all, wrongBody{d.objectWith(s, name, w.text), strings.TrimSuffix(name+"."+w.field, ".")})
		}
	}
	return all
}

// objectWith returns an object of a schema with a certain value of one property.
func (d *description) objectWith(s schema, name, value string) string {
	object := map[string]json.RawMessage{}
	for _, required := range s.Required {
		object[required] = json.RawMessage(`"x"`)
		if examples := s.Properties[required].Examples; len(examples) > 0 {
			object[required] = examples[0]
		}
	}
	object[name] = json.RawMessage(value)
	text, _ := json.Marshal(object) // of plain values
	return string(text)
}

// malformedFields have one value of the wrong type, at every route that takes a body.
func malformedFields(routes []apiOperation, d *description) (all []malformed) {
	for _, r := range routes {
		if r.body == nil {
			continue
		}
		for _, w := range d.wrongBodies(*r.body) {
			all = append(all, malformed{name: r.method + " " + r.path + " " + w.text, request: withBody(r.method, r.path, w.text), field: w.field})
		}
	}
	return all
}

// malformedQueries have a parameter that is wrong, or that nobody knows.
func malformedQueries(routes []apiOperation) (all []malformed) {
	add := func(r apiOperation, query, field string, harmless bool) {
		request := fmt.Sprintf("%s %s?%s HTTP/1.1\r\n%sContent-Length: 0\r\nConnection: close\r\n\r\n", r.method, r.path, query, goodHeaders)
		all = append(all, malformed{name: r.method + " " + r.path + "?" + query, request: request, field: field, harmless: harmless})
	}
	for _, r := range routes {
		if r.query == nil {
			continue // it is not in the description
		}
		add(r, "colour=red", "colour", false)
		add(r, "token=TOKEN", "token", false)
		for _, name := range slices.Sorted(maps.Keys(r.query)) {
			s, field := r.query[name], name
			if s.Items != nil {
				field += ".0"
			}
			if s.is("integer") || s.is("boolean") || len(s.Enum) > 0 || s.Items != nil && len(s.Items.Enum) > 0 {
				for _, value := range []string{"x", "1.5", "%00", "-", "99999999999999999999", "%F0%9F%98%80"} {
					add(r, name+"="+value, field, false)
				}
			}
			for _, value := range []string{"", "%", "%zz", "%00", "%ff", strings.Repeat("x", 9_000), "x&" + name + "=y", "x;" + name + "=y", "%26x=y"} {
				add(r, name+"="+value, "", true)
			}
		}
	}
	return all
}

// malformedPaths are paths that try to be another one, and ids that are none.
func malformedPaths() (all []malformed) {
	for _, id := range []string{
		"%00", "%2f..", "..%2f..%2fetc%2fpasswd", "%2e%2e", "%252e%252e%252f", "%ff%fe", "%0d%0aX:%20y", "%c0%ae%c0%ae", "..%5c..", "x%00.md", "%e2%80%ae", strings.Repeat("a", 25_000), "-", "--help", "%20", "*",
		"~root", "$HOME", "`id`", "%3Cscript%3E", "%E2%80%A8", "aa-1%00", "con", "nobody", "aa-1;x", "aa-1%3fx", "aa-1%23x", "@first", "0", "99999999999999999999",
	} {
		for _, path := range []string{"/v1/tasks/ID", "/v1/tasks/ID/logs", "/v1/tasks/ID/why", "/v1/sessions/ID", "/tasks/ID", "/ui/ID"} {
			path = strings.Replace(path, "ID", id, 1)
			all = append(all, malformed{name: "path " + path, request: "GET " + path + " HTTP/1.1\r\n" + goodHeaders + "\r\n", harmless: true})
		}
		for _, path := range []string{"/v1/tasks/ID/cancel", "/v1/tasks/ID/hold", "/v1/nothing/ID"} {
			path = strings.Replace(path, "ID", id, 1)
			all = append(all, malformed{name: "POST " + path, request: "POST " + path + " HTTP/1.1\r\n" + goodHeaders + "Content-Length: 0\r\n\r\n"})
		}
	}
	for _, path := range []string{
		"//", "//v1/tasks", "/v1//tasks", "/v1/./tasks", "/v1/../v1/tasks", "/ui/../v1/tasks", "/ui/..%2fv1/tasks", "/ui/%2e%2e/v1/tasks", "/../../etc/passwd", "/v1/tasks/..", "/v1/tasks/.", "/v1/tasks//cancel",
		"//evil.example/v1/tasks", "///evil.example", "/\\evil.example", "/v1/tasks%2f", "/v1%2ftasks", "/V1/TASKS", "/v1/tasks/", "/v1/tasks?", "/v1/tasks#x", "/?", "/?task=nobody", "/?task=%ff&cursor=x", "/?cursor=%00", "/%", "/%zz", "/v1/%74asks", "/v1/tasks;x=y",
	} {
		all = append(all, malformed{name: "path " + path, request: "GET " + path + " HTTP/1.1\r\n" + goodHeaders + "\r\n", harmless: true})
	}
	return all
}

// malformedMethods ask every route for what it does not do.
func malformedMethods(routes []apiOperation) (all []malformed) {
	has := map[string]bool{}
	for _, r := range routes {
		has[r.method+r.path] = true
	}
	for _, r := range routes {
		for _, method := range []string{"PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "PROPFIND", "get", "FOO", strings.Repeat("X", 1000)} {
			if !has[method+r.path] {
				all = append(all, malformed{name: fmt.Sprintf("%.10s %s", method, r.path), request: method + " " + r.path + " HTTP/1.1\r\n" + goodHeaders + "Connection: close\r\n\r\n"})
			}
		}
		for _, method := range []string{"HEAD", "OPTIONS"} {
			all = append(all, malformed{name: method + " " + r.path, request: method + " " + r.path + " HTTP/1.1\r\n" + goodHeaders + "Connection: close\r\n\r\n", harmless: true})
		}
	}
	return all
}

// otherProtocols are first words of what is not HTTP/1.
func otherProtocols() (all []malformed) {
	for name, bytes := range map[string]string{
		"HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"TLS":    "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x55", 500),
		"SSH":    "SSH-2.0-OpenSSH_9.2\r\n", "SOCKS5": "\x05\x01\x00", "SOCKS4": "\x04\x01\x00\x50\x7f\x00\x00\x01\x00", "SMTP": "EHLO localhost\r\nQUIT\r\n", "redis": "*1\r\n$4\r\nPING\r\n", "memcached": "stats\r\n",
		"PROXY": "PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\nGET / HTTP/1.1\r\n\r\n", "PROXY v2": "\r\n\r\n\x00\r\nQUIT\n\x20\x11\x00\x0c", "RTSP": "OPTIONS rtsp://HOST/ RTSP/1.0\r\nCSeq: 1\r\n\r\n", "SIP": "OPTIONS sip:x SIP/2.0\r\n\r\n",
		"JSON": `{"prompt":"x"}` + "\r\n\r\n", "Postgres": "\x00\x00\x00\x08\x04\xd2\x16\x2f", "SMB": "\x00\x00\x00\x2f\xffSMB", "zeros": strings.Repeat("\x00", 10_000), "noise": strings.Repeat("\xff\xfe\x00\r", 10_000), "line feeds": strings.Repeat("\n", 50_000),
	} {
		all = append(all, malformed{name: name, request: bytes, silent: true})
	}
	return all
}

// allMalformed returns all of them, for a server with those routes.
func allMalformed(routes []apiOperation, d *description) []malformed {
	return slices.Concat(malformedLines(), malformedHeaders(), malformedFraming(), malformedBodies(routes), malformedFields(routes, d),
		malformedQueries(routes), malformedPaths(), malformedMethods(routes), otherProtocols())
}

// state returns what a request could have changed.
func (f *fakeMaster) state() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.tasks, f.keys, f.by, f.over, f.paused)
}

// judge returns what is wrong with the answers to a request; "" if nothing is.
func (c *malformed) judge(answers []rawAnswer) string {
	if len(answers) == 0 && !c.silent {
		return "no answer"
	}
	for i := range answers {
		if why := c.judgeOne(&answers[i]); why != "" {
			return fmt.Sprintf("%d %s: %s", answers[i].StatusCode, short(answers[i].body), why)
		}
	}
	return ""
}

func (c *malformed) judgeOne(a *rawAnswer) string {
	switch {
	case !a.ours():
		return judgeOther(a)
	case a.StatusCode >= 500 && a.StatusCode != http.StatusServiceUnavailable: // which is said when the client has gone
		return "a failure of ours"
	case a.StatusCode < 400:
		if !c.harmless {
			return "it was taken"
		}
		return ""
	case a.Request.Method == http.MethodHead || strings.HasPrefix(a.Header.Get("Content-Type"), "text/html"): // the page says it in its own way
		return ""
	}
	var p wire.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.Header.Get("Content-Type") != "application/problem+json" || p.Code == "" || p.Message == "" || p.Status != a.StatusCode {
		return fmt.Sprintf("no problem: %v", err)
	}
	if inList := strings.HasSuffix(p.Message, " does not fit") && "0."+p.Field == c.field; c.field != "" && p.Field != c.field && !inList { // encoding/json tells no place
		return fmt.Sprintf("the field is %q, not %q", p.Field, c.field)
	}
	return ""
}

// judgeOther looks at an answer of net/http itself, which may also say that it does not
// know a transfer coding or a version.
func judgeOther(a *rawAnswer) string {
	switch a.StatusCode {
	case 100, 400, 413, 417, 431, http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return ""
	}
	return "an answer of net/http"
}

// TestMalformedRequests: nothing that a client sends makes the server fail, fall silent or
// do something else than was asked for.
func TestMalformedRequests(t *testing.T) {
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		options, log := logged()
		m := twoTasks(t)
		s := serveTCP(t, m, options)
		routes, d := routesOf(t)
		all, ours := allMalformed(routes, &d), 0
		for _, c := range all {
			before := m.state()
			answers := s.raw(t, c.request)
			if why := c.judge(answers); why != "" {
				t.Errorf("%.120s: %s", c.name, why)
			}
			if m.state() != before && !c.harmless {
				t.Fatalf("%.120s: it has changed something", c.name)
			}
			for i := range answers {
				if answers[i].ours() {
					ours++
				}
			}
			if after := s.raw(t, withHeader("x: y")); len(after) != 1 || after[0].StatusCode != 200 {
				t.Fatalf("%.120s: afterwards the server answers %v", c.name, after)
			}
		}
		if log.String() != "" {
			t.Errorf("%s", log)
		}
		t.Logf("malformed: requests=%d answers=%d", len(all), ours)
	})
}

// TestMalformedFramingOverTheSocket: where a body ends is known on the socket as well as over TCP, and what
// is left of one that was refused is no request. There nobody has to show a token with each.
func TestMalformedFramingOverTheSocket(t *testing.T) {
	if testing.Short() && os.Getenv("CI") != "true" {
		t.Skip("takes seconds")
	}
	t.Parallel()
	options, log := logged()
	m, ln := twoTasks(t), newMemoryListener()
	start(t, func(ctx context.Context) error { return newServer(m, options).Serve(ctx, ln) })
	before := 0
	for i, c := range slices.Concat(malformedFraming(), refusedHalfway()) {
		if i == len(malformedFraming()) {
			before = len(m.List(state.Filter{}))
		}
		for _, a := range ln.raw(t, strings.NewReplacer("HOST", "stint", "TOKEN", "x").Replace(c.request)) {
			if a.StatusCode >= 500 && judgeOther(&a) != "" {
				t.Errorf("%.120s: %d %s", c.name, a.StatusCode, short(a.body))
			}
		}
		if before > 0 && len(m.List(state.Filter{})) != before {
			t.Fatalf("%s: what was left was carried out", c.name)
		}
	}
	if log.String() != "" {
		t.Errorf("%s", log)
	}
}

// refusedHalfway are bodies of which no more than the beginning is read, and which go on like a request.
func refusedHalfway() (all []malformed) {
	rest := strings.Repeat(another, 3000)
	for read := maxSignIn; read < maxSignIn+4; read++ { // whichever the server reads
		body := strings.Repeat(" ", read) + rest
		request := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", pathSignIn, len(body), body)
		all = append(all, malformed{name: fmt.Sprintf("refused after %d bytes", read), request: request})
	}
	return all
}

// TestUnknownPropertiesAreRefused: nothing is done for who sends a property that is not
// known there, such as a dryRun with a cancel. What needs no body takes an empty object.
func TestUnknownPropertiesAreRefused(t *testing.T) {
	m := twoTasks(t)
	s := newServer(m, Options{})
	routes, _ := routesOf(t)
	changing := 0
	for _, r := range routes {
		if r.method == http.MethodGet || r.method == http.MethodHead {
			continue
		}
		changing++
		before, body := m.state(), `{"colour":true}`
		if strings.HasSuffix(r.path, "/batch") {
			body = "[" + body + "]"
		}
		w := ask(s, r.method, r.path, jsonType, body)
		if p := decode[wire.Problem](t, w.Body.Bytes()); w.Code != 422 || !strings.Contains(p.Detail, "colour: unknown field") || m.state() != before {
			t.Errorf("%s %s: %d %+v", r.method, r.path, w.Code, p)
		}
	}
	if changing < 15 {
		t.Errorf("%d operations that change something", changing)
	}
	for contentType, body := range map[string]string{jsonType: "{}", "": ""} {
		if w := ask(s, "POST", "/v1/resume", contentType, body); w.Code != 204 {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
	}
}
