package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"stint/coordinator/agent/gate"
	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/task"
	"stint/state"
)

// A Verdict is what a run came to: the class ("" is success), a sentence, and for a rate limit the time that the agent named.
type Verdict struct {
	Class   state.Class
	Msg     string
	RetryAt time.Time
}

// Classify is the table of the package documentation: what a run that has ended, and all that its decoder has read, come to.
func Classify(e gate.Result, d Decoder, now time.Time) Verdict {
	h, said := d.State(), d.Complaint(e.End.Exit, e.Stderr, now)
	good := h.End == TurnCompleted && strings.TrimSpace(h.Answer) != ""
	switch {
	case e.Err != nil:
		return Verdict{Class: state.ClassInterrupted, Msg: "the run could not be started: " + e.Err.Error()}
	case e.End.Missing:
		return Verdict{Class: state.ClassAgentMissing, Msg: "the agent cannot be executed: " + e.End.Err}
	case e.End.Shortage != 0:
		return Verdict{Class: state.ClassInterrupted, Msg: "the agent could not be started: " + e.End.Err}
	case e.End.Err != "":
		return Verdict{Class: state.ClassExit, Msg: "the agent could not be started: " + e.End.Err}
	case errors.Is(e.Cause, task.ErrCanceled):
		return Verdict{Class: state.ClassCanceled, Msg: "canceled"}
	case good && (e.Cause != nil || e.Lost || e.End.Exit == 0 || killedBy(e.End) != 0):
		return Verdict{}
	case e.Cause != nil && !(errors.Is(e.Cause, gate.ErrHung) && h.End == TurnFailed):
		return stopped(e.Cause, h, said)
	case e.Cause == nil && e.Lost:
		return Verdict{Class: state.ClassInterrupted, Msg: "the gate of the run was killed"}
	case h.End == TurnFailed && said.Msg != "":
		return said
	case h.End == TurnFailed:
		return Verdict{Class: state.ClassExit, Msg: "the turn failed without a message"}
	case e.End.Exit == 0 && h.End == TurnCompleted:
		return Verdict{Class: state.ClassOutputMissing, Msg: sentence("the agent ended without an answer", said.Msg)}
	case e.End.Exit == 0:
		return Verdict{Class: state.ClassExit, Msg: sentence("the agent ended before its turn was over", said.Msg)}
	}
	return exited(e, h, said)
}

// stopped is for a run that we ended before it had its answer.
func stopped(cause error, h *TurnState, said Verdict) Verdict {
	v := Verdict{Class: state.ClassInterrupted, Msg: cause.Error()}
	idle := errors.Is(cause, gate.ErrStartup) || errors.Is(cause, gate.ErrIdle)
	switch {
	case errors.Is(cause, gate.ErrHung):
		v.Class = state.ClassOutputMissing
	case errors.Is(cause, errUnreachable), errors.Is(cause, errLimited), idle && h.Retrying && said.Class != "":
		v.Class, v.RetryAt = said.Class, said.RetryAt
	case idle:
		v.Class = state.ClassStalled
	case errors.Is(cause, task.ErrTimeout), errors.Is(cause, context.DeadlineExceeded):
		v.Class = state.ClassTimeout
	}
	if said.Msg != "" {
		v.Msg += "; the agent said last: " + said.Msg
	}
	return v
}

// exited is for an agent that ended with an error by itself.
func exited(e gate.Result, h *TurnState, said Verdict) Verdict {
	how, sig := fmt.Sprintf("the agent ended with exit code %d", e.End.Exit), killedBy(e.End)
	if sig != 0 || e.End.Signal != 0 {
		how = fmt.Sprintf("the agent was ended by a signal (%v)", max(sig, syscall.Signal(e.End.Signal)))
	}
	last, _ := LastError(e.Stderr)
	switch {
	case sig != 0 && (e.End.Signal != 0 || said.Msg == ""): // by the kernel, for want of memory, by a bug, by somebody
		return Verdict{Class: state.ClassStalled, Msg: sentence(how, said.Msg)}
	case e.End.Signal != 0 || h.End == TurnCompleted:
		return Verdict{Class: state.ClassExit, Msg: sentence(how, said.Msg)}
	case said.Msg != "":
		return said
	case h.Events > 0:
		return Verdict{Class: state.ClassExit, Msg: how}
	case NotExecuted(e.End.Exit):
		return Verdict{Class: state.ClassAgentMissing, Msg: sentence(how, last)}
	}
	return Verdict{Class: state.ClassExit, Msg: sentence(how, last)}
}

// NotExecuted reports whether an exit code is the one by which shells and env(1) say that there is no such program (127), or
// none that may be executed (126). They take the first for the second where a directory of PATH may not be searched.
func NotExecuted(code int) bool { return code == 126 || code == 127 }

// killedBy returns the signal that has killed an agent, which may have died below a shell that tells of it by an exit code
// above 128; 0 if none has. What enforces a limit of the run itself does not count: it would do so again.
func killedBy(end hold.EndReport) syscall.Signal {
	switch s := syscall.Signal(max(end.Signal, end.Exit-128)); s {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGABRT:
		return s
	case syscall.SIGXCPU, syscall.SIGXFSZ:
		return 0
	}
	return syscall.Signal(end.Signal)
}

// sentence puts what was said behind what happened.
func sentence(how, said string) string { return strings.TrimSuffix(how+": "+said, ": ") }

// LastError returns the reason that a program gives on stderr, and whether it is its own last "Error:" line.
// Otherwise it is the first line that begins with "error", together with the line below if that line ends in
// a colon, or else the last line, which tells a person more than nothing.
func LastError(stderr []byte) (line string, own bool) {
	reason := ""
	for l := range strings.Lines(strings.ToValidUTF8(string(stderr), "\uFFFD")) {
		l = strings.TrimSpace(l)
		msg, isOwn := strings.CutPrefix(l, "Error: ")
		low := strings.ToLower(l)
		switch {
		case l == "" || strings.HasPrefix(l, "For more information, try "):
		case isOwn:
			line, own = strings.TrimSpace(msg), true
		case strings.HasSuffix(reason, ":"):
			reason += " " + l
		case reason == "" && (strings.HasPrefix(low, "error: ") || strings.HasPrefix(low, "error ")):
			reason = strings.TrimSpace(strings.TrimPrefix(l, "error:"))
		case !own:
			line = l
		}
	}
	if !own && reason != "" {
		line = reason
	}
	return line, own
}

// StatusClass returns the class of an HTTP status.
func StatusClass(code int) state.Class {
	switch {
	case code == 429:
		return state.ClassRateLimited
	case code == 401 || code == 402: // 403 may concern a model, a region or a firewall: the account's other tasks may run
		return state.ClassAuth
	case code == 408 || code >= 500:
		return state.ClassNetwork
	}
	return state.ClassExit
}

// After returns the time that comes a wait after now, at most a year; the zero time if there is none.
func After(now time.Time, wait time.Duration) time.Time {
	if wait <= 0 {
		return time.Time{}
	}
	return now.Add(min(wait, 365*24*time.Hour))
}
