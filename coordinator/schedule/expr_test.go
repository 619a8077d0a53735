package schedule

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// zones change their clocks in all ways that there are: at midnight, by half an hour, over a date, on
// a Thursday, several times a year, or never.
var zones = []string{
	"UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "America/New_York", "America/Los_Angeles", "America/St_Johns",
	"America/Sao_Paulo", "America/Havana", "America/Santiago", "America/Asuncion", "Africa/Casablanca", "Africa/Cairo", "Asia/Tehran",
	"Asia/Amman", "Asia/Gaza", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia", "Pacific/Auckland",
}

var expressions = []string{
	"0 0 * * *", "30 0 * * *", "59 23 * * *", "15 1 * * *", "0 2 * * *", "30 2 * * *", "0 3 * * *", "30 3 * * *", "1 0,1,2,3 * * *", "*/20 1-3 * * *",
	"0 * 1 * *", "30 * * * SUN", "*/15 * * 3,10 0", "0 12 * * MON-FRI", "0 0 1 * *", "0 0 31 * *", "0 0 29 2 *", "0 0 29 2 MON", "0 0 13 * FRI", "0 0 */2 * *",
	"0 9 1-7 * 1", "30 23 30 12 *", "0 0 30 12 ?", "45 1 * JAN-MAR *", "5 4 * * 0", "10 2 26-31 3 *", "10 2 26-31 10 SUN", "0 0 25-31 10 *", "0-59/30 2 * * 6,0", "7 5-7 28 * *",
	"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually", "0 6 15 6 *", "0 0 1 1 0", "0,30 0,12,23 * 4 *",
}

// TestNextAgainstAClock asks a clock that is wound through ten years, minute by minute, when each
// expression is due in each zone: at each minute that it shows for the first time, and for those
// that it leaves out, at the next one.
func TestNextAgainstAClock(t *testing.T) {
	begin, end := time.Date(2009, 12, 31, 22, 0, 0, 0, time.UTC), time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	texts := expressions
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		end = begin.AddDate(1, 0, 0) // it is ten times slower, and one goroutine for each zone has nothing to race about
	}
	for _, name := range zones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var list []*Expr
			for _, text := range texts {
				e, err := ParseExpr(text, name)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, e)
			}
			want := make([]time.Time, len(list))
			for i, e := range list {
				want[i] = e.Next(begin)
			}
			var mask [24 * 60]uint64 // by the minute of a day: the expressions whose time it is
			for i, e := range list {
				for m := range mask {
					if e.cron.Hour>>(m/60)&1 == 1 && e.cron.Minute>>(m%60)&1 == 1 {
						mask[m] |= 1 << i
					}
				}
			}
			fired := 0
			shown := onWall(begin.In(list[0].zone)) // the latest minute that was shown
			today, days := time.Time{}, uint64(0)   // the expressions whose day it is
			var zoneEnds time.Time
			offset := 0
			for at := begin.Add(time.Minute); at.Before(end); at = at.Add(time.Minute) {
				if !at.Before(zoneEnds) {
					local := at.In(list[0].zone)
					_, zoneEnds = local.ZoneBounds()
					if _, offset = local.Zone(); zoneEnds.IsZero() {
						zoneEnds = end
					}
				}
				wall, due := at.Add(time.Duration(offset)*time.Second), uint64(0)
				for shown.Before(wall) {
					shown = shown.Add(time.Minute)
					if day := shown.Truncate(24 * time.Hour); day != today {
						today, days = day, 0
						for i, e := range list {
							if matchesDay(e, day) {
								days |= 1 << i
							}
						}
					}
					due |= mask[int(shown.Sub(today)/time.Minute)] & days
				}
				for i := 0; due != 0; i, due = i+1, due>>1 {
					if due&1 == 0 {
						continue
					}
					if !want[i].Equal(at) {
						t.Fatalf("%s: due at %v, and Next says %v", texts[i], at.In(list[i].zone), want[i])
					}
					want[i], fired = list[i].Next(at), fired+1
				}
			}
			for i := range want {
				if want[i].Before(end) {
					t.Errorf("%s: Next says %v, and it is not due then", texts[i], want[i])
				}
			}
			if fired < 5_000 {
				t.Errorf("only %d instants were looked at", fired)
			}
		})
	}
}

// matchesDay reports whether a date matches: where both its day of the month and its day of the week
// are restricted, one of them is enough, as everywhere since cron of 1987.
func matchesDay(e *Expr, d time.Time) bool {
	const anyValue = 1 << 63 // marks a field that does not restrict anything
	byMonth, byWeek := e.cron.Dom>>d.Day()&1 == 1, e.cron.Dow>>int(d.Weekday())&1 == 1
	if e.cron.Dom&anyValue == 0 && e.cron.Dow&anyValue == 0 {
		byMonth = byMonth || byWeek
		byWeek = byMonth
	}
	return e.cron.Month>>int(d.Month())&1 == 1 && byMonth && byWeek
}

// TestNext shows what happens where clocks change, and how expressions are read.
func TestNext(t *testing.T) {
	for _, tc := range []struct{ text, zone, from, want string }{
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T03:00:00+02:00 2026-03-30T02:30:00+02:00"}, // skipped
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T02:30:00+02:00 2026-10-26T02:30:00+01:00"}, // shown twice
		{"0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", "2026-10-25T02:00:00+02:00 2026-10-25T03:00:00+01:00"},
		{"*/30 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T03:00:00+02:00 2026-03-29T03:30:00+02:00"},
		{"0 9 * * *", "Pacific/Apia", "2011-12-29T20:00:00Z", "2011-12-31T00:00:00+14:00 2011-12-31T09:00:00+14:00"}, // a whole day was skipped
		{"0 0 29 2 SUN", "UTC", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z 2026-02-08T00:00:00Z"},                 // either of the two
		{"0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"@every 90m", "UTC", "2026-01-01T01:00:00Z", "2026-01-01T01:30:00Z 2026-01-01T03:00:00Z"},
		{"0 9 * * MON-FRI", "America/New_York", "2026-11-27T15:00:00Z", "2026-11-30T09:00:00-05:00"},
	} {
		e, err := ParseExpr(tc.text, tc.zone)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, tc.from)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for range strings.Fields(tc.want) {
			at = e.Next(at)
			got = append(got, at.In(e.zone).Format(time.RFC3339))
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s in %s from %s: %s, want %s", tc.text, tc.zone, tc.from, got, tc.want)
		}
	}
}

func TestParseExprRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"0 0 30 2 *": "never due", "0 0 31 4,6,9,11 *": "never due", "* * * *": "exactly 5 fields, found 4", "0 0 0 * * *": "exactly 5 fields, found 6", "": "empty spec",
		"60 * * * *": "no cron expression", "* * * * 7": "0 to 6", "x * * * *": "no cron expression: failed to parse int from x (minute", ", * * * *": "never due", "*/0 * * * *": "no cron expression",
		"@every 0s": "no interval", "@every -5m": "no interval", "@every 1500ms": "no interval", "@every": "no cron expression", "@reboot": "no cron expression",
		"TZ=UTC 0 0 * * *": "has a time zone in it", "TZ=0": "has a time zone in it", "CRON_TZ=x": "has a time zone in it",
	} {
		if _, err := ParseExpr(text, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := ParseExpr("@daily", "Mars/Base"); err == nil || !strings.Contains(err.Error(), `no time zone "Mars/Base"`) {
		t.Error(err)
	}
}

func FuzzParseExpr(f *testing.F) {
	for _, text := range expressions {
		f.Add(text, "Europe/Berlin", int64(1e9))
	}
	f.Add("@every 90m", "", int64(-1e9))
	f.Add("TZ=0", "UTC", int64(0))
	f.Fuzz(func(t *testing.T, text, zone string, from int64) {
		e, err := ParseExpr(text, zone)
		if err != nil {
			return
		}
		at := time.Unix(from%4e9, 0)
		for range 3 {
			next := e.Next(at)
			if next.IsZero() {
				return
			}
			if !next.After(at) {
				t.Fatalf("%q: %v comes after %v", text, next, at)
			}
			if e.cron != nil && next.Second() != 0 && next.Year() > 1980 {
				t.Fatal(fmt.Sprint(next))
			}
			at = next
		}
	})
}
