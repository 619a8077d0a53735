package wire

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"stint/coordinator/task"
)

// Statuses maps codes to HTTP.
var Statuses = map[task.Code]int{
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

// codeOf returns the code of an answer with a status that names none: "" for failures of our own.
func codeOf(status int) task.Code {
	switch status {
	case http.StatusConflict: // several codes have it, as the next one
		return task.CodeConflict
	case http.StatusServiceUnavailable:
		return task.CodeStopped
	case http.StatusMisdirectedRequest:
		return task.CodeForbidden
	}
	for code, has := range Statuses {
		if has == status {
			return code
		}
	}
	if status >= 400 && status < 500 {
		return task.CodeInvalid
	}
	return ""
}

// A Problem is an error as it goes over the wire (RFC 9457).
type Problem struct {
	Title   string    `json:"title" doc:"Text of the HTTP status" example:"Not Found"`
	Status  int       `json:"status" doc:"The HTTP status" example:"404"`
	Detail  string    `json:"detail" doc:"What happened, and why" example:"there is no task \"x\""`
	Message string    `json:"message" doc:"The same text as detail" example:"there is no task \"x\""` // which is the RFC's name for it
	Code    task.Code `json:"code,omitempty" doc:"Kind of the error, for programs" example:"not-found"`
	Hint    string    `json:"hint,omitempty" doc:"What to do next" example:"stint ls"`
	Field   string    `json:"field,omitempty" doc:"What of the request is wrong: the name of a property, in a list after its place from 0" example:"2.prompt"`
}

// NewProblem returns the problem with a status and its code, and with what happened as its text.
func NewProblem(status int, detail, hint string) *Problem {
	return &Problem{Title: http.StatusText(status), Status: status, Detail: detail, Message: detail, Code: codeOf(status), Hint: hint}
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// ErrStopping is why long requests end when the server does.
var ErrStopping = &task.Error{
	Code:    task.CodeStopped,
	Message: "the master is shutting down",
	Hint:    "the tasks are kept; start it again with: stint serve",
}

// ProblemOf returns the answer for an error of the master.
func ProblemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if e, ok := errors.AsType[*task.Error](err); ok {
		p := NewProblem(cmp.Or(Statuses[e.Code], http.StatusInternalServerError), e.Message, e.Hint)
		p.Code, p.Field = e.Code, e.Field
		return p
	}
	if errors.Is(err, context.Canceled) {
		return NewProblem(http.StatusServiceUnavailable, "the request was ended before it was answered: its client has gone, or the master ends", "")
	}
	return NewProblem(http.StatusInternalServerError, err.Error(), "")
}

// Write answers with p. Where the reason will pass, it asks the client to try again in some seconds.
func (p *Problem) Write(w http.ResponseWriter) {
	switch {
	case p.Code == task.CodeShortage: // what a machine lacks may be back at once
		w.Header().Set("Retry-After", "1")
	case p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "5")
	}
	Answer(w, p.Status, "application/problem+json", p)
}

// Answer answers with v as JSON, or without it if the client has it.
func Answer(w http.ResponseWriter, status int, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	if status == http.StatusNotModified {
		return
	}
	_, _ = w.Write(MustJSON(v)) // the client may be gone
}
