package mark

import (
	"fmt"
	"testing"

	"stint/ledger"
)

// TestSuperseded: compactions and restores say which numbers count no more, unless a later one
// has superseded what they say.
func TestSuperseded(t *testing.T) {
	compaction := func(seq, through int) string {
		return fmt.Sprintf("## Control compaction\n- seq: %d\n- through: %d\n- merged: 0\n<!-- end %d -->\n", seq, through, seq)
	}
	restore := func(seq, through int) string {
		return fmt.Sprintf("## Control restored\n- seq: %d\n- through: %d\n<!-- end %d -->\n", seq, through, seq)
	}
	for _, tt := range []struct{ text, want string }{
		{"", ""},
		{compaction(4, 3), "1 2 3 "},
		{compaction(8, 7) + compaction(4, 3), "1 2 3 4 5 6 7 "},
		{restore(5, 2), "3 4 "},
		{"## Control restored\n- through: 1\n", ""},
		{compaction(4, 3) + restore(7, 2), "3 4 5 6 "}, // to a copy from before the compaction
		{restore(5, 2) + compaction(7, 6), "1 2 3 4 5 6 "},
	} {
		superseded, got := Superseded(ledger.Parse([]byte(tt.text)).Sections), ""
		for seq := range uint64(10) {
			if seq > 0 && superseded(seq) {
				got += fmt.Sprint(seq, " ")
			}
		}
		if got != tt.want {
			t.Errorf("%s: %q count no more, want %q", tt.text, got, tt.want)
		}
	}
}
