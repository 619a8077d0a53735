package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"stint/ledger/durable"
)

// Health says how the master is.
func (c *Coordinator) Health() Health {
	h := Health{
		PID: os.Getpid(), Start: c.start.UTC(), Version: c.cfg.Version, Socket: c.cfg.Socket,
		StateDir: c.cfg.StateDir, Background: c.cfg.Background,
	}
	for _, f := range c.ledger.Findings() {
		h.Findings = append(h.Findings, f.Error())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h.Findings = append(h.Findings, c.rejected...)
	h.Paused, h.PauseWhy = c.state.Paused()
	h.Counts, h.Running, h.LastError = c.state.Counts(), c.state.Running(), c.lastErr
	return h
}

// A beat is the content of heartbeat.json.
type beat struct {
	Health
	Time time.Time `json:"time"` // when it was written: older than three intervals means dead
	Seq  int       `json:"seq"`  // counts up while the master lives
}

// errGone ends a master whose state directory was removed or moved away: what it
// acknowledges from then on would be kept in files that nobody finds.
var errGone = errors.New("the state directory is gone")

// heartbeat writes heartbeat.json at once and then in each interval until ctx
// ends. It is information, never a truth. It ends the master when the state
// directory is no longer there.
func (c *Coordinator) heartbeat(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(c.cfg.HeartbeatInterval)
	defer tick.Stop()
	for seq := 1; ; seq++ {
		if c.isGone() {
			end(fmt.Errorf("%w: %s was removed or moved away while its master ran; the next command starts another one", errGone, c.cfg.StateDir))
			return
		}
		data, err := json.MarshalIndent(beat{c.Health(), c.cfg.Now().UTC(), seq}, "", "  ")
		if err == nil {
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

// isGone reports that the state directory is not the one that was opened.
func (c *Coordinator) isGone() bool {
	dir, err := os.Stat(c.cfg.StateDir)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(dir, c.dir)
}
