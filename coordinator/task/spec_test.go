package task_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/state"

	"github.com/google/go-cmp/cmp"
)

func TestParseSpecs(t *testing.T) {
	when := time.Date(2026, 11, 21, 3, 12, 45, 0, time.UTC)
	tests := []struct {
		name, text string
		want       []task.TaskSpec
	}{
		{"one", `{"prompt": "p"}`, []task.TaskSpec{{Prompt: "p"}}},
		{"many", "\ufeff[\n{\"prompt\": \"p\"}, {\"prompt\": \"q\"}\n]\n", []task.TaskSpec{{Prompt: "p"}, {Prompt: "q"}}},
		{"the other names", `{"tool": "codex", "model": "m", "prompt": "p", "input_files": [{"name": "a/b.txt", "content": "x\ny"}],
			"output_spec": ["out.txt"], "idempotency_key": "k", "priority": 7, "tenant_id": "ana"}`, []task.TaskSpec{{
			Agent: "codex", Model: "m", Prompt: "p", InputFiles: []state.InputFile{{Name: "a/b.txt", Content: "x\ny"}},
			OutputSpec: []string{"out.txt"}, IdempotencyKey: "k", Priority: 7, TenantID: "ana",
		}}},
		{"output_files", `{"prompt": "p", "output_files": ["a"], "input_files": []}`, []task.TaskSpec{{Prompt: "p", OutputSpec: []string{"a"}, InputFiles: []state.InputFile{}}}},
		{"scheduled_at", `{"prompt": "p", "scheduled_at": "2026-11-22T03:00:00Z"}`, []task.TaskSpec{{Prompt: "p", NotBefore: time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)}}},
		{"our names", `{"prompt": "p", "agent": "codex", "sessionKey": "web", "after": ["a", "b"], "afterPolicy": "any", "hold": true,
			"notBefore": "2026-11-21T04:12:45+01:00", "noWaitLimit": true, "fallback": ["claude"], "queue": "nightly", "max_attempts": 3}`, []task.TaskSpec{{
			Prompt: "p", Agent: "codex", SessionKey: "web", After: []string{"a", "b"}, AfterPolicy: "any", Hold: true, NotBefore: when,
			NoWaitLimit: true, Fallback: []string{"claude"}, Queue: "nightly", MaxAttempts: 3,
		}}},
		{"null is none", `{"prompt": "p", "model": null, "priority": null, "notBefore": null, "after": null, "inputFiles": null, "hold": null}`, []task.TaskSpec{{Prompt: "p"}}},
	}
	for _, tt := range tests {
		got, err := task.ParseSpecs("spec.json", []byte(tt.text))
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", tt.name, err, diff)
		}
	}
}

func TestParseSpecsRefuses(t *testing.T) {
	tests := []struct{ text, want string }{
		{"{\n\"promt\": \"p\"}", `spec.json:2: promt: unknown field (did you mean prompt?)`},
		{"[{\"prompt\": \"p\"},\n\n{\"prompt\": \"q\", \"input_file\": []}]", `spec.json:3: 1.input_file: unknown field (did you mean input_files?)`},
		{`{"prompt": "p", "Prompt": "q"}`, `spec.json:1: Prompt: the same as prompt; leave one of them out`},
		{`{"prompt": "p", "colour of it": 1}`, `colour of it: unknown field (known are account, after, afterPolicy, agent,`},
		{"{\"prompt\": \"p\", \"input_files\": [\n{\"nam\": \"x\"}]}", `spec.json:2: input_files.0.nam: unknown field (did you mean name?)`},
		{"{\"tool\": \"codex\",\n\"agent\": \"codex\"}", `spec.json:2: agent: the same as tool; leave one of them out`},
		{`{"prompt": "p", "prompt": "q"}`, `spec.json:1: prompt: given twice`},
		{"{\"prompt\": \"p\",\n\"priority\":\n\"high\"}", `spec.json:3: priority: expected a whole number`},
		{"[" + strings.Repeat("{},\n", task.MaxBatch) + "{}]", "spec.json:100000: more than 100000 tasks are too many at once"},
		{`{"prompt": 7}`, `prompt: expected a text in quotes`},
		{`{"output_spec": "x"}`, `output_spec: expected a list`},
		{`{"after": [1]}`, `after.0: expected a text in quotes`},
		{`{"hold": "true"}`, `hold: expected true or false`},
		{`{"notBefore": "tomorrow"}`, `notBefore: expected a time such as "2026-11-21T03:12:45Z"`},
		{`{"notBefore": 5}`, `notBefore: expected a time`},
		{`{"input_files": "x"}`, `input_files: expected a list`},
		{`{"input_files": ["x"]}`, `input_files.0: expected an object`},
		{`"p"`, `spec.json:1: expected an object`},
		{`[["p"]]`, `0: expected an object`},
		{`[]`, `spec.json:1: there is no task in it`},
		{" \n", `unexpected EOF`},
		{"{\n\"prompt\": \"p\",\n}", `spec.json:2: invalid character ','`},
		{"{\n\"prompt\": \"p", `spec.json:2: unexpected EOF`},
		{"{\"prompt\": \"p\"}\n{\"prompt\": \"q\"}", `spec.json:2: invalid character '{' after top-level value`},
		{"{\n\"prompt\": \"\xff\"}", `spec.json:2: it is not valid UTF-8`},
		{"// no\n{}", `spec.json:1: invalid character '/'`},
	}
	for _, tt := range tests {
		_, err := task.ParseSpecs("spec.json", []byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.Is(err, &task.Error{Code: task.CodeInvalid}) {
			t.Errorf("%.200s\ngot  %v\nwant %s", tt.text, err, tt.want)
		}
		if err != nil && !strings.Contains(err.Error(), "; ") {
			t.Errorf("it does not say what to do: %v", err)
		}
	}
}

// TestEveryFieldCanBeSpecified: no field of a spec is forgotten by ParseSpecs.
func TestEveryFieldCanBeSpecified(t *testing.T) {
	typ := reflect.TypeFor[task.TaskSpec]()
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if name == "-" { // no client's to say
			continue
		}
		if _, err := task.ParseSpecs("spec.json", fmt.Appendf(nil, `{"%s": null}`, name)); err != nil {
			t.Error(err)
		}
	}
}

// FuzzParseSpecs: whatever the bytes are, there are tasks or an error that says where.
func FuzzParseSpecs(f *testing.F) {
	for _, text := range []string{`{"prompt": "p"}`, `[{"tool": "x", "input_files": [{"name": "a", "content": "b"}]}]`, `[{"after": null}`, `{"notBefore": "x"}`, "[[", "\xff"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		specs, err := task.ParseSpecs("x.json", data)
		if err == nil && len(specs) == 0 || err != nil && !strings.HasPrefix(err.Error(), "x.json:") {
			t.Errorf("%d tasks, %v", len(specs), err)
		}
	})
}
