package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"stint/coordinator"
)

// statusOf maps codes to HTTP.
var statusOf = map[coordinator.Code]int{
	coordinator.CodeInvalid:      http.StatusUnprocessableEntity,
	coordinator.CodeNotFound:     http.StatusNotFound,
	coordinator.CodeAmbiguous:    http.StatusConflict,
	coordinator.CodeConflict:     http.StatusConflict,
	coordinator.CodeBusy:         http.StatusLocked,
	coordinator.CodeFull:         http.StatusInsufficientStorage,
	coordinator.CodeStopped:      http.StatusServiceUnavailable,
	coordinator.CodeAgentMissing: http.StatusFailedDependency,
	coordinator.CodeForbidden:    http.StatusForbidden,
}

// codeOf gives the code of an answer that names none. Statuses of our own
// failures have no code.
func codeOf(status int) coordinator.Code {
	switch {
	case status == http.StatusNotFound:
		return coordinator.CodeNotFound
	case status == http.StatusConflict:
		return coordinator.CodeConflict
	case status == http.StatusLocked:
		return coordinator.CodeBusy
	case status == http.StatusForbidden:
		return coordinator.CodeForbidden
	case status == http.StatusFailedDependency:
		return coordinator.CodeAgentMissing
	case status == http.StatusServiceUnavailable:
		return coordinator.CodeStopped
	case status == http.StatusInsufficientStorage:
		return coordinator.CodeFull
	case status >= 400 && status < 500:
		return coordinator.CodeInvalid
	}
	return ""
}

// A problem is an error as it goes over the wire (RFC 9457).
type problem struct {
	Title  string           `json:"title"`  // text of the HTTP status
	Status int              `json:"status"` // the HTTP status
	Detail string           `json:"detail"` // what and why
	Code   coordinator.Code `json:"code,omitempty"`
	Hint   string           `json:"hint,omitempty"` // the next command
}

func newProblem(status int, code coordinator.Code, detail, hint string) *problem {
	return &problem{Title: http.StatusText(status), Status: status, Detail: detail, Code: code, Hint: hint}
}

// Error, GetStatus and ContentType make huma write a problem as it is.
func (p *problem) Error() string           { return p.Detail }
func (*problem) ContentType(string) string { return "application/problem+json" }
func (p *problem) GetStatus() int          { return p.Status }

// asProblem gives the answer for an error of the master.
func asProblem(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		return p
	}
	var e *coordinator.Error
	if errors.As(err, &e) {
		return newProblem(cmp.Or(statusOf[e.Code], http.StatusInternalServerError), e.Code, e.Message, e.Hint)
	}
	return newProblem(http.StatusInternalServerError, "", err.Error(), "")
}

// write answers with p outside of huma.
func (p *problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		panic("api: a problem does not marshal: " + err.Error())
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client may be gone
}

// maxComplaints bounds the number of faults that one answer names.
const maxComplaints = 10

// plainErrors turns huma's own errors into problems: one sentence that names each
// fault and where it is, without the value, which may be a whole prompt.
func plainErrors(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	detail := m.Detail
	if faults := complaints(m.Errors); faults != "" {
		detail = "the request is not valid: " + faults
	}
	return newProblem(m.Status, codeOf(m.Status), detail, ""), nil
}

func complaints(errs []*huma.ErrorDetail) string {
	var out []string
	for _, e := range errs {
		if e == nil {
			continue
		}
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
