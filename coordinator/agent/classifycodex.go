package agent

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"stint/state"
)

// httpStatus finds the status in codex's "unexpected status 401 Unauthorized"
// and "exceeded retry limit, last status: 429 Too Many Requests". What follows
// it may be the text of a stranger's server.
var httpStatus = lazyRegexp(`^(?:Reconnecting\.\.\. \d+/\d+ \()?(?:unexpected status|exceeded retry limit, last status:) (\d{3})\b`)

// phrases maps what codex says about itself to a class; the first match counts.
var phrases = []struct {
	text  string
	class state.Class
}{
	{"already has an active writer", state.ClassSessionBusy},
	{"no rollout found", state.ClassSessionLost},
	{"missing source rollout", state.ClassSessionLost}, // of a thread that was forked from it
	{"failed to read session metadata", state.ClassSessionLost},
	{"does not start with session metadata", state.ClassSessionLost},
	{"is empty (code ", state.ClassSessionLost},
	{"did not contain valid utf-8", state.ClassSessionLost},
	{"context window", state.ClassContextFull},
	{"usage limit", state.ClassRateLimited},
	{"check your plan", state.ClassAuth},
	{"rate limit", state.ClassRateLimited}, // which a payment would raise
	{"billing", state.ClassAuth},
	{"quota exceeded", state.ClassRateLimited},
	{"too many requests", state.ClassRateLimited},
	{"missing environment variable", state.ClassAuth},
	{"not logged in", state.ClassAuth},
	{"codex login", state.ClassAuth},
	{"log out and sign in", state.ClassAuth},
	{"sign in again", state.ClassAuth},
	{"unauthorized", state.ClassAuth},
	{"high demand", state.ClassNetwork},
	{"at capacity", state.ClassNetwork},
	{"content_filter", state.ClassExit}, // codex says so in a message about a cut stream
	{"stream disconnected", state.ClassNetwork},
	{"reconnecting...", state.ClassNetwork},
	{"error sending request", state.ClassNetwork},
	{"network error", state.ClassNetwork},
	{"connection failed", state.ClassNetwork},
	{"connection refused", state.ClassNetwork},
	{"timed out", state.ClassNetwork},
	{"timeout waiting", state.ClassNetwork},
}

// codexVerdict gives the class of an error that codex itself reported.
func codexVerdict(msg string, now time.Time) verdict {
	v := verdict{class: codexClass(msg), msg: msg}
	if v.class == state.ClassRateLimited {
		v.retryAt = retryAt(msg, now)
	}
	return v
}

func codexClass(msg string) state.Class {
	if m := httpStatus().FindStringSubmatch(msg); m != nil {
		return statusClass(atoi(m[1]))
	}
	low := strings.ToLower(msg)
	if strings.HasPrefix(low, "{") {
		return bodyClass(msg) // the raw body of a refused request: not codex's words
	}
	for _, p := range phrases {
		if strings.Contains(low, p.text) {
			return p.class
		}
	}
	return state.ClassExit
}

// bodyClass reads the one error of a provider that codex does not put into words.
func bodyClass(body string) state.Class {
	var e struct{ Error struct{ Code string } }
	if json.Unmarshal([]byte(body), &e) == nil && e.Error.Code == "context_length_exceeded" {
		return state.ClassContextFull
	}
	return state.ClassExit
}

var (
	againAt = lazyRegexp(`(?i)try again at (?:([a-z]{3}) (\d{1,2})(?:st|nd|rd|th)?, (\d{4}) )?(\d{1,2}):(\d{2}) ([ap])m`)
	againIn = lazyRegexp(`(?i)try again in ((?:(?:and )?(?:\d+(?:\.\d+)?|less than a|an|a) ?[a-z]+[, ]*)+)`)
	amount  = lazyRegexp(`(?i)(\d+(?:\.\d+)?|less than a|\ban?\b) ?([a-z]+)`)
)

// retryAt reads when codex says that one may try again: "at 3:47 AM" (today, in
// the zone of now), "at Nov 25th, 2026 3:47 AM", "in 2 hours 5 minutes", "in
// 1.9s". The zero time says that it does not say.
func retryAt(msg string, now time.Time) time.Time {
	if m := againAt().FindStringSubmatch(msg); m != nil {
		return clockTime(m, now)
	}
	m := againIn().FindStringSubmatch(msg)
	if m == nil {
		return time.Time{}
	}
	var wait time.Duration
	for _, a := range amount().FindAllStringSubmatch(m[1], -1) {
		wait += duration(a[1], a[2])
	}
	if wait <= 0 {
		return time.Time{}
	}
	return now.Add(wait)
}

func clockTime(m []string, now time.Time) time.Time {
	hour, minute := atoi(m[4])%12, atoi(m[5])
	if strings.EqualFold(m[6], "p") {
		hour += 12
	}
	if m[1] != "" {
		month, err := time.Parse("Jan", m[1])
		if err != nil {
			return time.Time{}
		}
		return time.Date(atoi(m[3]), month.Month(), atoi(m[2]), hour, minute, 0, 0, now.Location())
	}
	at := time.Date(now.Year(), now.Month(), now.Day(), hour, minute, 0, 0, now.Location())
	if at.Before(now.Add(-time.Minute)) { // tomorrow; a few seconds ago means now
		at = time.Date(now.Year(), now.Month(), now.Day()+1, hour, minute, 0, 0, now.Location())
	}
	return at
}

// duration is one amount of a wait, 0 if the unit is not known. It is bounded by
// a year, so that no sum can overflow.
func duration(n, unit string) time.Duration {
	f, err := strconv.ParseFloat(n, 64)
	if err != nil {
		f = 1 // "an hour", "less than a minute"
	}
	var d time.Duration
	switch u := strings.ToLower(unit); {
	case u == "ms" || strings.HasPrefix(u, "milli"):
		d = time.Millisecond
	case u == "s" || strings.HasPrefix(u, "sec"):
		d = time.Second
	case u == "m" || strings.HasPrefix(u, "min"):
		d = time.Minute
	case u == "h" || strings.HasPrefix(u, "hour") || strings.HasPrefix(u, "hr"):
		d = time.Hour
	case u == "d" || strings.HasPrefix(u, "day"):
		d = 24 * time.Hour
	}
	return time.Duration(min(f*float64(d), float64(365*24*time.Hour)))
}
