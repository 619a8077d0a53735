package request

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"stint/coordinator/api/wire"
	"stint/coordinator/task"
)

// refusal makes a problem of what is wrong with a request: one of errs if that is one, else one sentence that
// names each fault and where it is, without the value, which may be a whole prompt.
func refusal(errs ...error) *wire.Problem {
	status, field, found := http.StatusUnprocessableEntity, "", task.Faults(nil)
	for _, e := range errs {
		if errors.As(e, new(*wire.Problem)) || errors.As(e, new(*task.Error)) {
			return wire.ProblemOf(e)
		}
		if fs, many := e.(task.Faults); many {
			found = append(found, fs...)
		} else if f, one := e.(task.Fault); one {
			found = append(found, f)
		}
	}
	slices.SortFunc(found, func(a, b task.Fault) int { return strings.Compare(a.Error(), b.Error()) })
	found = slices.Compact(found)
	for _, f := range slices.Backward(found) {
		if at := strings.IndexAny(f.At, ".["); at >= 0 { // the first one that is told counts
			field = strings.NewReplacer("[", ".", "]", "").Replace(wire.Clip(f.At)[at:])[1:]
		}
		if strings.HasPrefix(f.Text, task.NotJSON) {
			status = http.StatusBadRequest
		}
	}
	p := wire.NewProblem(status, wire.CodeOf(status), found.Error(), "")
	p.Field = field
	return p
}
