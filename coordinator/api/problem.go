package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator/task"
)

// statusOf maps codes to HTTP.
var statusOf = map[task.Code]int{
	task.CodeInvalid:      http.StatusUnprocessableEntity,
	task.CodeNotFound:     http.StatusNotFound,
	task.CodeAmbiguous:    http.StatusConflict,
	task.CodeConflict:     http.StatusConflict,
	task.CodeChanged:      http.StatusPreconditionFailed,
	task.CodeBusy:         http.StatusLocked,
	task.CodeFull:         http.StatusInsufficientStorage,
	task.CodeShortage:     http.StatusServiceUnavailable,
	task.CodeStopped:      http.StatusServiceUnavailable,
	task.CodeAgentMissing: http.StatusFailedDependency,
	task.CodeForbidden:    http.StatusForbidden,
	task.CodeUnauthorized: http.StatusUnauthorized,
	task.CodeTooMany:      http.StatusTooManyRequests,
	task.CodeUnavailable:  http.StatusBadGateway,
}

// codeOf gives the code of an answer that names none. Statuses of our own
// failures have no code.
func codeOf(status int) task.Code {
	switch {
	case status == http.StatusNotFound:
		return task.CodeNotFound
	case status == http.StatusConflict:
		return task.CodeConflict
	case status == http.StatusPreconditionFailed:
		return task.CodeChanged
	case status == http.StatusLocked:
		return task.CodeBusy
	case status == http.StatusForbidden || status == http.StatusMisdirectedRequest:
		return task.CodeForbidden
	case status == http.StatusUnauthorized:
		return task.CodeUnauthorized
	case status == http.StatusTooManyRequests:
		return task.CodeTooMany
	case status == http.StatusFailedDependency:
		return task.CodeAgentMissing
	case status == http.StatusServiceUnavailable:
		return task.CodeStopped
	case status == http.StatusInsufficientStorage:
		return task.CodeFull
	case status == http.StatusBadGateway:
		return task.CodeUnavailable
	case status >= 400 && status < 500:
		return task.CodeInvalid
	}
	return ""
}

// A problem is an error as it goes over the wire (RFC 9457).
type problem struct {
	Title   string    `json:"title" doc:"Text of the HTTP status" example:"Not Found"`
	Status  int       `json:"status" doc:"The HTTP status" example:"404"`
	Detail  string    `json:"detail" doc:"What happened, and why" example:"there is no task \"x\""`
	Message string    `json:"message" doc:"The same text as detail" example:"there is no task \"x\""` // which is the RFC's name for it
	Code    task.Code `json:"code,omitempty" doc:"Kind of the error, for programs" example:"not-found"`
	Hint    string    `json:"hint,omitempty" doc:"What to do next" example:"stint ls"`
	Field   string    `json:"field,omitempty" doc:"What of the request is wrong: the name of a property, in a list after its place from 0" example:"2.prompt"`
}

func newProblem(status int, code task.Code, detail, hint string) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Detail: detail, Message: detail, Code: code, Hint: hint}
}

// Error, GetStatus and ContentType make huma write a problem as it is.
func (p *problem) Error() string           { return p.Detail }
func (*problem) ContentType(string) string { return "application/problem+json" }
func (p *problem) GetStatus() int          { return p.Status }

// How many seconds a client is asked to wait where the reason will pass.
const (
	retryLater = "5"
	retrySoon  = "1" // what a machine lacks may be back at once
)

// GetHeaders returns what huma adds to the header of the answer.
func (p *problem) GetHeaders() http.Header {
	if p.Code == task.CodeShortage {
		return http.Header{"Retry-After": {retrySoon}}
	}
	if p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable {
		return http.Header{"Retry-After": {retryLater}}
	}
	return nil
}

// asProblem gives the answer for an error of the master.
func asProblem(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var e *task.Error
	if errors.As(err, &e) {
		p := newProblem(cmp.Or(statusOf[e.Code], http.StatusInternalServerError), e.Code, e.Message, e.Hint)
		p.Field = e.Field
		return p
	}
	if errors.Is(err, context.Canceled) {
		return newProblem(http.StatusServiceUnavailable, task.CodeStopped, "the request was ended before it was answered: its client has gone, or the master ends", "")
	}
	return newProblem(http.StatusInternalServerError, "", err.Error(), "")
}

// write answers with p outside of huma.
func (p *problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		panic("api: a problem does not marshal: " + err.Error())
	}
	maps.Copy(w.Header(), p.GetHeaders())
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client may be gone
}

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
	p := newProblem(status, codeOf(status), message, "")
	p.Field = fieldOf(details)
	return p
}

// detailsOf gives errors of huma as it means them.
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

// unreadable gives the answer where a body could not be read to its end, which is the
// client's doing and not ours.
func unreadable(errs []error) *problem {
	if slices.ContainsFunc(errs, func(e error) bool { return errors.Is(e, errTooLarge) }) {
		return tooLarge()
	}
	return newProblem(http.StatusBadRequest, task.CodeInvalid, "the body could not be read to its end", "send it as its Content-Length or its chunks say")
}

// fieldOf gives the property or parameter that the first of some faults is about, in
// the order in which they are told; "" if none names one.
func fieldOf(errs []*huma.ErrorDetail) string {
	var fields []string
	for _, e := range errs {
		where := e.Location
		if where == "body" {
			where, _, _ = strings.Cut(e.Message, ": ") // of readJSON's errors huma keeps the text alone
		}
		if at := strings.IndexAny(where, ".["); at >= 0 {
			fields = append(fields, clip(fieldName.Replace(where[at:])[1:]))
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
			text = clip(e.Location) + ": " + text
		}
		out = append(out, text)
	}
	slices.Sort(out) // huma walks maps
	if n := len(out) - maxComplaints; n > 0 {
		out = append(out[:maxComplaints], "and more")
	}
	return strings.Join(out, "; ")
}

// clip shortens a name that a client made up.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
