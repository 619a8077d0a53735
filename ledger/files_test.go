package ledger

import "testing"

// TestEndsOpen: an editor that writes a file in pieces may go on behind these, and not behind those.
func TestEndsOpen(t *testing.T) {
	const record = "## Task a\n- seq: 1\n- status: done\n"
	for text, want := range map[string]bool{
		"": false, "\n": false, "words\n": false, "words": true, "## Task a\n": true, "## Task a\n\n": true, "## Task a\n- status: queued\n": false,
		"## Task a\n- prompt: |\n": true, "## Task a\n- prompt: |\n  one\n\n": true, "## Notes\n  one\n": false, Preamble: false,
		"## Task a\n- prompt: |\n  one\n- status: queued\n": false, record + "<!-- end 1 -->\n\n    code\n": false,
		record: true, record + "<!-- end 1": true, record + "<!-- end 1 -->\n": false, record + "<!-- end 1 -->\n\nA note.\n": false,
	} {
		if got := EndsOpen([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
