package limits

import (
	"fmt"
	"time"
)

// Hours are those of a day in which something may start, such as 22:00-07:00, which pass midnight. The zero value is all day.
type Hours struct{ From, To int } // minutes since midnight; From is in it, To is not

// ParseHours reads hours as String writes them; "" is all day.
func ParseHours(s string) (h Hours, err error) {
	if s == "" {
		return h, nil
	}
	var fromHour, from, toHour, to int
	n, err := fmt.Sscanf(s+"\n", "%2d:%2d-%2d:%2d\n", &fromHour, &from, &toHour, &to)
	h = Hours{60*fromHour + from, 60*toHour + to}
	if err != nil || n != 4 || h.String() != s || max(fromHour, toHour) > 24 || max(from, to) > 59 || max(h.From, h.To) > 24*60 || min(h.From, h.To) < 0 || h.From == h.To {
		return Hours{}, fmt.Errorf("%q are no hours such as 22:00-07:00", s)
	}
	return h, nil
}

// String returns the hours as 22:00-07:00, "" for all day.
func (h Hours) String() string {
	if h == (Hours{}) {
		return ""
	}
	return fmt.Sprintf("%02d:%02d-%02d:%02d", h.From/60, h.From%60, h.To/60, h.To%60)
}

// Opens returns when the hours begin that do not hold now; zero if they do. What counts is the clock
// on the wall, in the zone of now: a day on which that is set may have fewer or more of them.
func (h Hours) Opens(now time.Time) time.Time {
	at := 60*now.Hour() + now.Minute()
	isIn := h.From <= at && at < h.To
	if h.From > h.To {
		isIn = h.From <= at || at < h.To
	}
	if isIn || h == (Hours{}) {
		return time.Time{}
	}
	for day := 0; ; day++ {
		if t := time.Date(now.Year(), now.Month(), now.Day()+day, 0, h.From, 0, 0, now.Location()); t.After(now) {
			return t
		}
	}
}
