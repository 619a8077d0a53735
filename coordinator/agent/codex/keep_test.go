package codex

import (
	"strings"
	"testing"

	"stint/coordinator/task"
)

// Of a long line only an item that is known to be no answer is cut.
func TestKeep(t *testing.T) {
	d := NewDecoder(task.Turn{}, func(task.Event) {})
	for head, want := range map[string]bool{
		`{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"` + strings.Repeat("x", 5000):                  true,
		`{"type":"item.completed","item":{"id":"item_1","type":"command_execution","aggregated_output":"` + strings.Repeat("x", 5000): false,
		`{"item":{"id":"item_1","text":"as the demo agent has it`:                                                                     true,
		`{"type":"turn.failed","error":{"message":"`:                                                                                  true,
		``: true,
	} {
		if got := d.Keep([]byte(head)); got != want {
			t.Errorf("%.80s: %v", head, got)
		}
	}
}
