package dispatch

import (
	"cmp"
	"context"
	"time"

	"stint/coordinator/queue"
	"stint/coordinator/task"
	"stint/ledger"
	"stint/state"
	"stint/state/fold"
)

// A program that is missing. An upgrade takes an agent's program away for a few seconds,
// and whoever removes it brings it back at some time. Its tasks need not fail for that:
// the run looks once more a moment later, then the account goes on hold, which ends when
// the program is back. A program that no task here has ever run with is another matter: the
// user has not installed it. Nor does the account wait for a program that only one task's PATH
// lacks: that task fails.

// lookForAgent is how often it is looked whether a program is back.
const lookForAgent = 5 * time.Second

// LookForMissing ends the holds of accounts whose agent's program is back, or for whose agent
// this master has a key and the one before had none, until ctx ends.
// It has a goroutine of its own: a program that is there may not answer for long.
func (d *Dispatcher) LookForMissing(ctx context.Context) {
	tick := time.NewTicker(lookForAgent)
	defer tick.Stop()
	for {
		for _, a := range queue.Read(d.tasks, (*fold.State).Missing) {
			known, _ := d.tasks.AccountsNow().Find(a.Name)
			if name := cmp.Or(known.Tool, a.Agent, a.Name); a.IsKeyless() && (d.tasks.Config.HasKey == nil || !d.tasks.Config.HasKey(name)) || a.IsMissing() && !d.Attempts.IsFound(name) {
				continue
			}
			err := d.tasks.Update(context.Background(), func(st *fold.State, tx *ledger.Tx) error {
				if now := st.Account(a.Name); now.IsMissing() || now.IsKeyless() { // else it is another hold by now
					tx.Append(task.AccountRecord(a.Name).Add(state.KeyHold, "").Add(state.KeyReason, ""))
				}
				return nil
			})
			if err == nil {
				d.tasks.Config.Log.Info("what an agent lacked is back", "account", a.Name)
			}
			d.tasks.TroubleUnlessStopped("the hold of an account could not be ended", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
