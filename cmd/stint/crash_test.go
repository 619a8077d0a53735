package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"stint/state"
)

// TestPromise1And2KillsAtRandomTimes kills the master with SIGKILL at random
// moments, sometimes together with the gates of its runs, while clients submit and
// agents work that leave processes behind. In the end every acknowledged task is
// there, unchanged, once, and done; nobody else's is; no task has had two agents at
// once, nothing of any of them lives, and no master took longer than slowRecovery
// to queue again what was interrupted. STINT_TEST_KILLS sets the number of kills,
// STINT_TEST_SEED repeats a run.
func TestPromise1And2KillsAtRandomTimes(t *testing.T) {
	t.Parallel()
	kills := envInt(t, "STINT_TEST_KILLS", 6)
	seed := envInt(t, "STINT_TEST_SEED", int(time.Now().UnixNano()))
	t.Logf("seed %d, %d kills", seed, kills)
	w := newWorld(t, uint64(seed))
	for range kills {
		l := w.start()
		ctx, stop := l.during()
		prompts := make([]string, 1+w.rand.IntN(3))
		for i := range prompts { // two orphans are left, some of them after they were told in vain to end
			prompts[i] = []string{"", "demo:ignore-term "}[w.rand.IntN(2)] + fmt.Sprintf("demo:orphan demo:sleep=%dms demo:orphan", 20+w.rand.IntN(400))
		}
		moment, gates := time.Duration(w.rand.IntN(400))*time.Millisecond, w.rand.IntN(3) == 0
		if w.rand.IntN(4) > 0 && !w.ready(l) { // else it is killed while it starts, perhaps
			t.Fatalf("the master has ended:\n%s", l.said())
		}
		w.together(len(prompts)+1, func(i int) {
			switch {
			case i < len(prompts):
				if w.ready(l) {
					w.ask(ctx, fmt.Sprint("s", i), prompts[i], state.Done)
				}
			case gates:
				time.Sleep(moment) // the random moment
				if err := w.killTree(l.cmd.Process.Pid); err != nil {
					t.Error(err)
				}
			default:
				time.Sleep(moment)
				w.end(l, syscall.SIGKILL)
			}
		})
		w.end(l, syscall.SIGKILL)
		stop()
	}
	w.audit()
	slowest, requeued := w.slowest()
	t.Logf("kills: random=%d strace=0 lost=%d overlapping=%d survivors=%d requeued=%d slowest recovery=%v seed=%d",
		kills, w.lost, w.overlapping, len(w.survivors()), requeued, slowest, seed)
	if requeued == 0 {
		t.Error("no agent was at work when its master was killed")
	}
}
