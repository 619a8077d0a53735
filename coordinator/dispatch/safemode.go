package dispatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"stint/ledger"
	"stint/ledger/durable"
	"stint/state"
	"stint/state/fold"
)

// Safe mode. A task, or a fault of ours, may bring down the master each time that it
// is started; clients and service managers start the next master at once, and each
// time every running task loses a retry. So a master notes when it first starts a run,
// in a file that a clean end removes. One that finds too many such notes pauses
// dispatch in the ledger, where resume, why and doctor know it.

// crashWindow is the time in which queue.Config.CrashLoop masters must have died.
const crashWindow = time.Minute

// startsPath is the file with the times at which masters that had no clean end first
// started a run, a line each.
func (d *Dispatcher) startsPath() string { return filepath.Join(d.tasks.Config.StateDir, "starts") }

// enterSafeMode pauses dispatch if the masters before this one died one after the
// other, soon after they had started runs, or if what is known of the tasks may be older than
// they are: the journal was lost, and not all of tasks.md can be read.
func (d *Dispatcher) enterSafeMode(ctx context.Context) {
	n, why := len(d.recentStarts()), ""
	switch {
	case d.tasks.Rebuilt() && len(d.tasks.Rejected())+len(d.tasks.Findings()) > 0:
		why = "safe mode: the journal was lost, and records in tasks.md have no effect, so tasks may be further than they seem; see stint fsck"
	case d.tasks.Config.CrashLoop > 0 && n >= d.tasks.Config.CrashLoop:
		why = fmt.Sprintf("safe mode: %d masters died within a minute, each soon after it had started tasks; see master.log", n)
	default:
		return
	}
	err := d.tasks.UpdateWhenRoom(ctx, "safe mode", true, func(st *fold.State, tx *ledger.Tx) error {
		if paused, _ := st.Paused(); paused {
			return nil
		}
		r := &ledger.Record{Kind: ledger.KindControl, ID: state.ControlDispatch}
		tx.Append(r.Add(state.KeyPaused, "true").Add(state.KeyBy, "").Add(state.KeyReason, why).
			Add(state.KeyUpdatedAt, state.FormatTime(d.tasks.Config.Now())))
		return nil
	})
	if err != nil {
		d.tasks.Trouble("safe mode could not be entered", err)
		return
	}
	d.tasks.Config.Log.Error(why + "; to continue: stint resume")
	d.forgetStarts()
}

// recentStarts returns the lines of the file that are of the last crashWindow.
func (d *Dispatcher) recentStarts() (lines []string) {
	data, err := durable.ReadFile(durable.OS, d.startsPath())
	if err != nil {
		return nil // there is none, or nobody can tell
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if t, err := time.Parse(time.RFC3339Nano, line); err == nil && d.tasks.Config.Now().Sub(t).Abs() < crashWindow {
			lines = append(lines, line)
		}
	}
	return lines
}

// noteStart notes that this master starts its first run now. It need not be durable:
// a machine that goes down is not a master that dies.
func (d *Dispatcher) noteStart() {
	if d.noted || d.tasks.Config.CrashLoop == 0 {
		return
	}
	d.noted = true
	lines := append(d.recentStarts(), d.tasks.Config.Now().UTC().Format(time.RFC3339Nano))
	if err := durable.PutFile(d.startsPath(), []byte(strings.Join(lines, "\n")+"\n")); err != nil {
		d.tasks.Trouble("a start could not be noted", err)
	}
}

// forgetStarts begins the count anew.
func (d *Dispatcher) forgetStarts() {
	if err := os.Remove(d.startsPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.tasks.Trouble("the notes of starts could not be removed", err)
	}
}
