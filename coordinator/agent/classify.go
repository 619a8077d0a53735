package agent

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"stint/coordinator"
	"stint/state"
)

// A verdict is what a run came to: the class ("" is success), a sentence, and
// for a rate limit the time that the agent named.
type verdict struct {
	class   state.Class
	msg     string
	retryAt time.Time
}

// classify is the table of the package documentation.
func classify(e ended, d decoder, now time.Time) verdict {
	h := d.said()
	good := h.end == turnCompleted && h.answered()
	switch {
	case e.err != nil:
		return verdict{class: state.ClassInterrupted, msg: "the run could not be started: " + e.err.Error()}
	case e.end.Missing:
		return verdict{class: state.ClassAgentMissing, msg: "the agent cannot be executed: " + e.end.Err}
	case e.end.Shortage != 0:
		return verdict{class: state.ClassInterrupted, msg: "the agent could not be started: " + e.end.Err}
	case e.end.Err != "":
		return verdict{class: state.ClassExit, msg: "the agent could not be started: " + e.end.Err}
	case errors.Is(e.cause, coordinator.ErrCanceled):
		return verdict{class: state.ClassCanceled, msg: "canceled"}
	case good && (e.cause != nil || e.lost || killedBy(e.end) != 0):
		return verdict{}
	case e.cause != nil:
		return stopped(e, d, now)
	case e.lost:
		return verdict{class: state.ClassInterrupted, msg: "the gate of the run was killed"}
	case h.end == turnFailed:
		return failed(e, d, now)
	case e.end.Exit == 0:
		return exitedZero(e, d, now)
	}
	return exited(e, d, now)
}

// failed is for a turn that ended with an error event.
func failed(e ended, d decoder, now time.Time) verdict {
	if v := d.complaint(e, now); v.msg != "" {
		return v
	}
	return verdict{class: state.ClassExit, msg: "the turn failed without a message"}
}

// stopped is for a run that we ended before it had its answer.
func stopped(e ended, d decoder, now time.Time) verdict {
	if errors.Is(e.cause, errHung) && d.said().end == turnFailed {
		return failed(e, d, now)
	}
	v, said := verdict{class: state.ClassInterrupted, msg: e.cause.Error()}, d.complaint(e, now)
	idle := errors.Is(e.cause, errStartup) || errors.Is(e.cause, errIdle)
	switch {
	case errors.Is(e.cause, errHung):
		v.class = state.ClassOutputMissing
	case errors.Is(e.cause, errUnreachable), errors.Is(e.cause, errLimited), idle && d.said().failing && said.class != "":
		v.class, v.retryAt = said.class, said.retryAt
	case idle:
		v.class = state.ClassStalled
	case errors.Is(e.cause, coordinator.ErrTimeout), timeout(e.cause):
		v.class = state.ClassTimeout
	}
	if said.msg != "" {
		v.msg += "; the agent said last: " + said.msg
	}
	return v
}

// timeout reports whether an error calls itself one, as context.DeadlineExceeded does.
func timeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

func exitedZero(e ended, d decoder, now time.Time) verdict {
	v := verdict{class: state.ClassExit, msg: "the agent ended before its turn was over"}
	if h := d.said(); h.end == turnCompleted {
		if h.answered() {
			return verdict{}
		}
		v = verdict{class: state.ClassOutputMissing, msg: "the agent ended without an answer"}
	}
	if last := d.complaint(e, now).msg; last != "" {
		v.msg += ": " + last
	}
	return v
}

// exited is for an agent that ended with an error by itself.
func exited(e ended, d decoder, now time.Time) verdict {
	how, sig := fmt.Sprintf("the agent ended with exit code %d", e.end.Exit), killedBy(e.end)
	if sig != 0 || e.end.Signal != 0 {
		how = fmt.Sprintf("the agent was ended by a signal (%v)", max(sig, syscall.Signal(e.end.Signal)))
	}
	h, said := d.said(), d.complaint(e, now)
	switch {
	case sig != 0 && (e.end.Signal != 0 || said.msg == ""): // by the kernel, for want of memory, by a bug, by somebody
		return verdict{class: state.ClassStalled, msg: sentence(how, said.msg)}
	case e.end.Signal != 0 || h.end == turnCompleted:
		return verdict{class: state.ClassExit, msg: sentence(how, said.msg)}
	case said.msg != "":
		return said
	case h.events > 0:
		return verdict{class: state.ClassExit, msg: how}
	}
	last, _ := lastError(e.stderr)
	if notExecuted(e.end.Exit) {
		return verdict{class: state.ClassAgentMissing, msg: sentence(how, last)}
	}
	return verdict{class: state.ClassExit, msg: sentence(how, last)}
}

// notExecuted reports whether an exit code is the one by which shells and env(1) say that
// there is no such program (127), or none that may be executed (126). They take the first
// for the second where a directory of PATH may not be searched.
func notExecuted(code int) bool { return code == 126 || code == 127 }

// killedBy returns the signal that has killed an agent, which may have died below a shell
// that tells of it by an exit code above 128; 0 if none has. What enforces a limit of the
// run itself does not count: it would do so again.
func killedBy(end endReport) syscall.Signal {
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

// lastError returns the reason that a program gives on stderr, and whether it is its own
// last "Error:" line. Otherwise it is the first line that begins with "error", together
// with the line below if that line ends in a colon, or else the last line, which tells a
// person more than nothing.
func lastError(stderr []byte) (line string, own bool) {
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

// statusClass gives the class of an HTTP status.
func statusClass(code int) state.Class {
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

// A pattern is compiled when it is first used.
type pattern = func() *regexp.Regexp

// lazyRegexp leaves the work to who needs it: the gate does not.
func lazyRegexp(expr string) pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

func or(s, instead string) string {
	if s != "" {
		return s
	}
	return instead
}
