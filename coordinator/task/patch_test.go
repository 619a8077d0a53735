package task_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"stint/coordinator/task"
	"stint/state"

	"github.com/google/go-cmp/cmp"
)

// FuzzReadPatch: a patch is refused with a sentence, or gives the same when it is put in
// twice; and what it does not name stays as it was.
func FuzzReadPatch(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"label":"x","priority":null}`, `{"tool":"a","agent":"b"}`, `{"after":["a"],"after":[]}`, `{"notBefore":"2026-12-01T08:00:00Z"}`,
		`{"prompt":7}`, `{"id":"x"}`, `[]`, `null`, `{"hold":true`, `{"outputSpec":null,"hold":false}`, "{\"label\":\"\xff\"}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		was := task.TaskSpec{ID: "id", Label: "l", Priority: 9, After: []string{"a", "b"}, Hold: true, InputFiles: []state.InputFile{{Name: "a"}}}
		once := was
		if _, err := task.ReadPatch(data, &once); err != nil {
			if !errors.Is(err, &task.Error{Code: task.CodeInvalid}) || !utf8.ValidString(err.Error()) {
				t.Fatalf("%v", err)
			}
			return
		}
		twice := once
		if _, err := task.ReadPatch(data, &twice); err != nil || !cmp.Equal(once, twice) {
			t.Fatalf("%+v and then %+v, %v", once, twice, err)
		}
		if once.ID != "id" || len(once.InputFiles) != 1 || !slices.Equal(was.After, []string{"a", "b"}) {
			t.Fatalf("%+v of %+v", once, was)
		}
	})
}

// TestReadPatchMakesNewLists: a list that is set leaves the one that was there to those who have it.
func TestReadPatchMakesNewLists(t *testing.T) {
	was := task.TaskSpec{After: []string{"a", "b"}, Fallback: []string{"codex"}, Allow: []string{"x"}, OutputSpec: []string{"f"}}
	now := was
	if _, err := task.ReadPatch([]byte(`{"after":["c"],"fallback":["gemini"],"allow":["y"],"outputSpec":["g"]}`), &now); err != nil {
		t.Fatal(err)
	}
	if want := (task.TaskSpec{After: []string{"a", "b"}, Fallback: []string{"codex"}, Allow: []string{"x"}, OutputSpec: []string{"f"}}); !cmp.Equal(was, want) {
		t.Errorf("what was there is %+v now", was)
	}
	if want := (task.TaskSpec{After: []string{"c"}, Fallback: []string{"gemini"}, Allow: []string{"y"}, OutputSpec: []string{"g"}}); !cmp.Equal(now, want) {
		t.Errorf("%+v", now)
	}
}

// TestReadPatchRefuses names the field that it is about.
func TestReadPatchRefuses(t *testing.T) {
	for _, tt := range []struct{ patch, field, want string }{
		{`{"prompt":7}`, "prompt", "prompt: expected a text in quotes"},
		{`{"priority":"high"}`, "priority", "whole number"},
		{`{"label":"x","priority":0.5}`, "priority", "whole number"},
		{`{"id":"x"}`, "id", "id: unknown field"},
		{`{"inputFiles":[]}`, "inputFiles", "known are account, after"},
		{`{"status":"done"}`, "status", "unknown field"},
		{`{"labl":"x"}`, "labl", "did you mean label?"},
		{`{"tool":"codex","agent":"codex"}`, "agent", "the same as tool"},
		{`{"label":"x","label":"y"}`, "label", "twice"},
		{`[]`, "", "expected an object"},
		{`null`, "", "expected an object"},
		{`{"label":`, "label", "JSON"},
		{``, "", "JSON"},
	} {
		_, err := task.ReadPatch([]byte(tt.patch), &task.TaskSpec{Prompt: "p"})
		var e *task.Error
		if !errors.As(err, &e) || e.Code != task.CodeInvalid || e.Field != tt.field || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.patch, err)
		}
	}
}

func TestPatchOf(t *testing.T) {
	got, err := task.PatchOf([]string{"priority=9", "label=a=b", "after=x, y", "hold=true", "not_before=2026-12-01T08:00:00Z", "model=", "prompt=two\nlines"})
	want := `{"after":["x","y"],"hold":true,"label":"a=b","model":null,"notBefore":"2026-12-01T08:00:00Z","priority":9,"prompt":"two\nlines"}`
	if string(got) != want || err != nil {
		t.Errorf("%s %v", got, err)
	}
	for setting, want := range map[string]string{
		"label": "sets nothing", "": "sets nothing", "=x": "unknown field", "labl=x": "did you mean label?", "id=x": "unknown field", "priority=high": "a whole number",
		"label=\xff": "not valid UTF-8", "hold=perhaps": "expected true or false", "notBefore=soon": "expected a time",
	} {
		if _, err := task.PatchOf([]string{setting}); !errors.Is(err, &task.Error{Code: task.CodeInvalid}) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", setting, err)
		}
	}
	if _, err := task.PatchOf([]string{"tool=a", "agent=b"}); err == nil || !strings.Contains(err.Error(), "agent is given twice") {
		t.Error(err)
	}
}
