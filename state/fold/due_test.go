package fold

import (
	"fmt"
	"testing"
	"time"

	"stint/state"
)

func TestWaitingSince(t *testing.T) {
	tests := []struct {
		name    string
		records []string
		now     time.Duration
		want    string // offset from noon; "": nothing waits
	}{
		{"nothing", nil, 0, ""},
		{"the oldest", []string{"a: status=queued; updatedAt=" + at(2*time.Second), "b: status=queued; updatedAt=" + at(time.Second)}, time.Minute, "1s"},
		{"by its creation, if no record says more", []string{"a: status=queued; createdAt=" + at(time.Second)}, time.Minute, "1s"},
		{"no time at all", []string{"a: status=queued"}, time.Minute, ""},
		{"running, done and drafts do not wait", []string{
			"a: status=queued; updatedAt=" + at(1), "a: status=running; updatedAt=" + at(2),
			"b: status=queued; updatedAt=" + at(1), "b: status=done; updatedAt=" + at(2), "c: status=draft; updatedAt=" + at(1),
		}, time.Minute, ""},
		{"held ones do not", []string{"a: status=queued; hold=true; updatedAt=" + at(0), "b: status=queued; updatedAt=" + at(3*time.Second)}, time.Minute, "3s"},
		{"since the release", []string{"a: status=queued; hold=true; updatedAt=" + at(0), "a: hold=; updatedAt=" + at(4*time.Second)}, time.Minute, "4s"},
		{"an edit does not begin it anew", []string{"a: status=queued; updatedAt=" + at(time.Second), "a: priority=9; updatedAt=" + at(5*time.Second)}, time.Minute, "1s"},
		{"a retry does", []string{
			"a: status=queued; createdAt=" + at(0) + "; updatedAt=" + at(0), "a: status=failed; updatedAt=" + at(time.Second), "a: status=queued; updatedAt=" + at(9*time.Second),
		}, time.Minute, "9s"},
		{"before its time it does not wait", []string{"a: status=queued; updatedAt=" + at(0) + "; notBefore=" + at(time.Hour)}, time.Minute, ""},
		{"from its time on it does", []string{"a: status=queued; updatedAt=" + at(0) + "; notBefore=" + at(time.Hour)}, 2 * time.Hour, "1h0m0s"},
		{"a time taken away", []string{"a: status=queued; updatedAt=" + at(0) + "; notBefore=" + at(time.Hour), "a: notBefore=; updatedAt=" + at(time.Second)}, time.Minute, "0s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := newJournal(t)
			records(j, tt.records...)
			got := ""
			if since, ok := j.state.WaitingSince(noon.Add(tt.now)); ok {
				got = since.Sub(noon).Truncate(time.Second).String()
			}
			if got != tt.want {
				t.Errorf("waits since noon and %q, want %q", got, tt.want)
			}
		})
	}
}

// TestOnChange: what is told of a record is the task before and after it, also of one
// that had ended and is read from the journal, and nothing of a record without effect.
func TestOnChange(t *testing.T) {
	j := newJournal(t)
	records(j, "a: status=queued; inputTokens=1", "a: status=done; inputTokens=5; reason=x")
	var told []string
	j.state.OnChange(func(before, after *state.Task) {
		told = append(told, fmt.Sprintf("%s %d -> %s %d %s", before.Status, before.Usage.InputTokens, after.Status, after.Usage.InputTokens, after.Reason))
	})
	records(j, "b: status=queued", "a: status=queued; reason=", "a: status=running", "a: status=failed; reason=timeout; inputTokens=7", "control dispatch: paused=true")
	_ = j.refuse("b", "status: qeued")
	want := "[ 0 -> queued 0  done 5 -> queued 5  queued 5 -> running 5  running 5 -> failed 7 timeout]"
	if got := fmt.Sprint(told); got != want {
		t.Errorf("told %s\nwant %s", got, want)
	}
}
