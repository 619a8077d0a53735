package task

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A Code is the kind of an [Error]. The set is closed; HTTP statuses and exit codes are derived from it.
type Code string

// The codes.
const (
	CodeInvalid      Code = "invalid"       // the request cannot be carried out as it stands
	CodeNotFound     Code = "not-found"     // no such task, session or file
	CodeAmbiguous    Code = "ambiguous"     // the reference fits more than one
	CodeConflict     Code = "conflict"      // it contradicts what is already so
	CodeChanged      Code = "changed"       // it is for what was there before
	CodeBusy         Code = "busy"          // a lock or a session is held by someone else
	CodeFull         Code = "disk-full"     // nothing can be written
	CodeShortage     Code = "shortage"      // the machine lacks something that comes back: nothing was done, and the same may succeed soon
	CodeStopped      Code = "stopped"       // the master is stopping, or has stopped
	CodeAgentMissing Code = "agent-missing" // no such program, or not logged in
	CodeForbidden    Code = "forbidden"     // a run, or a page of another site, may not do that
	CodeUnauthorized Code = "unauthorized"  // no token, or not the present one
	CodeTooMany      Code = "too-many"      // a bound is reached: of the queue, or of streams
	CodeUnavailable  Code = "unavailable"   // something outside that it needs, such as a database, does not answer or refuses
)

// An Error is an error for people and programs: a sentence that says what and why, and the next command.
type Error struct {
	Code    Code
	Message string // what and why, without a final period
	Hint    string // what to do next, such as "stint ls"; "" if there is nothing
	Field   string // what of the request is wrong, by its name in JSON, such as "prompt", or "2.prompt" in a list (from 0); "": all of it
}

// Error joins message and hint.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "; " + e.Hint
}

// Is reports whether target is an *Error with the same code that says no more
// than this, so that errors.Is(err, &Error{Code: CodeNotFound}) asks for a code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == "" && t.Hint == ""
}

// BadCursor returns the error for a list that cannot be gone on with, and why.
func BadCursor(why string) error {
	return &Error{Code: CodeInvalid, Message: "the cursor means nothing here: " + why, Hint: "list anew, without cursor", Field: "cursor"}
}

// AtTask adds to an error that it is about the i-th of n tasks that are given together. Its
// field is named as problems name it: with the place in the list, from 0, before it.
func AtTask(err error, i, n int) error {
	var e *Error
	switch {
	case !errors.As(err, &e) && n > 1:
		return fmt.Errorf("task %d of %d: %w", i+1, n, err)
	case e == nil:
		return err
	}
	at := *e
	at.Field = strings.TrimSuffix(strconv.Itoa(i)+"."+e.Field, ".")
	if n > 1 {
		at.Message = fmt.Sprintf("task %d of %d: %s", i+1, n, e.Message)
	}
	return &at
}

// Ambiguous returns the error for a reference that fits several things: kind says what they are.
func Ambiguous(kind, ref string, names []string) error {
	if len(names) > 5 {
		names = append(slices.Clone(names[:5]), "…")
	}
	return &Error{Code: CodeAmbiguous, Message: fmt.Sprintf("%q fits several %s: %s", ref, kind, strings.Join(names, ", ")), Hint: "give more of the id"}
}

// Invalid returns the error for a request that cannot be applied as it stands.
func Invalid(hint, format string, args ...any) error {
	return &Error{Code: CodeInvalid, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Conflict returns the error for a request that contradicts what is already so.
func Conflict(hint, format string, args ...any) error {
	return &Error{Code: CodeConflict, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Wrong is invalid about one field of a spec, by its name in JSON.
func Wrong(field, hint, format string, args ...any) error {
	return &Error{Code: CodeInvalid, Message: fmt.Sprintf(format, args...), Hint: hint, Field: field}
}

// InField adds to an error which field it is about, unless it names one itself.
func InField(field string, err error) error {
	var e *Error
	if !errors.As(err, &e) || e.Field != "" {
		return err
	}
	at := *e
	at.Field = field
	return &at
}

// InOption adds to an error which prompt it is about.
func InOption(name string, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	return &Error{Code: e.Code, Message: name + ": " + e.Message, Hint: e.Hint, Field: name}
}

// Shortages are the errors of a machine that lacks something which comes back, in plain words; DIR is the state directory.
var Shortages = map[syscall.Errno]string{
	syscall.ENOSPC: "no room is left on the disk of DIR",
	syscall.EDQUOT: "the disk quota for DIR is used up",
	syscall.EMFILE: "stint has as many files open as it may (ulimit -n)",
	syscall.ENFILE: "the machine has as many files open as it can",
	syscall.EAGAIN: "no more processes can be started",
	syscall.ENOMEM: "the machine has no memory left",
}

// ShortageOf returns the error of the system by which err says that the machine lacks
// something that comes back, so that the same may succeed a while later; 0 if it does not.
func ShortageOf(err error) syscall.Errno {
	if errors.Is(err, syscall.ENOSPC) { // above all others, if there are several
		return syscall.ENOSPC
	}
	for s := range Shortages {
		if errors.Is(err, s) {
			return s
		}
	}
	return 0
}
