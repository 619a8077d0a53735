package coordinator_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stint/coordinator"
	"stint/state"
)

// TestATimeThatComesWhileTheDispatcherLooks: the clock goes on between the look at
// what is ready and the one at what comes next. A retry whose time comes just then
// is not left for the next change.
func TestATimeThatComesWhileTheDispatcherLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var looks atomic.Int64
		w.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(looks.Add(1)) * time.Millisecond) }
		w.cfg.MaxAttempts, w.cfg.Rand = 40, func() float64 { return 0.5 }
		for base := time.Millisecond; base <= 20*time.Millisecond; base += time.Millisecond {
			w.cfg.BackoffBase, w.cfg.BackoffMax = base, base
			failed := coordinator.Outcome{Class: state.ClassNetwork, ExitCode: 1}
			w.outcomes(failed, failed, coordinator.Outcome{Result: "fine"})
			w.openUnwatched()
			begun := time.Now()
			got := w.ended(w.submit(coordinator.TaskSpec{Prompt: "p"}).ID)
			if took := time.Since(begun); got.Status != state.Done || took > time.Minute {
				t.Errorf("waits of %s: %s after %s", base, got.Status, took)
			}
			w.close()
		}
	})
}
