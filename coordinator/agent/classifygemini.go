package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"stint/state"
)

// Exit codes of gemini that are not the end of an HTTP status.
const (
	geminiNoAuth   = 41
	geminiBadInput = 42
)

// geminiVerdict gives the class of an error that gemini has reported at the end
// of a turn. Its exit code is the status of the request that failed, as much of
// it as an exit code holds: 429 is 173.
func geminiVerdict(msg string, exit int, now time.Time) verdict {
	v := verdict{class: state.ClassExit, msg: msg}
	switch {
	case geminiBadKey(msg):
		v.class = state.ClassAuth // with the status 400
	case geminiCode(msg) == 400 && strings.Contains(msg, "exceeds the maximum number of tokens allowed"):
		v.class = state.ClassContextFull
	case exit > 128:
		v.class = statusClass(exit + 256)
	case exit == geminiNoAuth:
		v.class = state.ClassAuth
	case geminiCode(msg) != 0: // it was ended before it could exit
		v.class = statusClass(geminiCode(msg))
	case geminiCutOff(msg):
		v.class = state.ClassNetwork
	}
	if v.class == state.ClassRateLimited {
		v.retryAt = geminiRetryAt(msg, now)
		// Google adds the advice about billing to its ordinary limits too.
		if v.retryAt.IsZero() && strings.Contains(msg, "check your plan and billing") && !strings.Contains(msg, "Quota exceeded for metric") {
			v.class = state.ClassAuth
		}
	}
	return v
}

// geminiUnfinished classifies a turn whose result has no error, only an error event
// before it: the model's response was empty, cut off or malformed. Unless a policy or
// a bound of gemini was the reason, another try may do better.
func geminiUnfinished(v verdict) verdict {
	final := strings.HasPrefix(v.msg, "The model response was blocked") || strings.HasPrefix(v.msg, "Maximum session turns")
	if v.class == state.ClassExit && !final {
		v.class = state.ClassNetwork
	}
	return v
}

// geminiBody gives the API's own error, which gemini quotes where it does not
// know better: [API Error: {"error":{"code":401,...}}].
func geminiBody(msg string) (code int, reasons []string) {
	body, ok := strings.CutPrefix(msg, "[API Error: ")
	if !ok || !strings.HasPrefix(body, "{") {
		return 0, nil
	}
	var e struct {
		Error struct {
			Code    int
			Details []struct{ Reason string }
		}
	}
	if json.NewDecoder(strings.NewReader(body)).Decode(&e) != nil {
		return 0, nil
	}
	for _, d := range e.Error.Details {
		reasons = append(reasons, d.Reason)
	}
	return e.Error.Code, reasons
}

func geminiCode(msg string) int {
	code, _ := geminiBody(msg)
	return code
}

func geminiBadKey(msg string) bool {
	_, reasons := geminiBody(msg)
	for _, r := range reasons {
		if r == "API_KEY_INVALID" {
			return true
		}
	}
	return false
}

// geminiCutOff reports whether gemini says that it lost the connection or never
// had one.
func geminiCutOff(msg string) bool {
	text, ok := strings.CutPrefix(msg, "[API Error: ")
	for _, p := range []string{"terminated", "fetch failed", "exception TypeError: fetch failed"} {
		if ok && strings.HasPrefix(text, p) {
			return true
		}
	}
	return false
}

var geminiWait = lazyRegexp(`(?:Suggested retry after|Please retry in) ([0-9.]+)(ms|s)\b`)

// geminiRetryAt reads when gemini suggests to try again; the zero time says that
// it does not.
func geminiRetryAt(msg string, now time.Time) time.Time {
	m := geminiWait().FindStringSubmatch(msg)
	if m == nil {
		return time.Time{}
	}
	wait := duration(m[1], m[2])
	if wait <= 0 {
		return time.Time{}
	}
	return now.Add(wait)
}

var geminiRetry = lazyRegexp(`^Attempt \d+ failed(?: with (?:status )?(\d{3})\b)?`)

// geminiRetryVerdict classifies an error after which gemini tries again.
func geminiRetryVerdict(line string, now time.Time) verdict {
	v := verdict{class: state.ClassNetwork, msg: line}
	if m := geminiRetry().FindStringSubmatch(line); m != nil && m[1] != "" {
		v.class = statusClass(atoi(m[1]))
	}
	if v.class == state.ClassRateLimited {
		v.retryAt = geminiRetryAt(line, now)
	}
	return v
}

// geminiSilent is for a gemini that ended with an error and without any event:
// then it says why on stderr.
func geminiSilent(e ended) verdict {
	lines := geminiSays(e.stderr)
	said := strings.Join(lines[:min(1, len(lines))], "")
	for _, l := range lines {
		if e.end.Exit == geminiBadInput && strings.HasPrefix(l, "Error resuming session:") {
			return verdict{class: state.ClassSessionLost, msg: l}
		}
	}
	switch {
	case e.end.Exit == geminiNoAuth:
		return verdict{class: state.ClassAuth, msg: or(said, "gemini is not logged in")}
	case notExecuted(e.end.Exit): // there is no node
		return verdict{}
	}
	return verdict{class: state.ClassExit, msg: said}
}

// geminiSays gives the lines of stderr that are no warnings of its start.
func geminiSays(stderr []byte) []string {
	var said []string
	text := terminalCodes().ReplaceAllString(strings.ToValidUTF8(string(stderr), "\uFFFD"), "")
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		noise := slices.ContainsFunc([]string{"Warning:", "Security Warning:", "[STARTUP]", "YOLO mode is enabled"}, func(p string) bool { return strings.HasPrefix(l, p) })
		if l != "" && !noise {
			said = append(said, l)
		}
	}
	return said
}
