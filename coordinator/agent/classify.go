package agent

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"stint/coordinator"
	"stint/state"
)

// A verdict is what a run came to: the class ("" is success), a sentence, and
// for a rate limit the time that the agent named.
type verdict struct {
	class   state.Class
	msg     string
	retryAt time.Time
}

// classify is the table of the package documentation.
func classify(e ended, d *decoder, now time.Time) verdict {
	good := d.end == turnCompleted && d.answered()
	switch {
	case e.err != nil:
		return verdict{class: state.ClassInterrupted, msg: "the run could not be started: " + e.err.Error()}
	case e.end.Missing:
		return verdict{class: state.ClassAgentMissing, msg: "the agent cannot be executed: " + e.end.Err}
	case e.end.Err != "":
		return verdict{class: state.ClassExit, msg: "the agent could not be started: " + e.end.Err}
	case canceled(e.cause):
		return verdict{class: state.ClassCanceled, msg: "canceled"}
	case good && (e.cause != nil || e.lost):
		return verdict{}
	case e.cause != nil:
		return stopped(e, d, now)
	case e.lost:
		return verdict{class: state.ClassInterrupted, msg: "the gate of the run was killed"}
	case d.end == turnFailed:
		return reported(or(d.complaint(), "the turn failed without a message"), now)
	case e.end.Exit == 0:
		return exitedZero(d)
	}
	return exited(e, d, now)
}

func canceled(cause error) bool { return errors.Is(cause, coordinator.ErrCanceled) }

// stopped is for a run that we ended before it had its answer.
func stopped(e ended, d *decoder, now time.Time) verdict {
	if errors.Is(e.cause, errHung) && d.end == turnFailed {
		return reported(or(d.complaint(), "the turn failed without a message"), now)
	}
	v := verdict{class: state.ClassInterrupted, msg: e.cause.Error()}
	switch {
	case errors.Is(e.cause, errHung):
		v.class = state.ClassOutputMissing
	case errors.Is(e.cause, errStartup), errors.Is(e.cause, errIdle):
		v.class = state.ClassStalled
	case errors.Is(e.cause, coordinator.ErrTimeout), timeout(e.cause):
		v.class = state.ClassTimeout
	}
	if last := d.complaint(); last != "" {
		v.msg += "; the agent said last: " + last
	}
	return v
}

// timeout reports whether an error calls itself one, as context.DeadlineExceeded does.
func timeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

func exitedZero(d *decoder) verdict {
	switch {
	case d.end == turnCompleted && d.answered():
		return verdict{}
	case d.end == turnCompleted:
		return verdict{class: state.ClassOutputMissing, msg: "the agent ended without an answer"}
	}
	msg := "the agent ended before its turn was over"
	if last := d.complaint(); last != "" {
		msg += ": " + last
	}
	return verdict{class: state.ClassExit, msg: msg}
}

// exited is for an agent that ended with an error by itself.
func exited(e ended, d *decoder, now time.Time) verdict {
	how := fmt.Sprintf("the agent ended with exit code %d", e.end.Exit)
	if e.end.Signal != 0 {
		how = fmt.Sprintf("the agent was ended by a signal (%v)", syscall.Signal(e.end.Signal))
	}
	last := d.complaint()
	switch {
	case e.end.Signal != 0 || d.end == turnCompleted:
		return verdict{class: state.ClassExit, msg: strings.TrimSuffix(how+": "+last, ": ")}
	case last != "":
		return reported(last, now)
	case d.events > 0:
		return verdict{class: state.ClassExit, msg: how}
	}
	return silent(e, how, now)
}

// silent is for an agent that ended with an error and without any event: then
// codex says why on stderr.
func silent(e ended, how string, now time.Time) verdict {
	said, own := lastError(e.stderr)
	switch {
	case own:
		return reported(said, now)
	case e.end.Exit == 127:
		return verdict{class: state.ClassAgentMissing, msg: strings.TrimSuffix(how+": "+said, ": ")}
	}
	return verdict{class: state.ClassExit, msg: strings.TrimSuffix(how+": "+said, ": ")}
}

// lastError gives codex's own last "Error:" line of stderr; if there is none,
// the last line, which tells a person more than nothing.
func lastError(stderr []byte) (line string, own bool) {
	for l := range strings.Lines(strings.ToValidUTF8(string(stderr), "�")) {
		l = strings.TrimSpace(l)
		if msg, ok := strings.CutPrefix(l, "Error: "); ok {
			line, own = strings.TrimSpace(msg), true
		} else if l != "" && !own {
			line = l
		}
	}
	return line, own
}

// httpStatus finds the status in codex's "unexpected status 401 Unauthorized"
// and "exceeded retry limit, last status: 429 Too Many Requests". What follows
// it may be the text of a stranger's server.
var httpStatus = lazyRegexp(`^(?:Reconnecting\.\.\. \d+/\d+ \()?(?:unexpected status|exceeded retry limit, last status:) (\d{3})\b`)

// phrases maps what codex says about itself to a class; the first match counts.
var phrases = []struct {
	text  string
	class state.Class
}{
	{"no rollout found", state.ClassSessionLost},
	{"already has an active writer", state.ClassSessionBusy},
	{"context window", state.ClassExit},
	{"usage limit", state.ClassRateLimited},
	{"rate limit", state.ClassRateLimited},
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
	{"stream disconnected", state.ClassNetwork},
	{"reconnecting...", state.ClassNetwork},
	{"error sending request", state.ClassNetwork},
	{"network error", state.ClassNetwork},
	{"connection failed", state.ClassNetwork},
	{"connection refused", state.ClassNetwork},
	{"timed out", state.ClassNetwork},
	{"timeout waiting", state.ClassNetwork},
}

// reported gives the class of an error that codex itself reported.
func reported(msg string, now time.Time) verdict {
	v := verdict{class: messageClass(msg), msg: msg}
	if v.class == state.ClassRateLimited {
		v.retryAt = retryAt(msg, now)
	}
	return v
}

func messageClass(msg string) state.Class {
	if m := httpStatus().FindStringSubmatch(msg); m != nil {
		switch code, _ := strconv.Atoi(m[1]); { // three digits
		case code == 429:
			return state.ClassRateLimited
		case code == 401 || code == 403:
			return state.ClassAuth
		case code == 408 || code >= 500:
			return state.ClassNetwork
		}
		return state.ClassExit
	}
	low := strings.ToLower(msg)
	if strings.HasPrefix(low, "{") {
		return state.ClassExit // the raw body of a refused request: not codex's words
	}
	for _, p := range phrases {
		if strings.Contains(low, p.text) {
			return p.class
		}
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

// lazyRegexp leaves the work to who needs it: the gate does not.
func lazyRegexp(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

func or(s, instead string) string {
	if s != "" {
		return s
	}
	return instead
}
