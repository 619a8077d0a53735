package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger/durable"
	"stint/ledger/journal"
	"stint/state/fold"
)

// Health returns how the master is.
func (c *Coordinator) Health() task.Health {
	h := task.Health{
		PID: os.Getpid(), Start: c.start.UTC(), Version: c.Config.Version, Socket: c.Config.Socket,
		StateDir: c.Config.StateDir, Background: c.Config.Background, Status: c.status(), Postgres: c.Mirror(),
	}
	for _, f := range c.Findings() {
		h.Findings = append(h.Findings, f.String())
	}
	h.Findings = append(h.Findings, c.Rejected()...)
	h.Shortage, h.LastError = c.Shortage(), c.LastError()
	c.View(func(st *fold.State) {
		h.Paused, h.PauseWhy = st.Paused()
		h.Counts, h.Running = st.Counts(), st.Running()
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	h.HTTP, h.APIEnabled = c.http, c.http != ""
	if c.httpErr != nil {
		h.HTTPError = c.httpErr.Error()
	}
	return h
}

// ServesHTTP notes at which address, such as 127.0.0.1:7433, the master can be called by
// HTTP, for Health and the heartbeat; "" is none. err says why there is none though there
// should be.
func (c *Coordinator) ServesHTTP(addr string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.http, c.httpErr = addr, err
}

// status returns in one word how the master is.
func (c *Coordinator) status() task.HealthStatus {
	paused, _ := c.Paused()
	switch {
	case c.diskTrouble() != nil:
		return task.HealthFailing
	case c.IsLeaving():
		return task.HealthEnding
	case paused:
		return task.HealthPaused
	}
	return task.HealthOK
}

// diskTrouble says, as an *Error, why the journal cannot be written; nil if it can, or
// nobody has tried of late.
func (c *Coordinator) diskTrouble() error {
	at, err := c.Counters.LastWrite()
	switch {
	case c.Err() != nil:
		return c.StoppedError()
	case err == nil || c.Config.Now().Sub(at) >= queue.FailedFor:
		return nil
	case errors.Is(err, journal.ErrFull):
		return c.FullError()
	}
	return &task.Error{Code: task.CodeStopped, Message: fmt.Sprintf("the journal could not be written: %v", err), Hint: "check the disk"}
}

// Unready says, as an *Error, why no task is accepted just now; nil if tasks are. A
// master whose dispatch is paused accepts them.
func (c *Coordinator) Unready() error {
	if err := c.diskTrouble(); err != nil {
		return err
	}
	if c.IsLeaving() {
		return &task.Error{Code: task.CodeStopped, Message: "the master is stopping: it starts nothing more, and exits when its runs have ended", Hint: "try again"}
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
	tick := time.NewTicker(c.Config.HeartbeatInterval)
	defer tick.Stop()
	for seq := 1; ; seq++ {
		data, err := json.MarshalIndent(beat{c.Health(), c.Config.Now().UTC(), seq}, "", "  ")
		if err == nil && !c.IsGone() {
			err = durable.WriteFile(durable.OS, c.Config.HeartbeatPath, append(data, '\n'))
		}
		if err != nil {
			c.Trouble("the heartbeat could not be written", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Shortage returns what the machine lacks while tasks wait for it; nil if nothing.
func (c *Coordinator) Shortage() *task.Shortage {
	s, ok := c.Shortages.Present()
	if !ok || queue.Read(c.Store, (*fold.State).Queued) == 0 {
		return nil
	}
	s.Next = c.Limits().Again
	return &s
}
