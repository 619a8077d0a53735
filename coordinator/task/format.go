package task

import (
	"fmt"
	"strings"
	"time"
)

// FormatElapsed returns a time that something took: 3.2s, 12s, 2m14s, 1h05m, 2d4h. What is
// whole seconds has no tenths.
func FormatElapsed(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 10*time.Second && d%time.Second >= 100*time.Millisecond:
		return fmt.Sprintf("%d.%ds", d/time.Second, d%time.Second/(100*time.Millisecond))
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, d)/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}

// FormatTokens returns a number of tokens in brief: 950 tokens, 48.2k tokens, 1.3M tokens.
func FormatTokens(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d tokens", n)
	case n < 1e6:
		return fmt.Sprintf("%.1fk tokens", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1fM tokens", float64(n)/1e6)
}

// FormatLimit returns a duration without units that are zero: 30m, not 30m0s.
func FormatLimit(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
