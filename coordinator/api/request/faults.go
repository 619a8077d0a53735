package request

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// maxComplaints bounds the number of faults that one answer names.
const maxComplaints = 10

// A Fault is something that is wrong in a request.
type Fault struct {
	At   string // such as query.limit or body.after[1]; "" or "body": the whole
	Text string
}

// Error implements error.
func (f Fault) Error() string { return f.At + ": " + f.Text }

// faults are what is wrong with a request.
type faults []Fault

func (f *faults) add(at, format string, args ...any) {
	*f = append(*f, Fault{at, fmt.Sprintf(format, args...)})
}

// refusal makes a problem of what is wrong with a request: one of errs if that is one, else one sentence that
// names each fault and where it is, without the value, which may be a whole prompt.
func refusal(errs ...error) *wire.Problem {
	status, field, found := http.StatusUnprocessableEntity, "", faults(nil)
	for _, e := range errs {
		if errors.As(e, new(*wire.Problem)) || errors.As(e, new(*task.Error)) {
			return wire.ProblemOf(e)
		}
		if fs, many := e.(faults); many {
			found = append(found, fs...)
		} else if f, one := e.(Fault); one {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b Fault) int { return strings.Compare(a.complaint(), b.complaint()) })
	found = slices.Compact(found)
	for _, f := range slices.Backward(found) {
		if at := strings.IndexAny(f.At, ".["); at >= 0 { // the first one that is told counts
			field = strings.NewReplacer("[", ".", "]", "").Replace(wire.Clip(f.At)[at:])[1:]
		}
		if strings.HasPrefix(f.Text, NotJSON) {
			status = http.StatusBadRequest
		}
	}
	p := wire.NewProblem(status, wire.CodeOf(status), found.Error(), "")
	p.Field = field
	return p
}

// complaint returns a fault as it is told.
func (f Fault) complaint() string {
	if f.At == "" || f.At == "body" {
		return f.Text
	}
	return wire.Clip(f.At) + ": " + f.Text
}

// Error implements error.
func (f faults) Error() string {
	var out []string
	for _, one := range f {
		if len(out) == maxComplaints {
			out = append(out, "and more")
			break
		}
		out = append(out, one.complaint())
	}
	return "the request is not valid: " + strings.Join(out, "; ")
}
