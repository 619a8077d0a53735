package api

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"

	"github.com/danielgtaylor/huma/v2"
)

// maxComplaints bounds the number of faults that one answer names.
const maxComplaints = 10

func init() { // for all servers of the process: huma has no other way
	huma.NewError = humaProblem
	huma.DefaultArrayNullable = false // no list that we send is null
}

// humaProblem makes a problem of what huma refuses: one sentence that names each fault
// and where it is, without the value, which may be a whole prompt.
func humaProblem(status int, message string, errs ...error) huma.StatusError {
	if message == "cannot read request body" {
		return unreadable(errs)
	}
	details := detailsOf(errs)
	if slices.ContainsFunc(details, func(d *huma.ErrorDetail) bool { return strings.HasPrefix(d.Message, notJSON) }) {
		status = http.StatusBadRequest
	}
	if faults := complaints(details); faults != "" {
		message = "the request is not valid: " + faults
	}
	p := wire.NewProblem(status, wire.CodeOf(status), message, "")
	p.Field = fieldOf(details)
	return p
}

// detailsOf returns errors of huma as it means them.
func detailsOf(errs []error) []*huma.ErrorDetail {
	details := make([]*huma.ErrorDetail, 0, len(errs))
	for _, e := range errs {
		if d, ok := e.(huma.ErrorDetailer); ok {
			details = append(details, d.ErrorDetail())
		} else if e != nil {
			details = append(details, &huma.ErrorDetail{Message: e.Error()})
		}
	}
	return details
}

// unreadable returns the answer where a body could not be read to its end, which is the
// client's doing and not ours.
func unreadable(errs []error) *wire.Problem {
	if slices.ContainsFunc(errs, func(e error) bool { return errors.Is(e, guard.ErrTooLarge) }) {
		return guard.TooLarge()
	}
	return wire.NewProblem(http.StatusBadRequest, task.CodeInvalid, "the body could not be read to its end", "send it as its Content-Length or its chunks say")
}

// fieldOf returns the property or parameter that the first of some faults is about, in
// the order in which they are told; "" if none names one.
func fieldOf(errs []*huma.ErrorDetail) string {
	var fields []string
	for _, e := range errs {
		where := e.Location
		if where == "body" {
			where, _, _ = strings.Cut(e.Message, ": ") // of readJSON's errors huma keeps the text alone
		}
		if at := strings.IndexAny(where, ".["); at >= 0 {
			fields = append(fields, wire.Clip(fieldName.Replace(where[at:])[1:]))
		}
	}
	slices.Sort(fields)
	return append(fields, "")[0]
}

// fieldName writes a place in a list as the field of a problem has it.
var fieldName = strings.NewReplacer("[", ".", "]", "")

func complaints(errs []*huma.ErrorDetail) string {
	var out []string
	for _, e := range errs {
		text := e.Message
		if e.Location != "" && e.Location != "body" {
			text = wire.Clip(e.Location) + ": " + text
		}
		out = append(out, text)
	}
	slices.Sort(out) // huma walks maps
	if n := len(out) - maxComplaints; n > 0 {
		out = append(out[:maxComplaints], "and more")
	}
	return strings.Join(out, "; ")
}
