package coordinator

import (
	"fmt"
	"strings"

	"stint/ledger"
	"stint/state"
)

// guardedKeys are the long texts of a task that a formatter may spoil.
var guardedKeys = []string{state.KeyPrompt, state.KeyVerifyCommand, state.KeyOnFailure, state.KeyOnIssue}

// deleted says what becomes of tasks whose sections a person has deleted: those
// that have not ended are canceled, the others are no longer listed. The log calls
// it on its own goroutine, without mu.
func (c *Coordinator) deleted(gone map[string]bool) []ledger.Record {
	c.mu.Lock()
	canceled, hidden, back := c.state.Gone(gone)
	c.mu.Unlock()
	now := state.FormatTime(c.cfg.Now())
	var records []ledger.Record
	for _, id := range canceled {
		r := ledger.Record{Kind: ledger.KindTask, ID: id}
		r.Add(state.KeyStatus, string(state.Canceled)).Add(state.KeyReason, string(state.ClassCanceled))
		records = append(records, *r.Add(state.KeyBy, ledger.ByHand).Add(state.KeyUpdatedAt, now))
	}
	if len(hidden)+len(back) > 0 {
		r := ledger.Record{Kind: ledger.KindControl, ID: state.ControlDeleted}
		r.AddIf(state.KeyTasks, strings.Join(hidden, "\n")).AddIf(state.KeyBack, strings.Join(back, "\n"))
		records = append(records, *r.Add(state.KeyBy, ledger.ByHand).Add(state.KeyUpdatedAt, now))
	}
	if len(hidden) > 0 {
		c.notice(ledger.Notice{Text: fmt.Sprintf("%s: %d finished tasks were deleted by hand and are no longer listed", ledger.TasksName, len(hidden))})
	}
	return records
}
