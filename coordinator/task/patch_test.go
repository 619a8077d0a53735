package task_test

import (
	"errors"
	"slices"
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
