package explain

import (
	"testing"
	"time"
)

// TestIn: the rest of a wait is rounded up, however long it is.
func TestIn(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 12, 45, 0, time.UTC)
	for at, want := range map[time.Time]string{
		now: ", in 0s", now.Add(1): ", in 1s", now.Add(59*time.Minute + 500*time.Millisecond): ", in 59m1s",
		time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC): ", in 2562047h47m16s",
	} {
		if got := in(at, now); got != want {
			t.Errorf("%v: %q, want %q", at, got, want)
		}
	}
}
