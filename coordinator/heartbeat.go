package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"stint/coordinator/task"
	"stint/ledger"
	"stint/ledger/durable"
)

// Health says how the master is.
func (c *Coordinator) Health() task.Health {
	h := task.Health{
		PID: os.Getpid(), Start: c.start.UTC(), Version: c.cfg.Version, Socket: c.cfg.Socket,
		StateDir: c.cfg.StateDir, Background: c.cfg.Background, Status: c.status(), Postgres: c.mirrorStatus(),
	}
	for _, f := range c.Findings() {
		h.Findings = append(h.Findings, f.String())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h.Findings = append(h.Findings, c.rejected...)
	h.Paused, h.PauseWhy = c.state.Paused()
	h.Shortage = c.shortage()
	h.Counts, h.Running, h.LastError = c.state.Counts(), c.state.Running(), c.lastErr
	h.HTTP, h.APIEnabled = c.http, c.http != ""
	if c.httpErr != nil {
		h.HTTPError = c.httpErr.Error()
	}
	return h
}

// mirrorStatus gives how far the copy is, nil if there is none.
func (c *Coordinator) mirrorStatus() *task.MirrorStatus {
	if c.cfg.Mirror == nil {
		return nil
	}
	s := c.cfg.Mirror()
	return &s
}

// ServesHTTP notes at which address, such as 127.0.0.1:7433, the master can be called by
// HTTP, for Health and the heartbeat; "" is none. err says why there is none though there
// should be.
func (c *Coordinator) ServesHTTP(addr string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.http, c.httpErr = addr, err
}

// status says in one word how the master is.
func (c *Coordinator) status() task.HealthStatus {
	paused, _ := c.Paused()
	switch {
	case c.diskTrouble() != nil:
		return task.HealthFailing
	case c.isLeaving():
		return task.HealthEnding
	case paused:
		return task.HealthPaused
	}
	return task.HealthOK
}

// failedFor is how long a write to the journal that failed says something about the
// next one: the disk may have room again, and nobody has tried.
const failedFor = 30 * time.Second

// diskTrouble says, as an *Error, why the journal cannot be written; nil if it can, or
// nobody has tried of late.
func (c *Coordinator) diskTrouble() error {
	f := c.counters.failure()
	switch {
	case c.ledger.Err() != nil:
		return c.stopped()
	case f.err == nil || c.cfg.Now().Sub(f.at) >= failedFor:
		return nil
	case errors.Is(f.err, ledger.ErrFull):
		return c.fullError()
	}
	return &task.Error{Code: task.CodeStopped, Message: fmt.Sprintf("the journal could not be written: %v", f.err), Hint: "check the disk"}
}

// Unready says, as an *Error, why no task is taken in just now; nil if tasks are. A
// master whose dispatch is paused takes them in.
func (c *Coordinator) Unready() error {
	if err := c.diskTrouble(); err != nil {
		return err
	}
	if c.isLeaving() {
		return &task.Error{Code: task.CodeStopped, Message: "the master is going away: it starts nothing more, and ends when its runs have ended", Hint: "try again"}
	}
	return nil
}

// A beat is the content of heartbeat.json.
type beat struct {
	task.Health
	Time time.Time `json:"time"` // when it was written: older than three intervals means dead
	Seq  int       `json:"seq"`  // counts up while the master lives
}

// heartbeat writes heartbeat.json at once and then in each interval until ctx
// ends. It is information, never a truth.
func (c *Coordinator) heartbeat(ctx context.Context) {
	tick := time.NewTicker(c.cfg.HeartbeatInterval)
	defer tick.Stop()
	for seq := 1; ; seq++ {
		data, err := json.MarshalIndent(beat{c.Health(), c.cfg.Now().UTC(), seq}, "", "  ")
		if err == nil && !c.isGone() {
			err = durable.WriteFile(durable.OS, c.cfg.HeartbeatPath, append(data, '\n'))
		}
		if err != nil {
			c.trouble("the heartbeat could not be written", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
