package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stint/ledger"
)

// TestNativeFields: all sessions that a task had are its agents' own, but for those
// that an agent did not know; what stands in a text is none.
func TestNativeFields(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal.md")
	text := ledger.EmptyJournal
	for i, record := range []string{
		"Task a\n- seq: %d\n- codexSessionId: n1", "Task a\n- seq: %d\n- claudeSessionId: n2\n- prompt: |\n  x\n  - codexSessionId: n3",
		"Task b\n- seq: %d\n- codexSessionId: n4", "Task b\n- seq: %d\n- reason: session-lost\n- label: " + strings.Repeat("x", 300<<10), "Task c\n- seq: %d\n- geminiSessionId: n5",
	} {
		text += fmt.Sprintf("## "+record+"\n<!-- end %[1]d -->\n\n", i+1)
	}
	if err := os.WriteFile(journal, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := nativeFields(journal)
	want := map[string]bool{"codexSessionId: n1": true, "claudeSessionId: n2": true, "geminiSessionId: n5": true}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
