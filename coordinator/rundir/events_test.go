package rundir

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/coordinator/task"
)

// The log of a run is bounded, says so at its end, and each of its lines is whole.
func TestEventLogIsBounded(t *testing.T) {
	dir := t.TempDir()
	l, now := NewEventLog(dir, "a task"), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	long := strings.Repeat("é", 1<<20)
	for range 700 {
		l.Add(task.LogEvent{Time: now, Kind: task.LogMessage, Text: long}, "")
		l.Add(task.LogEvent{Time: now, Kind: task.LogCommand, ID: "x", State: task.LogStarted, Output: long}, "")
	}
	if l.Current().State != task.LogStarted {
		t.Errorf("%+v", l.Current())
	}
	l.Close(now)
	data, err := os.ReadFile(filepath.Join(dir, EventsName))
	if err != nil || len(data) > maxEvents+128<<10 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	var e task.LogEvent
	for line := range bytes.Lines(data) {
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
	}
	if e.Kind != task.LogWarning || !strings.Contains(e.Text, "full") {
		t.Errorf("the last event is %+v", e)
	}
}

// What an agent has put in the place of the log is not written to, and nothing else is lost.
func TestEventLogFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(dir, EventsName)); err != nil {
		t.Fatal(err)
	}
	l := NewEventLog(dir, "a task")
	l.Add(task.LogEvent{Kind: task.LogMessage, Text: "x"}, "")
	l.Close(time.Time{})
	if data, err := os.ReadFile(other); err != nil || len(data) > 0 || l.Current().Text != "x" {
		t.Errorf("%q, %v, %+v", data, err, l.Current())
	}
}

// TestReadFirst: the first event of a run says what is needed of it later, also where an earlier version has said it in a
// file of its own, no event came, or the run writes what it likes.
func TestReadFirst(t *testing.T) {
	dir := t.TempDir()
	l := NewEventLog(dir, "a task")
	l.Add(task.LogEvent{Kind: task.LogRun, Env: []string{"HOME", "PATH"}}, "")
	l.Add(task.LogEvent{Kind: task.LogMessage, Text: "x"}, "")
	l.Close(time.Time{})
	if e := ReadFirst(dir); e.Task != "a task" || len(e.Env) != 2 || e.Kind != task.LogRun {
		t.Errorf("%+v", e)
	}
	for _, files := range []map[string]string{
		{"run.json": `{"taskId":"old","env":["A"]}`},
		{"run.json": `{"taskId":"old","env":["A"]}`, "lock": "12 34\n"},
		{"lock": "{\"taskId\":\"old\",\"env\":[\"A\"]}\n12 34\n"},
		{"run.json": `{"taskId":"old","env":["A"]}`, EventsName: `{"kind":"run"}` + "\n"},
		{"run.json": `{"taskId":"old","env":["A"]}`, EventsName: "\x00{{"},
	} {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if e := ReadFirst(dir); e.Task != "old" || len(e.Env) != 1 {
			t.Errorf("%v: %+v", files, e)
		}
	}
	if e := ReadFirst(t.TempDir()); e.Task != "" {
		t.Errorf("of nothing: %+v", e)
	}
}
