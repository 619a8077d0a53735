package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"stint/coordinator/postgres/postgrestest"
)

// openAPIFile is the committed description of the HTTP interface.
const openAPIFile = "../../coordinator/api/openapi.json"

// An apiCall is a request for one operation of the description. In the path, {id} is a
// task that is done, with a verify command and a file of its own.
type apiCall struct {
	operation string
	query     string
	body      string
	status    int
	headers   []string // "Name: value"
	set       []string // other values of the path's parameters: "id=@last"
}

// apiCalls ask for each operation, in an order in which a master can answer them.
var apiCalls = []apiCall{
	{operation: "pause", body: `{"reason":"for a moment"}`, status: 204},
	{operation: "submit-task", body: `{"prompt":"demo:say=hello","workspace":"$WS","sessionKey":"web"}`, status: 201},
	{operation: "submit-tasks", body: `[{"prompt":"a","workspace":"$WS","hold":true},{"prompt":"b","workspace":"$WS","hold":true}]`, status: 201},
	{operation: "submit-tasks", body: `{"prompt":"a","workspace":"$WS"}`, status: 422},
	{operation: "submit-task", body: `{"prompt":`, status: 400},
	{operation: "submit-task", body: `prompt=x`, headers: []string{"Content-Type: text/plain"}, status: 415},
	{operation: "submit-task", body: `{"prompt":7}`, status: 422},
	{operation: "submit-task", body: `{"prompt":"c","workspace":"$WS","hold":true}`, headers: []string{`Idempotency-Key: "k"`}, status: 201},
	{operation: "submit-task", body: `{"prompt":"c","workspace":"$WS","hold":true}`, headers: []string{"Idempotency-Key: k"}, status: 200},
	{operation: "submit-tasks", body: `[{"prompt":"c","workspace":"$WS","hold":true}]`, headers: []string{"Idempotency-Key: k"}, status: 409},
	{operation: "submit-task", body: `{"prompt":"c","workspace":"$WS"}`, headers: []string{"Idempotency-Key: "}, status: 422},
	{operation: "submit-task", body: `{"prompt":"s","shared":true,"agent":"demo","id":"019abcde-0000-7000-8000-000000000001"}`, headers: []string{`Idempotency-Key: "s"`}, status: 201},
	{operation: "submit-task", body: `{"prompt":"s","shared":true,"agent":"demo"}`, headers: []string{`Idempotency-Key: "s"`}, status: 200},
	{operation: "submit-task", body: `{"prompt":"t","shared":true,"agent":"demo"}`, headers: []string{`Idempotency-Key: "s"`}, status: 409},
	{operation: "submit-task", body: `{"prompt":"s","shared":true,"workspace":"$WS"}`, status: 422},
	{operation: "submit-tasks", body: `[{"prompt":"s","shared":true},{"prompt":"t","shared":true,"priority":9}]`, status: 201},
	{operation: "submit-tasks", body: `[{"prompt":"s","shared":true},{"prompt":"t","workspace":"$WS"}]`, status: 422},
	{operation: "list-tasks", query: "shared=true&status=queued&limit=2", status: 200},
	{operation: "list-tasks", query: "shared=true&agent=demo", status: 200},
	{operation: "events", query: "shared=true", status: 200},
	{operation: "get-task", query: "shared=true", set: []string{"id=019abcde-0000-7000-8000-000000000001"}, status: 200},
	{operation: "get-task", query: "shared=true", status: 404},
	{operation: "list-workers", status: 200},
	{operation: "preview-tasks", body: `[{"prompt":"s","workspace":"$WS","shared":true}]`, status: 422},
	{operation: "preview-tasks", body: `[{"prompt":"a","workspace":"$WS"}]`, status: 200},
	{operation: "list-tasks", status: 200},
	{operation: "list-tasks", query: "limit=1&status=queued", status: 200},
	{operation: "list-tasks", query: "limit=many", status: 422},
	{operation: "list-tasks", query: "limit=1&cursor=zzzzzz", status: 422},
	{operation: "list-tasks-as-text", query: "limit=1&width=60&location=Europe/Berlin", status: 200},
	{operation: "list-tasks-as-text", query: "location=Here", status: 422},
	{operation: "get-task", status: 200},
	{operation: "get-task", headers: []string{"If-None-Match: *"}, status: 304},
	{operation: "get-task", set: []string{"id=nothing"}, status: 404},
	{operation: "wait-task", status: 200},
	{operation: "why-task", status: 200},
	{operation: "raw-task", status: 200},
	{operation: "task-prompt", status: 200},
	{operation: "task-logs", status: 200},
	{operation: "task-logs", query: "follow=true", status: 200},
	{operation: "task-logs", query: "run=1", status: 200},
	{operation: "task-logs", headers: []string{"Range: bytes=-3"}, status: 206},
	{operation: "task-logs", headers: []string{"Range: bytes=1000000-"}, status: 416},
	{operation: "task-runs", status: 200},
	{operation: "task-runs", set: []string{"id=nothing"}, status: 404},
	{operation: "task-files", status: 200},
	{operation: "task-files", query: "run=1", status: 200},
	{operation: "task-files", set: []string{"id=@last"}, status: 200},
	{operation: "task-runs", set: []string{"id=@last"}, status: 200},
	{operation: "task-file", status: 200},
	{operation: "task-file", headers: []string{"Range: bytes=0-1"}, status: 206},
	{operation: "task-file", headers: []string{"Range: bytes=1000-"}, status: 416},
	{operation: "task-file", set: []string{"name=other"}, status: 404},
	{operation: "list-accounts", status: 200},
	{operation: "usage", status: 200},
	{operation: "usage", query: "by=day&since=2020-01-01T00:00:00Z&until=2100-01-01T00:00:00Z&location=UTC", status: 200},
	{operation: "usage", query: "by=week", status: 422},
	{operation: "search-memory", body: `{"workspace":"$WS","prompt":"Rotate the deploy key"}`, status: 200},
	{operation: "search-memory", body: `{"workspace":"$WS","prompt":"and so what is it?"}`, status: 200},
	{operation: "search-memory", body: `{"workspace":"nowhere","prompt":"x"}`, status: 422},
	{operation: "hold-task", set: []string{"id=@last"}, status: 200},
	{operation: "move-task", set: []string{"id=@last"}, body: `{"first":true}`, status: 200},
	{operation: "edit-task", set: []string{"id=@last"}, body: `{"label":"x","priority":9,"after":null}`, status: 200},
	{operation: "edit-task", set: []string{"id=@last"}, body: `{"label":"y"}`, headers: []string{`If-Match: "1"`}, status: 412},
	{operation: "edit-task", set: []string{"id=@last"}, body: `{"label":7}`, status: 422},
	{operation: "edit-task", body: `{"label":"x"}`, status: 409},
	{operation: "release-task", set: []string{"id=@last"}, status: 200},
	{operation: "hold-task", status: 409},
	{operation: "cancel-task", set: []string{"id=@last"}, status: 200},
	{operation: "retry-task", set: []string{"id=@last"}, status: 200},
	{operation: "resume", status: 204},
	{operation: "list-sessions", status: 200},
	{operation: "get-session", status: 200},
	{operation: "get-session", query: "limit=1", status: 200},
	{operation: "get-session", query: "cursor=1", status: 422},
	{operation: "get-session", set: []string{"key=nobody"}, status: 404},
	{operation: "ledger-findings", status: 200},
	{operation: "ledger-reconcile", body: `{}`, status: 200},
	{operation: "list-agents", body: `{"probe":false}`, status: 200},
	{operation: "ledger-compact", body: `{"olderThan":"1h","dryRun":true}`, status: 200},
	{operation: "ledger-prune", body: `{"olderThan":"0s","dryRun":true}`, status: 200},
	{operation: "events", status: 200},
	{operation: "health", status: 200},
	{operation: "ready", status: 200},
	{operation: "metrics", status: 200},
	{operation: "state", status: 200},
	{operation: "ui-code", status: 200},
	{operation: "ui-session", body: `{"code":"x"}`, status: 401},
	{operation: "remove-task", status: 200},
	{operation: "disable-account", set: []string{"id=demo"}, status: 200},
	{operation: "enable-account", set: []string{"id=demo"}, status: 200},
	{operation: "run-schedule", set: []string{"name=tidy"}, status: 200},
	{operation: "pause-schedule", set: []string{"name=tidy"}, status: 200},
	{operation: "resume-schedule", set: []string{"name=tidy"}, status: 200},
	{operation: "resume-schedule", set: []string{"name=nothing"}, status: 404},
	{operation: "list-schedules", status: 200},
	{operation: "list-job-runs", set: []string{"name=tidy"}, query: "limit=2", status: 200},
	{operation: "enqueue-job", body: `{"object_type":"cognition","object_id":"cg_123","action":"revalidate","run_at":"2099-02-21T00:00:00Z","priority":"medium"}`, status: 201},
	{operation: "enqueue-job", body: `{"object_type":"cognition","object_id":"cg_123","action":"revalidate","run_at":"2099-02-21T00:00:00Z"}`, status: 200},
	{operation: "enqueue-job", body: `{"object_type":"cognition","object_id":"cg_123","action":"revalidate","run_at":"2099-02-21T00:00:00Z","priority":"high"}`, status: 409},
	{operation: "enqueue-job", body: `{"object_type":"opinion","object_id":"cg_123","action":"revalidate","run_at":"2099-02-21T00:00:00Z"}`, status: 422},
	{operation: "enqueue-job", body: `{"object_type":"cognition","object_id":"cg_123","action":"revalidate","run_at":"2020-02-21T00:00:00Z"}`, status: 422},
	{operation: "list-jobs", status: 200},
	{operation: "list-jobs", query: "status=queued&limit=1&object_id=cg_123&newest=true", status: 200},
	{operation: "list-jobs", query: "limit=1001", status: 422},
	{operation: "ack-job", set: []string{"id=$JOB0"}, body: `{"result":"succeeded"}`, status: 409},
	{operation: "pull-jobs", body: `{"worker_id":"worker-1","limit":100}`, status: 200},
	{operation: "pull-jobs", body: `{"worker_id":"worker-1","now":"2099-02-21T00:00:10Z"}`, status: 422},
	{operation: "ack-job", set: []string{"id=$JOB0"}, body: `{"worker_id":"worker-2"}`, status: 409},
	{operation: "ack-job", set: []string{"id=$JOB0"}, body: `{"result":"succeeded","audit_event_id":"aud_789","next_action_at":"2099-02-28T00:00:00Z"}`, status: 200},
	{operation: "fail-job", set: []string{"id=$JOB1"}, body: `{"error":"timeout while verifying evidence","retry_delay_sec":300}`, status: 200},
	{operation: "fail-job", set: []string{"id=nothing"}, body: `{"error":"x"}`, status: 404},
	{operation: "get-job", set: []string{"id=$JOB1"}, status: 200},
	{operation: "retry-job", set: []string{"id=$JOB0"}, status: 409},
	{operation: "admin-retry", set: []string{"id=$JOB1"}, status: 200},
	{operation: "admin-retry", set: []string{"id=$JOB1"}, status: 409},
	{operation: "pull-jobs", body: `{"worker_id":"worker-1","limit":100}`, status: 200},
	{operation: "fail-job", set: []string{"id=$JOB1"}, body: `{"error":"again"}`, status: 200},
	{operation: "retry-job", set: []string{"id=$JOB1"}, status: 200},
	{operation: "enqueue-job", body: `{"object_type":"instance","object_id":"shop","action":"init_instance","run_at":"2099-02-21T00:00:00Z"}`, status: 422},
	{operation: "admin-task-queue", status: 200},
	{operation: "admin-task-queue", query: "status=done&limit=1", status: 200},
	{operation: "admin-task-queue", query: "status=queued", status: 422},
	{operation: "admin-job-runs", status: 200},
	{operation: "admin-job-runs", query: "job_name=tidy&limit=1", status: 200},
	{operation: "admin-job-runs", query: "job_name=nothing", status: 404},
	{operation: "list-instances", status: 200},
	{operation: "claim-instance", body: `{"instance_id":"shop","user_id":"ana","tg_user_id":"123"}`, status: 200},
	{operation: "claim-instance", body: `{"instance_id":"shop","user_id":"bob"}`, status: 409},
	{operation: "claim-instance", body: `{"instance_id":"shop","user_id":"ana","tg_user_id":"me"}`, status: 422},
	{operation: "claim-instance", body: `{"instance_id":"nothing","user_id":"ana"}`, status: 404},
	{operation: "get-instance", set: []string{"id=shop"}, status: 200},
	{operation: "set-bot", set: []string{"id=shop"}, body: `{"token_ref":"env:BOT"}`, status: 200},
	{operation: "set-bot", set: []string{"id=shop"}, body: `{"token_ref":"env:NO_BOT"}`, status: 422},
	{operation: "check-instance", set: []string{"id=shop"}, status: 200},
	{operation: "check-instance", set: []string{"id=gone"}, status: 409},
	{operation: "sync-instance", set: []string{"id=gone"}, query: "repair=true", status: 200},
	{operation: "recover-instance", set: []string{"id=shop"}, status: 200},
	{operation: "list-servers", status: 200},
	{operation: "admin-server-metrics", set: []string{"id=s1"}, query: "limit=5", status: 200},
	{operation: "admin-server-metrics", set: []string{"id=nothing"}, status: 404},
	{operation: "admin-usage-daily", query: "instance_id=shop", status: 200},
	{operation: "handover", status: 204},
}

// TestOpenAPI asks a running master for each operation of the description, by turns
// over the socket and over TCP, and holds what it answers against it.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	w := newAPIWorld(t, "STINT_POSTGRES_URL="+postgrestest.Shared(t).Database(t))
	asked := map[string]bool{}
	for i, c := range apiCalls {
		t.Run(fmt.Sprint(c.operation, " ", c.status, " ", i), func(t *testing.T) { w.hold(t, c, i%2 == 0) })
		asked[c.operation] = asked[c.operation] || c.status < 300 || c.operation == "ui-session"
	}
	for id := range w.operations {
		if !asked[id] {
			t.Errorf("no call asks for %s", id)
		}
	}
}

// An apiOperation is one of the description.
type apiOperation struct{ method, path string }

// pointer returns the JSON pointer to a part of the operation.
func (o apiOperation) pointer(parts ...string) string {
	p := "#/paths"
	for _, part := range append([]string{o.path, strings.ToLower(o.method)}, parts...) {
		p += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part)
	}
	return p
}

// An apiWorld is a running master, its description, and what calls need.
type apiWorld struct {
	*world
	base       string // of URLs over TCP
	token      string
	id         string
	jobs       []string // ids of two due jobs; the second one has one attempt
	operations map[string]apiOperation
	document   map[string]any
	schemas    *jsonschema.Compiler
	http       *http.Client
}

func newAPIWorld(t *testing.T, settings ...string) *apiWorld {
	w := &apiWorld{world: newWorld(t, 1, append(settings, instancesOf(t)...)...), operations: map[string]apiOperation{}, schemas: jsonschema.NewCompiler()}
	l := w.serve("--http", "127.0.0.1:0")
	t.Cleanup(func() {
		if w.end(l, syscall.SIGTERM); !l.cmd.ProcessState.Success() {
			t.Errorf("%v\n%s", l.cmd.ProcessState, l.said())
		}
	})
	w.token = strings.TrimSpace(strings.TrimPrefix(w.run("token", "header"), "Authorization: Bearer "))
	w.id = w.run("task", "-d", "--session", "web", "--verify", "true", "--output-spec", "out.txt", "demo:write=out.txt|hello demo:say=done")
	w.run("wait", w.id)
	w.run("cron", "add", "tidy", "--cron", "@yearly", "--job", "fsck")
	w.jobs = []string{w.run("job", "add", "memory", "notes#1", "verify", "--at", "0s"), w.run("job", "add", "memory", "notes#2", "verify", "--at", "0s", "--max-attempts", "1")}
	health, err := w.client.Health(t.Context())
	must(t, err)
	w.base = "http://" + health.HTTP
	w.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasPrefix(addr, "stint:") {
			network, addr = "unix", w.socket
		}
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}}}
	w.readDescription()
	return w
}

// instancesOf returns the settings of a master with two instances: one that answers, and one that is gone. Its ssh says yes to all.
func instancesOf(t *testing.T) []string {
	dir := t.TempDir()
	gateway := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(gateway.Close)
	text := "[[server]]\nid = \"s1\"\n"
	for id, url := range map[string]string{"shop": gateway.URL, "gone": "http://127.0.0.1:1"} {
		text += fmt.Sprintf("[[instance]]\nid = %q\nserver = \"s1\"\nconfig_path = \"/srv/%[1]s/openclaw.json\"\nservice = %[1]q\ngateway = %[2]q\n", id, url)
	}
	must(t, os.WriteFile(filepath.Join(dir, "config.toml"), []byte(text), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "ssh"), []byte("#!/bin/sh\nexec cat >/dev/null\n"), 0o700))
	return []string{"STINT_CONFIG=" + filepath.Join(dir, "config.toml"), "PATH=" + dir + ":" + os.Getenv("PATH"), "BOT=123456:ABC-DEF"}
}

// readDescription reads the committed description, and sees that the master serves it.
func (w *apiWorld) readDescription() {
	file := get(w.t, openAPIFile)
	committed, err := jsonschema.UnmarshalJSON(bytes.NewReader(file))
	must(w.t, err)
	w.document = committed.(map[string]any)
	_, _, body := w.do(w.t, apiOperation{"GET", "/v1/openapi.json"}, apiCall{}, false)
	served := map[string]any{}
	must(w.t, json.Unmarshal(body, &served))
	for _, doc := range []map[string]any{served, w.document} {
		delete(doc["info"].(map[string]any), "version")
	}
	if a, b := asJSON(w.t, served), asJSON(w.t, w.document); a != b {
		w.t.Error("the master serves another description than the committed one")
	}
	must(w.t, w.schemas.AddResource("mem:///openapi.json", committed))
	for path, methods := range w.document["paths"].(map[string]any) {
		for method, op := range methods.(map[string]any) {
			w.operations[op.(map[string]any)["operationId"].(string)] = apiOperation{strings.ToUpper(method), path}
		}
	}
}

func asJSON(t testing.TB, v any) string {
	text, err := json.Marshal(v)
	must(t, err)
	return string(text)
}

// hold makes a call and holds the answer against the description.
func (w *apiWorld) hold(t *testing.T, c apiCall, tcp bool) {
	op, known := w.operations[c.operation]
	if !known {
		t.Fatal("the description has no such operation")
	}
	status, header, body := w.do(t, op, c, tcp)
	if status != c.status {
		t.Fatalf("%d %s, want %d", status, body, c.status)
	}
	pointer := op.pointer("responses", fmt.Sprint(status))
	answer, described := w.at(op, "responses").(map[string]any)[fmt.Sprint(status)].(map[string]any)
	if !described {
		t.Fatalf("the description says nothing about %d", status)
	}
	if ref, ok := answer["$ref"].(string); ok {
		pointer = ref
		answer = w.document["components"].(map[string]any)["responses"].(map[string]any)[path.Base(ref)].(map[string]any)
	}
	content, _ := answer["content"].(map[string]any)
	kind, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	if len(content) == 0 && len(body) == 0 {
		return
	}
	medium, described := content[kind].(map[string]any)
	if !described {
		t.Fatalf("the answer is %s, which the description does not say", kind)
	}
	if medium["schema"] == nil || !strings.HasSuffix(kind, "json") {
		return
	}
	w.validate(t, pointer+"/content/"+strings.ReplaceAll(kind, "/", "~1")+"/schema", body)
}

// at returns a part of an operation's description.
func (w *apiWorld) at(op apiOperation, part string) any {
	methods := w.document["paths"].(map[string]any)[op.path].(map[string]any)
	return methods[strings.ToLower(op.method)].(map[string]any)[part]
}

func (w *apiWorld) validate(t testing.TB, pointer string, body []byte) {
	schema, err := w.schemas.Compile("mem:///openapi.json" + pointer)
	must(t, err)
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%v\n%s", err, body)
	}
}

// do makes a call; of an answer without an end it reads the beginning.
func (w *apiWorld) do(t testing.TB, op apiOperation, c apiCall, tcp bool) (int, http.Header, []byte) {
	base := "http://stint"
	if tcp || strings.HasPrefix(op.path, "/ui/") {
		base = w.base
	}
	target := op.path
	for _, value := range append(c.set, "id="+w.id, "key=web", "name=out.txt") {
		name, value, _ := strings.Cut(strings.NewReplacer("$JOB0", w.jobs[0], "$JOB1", w.jobs[1]).Replace(value), "=")
		target = strings.ReplaceAll(target, "{"+name+"}", value)
	}
	if c.query != "" {
		target += "?" + c.query
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, op.method, base+target, strings.NewReader(strings.ReplaceAll(c.body, "$WS", filepath.Clean(w.work))))
	must(t, err)
	if c.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+w.token)
	for _, h := range c.headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := w.http.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }() // it was only read
	if c.operation == "events" {
		return resp.StatusCode, resp.Header, nil
	}
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, resp.Header, body
}

// TestLinters: the description has no error and no warning by the rules of two linters.
func TestLinters(t *testing.T) {
	t.Parallel()
	for _, linter := range []struct {
		variable string
		args     []string
		clean    string // what it prints then
	}{
		{"STINT_TEST_REDOCLY", []string{"lint", "--format=json", "openapi.json"}, `"warnings": 0`},
		{"STINT_TEST_SPECTRAL", []string{"lint", "--ruleset=rules.yaml", "--fail-severity=hint", "openapi.json"}, "No results"},
	} {
		t.Run(linter.variable, func(t *testing.T) {
			program := toolOf(t, linter.variable)
			dir := clientDir(t, "")
			put(t, filepath.Join(dir, "rules.yaml"), "extends: [\"spectral:oas\"]\n")
			if out := runIn(t, dir, nil, program, linter.args...); !strings.Contains(out, linter.clean) {
				t.Errorf("it has something to say:\n%s", out)
			}
		})
	}
}

// TestGeneratedClients: clients that generators have made of the description tell the
// story of the HTTP interface to a running master, over TCP and with the token.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	t.Run("openapi-typescript", func(t *testing.T) {
		generate := toolOf(t, "STINT_TEST_OPENAPI_TYPESCRIPT")
		dir := clientDir(t, "typescript")
		must(t, os.Symlink(filepath.Join(filepath.Dir(generate), ".."), filepath.Join(dir, "node_modules")))
		runIn(t, dir, nil, generate, "openapi.json", "-o", "schema.d.ts")
		runIn(t, dir, nil, filepath.Join(filepath.Dir(generate), "tsc"), "--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom,dom.iterable", "story.mts")
		runStory(t, dir, "node", "story.mjs")
	})
	t.Run("oapi-codegen", func(t *testing.T) {
		if os.Getenv("STINT_TEST_OAPI_CODEGEN") == "" {
			missing(t, "STINT_TEST_OAPI_CODEGEN is not set: it needs modules that stint does not")
		}
		dir := clientDir(t, "go")
		runIn(t, dir, nil, "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "client", "-o", "client.go", "openapi.json")
		runStory(t, dir, "go", "test", "-v", ".")
	})
}

// toolOf returns the program that a variable names.
func toolOf(t *testing.T, variable string) string {
	path := os.Getenv(variable)
	if path == "" {
		missing(t, variable+" is not set to a program; .ci/run installs it")
	}
	return path
}

// clientDir returns a new directory with the description, and what is below
// testdata/clients for a client in that language.
func clientDir(t *testing.T, language string) string {
	t.Helper()
	dir := t.TempDir()
	if language != "" {
		must(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata/clients", language))))
	}
	data, err := os.ReadFile(openAPIFile)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "openapi.json"), data, 0o600)
	}
	must(t, err)
	return dir
}

// runStory runs a client against a master of its own.
func runStory(t *testing.T, dir, program string, args ...string) {
	w := newAPIWorld(t)
	out := runIn(t, dir, []string{"STINT_URL=" + w.base, "STINT_TOKEN=" + w.token, "STINT_WORKSPACE=" + w.work}, program, args...)
	if !strings.Contains(out, "the story is told\n") && !strings.Contains(out, "--- PASS: TestStory") {
		t.Errorf("the client said:\n%s", out)
	}
}

// runIn runs a program in a directory, and returns what it prints.
func runIn(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
	return string(out)
}
