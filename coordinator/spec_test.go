package coordinator_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator"
	"stint/state"
)

func TestParseSpecs(t *testing.T) {
	when := time.Date(2026, 11, 21, 3, 12, 45, 0, time.UTC)
	tests := []struct {
		name, text string
		want       []coordinator.TaskSpec
	}{
		{"one", `{"prompt": "p"}`, []coordinator.TaskSpec{{Prompt: "p"}}},
		{"many", "\ufeff[\n{\"prompt\": \"p\"}, {\"prompt\": \"q\"}\n]\n", []coordinator.TaskSpec{{Prompt: "p"}, {Prompt: "q"}}},
		{"the other names", `{"tool": "codex", "model": "m", "prompt": "p", "input_files": [{"name": "a/b.txt", "content": "x\ny"}],
			"output_spec": ["out.txt"], "idempotency_key": "k", "priority": 7, "tenant_id": "ana"}`, []coordinator.TaskSpec{{
			Agent: "codex", Model: "m", Prompt: "p", InputFiles: []state.InputFile{{Name: "a/b.txt", Content: "x\ny"}},
			OutputSpec: []string{"out.txt"}, IdempotencyKey: "k", Priority: 7, TenantID: "ana",
		}}},
		{"output_files", `{"prompt": "p", "output_files": ["a"], "input_files": []}`, []coordinator.TaskSpec{{Prompt: "p", OutputSpec: []string{"a"}}}},
		{"scheduled_at", `{"prompt": "p", "scheduled_at": "2026-11-22T03:00:00Z"}`, []coordinator.TaskSpec{{Prompt: "p", NotBefore: time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)}}},
		{"our names", `{"prompt": "p", "agent": "codex", "sessionKey": "web", "after": ["a", "b"], "afterPolicy": "any", "hold": true,
			"notBefore": "2026-11-21T04:12:45+01:00", "noWaitLimit": true, "fallback": ["claude"], "queue": "nightly", "max_attempts": 3}`, []coordinator.TaskSpec{{
			Prompt: "p", Agent: "codex", SessionKey: "web", After: []string{"a", "b"}, AfterPolicy: "any", Hold: true, NotBefore: when,
			NoWaitLimit: true, Fallback: []string{"claude"}, Queue: "nightly", MaxAttempts: 3,
		}}},
		{"null is none", `{"prompt": "p", "model": null, "priority": null, "notBefore": null, "after": null, "inputFiles": null, "hold": null}`, []coordinator.TaskSpec{{Prompt: "p"}}},
	}
	for _, tt := range tests {
		got, err := coordinator.ParseSpecs("spec.json", []byte(tt.text))
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", tt.name, err, diff)
		}
	}
}

func TestParseSpecsRefuses(t *testing.T) {
	tests := []struct{ text, want string }{
		{"{\n\"promt\": \"p\"}", `spec.json:2: unknown field "promt"; did you mean prompt?`},
		{"[{\"prompt\": \"p\"},\n\n{\"prompt\": \"q\", \"input_file\": []}]", `spec.json:3: unknown field "input_file"; did you mean input_files?`},
		{`{"prompt": "p", "Prompt": "q"}`, `spec.json:1: unknown field "Prompt"; did you mean prompt?`},
		{`{"prompt": "p", "colour of it": 1}`, `unknown field "colour of it"; known are account, after, afterPolicy, agent,`},
		{"{\"prompt\": \"p\", \"input_files\": [\n{\"nam\": \"x\"}]}", `spec.json:2: unknown field "nam"; did you mean name?`},
		{"{\"tool\": \"codex\",\n\"agent\": \"codex\"}", `spec.json:2: tool and agent mean the same; leave one of them out`},
		{`{"prompt": "p", "prompt": "q"}`, `spec.json:1: prompt is given twice`},
		{"{\"prompt\": \"p\",\n\"priority\":\n\"high\"}", `spec.json:3: priority must be a whole number, not "high"`},
		{"[" + strings.Repeat("{},\n", coordinator.MaxBatch) + "{}]", "spec.json:100000: more than 100000 tasks are too many at once"},
		{`{"prompt": 7}`, `prompt must be a text in quotes, not 7`},
		{`{"output_spec": "x"}`, `output_spec must be a list of texts such as ["a", "b"], not "x"`},
		{`{"after": [1]}`, `after must be a list of texts such as ["a", "b"], not [1]`},
		{`{"hold": "true"}`, `hold must be true or false, not "true"`},
		{`{"notBefore": "tomorrow"}`, `notBefore must be a time such as "2026-11-21T03:12:45Z", not "tomorrow"`},
		{`{"notBefore": 5}`, `notBefore must be a time`},
		{`{"input_files": "x"}`, `here must be a list such as [{"name": "notes.txt", "content": "…"}]`},
		{`{"input_files": ["x"]}`, `here must be a file such as {"name": "notes.txt", "content": "…"}`},
		{`"p"`, `spec.json:1: here must be a task, or a list of tasks`},
		{`[["p"]]`, `here must be a task such as {"prompt": "what to do"}`},
		{`[]`, `spec.json:1: there is no task in it`},
		{" \n", `spec.json:1: it is empty`},
		{"{\n\"prompt\": \"p\",\n}", `spec.json:3: invalid character '}'`},
		{"{\n\"prompt\": \"p", `spec.json:2: unexpected end of JSON input`},
		{"{\"prompt\": \"p\"}\n{\"prompt\": \"q\"}", `spec.json:2: invalid character '{' after top-level value; write several tasks as a list: [{…}, {…}]`},
		{"{\n\"prompt\": \"\xff\"}", `spec.json:2: it is not valid UTF-8`},
		{"// no\n{}", `spec.json:1: invalid character '/'`},
	}
	for _, tt := range tests {
		_, err := coordinator.ParseSpecs("spec.json", []byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !errors.Is(err, &coordinator.Error{Code: coordinator.CodeInvalid}) {
			t.Errorf("%s\ngot  %v\nwant %s", tt.text, err, tt.want)
		}
		if err != nil && !strings.Contains(err.Error(), "; ") {
			t.Errorf("it does not say what to do: %v", err)
		}
	}
}

// TestEveryFieldCanBeSpecified: no field of a spec is forgotten by ParseSpecs.
func TestEveryFieldCanBeSpecified(t *testing.T) {
	typ := reflect.TypeFor[coordinator.TaskSpec]()
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		if name == "-" { // no client's to say
			continue
		}
		if _, err := coordinator.ParseSpecs("spec.json", fmt.Appendf(nil, `{"%s": null}`, name)); err != nil {
			t.Error(err)
		}
	}
}

// FuzzParseSpecs: whatever the bytes are, there are tasks or an error that says
// where.
func FuzzParseSpecs(f *testing.F) {
	for _, text := range []string{`{"prompt": "p"}`, `[{"tool": "x", "input_files": [{"name": "a", "content": "b"}]}]`, `[{"after": null}`, `{"notBefore": "x"}`, "[[", "\xff"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		specs, err := coordinator.ParseSpecs("x.json", data)
		if err == nil && len(specs) == 0 || err != nil && !strings.HasPrefix(err.Error(), "x.json:") {
			t.Errorf("%d tasks, %v", len(specs), err)
		}
	})
}

// TestBadSpecFields: what Submit refuses, with the words in which it does.
func TestBadSpecFields(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.cfg.Agents["codex"] = w.agent
	w.open()
	defer w.close()
	old := w.submit(coordinator.TaskSpec{Prompt: "p", SessionKey: "web", AgentSession: "n-0"})
	if _, err := w.c.Cancel(t.Context(), old.ID, "client"); err != nil {
		t.Fatal(err)
	}
	w.submit(coordinator.TaskSpec{Prompt: "p", SessionKey: "web", AgentSession: "n-1"})
	files := func(names ...string) (list []state.InputFile) {
		for _, n := range names {
			list = append(list, state.InputFile{Name: n, Content: "x"})
		}
		return list
	}
	past := time.Now().Add(-2 * time.Minute)
	tests := []struct {
		spec coordinator.TaskSpec
		want string
	}{
		{coordinator.TaskSpec{Agent: "codx"}, `there is no agent "codx"; did you mean codex?; stint doctor`},
		{coordinator.TaskSpec{Agent: "gpt"}, `there is no agent "gpt"; known are codex, demo; stint doctor`},
		{coordinator.TaskSpec{Model: "gpt 5"}, `"gpt 5" cannot be the name of a model`},
		{coordinator.TaskSpec{Model: "--yolo"}, `"--yolo" cannot be the name of a model`},
		{coordinator.TaskSpec{Agent: "codex", AgentSession: "n-1"}, `the session n-1 belongs to demo, not to codex; use --agent demo`},
		{coordinator.TaskSpec{Agent: "codex", AgentSession: "n-0"}, `the session n-0 belongs to demo, not to codex; use --agent demo`},
		{coordinator.TaskSpec{After: []string{"nobody"}}, `there is no task "nobody"; stint ls`},
		{coordinator.TaskSpec{AfterPolicy: "some"}, `the after-policy "some" is unknown; use done or any`},
		{coordinator.TaskSpec{NotBefore: past}, `the time ` + past.UTC().Format(time.RFC3339) + ` has passed; it is `},
		{coordinator.TaskSpec{TenantID: "a\nb"}, `the tenant cannot be used`},
		{coordinator.TaskSpec{Queue: strings.Repeat("x", 257)}, `the queue cannot be used; use at most 256 printable characters`},
		{coordinator.TaskSpec{Fallback: []string{"claud"}}, `fallback: there is no agent "claud"; known are codex, demo; stint doctor`},
		{coordinator.TaskSpec{Fallback: []string{"none", "codex"}}, `fallback: there is no agent "none"`},
		{coordinator.TaskSpec{OutputSpec: []string{"/etc/passwd"}}, `the output file "/etc/passwd" is an absolute path`},
		{coordinator.TaskSpec{OutputSpec: []string{"a/../../b"}}, `leads out of its directory by ".."`},
		{coordinator.TaskSpec{OutputSpec: []string{"a\nb"}}, `has a name that cannot be used`},
		{coordinator.TaskSpec{OutputSpec: []string{" a"}}, `has a name that cannot be used`},
		{coordinator.TaskSpec{OutputSpec: []string{"out/"}}, `is a directory`},
		{coordinator.TaskSpec{OutputSpec: []string{""}}, `has no name`},
		{coordinator.TaskSpec{OutputSpec: make([]string, 101)}, `101 output files are too many; at most 100`},
		{coordinator.TaskSpec{InputFiles: files("a", "b/../../x")}, `the input file "b/../../x" leads out`},
		{coordinator.TaskSpec{InputFiles: files("a", "./a")}, `two input files are named "a"`},
		{coordinator.TaskSpec{InputFiles: files("a/b", "a")}, `"a" is an input file and a directory of the input file "a/b"`},
		{coordinator.TaskSpec{InputFiles: []state.InputFile{{Name: "a", Content: strings.Repeat("x", 1<<20+1)}}}, `more than 1048576 bytes`},
		{coordinator.TaskSpec{InputFiles: []state.InputFile{{Name: "a", Content: "\xff"}}}, `the input file a is not valid UTF-8`},
	}
	for _, tt := range tests {
		tt.spec.Prompt = "p"
		_, err := w.try(tt.spec)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v:\ngot  %v\nwant %s", tt.spec, err, tt.want)
		}
	}
	if got := len(w.c.List(state.Filter{})); got != 2 {
		t.Errorf("%d tasks were taken in", got)
	}
}

// TestNativeFields: all sessions that a task had are its agents' own, but for those
// that an agent did not know; what stands in a text is none.
func TestNativeFields(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal.md")
	text := "## Task a\n- codexSessionId: n1\n## Task a\n- claudeSessionId: n2\n- prompt: |\n  x\n  - codexSessionId: n3\n" +
		"## Task b\n- codexSessionId: n4\n## Task b\n- reason: session-lost\n- label: " + strings.Repeat("x", 300<<10) + "\n## Task c\n- geminiSessionId: n5"
	if err := os.WriteFile(journal, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := coordinator.NativeFields(journal)
	want := map[string]bool{"- codexSessionId: n1": true, "- claudeSessionId: n2": true, "- geminiSessionId: n5": true}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestAnIdChoosesItsAgent: who names a session need not name its agent.
func TestAnIdChoosesItsAgent(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers, w.cfg.Agents["codex"] = 0, w.agent
	w.open()
	defer w.close()
	w.submit(coordinator.TaskSpec{Prompt: "p", Agent: "codex", AgentSession: "n1"})
	if got := w.submit(coordinator.TaskSpec{Prompt: "p", AgentSession: "n1", DefaultAgent: "demo"}); got.Agent != "codex" || got.AgentSession != "n1" {
		t.Errorf("%s, session %s", got.Agent, got.AgentSession)
	}
}

// TestAnIdThatAnAgentDidNotKnow is not that agent's: it may be tried with another.
func TestAnIdThatAnAgentDidNotKnow(t *testing.T) {
	for _, key := range []string{"web", ""} { // a session that stays known, and one that does not
		w := newWorld(t)
		w.cfg.ResumeMissing, w.cfg.Agents["codex"] = "error", w.agent
		w.outcomes(coordinator.Outcome{Class: state.ClassSessionLost, ExitCode: 1, Error: "no rollout found"}, coordinator.Outcome{Result: "fine"})
		w.open()
		named := coordinator.TaskSpec{Prompt: "p", SessionKey: key, Parallel: key == "", AgentSession: "n1"}
		w.expect(w.wait(w.submit(named).ID), state.Failed, state.ClassSessionLost)
		named.Agent = "codex"
		w.expect(w.wait(w.submit(named).ID), state.Done, "")
		w.close()
	}
}

// TestSpecIsRecorded: every field comes back, also from tasks.md alone.
func TestSpecIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.cfg.MaxWorkers = 0
	w.cfg.Agents["codex"], w.cfg.Agents["claude"] = w.agent, w.agent
	w.cfg.Fallback = []string{"claude", "demo", "unheard"}
	w.open()
	first := w.submit(coordinator.TaskSpec{Prompt: "p"})
	if got := strings.Join(first.Fallback, " "); got != "claude" {
		t.Errorf("the configured fallback became %q", got)
	}
	spec := coordinator.TaskSpec{
		Prompt: "p", Agent: "codex", TenantID: "ana & co", Queue: "nightly", Hold: true, AfterPolicy: "any", After: []string{first.ID[30:], first.ID, "@last"},
		Fallback: []string{"claude", "codex", "claude"}, OutputSpec: []string{"./out/a b.txt", "out/a b.txt", "r.txt"}, IdempotencyKey: "k",
		InputFiles: []state.InputFile{{Name: "in/<x>.md", Content: "## Task x\n- status: queued\n"}, {Name: "b"}},
	}
	got := w.submit(spec)
	want := got
	want.TenantID, want.Queue, want.Hold, want.AfterPolicy, want.After = "ana & co", "nightly", true, "any", []string{first.ID}
	want.Fallback, want.OutputSpec, want.InputFiles = []string{"claude"}, []string{"out/a b.txt", "r.txt"}, spec.InputFiles
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, s := range []coordinator.TaskSpec{{Agent: "codex"}, {SessionKey: "s"}, {Fallback: []string{"none"}}} {
		if s.Prompt = "p"; len(w.submit(s).Fallback) > 0 {
			t.Errorf("%+v got a fallback", s)
		}
	}
	w.resend(spec, got.ID)
	w.close()
	if err := os.Remove(filepath.Join(w.dir, "journal.md")); err != nil {
		t.Fatal(err)
	}
	w.open()
	again, err := w.c.Task(t.Context(), got.ID)
	again.Seq = got.Seq // the new journal begins anew
	if diff := cmp.Diff(got, again); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	w.close()
}

// resend submits a spec with a known key again, as it is and with changes.
func (w *world) resend(spec coordinator.TaskSpec, id string) {
	w.t.Helper()
	spec.After = spec.After[:1]
	if got, err := w.try(spec); err != nil || got.ID != id {
		w.t.Errorf("a resend gave %s, %v", got.ID, err)
	}
	for what, change := range map[string]func(*coordinator.TaskSpec){
		"after":    func(s *coordinator.TaskSpec) { s.After = nil },
		"policy":   func(s *coordinator.TaskSpec) { s.AfterPolicy = "done" },
		"tenant":   func(s *coordinator.TaskSpec) { s.TenantID = "bob" },
		"queue":    func(s *coordinator.TaskSpec) { s.Queue = "" },
		"fallback": func(s *coordinator.TaskSpec) { s.Fallback = []string{"demo"} },
		"output":   func(s *coordinator.TaskSpec) { s.OutputSpec = s.OutputSpec[:1] },
		"input":    func(s *coordinator.TaskSpec) { s.InputFiles = s.InputFiles[:1] },
		"agent":    func(s *coordinator.TaskSpec) { s.Agent = "claude" },
	} {
		other := spec
		change(&other)
		if _, err := w.try(other); !errors.Is(err, &coordinator.Error{Code: coordinator.CodeConflict}) {
			w.t.Errorf("a resend with another %s gave %v", what, err)
		}
	}
}

func TestBadSpecs(t *testing.T) {
	w := newWorld(t)
	w.open()
	defer w.close()
	file := filepath.Join(w.work, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]coordinator.TaskSpec{
		"empty":          {Prompt: " \n"},
		"too long":       {Prompt: strings.Repeat("x", coordinator.MaxPrompt+1)},
		"invalid UTF-8":  {Prompt: "a\xff"},
		"agent":          {Prompt: "p", Agent: "nobody"},
		"account":        {Prompt: "p", Account: "other"},
		"session slash":  {Prompt: "p", SessionKey: "a/b"},
		"session line":   {Prompt: "p", SessionKey: "a\n## Task x"},
		"session dir":    {Prompt: "p", SessionKey: "dir:/x"},
		"session task":   {Prompt: "p", SessionKey: "task:x"},
		"workspace":      {Prompt: "p", Workspace: "relative"},
		"no workspace":   {Prompt: "p", Workspace: "/does/not/exist"},
		"workspace file": {Prompt: "p", Workspace: file},
		"resume":         {Prompt: "p", Resume: "maybe"},
		"timeout":        {Prompt: "p", Timeout: "soon"},
		"priority":       {Prompt: "p", Priority: 10},
		"model":          {Prompt: "p", Model: "-x --yolo"},
		"agent session":  {Prompt: "p", AgentSession: "--last"},
		"both":           {Prompt: "p", Parallel: true, SessionKey: "a"},
		"id":             {Prompt: "p", ID: "x"},
		"label":          {Prompt: "p", Label: "a\nb"},
	} {
		_, err := w.try(s)
		var e *coordinator.Error
		if !errors.As(err, &e) || e.Code != coordinator.CodeInvalid || e.Message == "" || e.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := w.try(coordinator.TaskSpec{Prompt: "p", Continue: true})
	if !errors.Is(err, &coordinator.Error{Code: coordinator.CodeNotFound}) {
		t.Errorf("nothing to continue: %v", err)
	}
	if n := len(w.c.List(state.Filter{})); n != 0 {
		t.Errorf("%d tasks were taken in", n)
	}
}

func TestRenameSpecs(t *testing.T) {
	tests := []struct{ text, want string }{
		{
			`{"tool":"codex","model":null,"prompt":"p","input_files":[],"output_files":["a"],"tenant_id":"default","priority":5,"idempotency_key":null}`,
			`{"agent":"codex","model":null,"prompt":"p","inputFiles":[],"outputSpec":["a"],"tenantId":"default","priority":5,"idempotencyKey":null}`,
		},
		{`[{"Session_Key":"web","PROMPT":"p"}, {"session":{"tool":1}}]`, `[{"sessionKey":"web","prompt":"p"},{"sessionKey":{"tool":1}}]`},
		{`{"ſession":"a","Kind":1,"prİority":1}`, `{"sessionKey":"a","Kind":1,"prİority":1}`},
		{`{"colour":1,"a \" b":2,"prompt":"<\u00e9"}`, `{"colour":1,"a \" b":2,"prompt":"<\u00e9"}`},
		{`{}`, `{}`},
		{`[]`, `[]`},
		{`7`, `7`},
		{`[7,[{"tool":1}],null]`, `[7,[{"tool":1}],null]`},
		{`"tool"`, `"tool"`},
	}
	for _, tt := range tests {
		if got, err := coordinator.RenameSpecs([]byte(tt.text)); string(got) != tt.want || err != nil {
			t.Errorf("%s\ngot  %s %v\nwant %s", tt.text, got, err, tt.want)
		}
	}
	for text, want := range map[string]string{
		`{"tool":"a","prompt":"p","agent":"a"}`:           "agent: tool and agent mean the same",
		`{"output_files":[],"outputSpec":[]}`:             "outputSpec: output_files and outputSpec mean the same",
		`{"output_files":[],"output_spec":[]}`:            "outputSpec: output_files and output_spec mean the same",
		`{"Prompt":"a","prompt":"b"}`:                     "prompt: Prompt and prompt mean the same",
		`{"session":"a","ſessionKey":"b"}`:                "sessionKey: session and ſessionKey mean the same",
		`{"toKen":1,"tool":"a","Tool":"b"}`:               "agent: tool and Tool mean the same",
		`{"tool":"a","tool":"a"}`:                         "agent: tool is given twice",
		`[{"prompt":"p"},{"tenant":"a","tenant_id":"a"}]`: "1.tenantId: task 2 of 2: tenant and tenant_id mean the same",
		`{"scheduled_at":null,"not_before":null}`:         "notBefore: scheduled_at and not_before mean the same",
	} {
		_, err := coordinator.RenameSpecs([]byte(text))
		if got := fieldOf(err) + ": " + fmt.Sprint(err); !strings.HasPrefix(got, want) {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
	for _, text := range []string{"", "{", `{"a"`, `{"a":}`, `{"a":1`, "[", "[{]", `{"a" 1}`, `{"a":1,}`, `[{"tool":}]`, `{"tool":1} {}`} {
		if got, err := coordinator.RenameSpecs([]byte(text)); err != nil || string(got) != text {
			t.Errorf("%s: made %s of it, %v", text, got, err)
		}
	}
}
