package state

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestSpareFrom: quota is spare once more of it is left, beside the reserve, than of the window's time,
// by five points.
func TestSpareFrom(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		used, reserve float64
		left          time.Duration // of a window of ten hours
		from          time.Duration // until then; 0: now
	}{
		{0, 0, 10 * time.Hour, 30 * time.Minute},  // 100 % of 100 %
		{0, 0, 9*time.Hour + 30*time.Minute, 0},   // 100 % of 95 %
		{50, 0, 5 * time.Hour, 30 * time.Minute},  // half of each
		{50, 0, 4 * time.Hour, 0},                 // 50 % of 40 %
		{50, 20, 4 * time.Hour, 90 * time.Minute}, // 30 % of 40 %
		{100, 0, time.Hour, time.Hour},
		{90, 20, time.Hour, time.Hour},
		{100, 0, -time.Hour, 0}, // it is over
	} {
		w := Window{Used: tt.used, Minutes: 600, ResetsAt: now.Add(tt.left)}
		got := time.Duration(0)
		if from := w.SpareFrom(now, tt.reserve); !from.IsZero() {
			got = from.Sub(now)
		}
		if got.Round(time.Second) != tt.from {
			t.Errorf("%+v: from %v on", tt, got)
		}
	}
	if w := (Window{Used: 100, ResetsAt: now.Add(time.Hour)}); !w.SpareFrom(now, 0).IsZero() {
		t.Error("a window of unknown length has a rule")
	}
}

// TestMergeQuota: the newer window counts, and none that could not be read back.
func TestMergeQuota(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	good := Window{Name: "w", Used: 1, At: now, ResetsAt: now}
	for _, tt := range []struct {
		change func(w *Window)
		is     bool
	}{
		{func(w *Window) { w.Used = 100 }, true},
		{func(w *Window) { w.Used = 1e6 }, true},
		{func(w *Window) { w.Used, w.At = 100, now.Add(-time.Hour) }, false},
		{func(w *Window) { w.Used = -1 }, false},
		{func(w *Window) { w.Used = 1e7 }, false},
		{func(w *Window) { w.Used = math.NaN() }, false},
		{func(w *Window) { w.Name = "" }, false},
		{func(w *Window) { w.Minutes = maxWindow + 1 }, false},
		{func(w *Window) { w.ResetsAt = time.Unix(-1<<60, 0) }, false},
	} {
		w := good
		tt.change(&w)
		want := good
		if tt.is {
			want = w
		}
		if diff := cmp.Diff([]Window{want}, MergeQuota([]Window{good}, []Window{w})); diff != "" {
			t.Errorf("%+v: %s", w, diff)
		}
	}
}

// FuzzParseQuota: what is read is what was written, and nothing that is read is beyond all bounds.
func FuzzParseQuota(f *testing.F) {
	f.Add(`window="five_hour" used="35.5" minutes="300" resetsAt="2026-01-05T12:00:00.000Z" at="2026-01-05T10:00:00.000Z"`)
	f.Add(`window="x" used="NaN"`)
	f.Add(`window="x" used="1" minutes="99999999999"`)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseQuota(text)
		if err != nil {
			return
		}
		again, err := ParseQuota(FormatQuota(list))
		for i := range list { // four digits are kept
			again[i].Used = list[i].Used
		}
		if diff := cmp.Diff(list, again); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	})
}
