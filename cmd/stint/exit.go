package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"stint/coordinator/api/client"
	"stint/coordinator/task"
	"stint/ledger/lazy"
	"stint/state"
)

// The exit codes, a contract with scripts. The same end of a task has the same code whichever command waits for it.
const (
	exitOK          = 0   // done
	exitFailure     = 1   // anything that has no code of its own
	exitUsage       = 2   // the command line or the configuration is wrong
	exitNoMaster    = 3   // no master, or it has exited
	exitAgent       = 4   // agent missing or not logged in
	exitBusy        = 5   // a lock or a session is in use, or the machine lacks something
	exitNotFound    = 6   // no such task or session, or more than one
	exitFailed      = 7   // the task failed
	exitVerify      = 8   // the verify command never passed
	exitCanceled    = 9   // the task was canceled
	exitDead        = 10  // the task's tries are used up, for no reason that has a code of its own
	exitRateLimited = 75  // rate-limited, and told not to wait
	exitTimeout     = 124 // wait timed out; the task continues
	exitInterrupted = 130 // Ctrl-C; the task continues
)

// A cliError is an error with an exit code and the next command. A message of ""
// prints nothing: what happened has been said already.
type cliError struct {
	code    int
	message string
	try     string
	err     error // the cause, may be nil
}

func (e *cliError) Error() string {
	if e.err == nil {
		return e.message
	}
	return e.message + ": " + e.err.Error()
}

func (e *cliError) Unwrap() error { return e.err }

// usage returns an error of the command line: exit 2.
func usage(try, format string, args ...any) error {
	return &cliError{code: exitUsage, message: fmt.Sprintf(format, args...), try: try}
}

// errDetached is the cause with which Ctrl-C ends what a command waits for.
var errDetached = errors.New("interrupted")

// remoteExit are the exit codes of what a master refuses.
var remoteExit = map[task.Code]int{
	task.CodeInvalid: exitUsage, task.CodeNotFound: exitNotFound, task.CodeAmbiguous: exitNotFound, task.CodeBusy: exitBusy,
	task.CodeShortage: exitBusy, task.CodeStopped: exitNoMaster, task.CodeAgentMissing: exitAgent,
}

// verdict returns the exit code of what a command returned, with message and next command.
func verdict(err error) (code int, message, try string) {
	var cli *cliError
	var remote *task.Error
	switch {
	case err == nil:
		return exitOK, "", ""
	case errors.As(err, &cli):
		return cli.code, oneLine(cli.Error()), cli.try
	case errors.As(err, &remote):
		return cmp.Or(remoteExit[remote.Code], exitFailure), oneLine(remote.Message), remote.Hint
	case errors.Is(err, client.ErrNoMaster):
		return exitNoMaster, "no master is running", "stint serve"
	case errors.Is(err, errDetached), errors.Is(err, context.Canceled):
		return exitInterrupted, "interrupted", ""
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout, oneLine(err.Error()), ""
	}
	return exitFailure, oneLine(err.Error()), ""
}

// exitCode returns the exit code of what a command returned.
func exitCode(err error) int { code, _, _ := verdict(err); return code }

// explain returns message and next command of an error.
func explain(err error) (message, try string) { _, message, try = verdict(err); return message, try }

// taskCode maps how a task ended. The reasons that a person has to fix come before the status: they say more.
func taskCode(t *state.Task) int {
	switch {
	case t.Status == state.Done:
		return exitOK
	case t.Status == state.Canceled:
		return exitCanceled
	case t.Reason == state.ClassAuth, t.Reason == state.ClassAgentMissing:
		return exitAgent
	case t.Reason == state.ClassRateLimited && (t.MaxLimitWait == "0s" || t.MaxLimitWait == "0"):
		return exitRateLimited
	case t.Reason == state.ClassVerify:
		return exitVerify
	case t.Status == state.Dead:
		return exitDead
	case t.Reason == state.ClassSessionBusy:
		return exitBusy
	case t.Status == state.Failed:
		return exitFailed
	default:
		return exitFailure // not a task that has ended
	}
}

// printError writes the two lines of an error: what and why, and what to do.
func printError(w io.Writer, err error) {
	message, try := explain(err)
	if message == "" {
		return
	}
	// Nothing is left to do about a broken stderr.
	_, _ = fmt.Fprintf(w, "stint: %s\n", escapeText(anyWord().ReplaceAllStringFunc(message, shortIDIn)))
	if try != "" {
		_, _ = fmt.Fprintf(w, "  try: %s\n", escapeText(anyWord().ReplaceAllStringFunc(try, shortIDIn)))
	}
}

// longWord finds what may be an id in an error, which is one of a task unless it stands in a path.
var longWord = lazy.Regexp(`[0-9A-Za-z_-]{36,}`)

func shortIDIn(word string) string {
	if strings.ContainsRune(word, '/') {
		return word
	}
	return longWord().ReplaceAllStringFunc(word, shortID)
}

// oneLine makes one line of a message that came with several.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines, "; ")
}
