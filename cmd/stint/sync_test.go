package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"stint/coordinator/postgres"
	"stint/coordinator/task"
)

// A list of differences that nobody would read is cut, and its length told.
func TestDifferencesAreBounded(t *testing.T) {
	r := postgres.Report{Seq: 7, Tasks: 150, Runs: 1, InFlight: 2, More: 20}
	for i := range 130 {
		r.Differences = append(r.Differences, postgres.Difference{Table: "tasks", ID: fmt.Sprint(i), Text: fmt.Sprintf("tasks %d: only\nhere", i)})
	}
	for _, c := range []struct {
		all, json bool
		lines     int
		end       string
	}{
		{false, false, 102, "and 50 more; with --all they are listed\n150 differences in 150 tasks, 1 run and 0 files, up to record 7; 2 tasks changed meanwhile, not compared\n"},
		{true, false, 132, "and 20 more\n150 differences in 150 tasks, 1 run and 0 files, up to record 7; 2 tasks changed meanwhile, not compared\n"},
		{false, true, 101, `{"seq":7,"tasks":150,"runs":1,"files":0,"differences":150,"inFlight":2}` + "\n"},
		{true, true, 131, `{"seq":7,"tasks":150,"runs":1,"files":0,"differences":150,"inFlight":2}` + "\n"},
	} {
		var out bytes.Buffer
		a := &app{stdout: &out}
		if err := a.printDifferences(&r, c.all, c.json); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(out.String(), "\n"); lines != c.lines || !strings.HasSuffix(out.String(), c.end) {
			t.Errorf("all %v, JSON %v: %d lines, want %d that end with %q:\n%.200s", c.all, c.json, lines, c.lines, c.end, out.String())
		}
		if c.json && !json.Valid([]byte(strings.SplitN(out.String(), "\n", 2)[0])) {
			t.Errorf("no JSON: %.100s", out.String())
		}
	}
}

// What a database or a ledger has to say has exit code 1, whatever its kind; Ctrl-C has its
// own.
func TestSyncExitCodes(t *testing.T) {
	detached, cancel := context.WithCancelCause(t.Context())
	cancel(errDetached)
	for _, code := range []task.Code{task.CodeInvalid, task.CodeNotFound, task.CodeBusy, task.CodeStopped} {
		err := &task.Error{Code: code, Message: "no", Hint: "do"}
		if got := exitCode(syncError(t.Context(), err)); got != exitFailure {
			t.Errorf("%s: exit code %d", code, got)
		}
		if got := exitCode(syncError(detached, err)); got != exitInterrupted {
			t.Errorf("%s after Ctrl-C: exit code %d", code, got)
		}
	}
	if err := syncError(detached, nil); err != nil {
		t.Errorf("done before Ctrl-C: %v", err)
	}
}
