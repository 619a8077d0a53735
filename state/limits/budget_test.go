package limits

import (
	"testing"
	"time"
)

// TestBudget reads budgets, and says what of them is spent and left.
func TestBudget(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Budget{
		"": {}, "5usd": {USD: 5}, "0.5USD": {USD: 0.5}, "200ktok": {Tokens: 200_000}, "1.5Mtok": {Tokens: 1_500_000}, "12tok": {Tokens: 12},
		"90m": {Time: 90 * time.Minute}, "5usd, 1h30m 7tok": {5, 7, 90 * time.Minute},
		"1e307usd 1e307tok": {USD: most, Tokens: most},
	} {
		got, err := ParseBudget(text)
		if again, _ := ParseBudget(got.String()); got != want || again != want || err != nil {
			t.Errorf("%q: %+v, %q, %v", text, got, got.String(), err)
		}
	}
	for _, wrong := range []string{"5", "0usd", "0", "-1usd", "usd", "NaNusd", "infusd", "0tok", "0.1tok", "0m", "-5m", "5 usd", "5eur", "5usd 3", "1h 30m", "5usd 3usd"} {
		if got, err := ParseBudget(wrong); err == nil {
			t.Errorf("%q is read as %+v", wrong, got)
		}
	}
	b := Budget{5, 100, time.Hour}
	for _, tt := range []struct {
		spent Spending
		over  string
	}{
		{Spending{}, ""},
		{Spending{4.99, 99, time.Hour - 1}, ""},
		{Spending{USD: 5.02}, "5.02usd of 5usd"},
		{Spending{Tokens: 100}, "100tok of 100tok"},
		{Spending{Time: 2 * time.Hour}, "2h0m0s of 1h0m0s"},
	} {
		if got, _ := b.Over(tt.spent); got != tt.over {
			t.Errorf("%+v: %q, want %q", tt.spent, got, tt.over)
		}
	}
	if got, want := b.Rest(Spending{USD: 2, Tokens: 200}, Budget{USD: 1, Time: 2 * time.Hour}), (Budget{1, 1, time.Hour}); got != want {
		t.Errorf("left is %+v, want %+v", got, want)
	}
	for _, used := range []Spending{{5, 100, time.Hour}, {4.99996, 99, time.Hour - 1}, {6, 200, 2 * time.Hour}} {
		left := b.Rest(used, Budget{}) // which is to be written, and is not any amount
		if again, err := ParseBudget(left.String()); err != nil || left != smallest || again != left {
			t.Errorf("left of %+v: %+v, %q, %v", used, left, left.String(), err)
		}
	}
	if got, _ := (Budget{}).Over(Spending{1e9, 1e9, 1e9}); got != "" {
		t.Errorf("no budget is over: %q", got)
	}
}

// FuzzParseBudget: what is read is what is written.
func FuzzParseBudget(f *testing.F) {
	f.Add("5usd 200ktok 90m")
	f.Add("1e307usd")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := ParseBudget(text)
		if err != nil {
			return
		}
		if again, err := ParseBudget(b.String()); err != nil || again.Tokens != b.Tokens || again.Time < b.Time.Truncate(time.Second) {
			t.Errorf("%q: %q, %v", text, b.String(), err)
		}
	})
}
