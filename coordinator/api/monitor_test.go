package api

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"stint/coordinator"
	"stint/coordinator/api/metrics"
	"stint/coordinator/task"
)

// TestReady: 200 while tasks are taken in, also while none is started, else 503 with the
// code of the reason.
func TestReady(t *testing.T) {
	for _, tt := range []struct {
		name   string
		err    error
		paused string
		status int
		want   string
	}{
		{"takes tasks in", nil, "", 200, `{"ready":true,"paused":false}`},
		{"and starts none", nil, "lunch", 200, `{"ready":true,"paused":true}`},
		{"the disk is full", &task.Error{Code: task.CodeFull, Message: "the disk is full", Hint: "make room"}, "", 503, `"detail":"the disk is full"`},
		{"goes away", &task.Error{Code: task.CodeStopped, Message: "it is going away"}, "lunch", 503, `"code":"stopped"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newFake(t)
			m.err, m.paused = tt.err, tt.paused
			s := newServer(m, Options{})
			for _, path := range []string{"/v1/ready", "/ready"} {
				w := ask(s, "GET", path, "", "")
				if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
					t.Errorf("%s: %d %s", path, w.Code, w.Body)
				}
			}
			if w := ask(s, "GET", "/v1/health", "", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"status":`) || !strings.Contains(w.Body.String(), `"api_enabled":`) {
				t.Errorf("health is about the process: %d %s", w.Code, w.Body)
			}
		})
	}
}

// TestMetricsOfAMaster: what a coordinator counts is in form, for who asks as Prometheus does.
func TestMetricsOfAMaster(t *testing.T) {
	c := openMaster(t, filepath.Join(t.TempDir(), "state"))
	if _, err := c.SubmitAll(t.Context(), slices.Repeat([]task.TaskSpec{{Prompt: "p", Workspace: t.TempDir()}}, 3)); err != nil {
		t.Fatal(err)
	}
	w := ask(newServer(c, Options{}), "GET", "/metrics", "", "", "Accept: application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2")
	if w.Code != 200 || w.Header().Get("Content-Type") != metrics.ContentType {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	for _, want := range []string{"stint_tasks{status=\"queued\"} 3\n", "stint_journal_records_per_sync_sum 3\n"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("of three tasks that came in at once: %s", w.Body)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// idleAgent is an agent that is never asked to run.
type idleAgent struct{ task.Agent }

// openMaster opens a coordinator that starts nothing.
func openMaster(t testing.TB, dir string) *coordinator.Coordinator {
	t.Helper()
	c, err := coordinator.Open(task.Config{StateDir: dir, Agents: map[string]task.Agent{"demo": idleAgent{}}, DefaultAgent: func() string { return "demo" }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
