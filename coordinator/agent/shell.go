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

	"stint/coordinator"
	"stint/state"
)

// A Shell runs verify commands under the supervisor, with the environment of an
// agent: what a command starts ends with it, and after a crash it is found again.
type Shell struct {
	Runner
}

var _ coordinator.Shell = (*Shell)(nil)

const (
	shellPath = "/bin/sh" // where POSIX systems have it

	envIteration = "STINT_ITERATION"

	outputHead = 4 << 10 // bytes of a command's output that are told
	outputTail = 4 << 10
	mostOutput = 8 << 20 // bytes of it that its file keeps
)

// Verify runs one command; see coordinator.Shell. Its output stands in the run's
// file stdout; of more than 8 MiB only the last part does.
func (s *Shell) Verify(ctx context.Context, v coordinator.VerifyRun) coordinator.VerifyResult {
	turn := coordinator.Turn{
		TaskID: v.TaskID, RunID: v.RunID, Attempt: v.Attempt, RunDir: v.RunDir, Prompt: os.DevNull,
		Workspace: v.Workspace, Limits: coordinator.RunLimits{Grace: v.Grace},
	}
	if v.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, v.Timeout, coordinator.ErrTimeout)
		defer stop()
	}
	w, began := &window{}, time.Now()
	e := s.supervise(ctx, spec{
		turn: turn, argv: []string{shellPath, "-c", v.Command}, merged: true, most: mostOutput,
		env: s.agentEnv(turn, envIteration+"="+strconv.Itoa(v.Iteration)),
	}, w)
	return result(e, w, time.Since(began))
}

// result says how a command ended.
func result(e ended, w *window, took time.Duration) coordinator.VerifyResult {
	r := coordinator.VerifyResult{
		ExitCode: e.end.Exit, Output: w.String(), Duration: took,
		Shortage: e.end.Shortage || coordinator.IsShortage(e.err),
	}
	switch {
	case e.err != nil:
		r.Class, r.Error = state.ClassInterrupted, "the verify command could not be started: "+e.err.Error()
	case e.end.Err != "":
		r.Class, r.Error = state.ClassInterrupted, "the verify command could not be started: "+e.end.Err
	case errors.Is(e.cause, coordinator.ErrCanceled):
		r.Class, r.Error = state.ClassCanceled, string(state.ClassCanceled)
	case errors.Is(e.cause, coordinator.ErrTimeout):
		r.Class, r.Error = state.ClassTimeout, "the verify command ran for too long"
	case e.cause != nil:
		r.Class, r.Error = state.ClassInterrupted, e.cause.Error()
	case e.lost:
		r.Class, r.Error = state.ClassInterrupted, "the gate of the run was killed"
	case e.end.Signal != 0:
		r.Output = strings.TrimSuffix(r.Output, "\n") + fmt.Sprintf("\n[ended by a signal: %v]\n", syscall.Signal(e.end.Signal))
	}
	if r.Class != "" {
		r.ExitCode = -1
	}
	return r
}

// A window keeps the head and the tail of an output. It belongs to the goroutine
// that supervises the run.
type window struct {
	head, tail []byte
	size       int64
}

func (w *window) feed(p []byte) {
	w.size += int64(len(p))
	n := min(len(p), outputHead-len(w.head))
	w.head = append(w.head, p[:n]...)
	p = p[n:]
	if len(p) > outputTail {
		p = p[len(p)-outputTail:]
	}
	if over := len(w.tail) + len(p) - outputTail; over > 0 {
		w.tail = append(w.tail[:0], w.tail[over:]...)
	}
	w.tail = append(w.tail, p...)
}

func (w *window) finished() bool        { return false }
func (w *window) progress(int64)        {}
func (w *window) stuck(time.Time) error { return nil }

// String gives head and tail, as UTF-8, and how much is left out between them.
func (w *window) String() string {
	left := w.size - int64(len(w.head)+len(w.tail))
	if left == 0 {
		return strings.ToValidUTF8(string(w.head)+string(w.tail), "\ufffd")
	}
	return fmt.Sprintf("%s\n[… %d bytes are left out here …]\n%s", strings.ToValidUTF8(string(w.head), ""), left, strings.ToValidUTF8(string(w.tail), ""))
}
