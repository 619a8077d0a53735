package api

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"stint/coordinator/task"
	"stint/ledger/journal"
)

func (f *fakeMaster) Compact(_ context.Context, olderThan time.Duration, dryRun bool) (journal.CompactReport, error) {
	r := journal.CompactReport{Before: int64(olderThan / time.Hour), After: 1, Merged: 2, Archived: 3, Archive: "tasks-2026-11.md"}
	if dryRun {
		r.Before = -r.Before
	}
	return r, f.err
}

func TestCompactRoute(t *testing.T) {
	m := newFake(t)
	s := serve(t, m, Options{})
	for dry, before := range map[bool]int64{false: 720, true: -720} {
		want := journal.CompactReport{Before: before, After: 1, Merged: 2, Archived: 3, Archive: "tasks-2026-11.md"}
		if got, err := s.client.Compact(t.Context(), 720*time.Hour, dry); err != nil || got != want {
			t.Errorf("dry run %v: %+v %v", dry, got, err)
		}
	}
	if w := ask(newServer(m, Options{}), "POST", "/v1/ledger/compact", jsonType, `{"olderThan":"30d"}`); w.Code != http.StatusUnprocessableEntity {
		t.Errorf("a duration that is none: %d %s", w.Code, w.Body)
	}
	m.err = &task.Error{Code: task.CodeConflict, Message: "not now"}
	if _, err := s.client.Compact(t.Context(), 0, false); !errors.Is(err, &task.Error{Code: task.CodeConflict}) {
		t.Errorf("the master's error became %v", err)
	}
}
