package gemini

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"stint/coordinator/agent"
	"stint/state"
)

// Exit codes of gemini that are not the end of an HTTP status.
const (
	noAuth   = 41
	badInput = 42
)

// failureVerdict returns the class of an error that gemini has reported at the end
// of a turn. Its exit code is the status of the request that failed, as much of
// it as an exit code holds: 429 is 173.
func failureVerdict(msg string, exit int, now time.Time) agent.Verdict {
	v := agent.Verdict{Class: state.ClassExit, Msg: msg}
	code, badKey := apiError(msg)
	switch {
	case badKey:
		v.Class = state.ClassAuth // with the status 400
	case code == 400 && strings.Contains(msg, "exceeds the maximum number of tokens allowed"):
		v.Class = state.ClassContextFull
	case exit > 128:
		v.Class = agent.StatusClass(exit + 256)
	case exit == noAuth:
		v.Class = state.ClassAuth
	case code != 0: // it was ended before it could exit
		v.Class = agent.StatusClass(code)
	case cutOff().MatchString(msg):
		v.Class = state.ClassNetwork
	}
	if v.Class == state.ClassRateLimited {
		v.RetryAt = retryAt(msg, now)
		// Google adds the advice about billing to its ordinary limits too.
		if v.RetryAt.IsZero() && strings.Contains(msg, "check your plan and billing") && !strings.Contains(msg, "Quota exceeded for metric") {
			v.Class = state.ClassAuth
		}
	}
	return v
}

// unfinishedVerdict classifies a turn whose result has no error, only an error event
// before it: the model's response was empty, cut off or malformed. Unless a policy or
// a bound of gemini was the reason, another try may do better.
func unfinishedVerdict(v agent.Verdict) agent.Verdict {
	final := strings.HasPrefix(v.Msg, "The model response was blocked") || strings.HasPrefix(v.Msg, "Maximum session turns")
	if v.Class == state.ClassExit && !final {
		v.Class = state.ClassNetwork
	}
	return v
}

// apiError returns the status of the API's own error, which gemini quotes where it does not
// know better, and whether the API key is not valid: [API Error: {"error":{"code":401,...}}].
func apiError(msg string) (code int, badKey bool) {
	body, ok := strings.CutPrefix(msg, "[API Error: ")
	var e struct {
		Error struct {
			Code    int
			Details []struct{ Reason string }
		}
	}
	if !ok || !strings.HasPrefix(body, "{") || json.NewDecoder(strings.NewReader(body)).Decode(&e) != nil {
		return 0, false
	}
	for _, d := range e.Error.Details {
		badKey = badKey || d.Reason == "API_KEY_INVALID"
	}
	return e.Error.Code, badKey
}

// cutOff is how gemini says that it lost the connection or never had one.
var cutOff = agent.LazyRegexp(`^\[API Error: (?:terminated|(?:exception TypeError: )?fetch failed)`)

var waitText = agent.LazyRegexp(`(?:Suggested retry after|Please retry in) ([0-9.]+)(ms|s)\b`)

// retryAt reads when gemini suggests to try again; the zero time says that
// it does not.
func retryAt(msg string, now time.Time) time.Time {
	m := waitText().FindStringSubmatch(msg)
	if m == nil {
		return time.Time{}
	}
	return agent.After(now, agent.WaitTime(m[1], m[2]))
}

var retryLine = agent.LazyRegexp(`^Attempt \d+ failed(?: with (?:status )?(\d{3})\b)?`)

// retryVerdict classifies an error after which gemini tries again.
func retryVerdict(line string, now time.Time) agent.Verdict {
	v := agent.Verdict{Class: state.ClassNetwork, Msg: line}
	if m := retryLine().FindStringSubmatch(line); m != nil && m[1] != "" {
		code, _ := strconv.Atoi(m[1]) // three digits
		v.Class = agent.StatusClass(code)
	}
	if v.Class == state.ClassRateLimited {
		v.RetryAt = retryAt(line, now)
	}
	return v
}

// silentVerdict is for a gemini that ended with an error and without any event:
// then it says why on stderr.
func silentVerdict(exit int, stderr []byte) agent.Verdict {
	lines := stderrLines(stderr)
	said := strings.Join(lines[:min(1, len(lines))], "")
	for _, l := range lines {
		if exit == badInput && strings.HasPrefix(l, "Error resuming session:") {
			return agent.Verdict{Class: state.ClassSessionLost, Msg: l}
		}
	}
	switch {
	case exit == noAuth:
		return agent.Verdict{Class: state.ClassAuth, Msg: cmp.Or(said, "gemini is not logged in")}
	case agent.NotExecuted(exit): // there is no node
		return agent.Verdict{}
	}
	return agent.Verdict{Class: state.ClassExit, Msg: said}
}

// stderrLines returns the lines of stderr that are no warnings of its start.
func stderrLines(stderr []byte) []string {
	var said []string
	text := agent.StripTerminalCodes(strings.ToValidUTF8(string(stderr), "\uFFFD"))
	for l := range strings.Lines(text) {
		l = strings.TrimSpace(l)
		noise := slices.ContainsFunc([]string{"Warning:", "Security Warning:", "[STARTUP]", "YOLO mode is enabled"}, func(p string) bool { return strings.HasPrefix(l, p) })
		if l != "" && !noise {
			said = append(said, l)
		}
	}
	return said
}
