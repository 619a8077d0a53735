package attempt

import (
	"testing"
	"time"

	"stint/coordinator/queue"
)

// TestBackoff: a wait doubles up to 300 s, is 10 % longer or shorter at random, and is never
// longer than 300 s; the longest ones differ too.
func TestBackoff(t *testing.T) {
	c := &queue.Config{BackoffBase: 30 * time.Second, BackoffMax: 300 * time.Second}
	for n, want := range map[int][2]time.Duration{
		0: {27 * time.Second, 33 * time.Second}, 2: {108 * time.Second, 132 * time.Second},
		4: {270 * time.Second, 300 * time.Second}, 1000: {270 * time.Second, 300 * time.Second},
	} {
		for i, rand := range []float64{0, 1} {
			c.Rand = func() float64 { return rand }
			if got := backoff(c, n, c.BackoffMax).Round(time.Second); got != want[i] {
				t.Errorf("after %d failures: %s, want %s", n, got, want[i])
			}
		}
	}
}
