package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"stint/coordinator/agent/gate"
	"stint/coordinator/task"
	"stint/ledger/lazy"
	"stint/state"
)

// A Shell runs verify commands under the supervisor, with the environment of an
// agent: what a command starts ends with it, and after a crash it is found again.
type Shell struct {
	Runner
}

const (
	shellPath = "/bin/sh" // where POSIX systems have it

	envIteration = "STINT_ITERATION"

	outputHead = 4 << 10 // bytes of a command's output that are told
	outputTail = 4 << 10
)

// Verify runs one command; see task.Shell. Its output stands in the run's file stdout; of one that has more
// than 8 MiB only the last 64 KiB are kept, below a line that says so.
func (s Shell) Verify(ctx context.Context, v task.VerifyRun) task.VerifyResult {
	turn := task.Turn{
		TaskID: v.TaskID, RunID: v.RunID, Attempt: v.Attempt, RunDir: v.RunDir, Prompt: os.DevNull,
		Workspace: v.Workspace, Env: v.Env, Limits: task.RunLimits{Grace: v.Grace},
	}
	s.Use(turn)
	if v.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, v.Timeout, task.ErrTimeout)
		defer stop()
	}
	own := []string{envIteration + "=" + strconv.Itoa(v.Iteration)}
	if v.Safe != "" {
		own = append(own, "PATH="+task.SafePath(s.Env, v.Safe))
	}
	w, begun := &window{lives: v.Lives}, time.Now()
	e := s.Supervise(ctx, gate.Spec{
		Turn: turn, Argv: []string{shellPath, "-c", v.Command}, Merged: true, Short: true,
		Env: s.AgentEnv(turn, own...),
	}, w)
	r := result(&e, v.Timeout)
	r.Output, r.Duration = s.Redact.String(w.String()), time.Since(begun) // codes for terminals may have been within a secret
	if r.ExitCode < 0 && r.Conclusive() {                                 // what it printed does not say why there is no more
		r.Output = strings.TrimSuffix(r.Output, "\n") + "\n[" + r.Error + "]\n"
	}
	return r
}

// result returns how a command ended.
func result(e *gate.Result, limit time.Duration) task.VerifyResult {
	r := task.VerifyResult{ExitCode: e.End.Exit, Shortage: e.End.Shortage}
	switch {
	case e.Err != nil:
		r.Class, r.Error = state.ClassInterrupted, "the verify command could not be started: "+e.Err.Error()
	case e.End.Err != "" && r.Shortage != 0:
		r.Class, r.Error = state.ClassInterrupted, "the verify command could not be started: "+e.End.Err
	case e.End.Err != "": // no shell, no workspace, or a command that is too long: so it stays
		r.Class, r.Error = state.ClassExit, "the verify command could not be started: "+e.End.Err
	case errors.Is(e.Cause, task.ErrCanceled):
		r.Class, r.Error = state.ClassCanceled, string(state.ClassCanceled)
	case errors.Is(e.Cause, task.ErrTimeout):
		r.Class, r.Error = state.ClassTimeout, fmt.Sprintf("the verify command ran longer than its limit of %s", limit)
	case e.Cause != nil:
		r.Class, r.Error = state.ClassInterrupted, e.Cause.Error()
	case e.Lost:
		r.Class, r.Error = state.ClassInterrupted, "the gate of the run was killed"
	case e.End.Signal != 0:
		r.Error = fmt.Sprintf("the verify command was ended by a signal: %v", syscall.Signal(e.End.Signal))
	case r.CannotRun():
		r.Error = fmt.Sprintf("the verify command cannot be run: exit code %d: %s", r.ExitCode, shellCodes[r.ExitCode])
	case r.ExitCode != 0:
		r.Error = fmt.Sprintf("the verify command ended with exit code %d", r.ExitCode)
	}
	if r.Class != "" {
		r.ExitCode = -1
	}
	return r
}

// shellCodes are the exit codes with which a shell says something of its own.
var shellCodes = map[int]string{126: "a program of it cannot be executed", 127: "a program of it was not found"}

// A window keeps the head and the tail of an output. It belongs to the goroutine that supervises the run.
type window struct {
	head, tail []byte
	size       int64
	lives      func(isStart bool) // nil: nobody asks
}

func (w *window) Feed(p []byte) {
	w.size += int64(len(p))
	n := min(len(p), outputHead-len(w.head))
	w.head = append(w.head, p[:n]...)
	w.tail = append(w.tail, p[n:]...)
	if over := len(w.tail) - outputTail; over > 0 {
		w.tail = append(w.tail[:0], w.tail[over:]...)
	}
}

func (w *window) Aside([]byte)          {}
func (w *window) Finished() bool        { return false }
func (w *window) Stuck(time.Time) error { return nil }
func (w *window) Began()                { w.note(true) }
func (w *window) Progress(int64)        { w.note(false) }

func (w *window) note(isStart bool) {
	if w.lives != nil {
		w.lives(isStart)
	}
}

// String returns head and tail as plain text, and how much is left out between them.
func (w *window) String() string {
	left := w.size - int64(len(w.head)+len(w.tail))
	if left == 0 {
		return plainText(string(w.head) + string(w.tail))
	}
	return fmt.Sprintf("%s\n[… %d bytes are left out here …]\n%s", plainText(string(w.head)), left, plainText(string(w.tail)))
}

// terminalCodes are what programs send to terminals to colour and move things.
var terminalCodes = lazy.Regexp("\x1b(\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(\x07|\x1b\\\\)|[@-Z\\\\^_])")

// StripTerminalCodes returns a text without what colours it and moves the cursor.
func StripTerminalCodes(text string) string { return terminalCodes().ReplaceAllString(text, "") }

// plainText returns what a person would read of it: of a line that was written over again and again, as bars
// of progress are, the last state; no codes for terminals; and a mark for each thing that is no text.
func plainText(text string) string {
	text = StripTerminalCodes(strings.ReplaceAll(text, "\r\n", "\n"))
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, end := strings.CutSuffix(line, "\n")
		line = strings.TrimRight(line, "\r")
		b.WriteString(strings.Map(readable, line[strings.LastIndexByte(line, '\r')+1:]))
		if end {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func readable(r rune) rune {
	if unicode.IsControl(r) && r != '\t' {
		return utf8.RuneError
	}
	return r
}
