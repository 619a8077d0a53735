package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"stint/coordinator/task"
)

// How long before something is due the machine is held awake, and the time between two looks whether it is to be.
const awakeAhead, awakePace = 5 * time.Minute, 10 * time.Second

// awakeCommand is what holds this machine awake while another program runs.
var awakeCommand = map[bool]string{true: "caffeinate -i", false: `systemd-inhibit --what=idle:sleep --who=stint --why="tasks run or are due" --mode=block`}[isMac]

// keepAwake holds the machine awake while isNeeded says so, until ctx ends. It asks after a change
// of a task, and from time to time. That it cannot is logged once.
func keepAwake(ctx context.Context, pace time.Duration, subscribe func(buffer int) (<-chan *task.Change, func()), isNeeded func() bool, log *slog.Logger) {
	var holding sync.WaitGroup
	defer holding.Wait()
	var ended chan error // nil: nothing holds it
	var stop func()
	for told := false; ctx.Err() == nil; {
		changes, cancel := subscribe(1) // before we ask, so that no change is missed
		switch need := isNeeded(); {
		case need && ended == nil:
			hold, end := context.WithCancel(ctx)
			failed := make(chan error, 1)
			ended, stop = failed, end
			holding.Go(func() { failed <- holdAwake(hold); end() })
		case !need && ended != nil:
			stop()
			holding.Wait()
			ended = nil
		}
		_ = pause(ctx, pace)
		select {
		case err := <-ended:
			if ended = nil; ctx.Err() == nil && !told {
				told = true
				log.Warn("keep_awake has no effect", "error", err)
			}
			_ = pause(ctx, 6*pace) // it will hardly work at once
		case <-changes:
		case <-time.After(time.Minute): // a time may have come
		case <-ctx.Done():
		}
		cancel()
	}
}

// holdAwake holds the machine awake until ctx ends, and returns why it could not. What does that
// lasts as long as cat can read, so it ends with us, however we end.
func holdAwake(ctx context.Context) error {
	cmd := systemCommand(ctx, "exec "+awakeCommand+" cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the master alone
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.Cancel, cmd.WaitDelay = in.Close, time.Second
	said, err := cmd.CombinedOutput()
	return fmt.Errorf("it has ended (%v): %s", err, oneLine(string(said)))
}
