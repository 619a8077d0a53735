package request

import (
	"net/http"
	"strings"
	"testing"

	"stint/coordinator/task"
)

// FuzzIdempotencyKey: a key is taken as it was sent, in quotes or without, or refused.
func FuzzIdempotencyKey(f *testing.F) {
	for _, s := range []string{"k", `"k"`, `"a\"b\\c"`, `"`, `""`, `"\`, "a\tb", "\xff", "a b", ` "k" `, `"k" x`, strings.Repeat("k", 257)} {
		f.Add(s)
	}
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	f.Fuzz(func(t *testing.T, value string) {
		read := func(value string) (key Key, err error) {
			err = key.Resolve(&http.Request{Header: http.Header{KeyHeader: {value}}})
			return key, err
		}
		key, err := read(value)
		if err != nil {
			if key != "" {
				t.Fatalf("%q is refused (%v) and read as %q", value, err, key)
			}
			return
		}
		if task.CheckKey(string(key)) != nil {
			t.Fatalf("took %q", key)
		}
		if again, err := read(`"` + quoted.Replace(string(key)) + `"`); again != key || err != nil {
			t.Fatalf("%q in quotes is %q, %v", key, again, err)
		}
	})
}
