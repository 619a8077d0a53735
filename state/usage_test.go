package state

import (
	"math"
	"testing"
)

// TestUsageBeyondNumbers: what a person has written into the ledger may be as large as a number can be. Sums of that are not below zero.
func TestUsageBeyondNumbers(t *testing.T) {
	u := Usage{InputTokens: math.MaxInt64, OutputTokens: 1, CostUSD: 2}
	got := u.Plus(Usage{InputTokens: 5, OutputTokens: 2, CostUSD: 1})
	if want := (Usage{InputTokens: math.MaxInt64, OutputTokens: 3, CostUSD: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	spent := SpendingOf(u, 0)
	if spent.Tokens != math.MaxInt64 || spent.Plus(spent).Tokens != math.MaxInt64 {
		t.Errorf("spent: %+v", spent)
	}
}
