package queue_test

import (
	"testing"
	"time"

	"stint/coordinator/queue"
	"stint/state"
)

// TestReserve: an account is closed when what is left of a window is no more than its reserve.
func TestReserve(t *testing.T) {
	now := time.Now()
	s, err := queue.Open(queue.Config{StateDir: t.TempDir(), Unwatched: true, Now: func() time.Time { return now }, Accounts: func() []state.AccountConfig {
		return []state.AccountConfig{{ID: "demo", Tool: "demo", Reserve: "20%"}}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(func() {}) }()
	for used, closed := range map[float64]bool{79.9: false, 80: true, 81: true} {
		if got := s.AccountsNow().Rule(&state.Account{Name: "demo", Quota: []state.Window{{Name: "w", Used: used, ResetsAt: now.Add(time.Hour)}}}); (got.Closed != "") != closed {
			t.Errorf("%v%% used: %+v", used, got)
		}
	}
}

// TestNextDay: the next day may begin after midnight.
func TestNextDay(t *testing.T) {
	for _, tt := range [][3]string{
		{"America/Santiago", "2026-09-05 23:30", "2026-09-06 01:00"},
		{"America/Santiago", "2026-09-05 12:00", "2026-09-06 01:00"},
		{"America/Santiago", "2026-04-04 23:30", "2026-04-05 00:00"}, // which comes twice
		{"Europe/Berlin", "2026-12-31 23:59", "2027-01-01 00:00"},
	} {
		in, err := time.LoadLocation(tt[0])
		if err != nil {
			t.Fatal(err)
		}
		now, err := time.ParseInLocation("2006-01-02 15:04", tt[1], in)
		if got := queue.NextDay(now).Format("2006-01-02 15:04"); got != tt[2] || err != nil {
			t.Errorf("%v: %s, %v", tt, got, err)
		}
	}
}
