package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// parseDuration reads a Go duration, or whole days such as "3d". Negative ones are refused.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok && err != nil {
		var n uint64
		if n, err = strconv.ParseUint(days, 10, 15); err == nil {
			d = time.Duration(n) * 24 * time.Hour
		}
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 90s, 10m, 2h or 3d", s)
	}
	if d < 0 {
		return 0, fmt.Errorf("%q is negative", s)
	}
	return d, nil
}

// parseAt reads an instant: RFC 3339, or local time as "2006-01-02 15:04", or "15:04", which is
// the next time that the clock shows it, or with "today" or "tomorrow" before it.
func parseAt(s string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02 15:04:05", "2006-01-02T15:04"} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	day, clock, named := strings.Cut(s, " ")
	if !named {
		day, clock = "", s
	}
	days, known := map[string]int{"": 0, "today": 0, "tomorrow": 1}[day]
	if c, err := time.Parse("15:04", clock); err == nil && known {
		y, m, d := now.Date()
		t := time.Date(y, m, d+days, c.Hour(), c.Minute(), 0, 0, now.Location())
		if !named && !t.After(now) { // tomorrow
			t = time.Date(y, m, d+1, c.Hour(), c.Minute(), 0, 0, now.Location())
		}
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%q is not a time; write 15:04, \"tomorrow 9:00\", \"2006-01-02 15:04\" or 2006-01-02T15:04:05Z; two hours from now is --delay 2h", s)
}
