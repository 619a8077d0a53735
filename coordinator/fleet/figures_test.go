package fleet

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"stint/coordinator/task"
)

// A litellm answers as LiteLLM does about virtual keys.
type litellm struct {
	*gateway
	t *testing.T

	mu     sync.Mutex
	spend  map[string]float64 // by the reference of a key
	budget any
	answer string // in place of all others
}

func newLiteLLM(t *testing.T) *litellm {
	l := &litellm{gateway: newGateway(t), t: t, spend: map[string]float64{}, budget: 100.0}
	l.set(l.serve)
	return l
}

func (l *litellm) serve(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := r.URL.Query()
	var ref string
	for name := range l.spend {
		if fmt.Sprintf("%x", sha256.Sum256([]byte("sk-"+secret+"-"+name))) == q.Get("api_key")+q.Get("key") {
			ref = name
		}
	}
	switch {
	case l.answer != "":
		_, _ = w.Write([]byte(l.answer)) // the client sees what is missing
	case r.Header.Get("Authorization") != "Bearer sk-"+secret+"-admin":
		w.WriteHeader(http.StatusUnauthorized)
	case ref == "":
		w.WriteHeader(http.StatusNotFound)
	case r.URL.Path == "/key/info":
		l.write(w, map[string]any{"key": q.Get("key"), "info": map[string]any{"key_name": "sk-...abcd", "spend": l.spend[ref], "max_budget": l.budget, "models": []string{}}})
	case r.URL.Path == "/user/daily/activity" && q.Get("start_date") != "" && q.Get("end_date") != "":
		var list []any
		for _, day := range []string{q.Get("end_date"), q.Get("start_date")} {
			list = append(list, map[string]any{"date": day, "metrics": map[string]any{
				"spend": l.spend[ref], "prompt_tokens": 100, "completion_tokens": 23, "total_tokens": 123, "api_requests": 4, "successful_requests": 4,
			}, "breakdown": map[string]any{}})
		}
		l.write(w, map[string]any{"results": list, "metadata": map[string]any{"page": 1, "total_pages": 1, "has_more": false}})
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (l *litellm) write(w http.ResponseWriter, v any) {
	if err := json.NewEncoder(w).Encode(v); err != nil {
		l.t.Error(err)
	}
}

func (l *litellm) change(f func()) { l.mu.Lock(); defer l.mu.Unlock(); f() }

// newKeys returns a world of two instances with keys, and one without.
func newKeys(t *testing.T) (*world, *litellm) {
	l := newLiteLLM(t)
	l.spend["ka"], l.spend["kb"] = 1.25, 2
	in := func(id, ref string) Instance {
		return Instance{ID: id, Server: "s", ConfigPath: "/c" + id, Service: "a" + id, Gateway: "http://g", KeyRef: ref}
	}
	return newWorld(t, func(o *Options) { o.LiteLLM.URL = l.URL + "/" }, in("a", "ka"), in("b", "kb"), in("c", "")), l
}

func TestUsage(t *testing.T) {
	t.Parallel()
	w, l := newKeys(t)
	w.well("token_usage_sync", "read 2 instances, 4 days have changed")
	first, err := os.ReadFile(filepath.Join(w.dir, usageName))
	must(t, err)
	w.pass(time.Minute)
	w.well("token_usage_sync", "read 2 instances, 0 days have changed")
	if again, err := os.ReadFile(filepath.Join(w.dir, usageName)); err != nil || string(again) != string(first) {
		t.Errorf("%v: %s, not %s", err, again, first)
	}
	l.change(func() { l.spend["ka"] = 3 })
	w.pass(24 * time.Hour)
	w.well("token_usage_sync", "read 2 instances, 3 days have changed") // yesterday of one, and today
	list, err := w.Usage("a", "")
	must(t, err)
	var got []string
	for _, u := range list {
		got = append(got, fmt.Sprint(u.Instance, " ", u.Date, " ", u.Requests, " ", u.Tokens, " ", u.Cost))
	}
	if want := []string{"a 2026-11-28 4 123 1.25", "a 2026-11-29 4 123 3", "a 2026-11-30 4 123 3"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}

	if list, err := w.Usage("", "2026-11-30"); err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	was, _ := os.ReadFile(filepath.Join(w.dir, usageName)) // it was read above
	for answer, want := range map[string]string{
		`{"results": [{"date": "2026-`: "GET /user/daily/activity cannot be read: unexpected end", `{"results": [{"date": "today", "metrics": {}}]}`: "a day without a date",
		`{"results": [{"date": "2026-11-30"}]}`: "without figures", `[]`: "cannot be read", `{"error": "no"}`: "says nothing of days",
	} {
		l.change(func() { l.answer = answer })
		w.fails("token_usage_sync", "2 of 2 failed: a: ", want)
	}
	l.change(func() { l.answer, l.spend = "", map[string]float64{"kb": 9} }) // that of the other is gone
	w.fails("token_usage_sync", "1 of 2 failed: a: LiteLLM answered 404 to GET /user/daily/activity")
	if b, err := w.Usage("b", ""); err != nil || b[len(b)-1].Cost != 9 {
		t.Errorf("%+v, %v", b, err)
	}
	l.says(500, secret)
	w.fails("token_usage_sync", "LiteLLM answered 500")
	l.set(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	w.client.Timeout = 100 * time.Millisecond
	w.fails("token_usage_sync", "does not answer")
	l.Close()
	w.fails("token_usage_sync", "connection refused")
	w.opts.Secret = func(string) (string, error) { return "", errors.New("no such file") }
	w.fails("token_usage_sync", "a: no such file")
	if now, _ := os.ReadFile(filepath.Join(w.dir, usageName)); strings.Count(string(now), "\n") != strings.Count(string(was), "\n") {
		t.Errorf("%s", now)
	}
	w.opts.LiteLLM.URL = ""
	w.well("token_usage_sync", "read 0 instances, 0 days have changed")
}

func TestBalances(t *testing.T) {
	t.Parallel()
	w, l := newKeys(t)
	left := func(dollars float64) { l.change(func() { l.spend["ka"] = 100 - dollars }) }
	for _, c := range []struct {
		left float64
		told int
	}{{50, 0}, {10, 0}, {9.99, 1}, {5, 1}, {-1, 1}, {30, 1}, {8, 2}, {7, 2}} {
		left(c.left)
		if w.well("key_balance_alert", "read 2 keys"); len(w.told) != c.told {
			t.Errorf("with $%v: %q", c.left, w.told)
		}
		w.Fleet = New(w.room, w.due, w.opts) // a restart changes nothing
	}
	if want := "key-balance a: the key of instance a has $9.99 left"; w.told[0] != want {
		t.Errorf("%q, not %q", w.told[0], want)
	}
	for answer, want := range map[string]string{`{"info": {"spend": 1`: "GET /key/info cannot be read: unexpected end", `{}`: "says nothing about the key", `{"info": {"spend": "much"}}`: "cannot be read"} {
		l.change(func() { l.answer = answer })
		w.fails("key_balance_alert", "2 of 2 failed: a: ", want)
	}
	l.change(func() { l.answer, l.budget = "", nil }) // without a bound nothing can be used up
	if w.well("key_balance_alert", "read 2 keys"); len(w.told) != 2 {
		t.Errorf("%q", w.told)
	}
	l.says(500, "")
	w.fails("key_balance_alert", "LiteLLM answered 500 to GET /key/info")
	w.opts.Secret = func(ref string) (string, error) { return "", nil }
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	h, down, short := newHost(t), newHost(t), newHost(t)
	must(t, down.ln.Close())
	short.set("nodisk")
	w := newWorld(t, func(o *Options) {
		o.Servers, o.Keep = []Server{{h.name, h.name}, {down.name, down.name}, {short.name, short.name}}, 48*time.Hour
	})
	w.fails("server_metrics", "2 of 3 failed", down.name+": server "+down.name+" cannot be reached: ", short.name+": the server has printed 5 lines")
	list, err := w.Metrics(h.name, 10)
	if must(t, err); len(list) != 1 || list[0].MemTotal < 100 || list[0].MemUsed <= 0 || list[0].DiskTotal <= 0 || list[0].CPU < 0 || list[0].CPU > 100 || !list[0].SampledAt.Equal(start) {
		t.Errorf("%+v", list)
	}
	for range 3 {
		w.pass(36 * time.Hour)
		w.fails("server_metrics")
	}
	if list, err = w.Metrics(h.name, 10); err != nil || len(list) != 2 || !list[1].SampledAt.Equal(w.clock()) {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := w.MetricsSince(w.clock().Add(-time.Hour)); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := w.Metrics("none", 1); !errors.Is(err, &task.Error{Code: task.CodeNotFound}) {
		t.Error(err)
	}
}

const sampled = `0.42 0.30 0.20 1/200 4711
cpu  100 0 100 700 100 0 0 0 0 0
cpu  150 0 150 850 150 0 0 0 0 0
MemTotal:        8388608 kB
MemAvailable:    6291456 kB
/dev/sda1 83886080 20971520 60000000 26% /
`

func TestParseSample(t *testing.T) {
	t.Parallel()
	want := task.ServerMetric{CPU: 33.3, MemUsed: 2048, MemTotal: 8192, DiskUsed: 20, DiskTotal: 80, Load: 0.42}
	if got, err := parseSample(sampled); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	huge, err := parseSample(strings.NewReplacer("0.42", "1e-320", "83886080", "9e14", "20971520", "9e14", "8388608", "9e14", "6291456", "0").Replace(sampled))
	if err != nil || huge.Load != 0 || huge.MemUsed != math.MaxInt32 || huge.MemTotal != math.MaxInt32 || huge.DiskUsed > math.MaxFloat32 {
		t.Errorf("%+v, %v", huge, err)
	}
	for _, bad := range []string{"", sampled[:100], strings.Replace(sampled, "0.42", "x", 1), strings.Replace(sampled, "8388608", "NaN", 1), strings.Replace(sampled, "20971520", "1e999", 1), sampled + "more\n"} {
		if got, err := parseSample(bad); err == nil {
			t.Errorf("%q is %+v", bad, got)
		}
	}
}

func FuzzParseSample(f *testing.F) {
	for _, seed := range []string{sampled, "", strings.Repeat("\n", 5), strings.ReplaceAll(sampled, "0", "-1"), strings.ReplaceAll(sampled, "1", "NaN"), strings.ReplaceAll(sampled, "1", "1e308")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseSample(text)
		if err != nil {
			return
		}
		if _, err := json.Marshal(m); err != nil || m.CPU < 0 || m.CPU > 100 || m.MemUsed < 0 || m.MemUsed > m.MemTotal || m.DiskUsed < 0 || math.IsNaN(m.Load) {
			t.Errorf("%+v, %v", m, err)
		}
	})
}
