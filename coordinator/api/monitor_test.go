package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stint/coordinator"
	"stint/coordinator/api/metrics"
	"stint/coordinator/task"
	"stint/state"
)

// TestMetricsOfRealMaster: what a coordinator counts is in form.
func TestMetricsOfRealMaster(t *testing.T) {
	text := ask(newServer(masterWith(t, 3), Options{}), "GET", "/metrics", "", "").Body.String()
	for _, want := range []string{"stint_tasks{status=\"queued\"} 3\n", "stint_journal_records_per_sync_sum 3\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("of three tasks that came in at once: %s", text)
		}
	}
}

// TestScrapeAsPrometheusDoes sends what Prometheus sends.
func TestScrapeAsPrometheusDoes(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/v1/metrics", nil)
	r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2")
	r.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", "10")
	r.Header.Set("User-Agent", "Prometheus/3.5.0")
	w := httptest.NewRecorder()
	newServer(newFake(t), Options{}).ServeHTTP(w, r)
	if w.Code != 200 || w.Header().Get("Content-Type") != metrics.ContentType {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

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
			if w := ask(s, "GET", "/v1/health", "", ""); w.Code != 200 {
				t.Errorf("health is about the process: %d", w.Code)
			}
		})
	}
}

// TestHealthHasTheNamesOfDocument001: status, and whether HTTP is open.
func TestHealthHasTheNamesOfDocument001(t *testing.T) {
	w := ask(newServer(newFake(t), Options{}), "GET", "/health", "", "")
	var h struct {
		Status     *string `json:"status"`
		APIEnabled *bool   `json:"api_enabled"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &h); err != nil || h.Status == nil || h.APIEnabled == nil {
		t.Errorf("%v: %s", err, w.Body)
	}
}

// BenchmarkScrape is an answer of GET /v1/metrics with n queued tasks, a third of them
// in lanes of their own and a third before their time.
func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{0, 100_000} {
		b.Run(fmt.Sprint("tasks=", n), func(b *testing.B) {
			c := masterWith(b, n)
			s := newServer(c, Options{})
			b.ReportAllocs()
			for b.Loop() {
				if w := ask(s, "GET", "/v1/metrics", "", ""); w.Code != 200 {
					b.Fatal(w.Body)
				}
			}
			b.StopTimer()
			if got := c.Metrics().Tasks[state.Queued]; got != n {
				b.Errorf("%d tasks are queued", got)
			}
		})
	}
}

// noAgent is never started.
type noAgent struct{ task.Agent }

// masterWith returns a master that starts nothing, with n queued tasks.
func masterWith(b testing.TB, n int) *coordinator.Coordinator {
	c, err := coordinator.Open(task.Config{
		StateDir: filepath.Join(b.TempDir(), "state"), Agents: map[string]task.Agent{"demo": noAgent{}}, DefaultAgent: func() string { return "demo" },
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	work := b.TempDir()
	for i := 0; i < n; i += task.MaxBatch / 4 {
		specs := make([]task.TaskSpec, min(task.MaxBatch/4, n-i))
		for k := range specs {
			specs[k] = task.TaskSpec{Prompt: "p", Workspace: work, Parallel: k%3 == 1}
			if k%3 == 2 {
				specs[k].NotBefore = time.Now().Add(time.Hour)
			}
		}
		if _, err := c.SubmitAll(b.Context(), specs); err != nil {
			b.Fatal(err)
		}
	}
	return c
}
