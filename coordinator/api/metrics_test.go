package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stint/coordinator"
	"stint/state"
)

// someMetrics are metrics of a master that has done something of everything.
func someMetrics() coordinator.Metrics {
	h := coordinator.NewHistogram([]float64{0.001, 0.01})
	for _, v := range []float64{0.0005, 0.001, 0.002, 3} {
		h.Observe(v)
	}
	return coordinator.Metrics{
		Start: time.Unix(1_795_000_000, 5e8), Version: `1.2 "x"`,
		Tasks: map[state.Status]int{state.Queued: 100_000, state.Running: 3, state.Done: 7}, Held: 2, OldestWait: 90 * time.Second,
		MaxWorkers: 4, MaxQueued: 200_000, Paused: true, Findings: 1, JournalSize: 12_345_678,
		Mirror:   &coordinator.MirrorStatus{Target: "x", State: coordinator.MirrorFollowing, Seq: 9, LagRecords: 4, LagSeconds: 1.5, Rows: 100, Failures: 2, LastError: "y"},
		Accounts: []coordinator.AccountMetrics{{Name: "claude", Cooling: true}, {Name: "codex", Held: true}},
		Counted: coordinator.Counted{
			Added:      12,
			Outcomes:   map[coordinator.Ending]uint64{{Status: state.Done}: 7, {Status: state.Failed, Reason: "timeout"}: 2, {Status: state.Failed, Reason: "exit"}: 1},
			Retries:    map[coordinator.Retry]uint64{coordinator.RetryAttempt: 4},
			RateLimits: map[string]uint64{"codex": 3, "claude": 1},
			Usage: map[coordinator.Spender]state.Usage{
				{Agent: "codex", Model: "o9\n"}: {InputTokens: 1000, CachedInputTokens: 400, OutputTokens: 50, ReasoningTokens: 5, CostUSD: 0.25},
				{Agent: "claude"}:               {InputTokens: 1},
			},
			Commits: h, Sync: h, Append: h, Failures: 1,
		},
	}
}

// TestExpositionIsAsBefore pins names, labels and helps, which dashboards rest on.
func TestExpositionIsAsBefore(t *testing.T) {
	m := newFake(t)
	m.metrics = someMetrics()
	s := NewServer(m, Options{Now: func() time.Time { return time.Unix(0, 0) }})
	for _, path := range []string{"/v1/health", "/v1/tasks/none", "/made/up", "/health"} {
		ask(s, "GET", path, "", "")
	}
	ask(s, "POST", "/v1/tasks", "text/plain", "x")
	s.traffic.refuse(http.StatusUnauthorized)
	s.traffic.cut()
	defer s.traffic.open("events")()
	w := ask(s, "GET", "/v1/metrics", "", "")
	text := w.Body.String()
	mustParse(t, text)
	if got := w.Header().Get("Content-Type"); w.Code != 200 || got != expositionType {
		t.Errorf("%d %s", w.Code, got)
	}
	got, _, _ := strings.Cut(text, "# HELP process_start_time_seconds") // what follows differs from machine to machine
	got = strings.ReplaceAll(got, runtime.Version(), "goX")
	golden := filepath.Join("testdata", "metrics.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); go test ./coordinator/api -run AsBefore -update, if this is meant:\n%s", golden, diff)
	}
}

// TestProcessMetrics: the figures of the process are there and can be true.
func TestProcessMetrics(t *testing.T) {
	m := newFake(t)
	m.metrics = someMetrics()
	values := mustParse(t, ask(NewServer(m, Options{}), "GET", "/v1/metrics", "", "").Body.String())
	for name, least := range map[string]float64{
		"process_start_time_seconds": 1_795_000_000.5, "process_cpu_seconds_total": 0.000_001, "process_open_fds": 3, "process_max_fds": 16,
		"go_goroutines": 2, "go_memstats_heap_alloc_bytes": 100_000, "go_memstats_sys_bytes": 1_000_000, "go_memstats_alloc_bytes_total": 100_000,
	} {
		if got, ok := values[name]; !ok || got < least {
			t.Errorf("%s is %g, %v; at least %g", name, got, ok, least)
		}
	}
	if resident, ok := values["process_resident_memory_bytes"]; runtime.GOOS == "linux" && (!ok || resident < 1<<20 || resident > values["process_virtual_memory_bytes"]) {
		t.Errorf("resident memory: %g", resident)
	}
}

// TestMetricsOfACopy: whether its database can be used, and nothing where there is no copy.
func TestMetricsOfACopy(t *testing.T) {
	m := newFake(t)
	scrape := func() (map[string]float64, string) {
		text := ask(NewServer(m, Options{}), "GET", "/v1/metrics", "", "").Body.String()
		return mustParse(t, text), text
	}
	for state, up := range map[coordinator.MirrorState]float64{
		coordinator.MirrorConnecting: 0, coordinator.MirrorFailing: 0, coordinator.MirrorRebuilding: 1, coordinator.MirrorFollowing: 1,
	} {
		m.metrics.Mirror = &coordinator.MirrorStatus{State: state}
		if values, _ := scrape(); values["stint_postgres_up"] != up {
			t.Errorf("up is %g while it is %s", values["stint_postgres_up"], state)
		}
	}
	m.metrics.Mirror = nil
	if _, text := scrape(); strings.Contains(text, "stint_postgres") {
		t.Error("there are metrics of a copy that nobody wants")
	}
}

// TestMetricsOfRealMaster: what a coordinator counts is in form.
func TestMetricsOfRealMaster(t *testing.T) {
	values := mustParse(t, ask(NewServer(masterWith(t, 3), Options{}), "GET", "/metrics", "", "").Body.String())
	if values[`stint_tasks{status="queued"}`] != 3 || values["stint_journal_records_per_sync_sum"] != 3 || values["stint_journal_size_bytes"] == 0 {
		t.Errorf("of three tasks that came in at once: %v", values)
	}
}

// TestScrapeAsPrometheusDoes sends what Prometheus sends.
func TestScrapeAsPrometheusDoes(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/v1/metrics", nil)
	r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2")
	r.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", "10")
	r.Header.Set("User-Agent", "Prometheus/3.5.0")
	w := httptest.NewRecorder()
	NewServer(newFake(t), Options{}).ServeHTTP(w, r)
	if w.Code != 200 || w.Header().Get("Content-Type") != expositionType {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	mustParse(t, w.Body.String())
}

// TestRequestsAreCounted: by listener, route and class, on both listeners, with what is
// refused at the door, and never by a path that somebody made up.
func TestRequestsAreCounted(t *testing.T) {
	m := newFake(t)
	m.add(state.Task{ID: "a", Status: state.Done})
	s := serveTCP(t, m, Options{})
	do := func(method, path, body string, headers ...string) { s.do(t, method, path, body, headers...) }
	for range 3 {
		do("GET", "/v1/tasks/a", "", s.bearer())
	}
	do("GET", "/v1/tasks/none", "", s.bearer())
	do("GET", "/tasks/a", "", s.bearer())
	do("POST", "/v1/tasks", `{"prompt":"x"}`, s.bearer())
	do("POST", "/v1/tasks", `{`, s.bearer())
	do("GET", "/v1/made-up-1", "", s.bearer())
	do("GET", "/v1/made-up-2", "", s.bearer())
	do("GET", "/v1/health", "")
	do("GET", "/v1/health", "", "Authorization: Bearer x")
	do("GET", "/v1/health", "", s.bearer(), "Origin: http://evil.example")
	ask(s.api, "GET", "/v1/tasks/a", "", "")
	values := mustParse(t, ask(s.api, "GET", "/v1/metrics", "", "").Body.String())
	want := map[string]float64{
		`stint_http_requests_total{listener="tcp",route="GET /v1/tasks/{id}",status="2xx"}`:  3,
		`stint_http_requests_total{listener="tcp",route="GET /v1/tasks/{id}",status="4xx"}`:  1,
		`stint_http_requests_total{listener="tcp",route="GET /tasks/{id}",status="2xx"}`:     1,
		`stint_http_requests_total{listener="tcp",route="POST /v1/tasks",status="2xx"}`:      1,
		`stint_http_requests_total{listener="tcp",route="POST /v1/tasks",status="4xx"}`:      1,
		`stint_http_requests_total{listener="tcp",route="none",status="4xx"}`:                2,
		`stint_http_requests_total{listener="unix",route="GET /v1/tasks/{id}",status="2xx"}`: 1,
		`stint_http_refused_total{cause="token"}`:                                            2,
		`stint_http_refused_total{cause="origin"}`:                                           1,
	}
	got := map[string]float64{}
	for name, v := range values {
		if strings.HasPrefix(name, "stint_http_re") && strings.Contains(name, "_total") {
			got[name] = v
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if n := values[`stint_http_request_seconds_count{listener="tcp",route="GET /v1/tasks/{id}"}`]; n != 4 {
		t.Errorf("%g times of a route that was asked 4 times", n)
	}
}

// TestStreamsAreCounted: those that are read, and those whose readers were too slow.
func TestStreamsAreCounted(t *testing.T) {
	m := newFake(t)
	s := serve(t, m, Options{})
	metrics := func() map[string]float64 {
		var text []byte
		if err := s.client.call(t.Context(), http.MethodGet, "/v1/metrics", nil, &text); err != nil {
			t.Fatal(err)
		}
		return mustParse(t, string(text))
	}
	done := make(chan error, 1)
	go func() { done <- s.client.Events(context.Background(), func(coordinator.Change) error { return nil }) }()
	eventually(t, "a subscriber", func() bool { return m.subscribers() == 1 })
	if n := metrics()[`stint_streams{kind="events"}`]; n != 1 {
		t.Errorf("%g readers", n)
	}
	m.dropSubscribers()
	if err := <-done; !errors.Is(err, ErrStreamEnded) {
		t.Error(err)
	}
	eventually(t, "no reader", func() bool { return metrics()[`stint_streams{kind="events"}`] == 0 })
	if n := metrics()["stint_streams_cut_off_total"]; n != 1 {
		t.Errorf("%g readers were cut off", n)
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
		{"the disk is full", &coordinator.Error{Code: coordinator.CodeFull, Message: "the disk is full", Hint: "make room"}, "", 503, `"detail":"the disk is full"`},
		{"goes away", &coordinator.Error{Code: coordinator.CodeStopped, Message: "it is going away"}, "lunch", 503, `"code":"stopped"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newFake(t)
			m.err, m.paused = tt.err, tt.paused
			s := NewServer(m, Options{})
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
	w := ask(NewServer(newFake(t), Options{}), "GET", "/health", "", "")
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
			s := NewServer(c, Options{})
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
type noAgent struct{ coordinator.Agent }

// masterWith gives a master that starts nothing, with n queued tasks.
func masterWith(b testing.TB, n int) *coordinator.Coordinator {
	c, err := coordinator.Open(coordinator.Config{
		StateDir: filepath.Join(b.TempDir(), "state"), Agents: map[string]coordinator.Agent{"demo": noAgent{}}, DefaultAgent: func() string { return "demo" },
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
	for i := 0; i < n; i += coordinator.MaxBatch / 4 {
		specs := make([]coordinator.TaskSpec, min(coordinator.MaxBatch/4, n-i))
		for k := range specs {
			specs[k] = coordinator.TaskSpec{Prompt: "p", Workspace: work, Parallel: k%3 == 1}
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
