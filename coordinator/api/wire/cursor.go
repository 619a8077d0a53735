package wire

import (
	"net/url"
	"strconv"
	"strings"

	"stint/coordinator/task"
	"stint/state"
)

// cursorBase is the base in which a cursor is written: it is short, and does not
// look like a number that a client could reckon with.
const cursorBase = 36

// FormatCursor returns the cursor of a place in a list, which is not 0: of tasks it is a
// [state.Row.First], of messages a [session.Page.Begin].
func FormatCursor(place uint64) string { return strconv.FormatUint(place, cursorBase) }

// ParseCursor is the inverse of FormatCursor; "" is 0.
func ParseCursor(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	place, err := strconv.ParseUint(s, cursorBase, 64)
	if err != nil || place == 0 || FormatCursor(place) != s {
		return 0, task.BadCursor("it is none")
	}
	return place, nil
}

// ListPath returns the path and query of a list that f filters.
func ListPath(f state.Filter) string {
	q := url.Values{"limit": {strconv.Itoa(f.Limit)}}
	if len(f.Status) > 0 {
		names := make([]string, len(f.Status))
		for i, s := range f.Status {
			names[i] = string(s)
		}
		q.Set("status", strings.Join(names, ","))
	}
	for name, value := range map[string]string{
		"session": f.Session, "label": f.Label, "tenant": f.TenantID, "queue": f.Queue, "agent": f.Agent,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Prompts {
		q.Set("prompts", "true")
	}
	if f.Before != 0 {
		q.Set("cursor", FormatCursor(f.Before))
	}
	return "/v1/tasks?" + q.Encode()
}
