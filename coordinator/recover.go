package coordinator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"stint/ledger"
	"stint/state"
)

// recoverTimeout bounds how long the old processes of a run may take to die.
const recoverTimeout = 30 * time.Second

// recover puts back into the queue what was running when the last master ended.
// First the old processes are proved dead; a task for which that cannot be done
// is held and shown, never started again by itself.
func (c *Coordinator) recover(ctx context.Context) {
	c.mu.Lock()
	ids := c.state.Running()
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() { c.recoverTask(ctx, id) })
	}
	wg.Wait()
}

func (c *Coordinator) recoverTask(ctx context.Context, id string) {
	c.mu.Lock()
	t, _ := c.state.Peek(id)
	c.mu.Unlock()
	dir := c.RunDir(t.RunID)
	var alive error
	if c.cfg.Recover != nil {
		ctx, stop := context.WithTimeout(ctx, recoverTimeout)
		alive = c.cfg.Recover(ctx, dir, t.RunID)
		stop()
	}
	rec := &ledger.Record{Kind: ledger.KindTask, ID: id}
	retries := t.Retries + 1
	status := state.Queued
	if retries > c.cfg.MaxRetries {
		status = state.Dead
	}
	rec.Add(state.KeyStatus, string(status)).Add(state.KeyRetries, fmt.Sprint(retries)).
		Add(state.KeyAttempt, fmt.Sprint(max(0, t.Attempt-1))).Add(state.KeyReason, string(state.ClassInterrupted))
	if alive != nil {
		rec.Add(state.KeyHold, "true").Add(state.KeyNote, fmt.Sprintf("held: the agent of the interrupted run may still be alive: %v", alive))
	}
	if t.AgentSession == "" && c.cfg.FindSession != nil {
		rec.AddIf(state.NativeKey(t.Agent), c.cfg.FindSession(t.Agent, dir))
	}
	rec.Add(state.KeyUpdatedAt, state.FormatTime(c.cfg.Now()))
	err := c.update(context.Background(), func(tx *ledger.Tx) error {
		tx.Append(rec)
		return nil
	})
	if err != nil {
		c.trouble("an interrupted task could not be requeued", err)
		return
	}
	c.log.Info("recovered an interrupted task", "task", id, "run", t.RunID, "retries", retries, "held", alive != nil)
}
