package fold

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"stint/ledger"
	"stint/state"
)

// TestAccounts: an account is known by what the records say of it, and by the tasks that want it.
func TestAccounts(t *testing.T) {
	j := newJournal(t)
	if got := j.state.Accounts(); got != nil {
		t.Errorf("of nothing: %+v", got)
	}
	records(j,
		"a: status=queued; agent=codex; account=work",
		"b: status=queued; agent=codex",
		"c: status=queued; agent=claude",
		"d: status=queued; agent=codex; hold=true",
		"e: agent=gemini",
		"f: status=queued; agent=gemini",
		"f: status=canceled",
		"g: status=queued; agent=codex; account=work",
		"b: status=running; runId=r",
		"g: status=running; runId=s",
		"g: phase=verify",                                               // uses no account
		"h: status=queued; agent=gemini; account=judge; phase=evaluate", // names one, and waits for none
	)
	j.control(state.ControlAccount+"away", "hold: true", "reason: auth", "by: "+ledger.ByHand)
	j.control(state.ControlAccount+"claude", "coolUntil: "+at(0), "limitWaits: 2", "reason: rate-limited")
	j.control(state.ControlAccount+"free", "hold: true")
	j.control(state.ControlAccount+"free", "hold:")
	want := []state.AccountUse{
		{Account: state.Account{Name: "away", Hold: true, Reason: "auth"}},
		{Account: state.Account{Name: "claude", Reason: "rate-limited", CoolUntil: noon, LimitWaits: 2}, Agent: "claude", Waiting: 1},
		{Account: state.Account{Name: "codex"}, Agent: "codex", Running: 1, Waiting: 1},
		{Account: state.Account{Name: "work"}, Agent: "codex", Waiting: 1},
	}
	if diff := cmp.Diff(want, j.state.Accounts()); diff != "" {
		t.Error(diff)
	}
}
