package request

import (
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
		key, fault := parseKey(value)
		if fault != "" {
			if key != "" {
				t.Fatalf("%q is refused (%s) and read as %q", value, fault, key)
			}
			return
		}
		if task.CheckKey(key) != nil {
			t.Fatalf("took %q", key)
		}
		if again, fault := parseKey(`"` + quoted.Replace(key) + `"`); again != key || fault != "" {
			t.Fatalf("%q in quotes is %q, %s", key, again, fault)
		}
	})
}
