package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestNamesTwice: a field that is there twice is refused by its name in every body, and
// nothing is done.
func TestNamesTwice(t *testing.T) {
	for _, c := range []struct{ method, path, body, field string }{
		{"POST", "/v1/tasks", `{"prompt":"x","prompt":"x"}`, "prompt"},
		{"POST", "/tasks", `{"prompt":"x","PROMPT":"y"}`, "PROMPT"},
		{"POST", "/v1/tasks", `{"prompt":"x","pr\u006fmpt":"y"}`, "prompt"},
		{"POST", "/v1/tasks", `{"colour":1,"prompt":"x","prompt" :"y"}`, "prompt"},
		{"POST", "/v1/tasks", `{"prompt":"x","inputFiles":[{"name":"a","content":"b"}],"inputFiles":[{"name":"c"}]}`, "inputFiles"},
		{"POST", "/v1/tasks", `{"prompt":"x","inputFiles":[{"name":"a","content":"b"},{"name":"c","Name":"d"}]}`, "inputFiles.1.Name"},
		{"POST", "/v1/tasks", `[{"prompt":"x"},{"prompt":"y","label":"\\","label":null}]`, "1.label"},
		{"POST", "/v1/tasks", `{"prompt":"x","tool":"codex","tool":"claude"}`, "tool"},
		{"POST", "/v1/tasks/preview", `{"prompt":"x","prompt":"y"}`, "prompt"},
		{"PATCH", "/v1/tasks/aa-2", `{"label":"x","label":null}`, "label"},
		{"POST", "/v1/tasks/aa-2/move", `{"first":false,"first":true}`, "first"},
		{"POST", "/v1/pause", `{"reason":"a","reason":"b"}`, "reason"},
		{"POST", "/v1/memory/search", `{"workspace":"/a","workspace":"/b","prompt":"x"}`, "workspace"},
		{"POST", "/v1/ledger/compact", `{"dryRun":true,"dryRun":false}`, "dryRun"},
		{"POST", "/v1/ledger/reconcile", `{"accept":false,"Accept":true}`, "Accept"},
	} {
		m := twoTasks(t)
		w := ask(NewServer(m, Options{}), c.method, c.path, jsonType, c.body)
		p := decode[problem](t, w.Body.Bytes())
		if w.Code != 422 || p.Field != c.field || len(m.tasks) != 2 || m.by != "" {
			t.Errorf("%s %s: %d %s", c.path, c.body, w.Code, w.Body)
		}
	}
}

// twiceByTokens is checkNames by another way: it reports whether an object of the next
// value has a name twice, and whether all is within the bounds of what is looked at.
func twiceByTokens(dec *json.Decoder, depth int) (twice, within bool) {
	tok, _ := dec.Token()
	within = true
	if tok != json.Delim('{') && tok != json.Delim('[') {
		return false, true
	}
	within = depth+1 < maxDepth
	var names []string
	for dec.More() {
		if tok == json.Delim('{') {
			name, _ := dec.Token()
			for _, n := range names {
				twice = twice || strings.EqualFold(n, name.(string))
			}
			names = append(names, name.(string))
		}
		t, w := twiceByTokens(dec, depth+1)
		twice, within = twice || t, within && w
	}
	_, _ = dec.Token()
	return twice, within && len(names) <= maxNames
}

// FuzzCheckNames compares with what a decoder of JSON sees.
func FuzzCheckNames(f *testing.F) {
	for _, body := range []string{
		"", `{}`, `{"a":1,"a":2}`, `{"a":1,"A":2}`, `{"a":{"a":1},"b":[{"a":1},{"a":2}]}`, `{"a":"a","b":"a"}`, `{"a":"{\"b\":1,\"b\":2}"}`, `{"a\\":1,"a\\":2}`, `{"a\"":1,"a":2}`,
		`{"\u0061":1,"a":2}`, `{"ſ":1,"s":2}`, `{"K":1,"k":2}`, `{"a" : 1 , "a" : 2}`, `[[[[[[[[[[{"a":1,"a":2}]]]]]]]]]]`, `["a","a"]`, `{"":1,"":2}`, `{"\ud800":1,"\ufffd":2}`,
		`{"a":"b\\","b":1,"a":2}`, `{"a":[1,2,{"b":{"c":[],"c":1}}]}`, `{"a":"`, `{"a`, `}]`, `"`, `"\`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		err := checkNames(body)
		if err != nil && !strings.HasPrefix(err.Error(), "body") {
			t.Errorf("%q: %v", body, err)
		}
		if !json.Valid(body) {
			return
		}
		if twice, within := twiceByTokens(json.NewDecoder(bytes.NewReader(body)), 0); within && twice != (err != nil) {
			t.Errorf("%q: %v", body, err)
		}
	})
}

// TestNamesOfMany: neither very many names nor very deep values take long, or memory.
func TestNamesOfMany(t *testing.T) {
	var many bytes.Buffer
	for range 1 << 20 {
		many.WriteString(`{"a":`)
	}
	if allocs := testing.AllocsPerRun(1, func() { _ = checkNames(many.Bytes()) }); allocs > 100 {
		t.Errorf("%v allocations", allocs)
	}
	prompt := []byte(`{"prompt":"` + strings.Repeat(`\"x`, 1<<20) + `","prompt":1}`)
	if err := checkNames(prompt); err == nil {
		t.Error("behind a long text, a name that is there twice is not seen")
	}
}
