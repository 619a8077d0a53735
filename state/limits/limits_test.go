package limits

import "testing"

// TestParsePercent reads what reserve may be.
func TestParsePercent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"": 0, "0%": 0, "20%": 20, "12.5%": 12.5, "100%": 100} {
		if got, err := ParsePercent(text); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, wrong := range []string{"20", "%", "-1%", "101%", "NaN%", "20 %", "x%"} {
		if got, err := ParsePercent(wrong); err == nil {
			t.Errorf("%q is read as %v", wrong, got)
		}
	}
}
