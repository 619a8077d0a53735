package state

import "testing"

// TestShellQuote: a word is quoted for a shell only if it needs that.
func TestShellQuote(t *testing.T) {
	for word, want := range map[string]string{"cli_worker-2": "cli_worker-2", "it's": `'it'\''s'`, "": "''", "a b": "'a b'"} {
		if got := ShellQuote(word); got != want {
			t.Errorf("%q became %s, want %s", word, got, want)
		}
	}
}
