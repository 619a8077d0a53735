package api

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// TestSubmitRequests: one task or a list, in the spellings that there are, and what the answer to each says.
func TestSubmitRequests(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", wire.MaxBody/2)
	for _, c := range []struct {
		body   string
		status int
		want   []string // in the answer
		made   int
	}{
		{`{"prompt":"x"}`, 201, []string{`"status":"queued"`, `"task_id":"`}, 1},
		{` {"prompt":"x","id":"mine"}`, 201, []string{`"id":"mine"`, `"task_id":"mine"`}, 1},
		{`{"prompt":"x","id":"aa-2"}`, 200, []string{`"task_id":"aa-2"`}, 0},
		{`{"tool":"claude","model":null,"prompt":"x","input_files":[{"name":"a","content":"b"}],"output_files":["c"],"tenant_id":"default","priority":5,"idempotency_key":null}`, 201, []string{`"agent":"claude"`, `"tenantId":"default"`}, 1},
		{`{"PROMPT":"x","Session_Key":"web"}`, 201, []string{`"sessionKey":"web"`}, 1},
		{`{"codexSessionId":"abc","prompt":"x"}`, 201, []string{`"agent":"codex"`}, 1},
		{`{"codexSessionId":"abc","prompt":"x","tool":"demo"}`, 201, []string{`"agent":"demo"`}, 1},
		{`{"codexSessionId":null,"prompt":"x","tool":null}`, 201, []string{`"status":"queued"`}, 1},
		{`{"codexSessionId":"a","agentSession":"a","prompt":"x"}`, 422, []string{"agentSession: the same as codexSessionId"}, 0},
		{`[{"prompt":"x","tool":"claude"},{"prompt":"y","session":"web"}]`, 201, []string{`{"tasks":[{"id":"`, `"agent":"claude"`, `"sessionKey":"web"`, `"task_id":"`}, 2},
		{"\n[{\"prompt\":\"x\",\"id\":\"aa-2\"},{\"prompt\":\"y\",\"id\":\"new\"}]", 201, []string{`"task_id":"aa-2"`, `"task_id":"new"`}, 1},
		{`[{"prompt":"x","id":"aa-2"}]`, 200, []string{`"task_id":"aa-2"`}, 0},

		{`{"prompt":"x","agent":"a","tool":"a"}`, 422, []string{"tool: the same as agent", `"field":"tool"`}, 0},
		{`{"prompt":"x","tenant":"a","tenant_id":"b"}`, 422, []string{"tenant_id: the same as tenant", `"field":"tenant_id"`}, 0},
		{`[{"prompt":"x"},{"prompt":"y","tool":"a","agent":"b"}]`, 422, []string{"1.agent: the same as tool", `"field":"1.agent"`}, 0},
		{`{"tool":"x","colour":1,"prompt":"x"}`, 422, []string{"colour: unknown field", `"field":"colour"`}, 0},
		{`{"colour":1}`, 422, []string{"colour: unknown field", `"field":"colour"`}, 0},
		{`{"priority":"high","prompt":"x"}`, 422, []string{"priority: expected a whole number", `"field":"priority"`}, 0},
		{`{"tenant_id":7}`, 422, []string{"tenant_id: expected a text", `"field":"tenant_id"`}, 0},
		{`[{"prompt":"x"},{"prompt":"y","colour":1}]`, 422, []string{"1.colour: unknown field", `"field":"1.colour"`}, 0},
		{`[{"prompt":"x"},{"inputFiles":[{"name":1,"content":""}],"prompt":"x"}]`, 422, []string{"1.inputFiles.0.name: expected a text", `"field":"1.inputFiles.0.name"`}, 0},
		{`[{"prompt":"x"},{}]`, 422, []string{"task 2 of 2: the prompt is empty", `"field":"1"`}, 0},
		{`[{"prompt":"x"}`, 400, []string{"the body is not JSON"}, 0},
		{`{"tool":"x","prompt":"x"} {}`, 400, []string{"the body is not JSON"}, 0},
		{`{"prompt":"x"} {}`, 400, []string{"the body is not JSON"}, 0},
		{`{"prompt":"a\ud83d\ude00b\\ud800"}`, 201, nil, 1},
		{`{"prompt":"\ud800"}`, 400, []string{"invalid surrogate pair", `"field":"prompt"`}, 0},
		{`{"prompt":"\udc00\ud800"}`, 400, []string{"invalid surrogate pair"}, 0},
		{`[{"prompt":"x"},{"tool":"a","prompt":"\ud83d\u0041"}]`, 400, []string{"invalid surrogate pair", `"field":"1.prompt"`}, 0},
		{`{"prompt":"x","idempotencyKey":""}`, 422, []string{"key is empty", `"field":"idempotencyKey"`}, 0},
		{`[{"prompt":"x","idempotency_key" : ""}]`, 422, []string{"key is empty"}, 0},
		{`{"prompt":"x","IdempotencyKey":""}`, 422, []string{"key is empty"}, 0},
		{`{"prompt":"\"idempotencyKey\":\"\""}`, 201, nil, 1},
		{`["x"]`, 422, []string{"0: expected an object", `"field":"0"`}, 0},
		{`"x"`, 422, []string{"expected an object"}, 0},
		{`[{"prompt":"` + long + `"},{"prompt":"` + long + `"}]`, 201, nil, 2},
		{"[" + strings.Repeat("{},", task.MaxBatch) + "{}]", 422, []string{"more than 100000 tasks"}, 0},
		{"[" + strings.Repeat(`{"tool":"x"},`, task.MaxBatch) + "{}]", 422, []string{"more than 100000 tasks"}, 0},
		{`{"prompt":"x","inputFiles":[` + strings.Repeat("7,", 1_000_000) + "7]}", 422, []string{"inputFiles.0: expected an object", `"field":"inputFiles.0"`}, 0}, // no million faults
	} {
		m := twoTasks(t)
		w := ask(newServer(m, Options{}), http.MethodPost, "/v1/tasks", jsonType, c.body)
		got := w.Body.String()
		if w.Code != c.status || len(m.tasks) != 2+c.made || slices.ContainsFunc(c.want, func(want string) bool { return !strings.Contains(got, want) }) {
			t.Errorf("%s\ngot  %d %s, %d tasks more\nwant %d %q", wire.Clip(c.body), w.Code, wire.Clip(got), len(m.tasks)-2, c.status, c.want)
		}
		if location := w.Header().Get("Location"); (location != "") != (w.Code < 300 && !strings.HasPrefix(got, `{"tasks"`)) {
			t.Errorf("%s: Location %q", wire.Clip(c.body), location)
		}
	}
}

func TestIdempotencyKeyHeader(t *testing.T) {
	for _, c := range []struct {
		headers []string
		body    string
		status  int
		key     string // of the master
	}{
		{nil, `{"prompt":"x"}`, 201, ""},
		{[]string{"k"}, `{"prompt":"x"}`, 201, "k"},
		{[]string{`"k"`}, `{"prompt":"x"}`, 201, "k"},
		{[]string{`  "a \"b\" \\ c"	`}, `{"prompt":"x"}`, 201, `a "b" \ c`},
		{[]string{`a"b`}, `{"prompt":"x"}`, 201, `a"b`},
		{[]string{"schlüssel"}, `{"prompt":"x"}`, 201, "schlüssel"},
		{[]string{strings.Repeat("k", 256)}, `{"prompt":"x"}`, 201, strings.Repeat("k", 256)},
		{[]string{"k"}, `{"prompt":"x","idempotencyKey":"k"}`, 201, "k"},
		{[]string{"k"}, `[{"prompt":"x"}]`, 201, "list k"},
		{[]string{"k"}, `{"prompt":"x","idempotencyKey":"l"}`, 422, ""},
		{[]string{"k", "k"}, `{"prompt":"x"}`, 422, ""},
		{[]string{""}, `{"prompt":"x"}`, 422, ""},
		{[]string{`""`}, `{"prompt":"x"}`, 422, ""},
		{[]string{`"`}, `{"prompt":"x"}`, 422, ""},
		{[]string{`"k`}, `{"prompt":"x"}`, 422, ""},
		{[]string{`"k"x`}, `{"prompt":"x"}`, 422, ""},
		{[]string{`"k";a=1`}, `{"prompt":"x"}`, 422, ""},
		{[]string{`"\k"`}, `{"prompt":"x"}`, 422, ""},
		{[]string{`"k\`}, `{"prompt":"x"}`, 422, ""},
		{[]string{"a\tb"}, `{"prompt":"x"}`, 422, ""},
		{[]string{"\xff"}, `{"prompt":"x"}`, 422, ""},
		{[]string{strings.Repeat("k", 257)}, `{"prompt":"x"}`, 422, ""},
	} {
		m := newFake(t)
		var headers []string
		for _, h := range c.headers {
			headers = append(headers, "Idempotency-Key: "+h)
		}
		w := ask(newServer(m, Options{}), "POST", "/v1/tasks", jsonType, c.body, headers...)
		_, had := m.keys[c.key]
		if w.Code != c.status || (c.key != "") != had || w.Code > 300 && (len(m.tasks) > 0 || decode[wire.Problem](t, w.Body.Bytes()).Field == "") {
			t.Errorf("%q %s: %d %s, and the keys %v", c.headers, c.body, w.Code, w.Body, m.keys)
		}
	}
}

// TestNamesTwice: a field that is there twice is refused by its name in every body, and nothing is done.
func TestNamesTwice(t *testing.T) {
	for _, c := range []struct{ method, path, body, field string }{
		{"POST", "/v1/tasks", `{"prompt":"x","prompt":"x"}`, "prompt"},
		{"POST", "/tasks", `{"prompt":"x","PROMPT":"y"}`, "PROMPT"},
		{"POST", "/v1/tasks", `{"prompt":"x","pr\u006fmpt":"y"}`, "prompt"},
		{"POST", "/v1/tasks", `{"colour":1,"prompt":"x","prompt" :"y"}`, "colour"},
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
		w := ask(newServer(m, Options{}), c.method, c.path, jsonType, c.body)
		p := decode[wire.Problem](t, w.Body.Bytes())
		if w.Code != 422 || p.Field != c.field || len(m.tasks) != 2 || m.by != "" {
			t.Errorf("%s %s: %d %s", c.path, c.body, w.Code, w.Body)
		}
	}
}

// TestNamesOfRefused: what is refused as it is is not looked at for names.
func TestNamesOfRefused(t *testing.T) {
	server := newServer(twoTasks(t), Options{})
	for _, c := range []struct {
		method, path, body, want string
		status                   int
	}{
		{"POST", "/v1/tasks", "[" + strings.Repeat(`{"prompt":"x","prompt":"x"},`, task.MaxBatch) + "{}]", "prompt: given twice", 422},
		{"POST", "/v1/tasks", `{"label":"a","label":"b","prompt":"x","session":"y","sessionKey":"z"}`, "label: given twice", 422},
		{"PATCH", "/v1/tasks/aa-2", `{"session":"y","sessionKey":"z","after":[{"a":1,"a":1}]}`, "sessionKey: the same as session", 422},
	} {
		if w := ask(server, c.method, c.path, jsonType, c.body); w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s", c.want, w.Code, w.Body)
		}
	}
}
