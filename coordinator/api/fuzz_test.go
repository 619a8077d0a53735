package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/state"
)

// FuzzTaskSpec sends any body at all. The server must answer, refuse what it
// does not know, and hand over exactly what it was given.
func FuzzTaskSpec(f *testing.F) {
	for _, body := range []string{
		`{"prompt":"x"}`, `{"prompt":"x","agent":"codex","priority":9,"continue":true,"notBefore":"2026-12-01T08:00:00Z"}`,
		`{"prompt":"x","colour":1}`, `{"Prompt":"x","PROMPT":"y"}`, `{"prompt":"\ud800"}`, `{"prompt":"x","priority":1e99}`,
		`{"prompt":"x","maxAttempts":1.5}`, `{"prompt":null}`, `{"prompt":"x","$schema":"y"}`, `[{}]`, `null`, `"x"`, "", "{\"prompt\":\"\xff\"}",
		`{"prompt":"x","notBefore":""}`, `{"prompt":"x","notBefore":"0000-01-01T00:00:00+24:00"}`, strings.Repeat("[", 10000),
		`[]`, `[{"prompt":"x"},{"prompt":"y","tool":"codex"}]`, `[{"prompt":"x","session_key":"a","sessionKey":"b"}]`, ` [ {"prompt":"x"} ] `, `[7]`, `[null]`,
		`{"tool":"codex","prompt":"x","input_files":[],"output_files":[],"tenant_id":"default","idempotency_key":null}`, `{"tool":"codex","prompt":"x"`, `{"tool":1}{}`,
		`{"Tool":"codex","TENANT":"x","prompt":"x","scheduled_at":"2026-12-01T08:00:00Z"}`, `{"prompt":"x","":1}`, `[{"tool":"a"},`, `[[{"tool":"a"}]]`,
	} {
		f.Add([]byte(body))
	}
	plain, m := strings.NewReplacer("_", "", "-", ""), newFake(f)
	known := slices.AppendSeq([]string{"codexSessionId", "tool", "verify", "session", "tenant", "outputFiles", "scheduledAt"}, maps.Keys(task.Fields(&task.TaskSpec{})))
	server := newServer(m, Options{})
	f.Fuzz(func(t *testing.T, body []byte) {
		m.tasks, m.keys = nil, map[string]string{}
		w := ask(server, http.MethodPost, "/v1/tasks", jsonType, string(body))
		if w.Code >= 500 || w.Code < 200 || w.Code >= 300 && w.Code < 400 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if w.Code >= 400 {
			if p := decode[wire.Problem](t, w.Body.Bytes()); p.Code != task.CodeInvalid || p.Detail == "" || !utf8.ValidString(p.Detail) {
				t.Fatalf("%s", w.Body)
			}
			return
		}
		list := decode[json.RawMessage](t, body)
		if !strings.HasPrefix(strings.TrimSpace(string(list)), "[") {
			list = slices.Concat([]byte("["), list, []byte("]"))
		}
		for _, fields := range decode[[]map[string]json.RawMessage](t, list) {
			for name := range fields {
				if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, plain.Replace(name)) }) {
					t.Fatalf("took the unknown property %q", name)
				}
			}
		}
		for _, sent := range decode[[]task.TaskSpec](t, list) {
			if !slices.ContainsFunc(m.tasks, func(got state.Task) bool {
				return got.Prompt == sent.Prompt && (sent.NotBefore.IsZero() || got.NotBefore.Equal(sent.NotBefore))
			}) {
				t.Fatalf("%q %v is not among %+v", sent.Prompt, sent.NotBefore, m.tasks)
			}
		}
	})
}

// FuzzRequest sends any bytes at all to the listener on TCP, which must not fail, and must
// answer with a problem what it does not take.
func FuzzRequest(f *testing.F) {
	options, log := logged()
	s := serveTCP(f, twoTasks(f), options)
	for _, c := range slices.Concat(malformedLines(), malformedHeaders(), malformedFraming(), malformedPaths(), otherProtocols()) {
		if len(c.request) < 4096 {
			f.Add([]byte(c.request))
		}
	}
	anything := malformed{harmless: true, silent: true}
	f.Fuzz(func(t *testing.T, request []byte) {
		if why := anything.judge(s.raw(t, string(request))); why != "" {
			t.Errorf("%q: %s", short(string(request)), why)
		}
		if text := log.String(); text != "" {
			t.Fatal(text)
		}
	})
}
