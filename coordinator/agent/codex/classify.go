package codex

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/agent"
	"stint/state"
)

// httpStatus finds the status in codex's "unexpected status 401 Unauthorized"
// and "exceeded retry limit, last status: 429 Too Many Requests". What follows
// it may be the text of a stranger's server.
var httpStatus = agent.LazyRegexp(`^(?:Reconnecting\.\.\. \d+/\d+ \()?(?:unexpected status|exceeded retry limit, last status:) (\d{3})\b`)

// phrases maps what codex says about itself to a class; the first match counts.
var phrases = []struct {
	class state.Class
	texts []string
}{
	{state.ClassSessionBusy, []string{"already has an active writer"}},
	{state.ClassSessionLost, []string{
		"no rollout found", "missing source rollout", // of a thread that was forked from it
		"failed to read session metadata", "does not start with session metadata", "is empty (code ", "did not contain valid utf-8",
	}},
	{state.ClassContextFull, []string{"context window"}},
	{state.ClassRateLimited, []string{"usage limit"}},
	{state.ClassAuth, []string{"check your plan"}},
	{state.ClassRateLimited, []string{"rate limit"}}, // which a payment would raise
	{state.ClassAuth, []string{"billing"}},
	{state.ClassRateLimited, []string{"quota exceeded", "too many requests"}},
	{state.ClassAuth, []string{"missing environment variable", "not logged in", "codex login", "log out and sign in", "sign in again", "unauthorized"}},
	{state.ClassNetwork, []string{"high demand", "at capacity"}},
	{state.ClassExit, []string{"content_filter"}}, // codex says so in a message about a cut stream
	{state.ClassNetwork, []string{
		"stream disconnected", "reconnecting...", "error sending request", "network error", "connection failed", "connection refused",
		"timed out", "timeout waiting",
	}},
}

// verdict returns the class of an error that codex itself reported.
func verdict(msg string, now time.Time) agent.Verdict {
	v := agent.Verdict{Class: classOf(msg), Msg: msg}
	if v.Class == state.ClassRateLimited {
		v.RetryAt = retryAt(msg, now)
	}
	return v
}

func classOf(msg string) state.Class {
	if m := httpStatus().FindStringSubmatch(msg); m != nil {
		return agent.StatusClass(number(m[1]))
	}
	low := strings.ToLower(msg)
	if strings.HasPrefix(low, "{") {
		// The raw body of a refused request: not codex's words. One of a provider's errors is not put into any.
		var e struct{ Error struct{ Code string } }
		if json.Unmarshal([]byte(msg), &e) == nil && e.Error.Code == "context_length_exceeded" {
			return state.ClassContextFull
		}
		return state.ClassExit
	}
	for _, p := range phrases {
		if slices.ContainsFunc(p.texts, func(text string) bool { return strings.Contains(low, text) }) {
			return p.class
		}
	}
	return state.ClassExit
}

var (
	againAt = agent.LazyRegexp(`(?i)try again at (?:([a-z]{3}) (\d{1,2})(?:st|nd|rd|th)?, (\d{4}) )?(\d{1,2}):(\d{2}) ([ap])m`)
	againIn = agent.LazyRegexp(`(?i)try again in ((?:(?:and )?(?:\d+(?:\.\d+)?|less than a|an|a) ?[a-z]+[, ]*)+)`)
	amount  = agent.LazyRegexp(`(?i)(\d+(?:\.\d+)?|less than a|\ban?\b) ?([a-z]+)`)
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
		wait += agent.WaitTime(a[1], a[2])
	}
	return agent.After(now, wait)
}

func clockTime(m []string, now time.Time) time.Time {
	hour, minute := number(m[4])%12, number(m[5])
	if strings.EqualFold(m[6], "p") {
		hour += 12
	}
	if m[1] != "" {
		month, err := time.Parse("Jan", m[1])
		if err != nil {
			return time.Time{}
		}
		return time.Date(number(m[3]), month.Month(), number(m[2]), hour, minute, 0, 0, now.Location())
	}
	at := time.Date(now.Year(), now.Month(), now.Day(), hour, minute, 0, 0, now.Location())
	if at.Before(now.Add(-time.Minute)) { // tomorrow; a few seconds ago means now
		at = time.Date(now.Year(), now.Month(), now.Day()+1, hour, minute, 0, 0, now.Location())
	}
	return at
}

func number(s string) int {
	n, _ := strconv.Atoi(s) // the pattern has only few of them
	return n
}
