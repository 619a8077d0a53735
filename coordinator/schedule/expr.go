package schedule

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// An Expr says when something is due: at minutes of a clock on a wall, or at intervals.
type Expr struct {
	cron  *cron.SpecSchedule // nil: every counts
	every time.Duration
	zone  *time.Location
}

// ParseExpr reads a cron expression of five fields, one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly and
// @annually, or @every and a duration, which counts from midnight in UTC where it divides a day. zone is an IANA name; "": that
// of the machine. The grammar is that of github.com/robfig/cron, which walks through the calendar in UTC alone: where clocks
// are put forward it skips a day, and where they are put back it fires twice. An expression that no day matches is refused.
func ParseExpr(text, zone string) (*Expr, error) {
	clock, err := time.LoadLocation(cmp.Or(zone, "Local"))
	if err != nil {
		return nil, fmt.Errorf("there is no time zone %q; write one such as Europe/Berlin", zone)
	}
	e := &Expr{zone: clock}
	if every, isEvery := strings.CutPrefix(text, "@every "); isEvery {
		e.every, err = time.ParseDuration(strings.TrimSpace(every))
		if err != nil || e.every < time.Second || e.every%time.Second != 0 {
			return nil, fmt.Errorf("%q is no interval of whole seconds, such as @every 90m", text)
		}
		return e, nil
	}
	if strings.HasPrefix(text, "TZ=") || strings.HasPrefix(text, "CRON_TZ=") {
		return nil, fmt.Errorf("%q has a time zone in it; set zone beside it", text)
	}
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		what, _, _ := strings.Cut(err.Error(), ": strconv.")
		return nil, fmt.Errorf("%q is no cron expression: %s (minute, hour, day of the month, month, day of the week, which is 0 to 6 or SUN to SAT; or @daily, @every 90m, …)", text, what)
	}
	e.cron = parsed.(*cron.SpecSchedule) // but for @every it returns nothing else
	if e.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("%q is never due: no day matches it", text)
	}
	return e, nil
}

// Next returns the first instant after t; zero if there is none in the next 40 years. What is due
// at a time that the clocks skip is due at the first minute after that, and at a time that they
// show twice, at the first one. So each minute on the wall is due once at most.
func (e *Expr) Next(t time.Time) time.Time {
	const yearsAhead, yearsAtOnce = 40, 5 // from one 29 February to the next it can be eight, and cron looks five ahead
	if e.cron == nil {
		return t.Truncate(e.every).Add(e.every)
	}
	// The minutes on the wall are walked through in their order, as their instants; those up to t have passed.
	shown := onWall(t.In(e.zone))
	for end := shown.AddDate(yearsAhead, 0, 0); shown.Before(end); {
		at := e.cron.Next(shown)
		if at.IsZero() {
			shown = shown.AddDate(yearsAtOnce, 0, 0)
			continue
		}
		if due := instantOf(at, e.zone); due.After(t) {
			return due
		}
		shown = at
	}
	return time.Time{}
}

// onWall returns what a clock shows, as if it were UTC.
func onWall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second)
}

// instantOf returns when the clocks of a zone show that first, or what comes after it where they never do.
func instantOf(wall time.Time, zone *time.Location) time.Time {
	t := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), 0, 0, zone)
	begins, ends := t.ZoneBounds()
	switch shown := onWall(t); {
	case shown.After(wall): // it is skipped when this offset begins
		return begins
	case shown.Before(wall):
		return ends
	case begins.IsZero():
		return t
	}
	_, before := begins.Add(-time.Second).Zone()
	if first := wall.Add(-time.Duration(before) * time.Second).In(zone); first.Before(begins) {
		return first
	}
	return t
}
