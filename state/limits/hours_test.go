package limits

import (
	"testing"
	"time"
)

// TestHours: hours may pass midnight, and are those of the clock on the wall, also on days on which it
// is set forward or back.
func TestHours(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ hours, now, opens string }{
		{"", "2026-01-05 12:00", ""},
		{"09:00-17:30", "2026-01-05 09:00", ""},
		{"09:00-17:30", "2026-01-05 17:29", ""},
		{"09:00-17:30", "2026-01-05 17:30", "2026-01-06 09:00"},
		{"09:00-17:30", "2026-01-05 08:59", "2026-01-05 09:00"},
		{"22:00-07:00", "2026-01-05 23:59", ""},
		{"22:00-07:00", "2026-01-05 06:59", ""},
		{"22:00-07:00", "2026-01-05 07:00", "2026-01-05 22:00"},
		{"22:00-24:00", "2026-01-05 23:59", ""},
		{"22:00-24:00", "2026-01-05 00:00", "2026-01-05 22:00"},
		{"00:00-06:00", "2026-12-31 06:00", "2027-01-01 00:00"},
		{"03:00-04:00", "2026-03-29 01:59", "2026-03-29 03:00"}, // at 02:00 it is 03:00
		{"01:00-04:00", "2026-03-29 03:30", ""},
		{"22:00-07:00", "2026-03-29 12:00", "2026-03-29 22:00"},
		{"22:00-07:00", "2026-10-25 02:30", ""}, // which comes twice
		{"04:00-05:00", "2026-10-25 02:30", "2026-10-25 04:00"},
	} {
		h, err := ParseHours(tt.hours)
		now, _ := time.ParseInLocation("2006-01-02 15:04", tt.now, berlin)
		got := ""
		if at := h.Opens(now); !at.IsZero() {
			got = at.Format("2006-01-02 15:04")
		}
		if got != tt.opens || err != nil || h.String() != tt.hours {
			t.Errorf("%s at %s: open at %q, want %q, %v", tt.hours, tt.now, got, tt.opens, err)
		}
	}
	for _, wrong := range []string{"22", "22:00", "22:00-", "22-7", "22:00-7:00", "22:00-22:00", "24:30-07:00", "25:00-07:00", "22:60-07:00", "-1:00-07:00", "22:00-07:00x", " 22:00-07:00", "22:00 - 07:00"} {
		if h, err := ParseHours(wrong); err == nil {
			t.Errorf("%q is read as %s", wrong, h)
		}
	}
}

// FuzzParseHours: what is read is what was written.
func FuzzParseHours(f *testing.F) {
	f.Add("22:00-07:00")
	f.Add("00:00-24:00")
	f.Add("7-9")
	f.Fuzz(func(t *testing.T, s string) {
		if h, err := ParseHours(s); err == nil && h.String() != s {
			t.Errorf("%q is read as %s", s, h)
		}
	})
}
