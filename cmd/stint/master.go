package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"stint/coordinator/agent/gate/hold"
	"stint/coordinator/api/client"
	"stint/coordinator/api/guard"
	"stint/coordinator/api/wire"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/ledger/lock"
)

// Bounds of finding a master.
const (
	maxStarts    = 3                     // masters that one command may start
	masterWait   = 15 * time.Second      // for one that is just starting or ending
	masterPoll   = 50 * time.Millisecond // between two looks at it
	lockPoll     = 5 * time.Millisecond  // between two tries of `serve` to get the lock, before a client starts a master
	readyTimeout = 60 * time.Second      // replaying a long journal takes its time
	maxLog       = 8 << 20               // bytes of master.log before it is rotated
	readyFD      = 3                     // of a master in the background: where it says that it is ready
)

// A ready is what a master in the background tells the one who started it: the socket, or why there is none.
type ready struct {
	Socket  string `json:"socket,omitempty"`
	Exit    int    `json:"exit,omitempty"`
	Message string `json:"message,omitempty"`
	Try     string `json:"try,omitempty"`
}

// call makes a request to the master, which is started in the background if there is none. The request is made
// again if the master went away meanwhile, so it must be one that may be repeated.
func (a *app) call(ctx context.Context, request func(*client.Client) error) error {
	return a.repeat(ctx, maxStarts, isPassing, request)
}

// repeat makes a request until it meets no error that passes by itself, but not long. It starts as many masters as it may.
func (a *app) repeat(ctx context.Context, starts int, passes func(error) bool, request func(*client.Client) error) error {
	for deadline := time.Now().Add(masterWait); ; {
		err := a.callRunning(ctx, request)
		if errors.Is(err, client.ErrNoMaster) && starts > 0 {
			if err = a.startBackground(ctx); err == nil {
				starts--
				continue
			}
		}
		if !passes(err) || time.Now().After(deadline) {
			return err
		}
		if err := task.Sleep(ctx, masterPoll); err != nil {
			return err
		}
	}
}

// isPassing reports an error of the moment between two masters: one holds the
// lock and does not answer yet, or does not take anything any more.
func isPassing(err error) bool {
	var local *cliError
	isBusy := errors.As(err, &local) && local.code == exitBusy && !errors.Is(err, client.ErrSilent)
	return isBusy || errors.Is(err, &task.Error{Code: task.CodeStopped})
}

// callRunning makes a request to a running master, and returns client.ErrNoMaster if
// there is none, or guard.ErrForeign if another user listens where one of ours would.
func (a *app) callRunning(_ context.Context, request func(*client.Client) error) error {
	sockets, err := a.sockets()
	if err != nil {
		return err
	}
	for _, socket := range sockets {
		err = request(a.client(socket))
		if errors.Is(err, client.ErrSilent) {
			return a.silent(err)
		}
		if !errors.Is(err, client.ErrNoMaster) && !errors.Is(err, guard.ErrForeign) {
			return err
		}
	}
	return err
}

// A finder makes a request to a master: it is [app.call], [app.callOrOpen] or [app.callRunning].
type finder = func(ctx context.Context, request func(*client.Client) error) error

// ask makes a request that has an answer.
func ask[T any](ctx context.Context, find finder, request func(*client.Client) (T, error)) (answer T, err error) {
	err = find(ctx, func(c *client.Client) (err error) { answer, err = request(c); return err })
	return answer, err
}

// fetch makes a request by its path; see [client.Fetch].
func fetch[T any](ctx context.Context, find finder, method, path string, in any) (T, error) {
	return ask(ctx, find, func(c *client.Client) (T, error) { return client.Fetch[T](ctx, c, method, path, in) })
}

// task asks the master about a task.
func (a *app) task(ctx context.Context, ref string) (wire.TaskView, error) {
	return ask(ctx, a.call, func(c *client.Client) (wire.TaskView, error) { return c.Task(ctx, ref) })
}

// health asks a running master about itself.
func (a *app) health(ctx context.Context) (task.Health, error) {
	return ask(ctx, a.callRunning, func(c *client.Client) (task.Health, error) { return c.Health(ctx) })
}

// another returns an app that finds its own way to the master, for another goroutine.
func (a *app) another() *app {
	one := *a
	one.last, one.dialed = nil, ""
	return &one
}

// client returns the client for the master at socket: what a command asks goes over one connection.
func (a *app) client(socket string) *client.Client {
	if a.dialed != socket {
		a.dialed, a.last = socket, client.Dial(socket)
		a.last.Run = ownRun()
	}
	return a.last
}

// notice returns what the master that was asked last said about itself; nil if nothing is known.
func (a *app) notice() *wire.Notice {
	if a.last == nil {
		return nil
	}
	return a.last.Notice()
}

// silent returns what can be done about a master that has the lock and does not answer.
func (a *app) silent(err error) error {
	e := &cliError{code: exitBusy, message: "it was stopped, has no more open files, or hangs", err: err, try: "stint doctor"}
	dir, _ := a.state() // it is known: the master was asked
	if pid := lock.Holder(dir); pid > 0 {
		e.message = fmt.Sprintf("process %d has the lock and was stopped, has no more open files, or hangs", pid)
		e.try = fmt.Sprintf("kill -CONT %d if it was stopped, and once more this command; or, which loses nothing: kill -9 %d", pid, pid)
	}
	return e
}

// silencePace is the time between two looks whether a master that is waited for answers.
const silencePace = 4 * time.Second

// warnSilence prints on stderr once, until stop is called, that the master does not answer any more.
func (a *app) warnSilence(ctx context.Context) (stop func()) {
	one := a.another()
	return inBackground(ctx, func(ctx context.Context) {
		for task.Sleep(ctx, silencePace) == nil {
			if _, err := one.health(ctx); !errors.Is(err, client.ErrSilent) {
				continue
			}
			dir, _ := one.state() // it is known: the master was asked
			pid := lock.Holder(dir)
			one.hint("stint: the master (pid %d) does not answer; if it was stopped: kill -CONT %d\n", pid, pid)
			return
		}
	})
}

// wait returns when a task has ended, whatever becomes of the master meanwhile. A master in the background that is gone is
// started again. One in the foreground was perhaps stopped on purpose: then another one is waited for, but not long.
func (a *app) wait(ctx context.Context, ref string) (wire.TaskView, error) {
	var view wire.TaskView
	var health task.Health
	look := func(c *client.Client) (err error) {
		if view.ID == "" { // @last may mean another task next time
			if view, err = c.Task(ctx, ref); err != nil {
				return err
			}
		}
		health, err = c.Health(ctx)
		return err
	}
	for find := a.call; ; {
		if err := find(ctx, look); err != nil {
			return view, err
		}
		end, err := ask(ctx, a.callRunning, func(c *client.Client) (wire.TaskView, error) { return c.Wait(ctx, view.ID) })
		if !isGone(err) {
			return end, err
		}
		if find = a.awaitMaster; health.Background {
			find = a.call
		}
	}
}

// awaitMaster makes a request as soon as there is a master, and starts none.
func (a *app) awaitMaster(ctx context.Context, request func(*client.Client) error) error {
	err := a.repeat(ctx, 0, isGone, request)
	if isGone(err) {
		return &cliError{code: exitNoMaster, message: "the master has exited; the task is kept", try: "stint serve"}
	}
	return err
}

// isGone reports that there is no master, or that it broke off.
func isGone(err error) bool { return errors.Is(err, client.ErrNoMaster) || isPassing(err) }

// sockets returns the places where a master may listen, the likeliest first.
func (a *app) sockets() ([]string, error) {
	state, err := a.state()
	if err != nil {
		return nil, err
	}
	cfg, err := a.base()
	if err != nil {
		return nil, err
	}
	beat, _ := readBeat(state, cfg.HeartbeatPath) // without it, the default one is left
	list := []string{beat.Socket, defaultSocket(state)}
	list = slices.DeleteFunc(list, func(s string) bool { return !filepath.IsAbs(s) })
	return slices.Compact(list), nil
}

// startBackground starts a master that ends when it is idle, and returns when it answers. An error with exitBusy
// says that another one holds the lock: it was faster, or does not answer any more.
func (a *app) startBackground(ctx context.Context) error {
	cfg, _ := a.base() // it is known: a master was looked for
	state, none, err := a.stateMissing()
	switch {
	case err != nil:
		return err
	case none && !a.creates:
		return noState(state)
	case !cfg.AutoStart:
		return &cliError{code: exitNoMaster, message: "no master is running, and auto_start is off", try: "stint serve"}
	}
	if err := checkStateDir(state, a.stderr); err != nil {
		return err
	}
	if !a.warned {
		a.warned = true
		warnPlace(state, a.stderr)
	}
	r, err := a.spawnMaster(ctx, state)
	if err != nil {
		return err
	}
	switch {
	case r.Exit == exitBusy:
		return &cliError{code: exitBusy, message: "no master answers, and yet " + r.Message, try: r.Try}
	case r.Socket == "":
		return &cliError{code: max(r.Exit, exitFailure), message: "the master did not start: " + r.Message, try: r.Try}
	}
	return nil
}

// spawnMaster starts `stint serve --background` in a session of its own, and returns what it says about itself.
func (a *app) spawnMaster(ctx context.Context, state string) (ready, error) {
	hold.CloseOnExec(readyFD)
	self, err := hold.SelfPath()
	if err != nil {
		return ready{}, fmt.Errorf("cannot start a master: %w", err)
	}
	args, env := []string{"stint", "serve", "--background", "--state-dir", state}, os.Environ()
	// A master that an agent happens to start is no part of that run.
	env = slices.DeleteFunc(env, func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains([]string{"STINT_RUN_ID", "STINT_TASK_ID", "STINT_ATTEMPT"}, name)
	})
	// A relative path would mean another file in the master's directory.
	if file, named, err := configFile(a.configOption); err == nil && named {
		env = append(env, "STINT_CONFIG="+file)
	}
	logFile := filepath.Join(state, "master.log")
	var log *os.File
	if fi, lerr := os.Lstat(logFile); lerr == nil && fi.Size() > maxLog {
		err = os.Rename(logFile, logFile+".1")
	}
	if err == nil {
		log, err = durable.Open(logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, durable.FileMode)
	}
	if err != nil {
		return ready{}, &cliError{code: exitFailure, message: "cannot start a master", err: err, try: "stint doctor"}
	}
	readEnd, writeEnd, err := os.Pipe()
	if err != nil {
		return ready{}, errors.Join(err, log.Close())
	}
	defer func() { _ = readEnd.Close() }() // only read from
	cmd := &exec.Cmd{
		Path: self, Args: args, Dir: "/", Env: env, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		Stdout: log, Stderr: log, ExtraFiles: []*os.File{writeEnd},
	}
	err = cmd.Start()
	if err = errors.Join(err, writeEnd.Close(), log.Close()); err != nil {
		return ready{}, fmt.Errorf("cannot start a master: %w", err)
	}
	_ = cmd.Process.Release() // it outlives us
	// What it says; the end of the pipe without a word means that it ended.
	stop := context.AfterFunc(ctx, func() { _ = readEnd.SetReadDeadline(time.Now()) }) // wakes the reader
	defer stop()
	_ = readEnd.SetReadDeadline(time.Now().Add(readyTimeout)) // pipes have them
	var r ready
	err = json.NewDecoder(readEnd).Decode(&r)
	if ctx.Err() != nil {
		return r, context.Cause(ctx)
	}
	if err != nil {
		return r, &cliError{code: exitNoMaster, message: "the master did not start", try: "see " + logFile}
	}
	return r, nil
}
